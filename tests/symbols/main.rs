//! A program with functions of libc's names of its own: `gnu_get_libc_version` and `pthread_key_create`, `malloc` and its kin,
//! `pthread_create`. Each passes its call on to libc's, unless the test that it is for says otherwise.

#![cfg(target_env = "gnu")]

#[path = "../support/checking_allocator.rs"]
mod checking_allocator;
#[path = "../common/mod.rs"]
mod common;

mod libc_versions;
mod malloc;
mod pthread_create;
