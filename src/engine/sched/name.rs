//! The name of the calling thread, as C asks for it and sets it: `pthread_setname_np`, `pthread_getname_np`, and
//! `prctl(PR_SET_NAME)`, `prctl(PR_GET_NAME)`. (What else `prctl` does: `changes`.)
//!
//! The system has a name for each kernel thread. A green thread has its own, in its room: the next thread on the kernel
//! thread must not find it there. Until it has set one, it has that which it was spawned with; and if there is none
//! either, it reads its kernel thread's.
//!
//! The system's own files (`/proc/thread-self/comm`) know kernel threads only.

use crate::engine::green::room::SystemName;
use crate::engine::green::{Green, current};
use crate::engine::sys::word::{self, Fault};

/// The answer to a `prctl` that sets or reads the name of a green thread. `None`: it is the kernel's.
pub(crate) fn prctl(option: usize, place: usize) -> Option<Result<usize, i32>> {
    let done = match option as i32 {
        libc::PR_SET_NAME => set(place)?,
        libc::PR_GET_NAME => get(place)?,
        _ => return None,
    };
    Some(done.map(|()| 0).map_err(|Fault| libc::EFAULT))
}

/// The calling thread's name is the text at `text` now. `None`: it is not a green one.
fn set(text: usize) -> Option<Result<(), Fault>> {
    let room = current::owner()?.room()?;
    let mut name = SystemName::default();
    for (number, place) in name.iter_mut().take(15).enumerate() {
        match word::load_byte(text.wrapping_add(number)) {
            Ok(0) => break,
            Ok(byte) => *place = byte,
            Err(fault) => return Some(Err(fault)),
        }
    }
    room.set_own_name(name);
    Some(Ok(()))
}

/// Writes the name of the calling thread to `place`. `None`: it is not a green one, or has none of its own.
fn get(place: usize) -> Option<Result<(), Fault>> {
    let name = current::owner()?.system_name()?;
    let mut bytes = name.into_iter().enumerate();
    Some(bytes.try_for_each(|(number, byte)| word::store_byte(place.wrapping_add(number), byte)))
}

/// Writes the name of `green` to a place of `length` bytes; the answer is that of `pthread_getname_np`. `None`: it has none
/// of its own. It is the caller, or a read section is open.
pub(super) fn tell(green: &Green, place: usize, length: usize) -> Option<i32> {
    let name = green.system_name()?;
    if length < name.len() {
        return Some(libc::ERANGE);
    }
    let mut bytes = name.into_iter().enumerate();
    let told =
        bytes.try_for_each(|(number, byte)| word::store_byte(place.wrapping_add(number), byte));
    Some(if told.is_ok() { 0 } else { libc::EFAULT })
}

#[cfg(answers)]
mod functions {
    use core::ffi::{c_char, c_int};
    use core::mem::transmute;

    use super::*;
    use crate::engine::sched::changes::guard;
    use crate::engine::sched::pthreads::Who;
    use crate::engine::sys::call;
    use crate::engine::sys::real::Real;

    type SetName = unsafe extern "C" fn(libc::pthread_t, *const c_char) -> c_int;
    static SETNAME: Real = Real::new(c"pthread_setname_np");

    #[unsafe(no_mangle)]
    unsafe extern "C" fn pthread_setname_np(thread: libc::pthread_t, name: *const c_char) -> c_int {
        // SAFETY: the caller's arguments: a text, as libc's function has it.
        unsafe {
            match Who::is(thread) {
                Who::Libcs => transmute::<usize, SetName>(SETNAME.address())(thread, name),
                _ if libc::strlen(name) >= size_of::<SystemName>() => libc::ERANGE,
                Who::Other(_) => libc::ENOTSUP,
                Who::Own(_) => match set(name.addr()) {
                    Some(Ok(())) => 0,
                    _ => libc::EFAULT,
                },
            }
        }
    }

    // libc's has any number of arguments, and hands on four after the first.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
        let number = option as usize;
        // SAFETY: the caller's arguments, of the system call that libc's function makes; the thread's own `errno`.
        unsafe {
            let arguments = [number, a, b, c, d];
            let kernels = || {
                guard(libc::SYS_prctl, &arguments, || {
                    call(libc::SYS_prctl, &arguments)
                })
            };
            super::prctl(number, a).unwrap_or_else(kernels).map_or_else(
                |errno| {
                    *libc::__errno_location() = errno;
                    -1
                },
                |answer| answer as c_int,
            )
        }
    }
}
