//! The stacks of threads that run on a kernel thread of their own, or are blocked on it.
//!
//! A thread that runs is held by a signal while its stack is read (`sched::sample`). So is one that is blocked in a
//! call which begins anew after a signal. Any other call could fail by the signal: there the system tells the program
//! counter and the stack pointer, and callers' frames may be missing.

use super::unwind::{End, Registers, Unwinder};
use crate::engine::sched::sample::Held;
use crate::engine::sys::kernel_thread::SystemCall;
use crate::engine::sys::observer::{Doing, Observer};
use crate::engine::sys::word;

/// How often a thread is held that has not stood still for as long as its stack was read: the first time takes longest.
const TRIES: usize = 4;

/// Fills `frames` with those of the stack that kernel thread `thread` runs on; with none if they cannot be had. It
/// allocates nothing if there is room.
pub(super) fn frames(
    thread: i32,
    is_green: bool,
    observer: &mut Observer,
    unwinder: &mut Unwinder,
    frames: &mut Vec<usize>,
) -> Option<End> {
    frames.clear();
    let call = match observer.doing(thread) {
        Doing::Call(call) => Some(call),
        Doing::Untold if !is_green => return None,
        _ => None,
    };
    if call.as_ref().is_none_or(SystemCall::begins_anew) {
        for _ in 0..TRIES {
            // `None`: it blocks the signal, or the system does not run it for long.
            let Some(held) = Held::hold(thread, call.is_none()) else {
                break;
            };
            let registers = Registers::of_signal(held.registers());
            let end = unwinder.frames(registers, word::read, &mut |frame| frames.push(frame));
            if held.let_go() {
                return Some(end);
            }
            frames.clear();
        }
    }
    let (pc, sp) = call?.place();
    let registers = Registers::new(pc, sp, 0);
    Some(unwinder.frames(registers, word::read, &mut |frame| frames.push(frame)))
}
