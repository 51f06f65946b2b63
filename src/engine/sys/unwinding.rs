//! Functions with libc's names that leave no frame of Rust's below libc's own.
//!
//! A C thread that is cancelled unwinds, and so does a C++ exception in `pthread_once`. In a program with
//! `panic = "abort"` each frame of a Rust function aborts if somebody unwinds through it, whatever its ABI. So such
//! functions are naked, and come in two forms:
//!
//! - [`jump_where`]: a function of Rust's says where to go on, and the arguments go there. It has returned by then.
//! - [`call_around`]: `before` says what to call with the arguments, and a number; `after` gets the number, and the answer,
//!   whose own answer counts. If the call unwinds, `unwound` gets the number. It is called by [`personality`], the
//!   function that an unwinder asks about the frame.

use core::ffi::{c_int, c_void};

pub(crate) use crate::engine::arch::{call_around, jump_where};

/// What a `before` says.
#[repr(C)]
pub(crate) struct Next {
    /// What to call. Null: nothing, and the number is the answer.
    function: *const (),
    number: usize,
}

impl Next {
    pub(crate) fn call(function: *const (), number: usize) -> Next {
        Next { function, number }
    }

    pub(crate) fn answer(answer: c_int) -> Next {
        Next::call(core::ptr::null(), answer as usize)
    }
}

/// From the stack pointer of a frame of [`call_around`]: what its call leaves undone.
#[repr(C)]
struct Frame {
    arguments: [usize; 2],
    unwound: unsafe extern "C" fn(usize),
    number: usize,
}

/// An unwinder asks what is to be done at such a frame: go on; and the second time, what was left undone.
pub(crate) unsafe extern "C" fn personality(
    _version: c_int,
    actions: c_int,
    _class: u64,
    _exception: *mut c_void,
    context: *mut c_void,
) -> c_int {
    unsafe extern "C" {
        fn _Unwind_GetCFA(context: *mut c_void) -> usize;
    }
    // unwind.h
    const CLEANUP_PHASE: c_int = 2;
    const CONTINUE_UNWIND: c_int = 8;
    if actions & CLEANUP_PHASE != 0 {
        // SAFETY: the unwinder's own context, which names the stack pointer at the call. The frame lies there as long as
        // it is unwound.
        unsafe {
            let frame = &*(_Unwind_GetCFA(context) as *const Frame);
            (frame.unwound)(frame.number);
        }
    }
    CONTINUE_UNWIND
}
