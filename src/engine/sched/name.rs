//! The name of a thread, as C asks for it and sets it: by `pthread_setname_np` and `pthread_getname_np`, and by `prctl`.
//!
//! The system has a name for each kernel thread. A green thread has its own, in its stack: the next thread on the kernel
//! thread must not find it there. Until it has set one, it has that which it was spawned with; and if there is none
//! either, it reads its kernel thread's.
//!
//! The system's own files (`/proc/thread-self/comm`) know kernel threads only.

use crate::engine::sched::thread_stack::SystemName;
use crate::engine::sched::{Green, current};
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
pub(super) fn set(text: usize) -> Option<Result<(), Fault>> {
    let stack = current::owner()?.stack()?;
    let mut name = SystemName::default();
    for (number, place) in name.iter_mut().take(15).enumerate() {
        match word::load_byte(text.wrapping_add(number)) {
            Ok(0) => break,
            Ok(byte) => *place = byte,
            Err(fault) => return Some(Err(fault)),
        }
    }
    stack.set_own_name(name);
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
