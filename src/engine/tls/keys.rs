//! The end of a thread's pthread keys (`pthread_setspecific`): their destructors, and the memory of
//! their values.
//!
//! glibc keeps values in blocks of 32: the first lies in the control block, further ones are
//! allocated. It runs the destructors only when a kernel thread ends, in a function that nobody
//! else can call; this is the same for green threads.

use super::layout::layout;
use crate::engine::arch::thread_pointer;
use std::ffi::c_void;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// Whether the thread set a value since the last `clear`. True if that cannot be told.
///
/// # Safety
/// Runs on a green thread.
pub(super) unsafe fn used() -> bool {
    // SAFETY: a byte of the thread's control block.
    layout()
        .keys
        .used
        .is_none_or(|used| unsafe { *thread_pointer().add(used) } != 0)
}

/// Runs the destructor of every key that has a value. True if there was one: it may have set values
/// again.
///
/// # Safety
/// Runs on a green thread, as its last act but for other destructors.
pub(super) unsafe fn run_destructors() -> bool {
    let keys = &layout().keys;
    let mut any = false;
    for block in 0..keys.block_count {
        // SAFETY: the thread's own values, in blocks as the layout describes. A destructor may add
        // blocks, hence the pointer is read anew for each block; it never removes one.
        unsafe {
            let values = *thread_pointer()
                .add(keys.blocks)
                .cast::<*mut u8>()
                .add(block);
            if values.is_null() {
                continue;
            }
            for i in 0..keys.values_per_block {
                let value = values.add(i * keys.value_size);
                let data = value.add(keys.value_data).cast::<*mut c_void>();
                if (*data).is_null() {
                    continue;
                }
                let data = data.replace(std::ptr::null_mut());
                let sequence = *value.add(keys.value_sequence).cast::<usize>();
                let key = keys
                    .table
                    .add((block * keys.values_per_block + i) * keys.key_size);
                // Other threads create and delete keys meanwhile. POSIX leaves it to the program
                // that a key is not deleted while its destructor is due.
                let word = |offset| {
                    AtomicUsize::from_ptr(key.add(offset).cast::<usize>().cast_mut()).load(Relaxed)
                };
                let destructor = word(keys.key_destructor);
                if word(keys.key_sequence) == sequence && destructor != 0 {
                    any = true;
                    let destructor: unsafe extern "C" fn(*mut c_void) =
                        std::mem::transmute(destructor);
                    destructor(data);
                }
            }
        }
    }
    any
}

/// Forgets all values: what destructors set again in the last round leaks, as with pthreads.
///
/// # Safety
/// As `run_destructors`, and nothing of the thread's reads a key after this.
pub(super) unsafe fn clear() {
    let keys = &layout().keys;
    // SAFETY: the thread's own values.
    unsafe {
        let blocks = thread_pointer().add(keys.blocks).cast::<*mut u8>();
        (*blocks).write_bytes(0, keys.values_per_block * keys.value_size);
        for block in 1..keys.block_count {
            let values = blocks.add(block).replace(std::ptr::null_mut());
            if !values.is_null() {
                libc::free(values.cast());
            }
        }
        if let Some(used) = keys.used {
            *thread_pointer().add(used) = 0;
        }
    }
}
