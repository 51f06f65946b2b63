//! The end of a thread's pthread keys (`pthread_setspecific`): their destructors, and the memory of
//! their values.
//!
//! glibc keeps values in blocks of 32: the first lies in the control block, further ones are
//! allocated. It runs the destructors only when a kernel thread ends, in a function that no
//! other code can call; this is the same for green threads.

use super::layout::{Keys, WORD, layout};
use super::words::Words;
use std::ffi::c_void;
use std::sync::atomic::Ordering::Relaxed;

/// Whether the calling thread set a value since the last `clear`. True if that cannot be told.
#[inline]
pub(super) fn used() -> bool {
    let layout = layout();
    let control = layout.sizes.own_control_block();
    let is_set = |used| control.byte(used).load(Relaxed) != 0;
    layout.keys.used.is_none_or(is_set)
}

impl Keys {
    /// The `block`th block of values of the thread with this control block, if it has that many.
    fn values<'a>(&self, control: Words<'a>, block: usize) -> Option<Words<'a>> {
        let start = control.word(self.blocks + block * WORD).load(Relaxed) as *const u8;
        let size = self.values_per_block * self.value_size;
        // SAFETY: where the layout finds such a pointer, glibc has as many values. They are there until
        // `clear`, which is the last to read them.
        (!start.is_null()).then(|| unsafe { Words::new(start, size) })
    }

    /// The destructor of key number `key`, unless that was deleted since `sequence`, or has none.
    ///
    /// Other threads create and delete keys meanwhile. POSIX leaves it to the program that a key is not
    /// deleted while its destructor is due.
    fn destructor(&self, key: usize, sequence: usize) -> Option<usize> {
        let word = |offset| self.table.word(key * self.key_size + offset).load(Relaxed);
        let destructor = word(self.key_destructor);
        (word(self.key_sequence) == sequence && destructor != 0).then_some(destructor)
    }
}

/// Runs the destructor of every key that has a value. True if there was one: it may have set values
/// again.
///
/// # Safety
/// Runs on a green thread, as its last act but for other destructors.
pub(super) unsafe fn run_destructors() -> bool {
    let layout = layout();
    let (keys, control) = (&layout.keys, layout.sizes.own_control_block());
    let mut any = false;
    for block in 0..keys.block_count {
        // A destructor may add blocks, hence the pointer is read anew for each; it never removes one.
        let Some(values) = keys.values(control, block) else {
            continue;
        };
        for i in 0..keys.values_per_block {
            let value = i * keys.value_size;
            let data = values.word(value + keys.value_data);
            if data.load(Relaxed) == 0 {
                continue;
            }
            let sequence = values.word(value + keys.value_sequence).load(Relaxed);
            let (key, data) = (block * keys.values_per_block + i, data.swap(0, Relaxed));
            if let Some(destructor) = keys.destructor(key, sequence) {
                any = true;
                type Destructor = unsafe extern "C" fn(*mut c_void);
                // SAFETY: the key's destructor, called with the key's value, as when a kernel thread
                // ends.
                unsafe {
                    std::mem::transmute::<usize, Destructor>(destructor)(data as *mut c_void)
                };
            }
        }
    }
    any
}

/// Forgets all values: a value that a destructor set again in the last round leaks, as with pthreads.
///
/// # Safety
/// As `run_destructors`, and nothing of the thread's reads a key after this.
pub(super) unsafe fn clear() {
    let layout = layout();
    let (keys, control) = (&layout.keys, layout.sizes.own_control_block());
    for block in 0..keys.block_count {
        let Some(values) = keys.values(control, block) else {
            continue;
        };
        // SAFETY: the thread's own values, which nothing reads any more. The first block is a part of
        // the control block, the others are malloc's.
        unsafe {
            if block == 0 {
                let size = keys.values_per_block * keys.value_size;
                values.start().write_bytes(0, size);
            } else {
                control.word(keys.blocks + block * WORD).store(0, Relaxed);
                libc::free(values.start().cast());
            }
        }
    }
    if let Some(used) = keys.used {
        control.byte(used).store(0, Relaxed);
    }
}
