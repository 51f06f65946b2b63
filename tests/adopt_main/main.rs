//! How a program ends whose threads are std's: alike, whether they are kernel threads or adopted. It has no harness of
//! std's, which would be on its main thread: each program is a case that this program runs again as a child.

#[cfg(target_os = "linux")]
#[path = "../adopt/adopted.rs"]
mod adopted;
#[cfg(target_os = "linux")]
#[path = "../support/checking_allocator.rs"]
mod checking_allocator;
#[cfg(target_os = "linux")]
#[path = "../common/mod.rs"]
mod common;
#[cfg(target_os = "linux")]
mod ends;

fn main() {
    #[cfg(target_os = "linux")]
    ends::main();
}
