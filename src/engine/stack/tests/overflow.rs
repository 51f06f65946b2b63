//! The report of an overflow, in children that die of it; and faults that are none.

use super::*;
use crate::engine::stack::overflow::install;
use crate::engine::sys::signal;
use corosensei::stack::{Stack, StackPointer};
use corosensei::{Coroutine, Yielder};
use std::os::unix::process::ExitStatusExt;
use std::sync::LazyLock;

/// A slot as the stack of a coroutine.
struct Own(&'static Slot);

// SAFETY: the slot is this test's, has a guard, and at least `MIN_SIZE` bytes.
unsafe impl Stack for Own {
    fn base(&self) -> StackPointer {
        StackPointer::new((self.0.top() - RESERVE) & !63).unwrap()
    }

    fn limit(&self) -> StackPointer {
        StackPointer::new(self.0.bottom() - GUARD).unwrap()
    }
}

fn recurse(depth: u64) -> u64 {
    let frame = std::hint::black_box([depth; 64]);
    if frame[0] == u64::MAX {
        0
    } else {
        recurse(depth + 1) + frame[1]
    }
}

#[test]
fn an_overflow_names_the_thread_and_aborts() {
    let output = in_child("an_overflow_names_the_thread_and_aborts", || {
        install(|slot| match slot.extra.load(Relaxed) {
            77 => "deep diver",
            _ => "?",
        });
        let slot = acquire(256 << 10).unwrap();
        slot.extra.store(77, Relaxed);
        Coroutine::with_stack(Own(slot), |_: &Yielder<(), ()>, ()| recurse(0)).resume(());
    });
    let Some(output) = output else { return };
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{text}");
    assert!(
        text.contains("\nthread 'deep diver' has overflowed its stack\nstack size: 262144 bytes")
    );
}

#[test]
fn a_long_name_leaves_room_for_the_rest() {
    let output = in_child("a_long_name_leaves_room_for_the_rest", || {
        static NAME: LazyLock<String> = LazyLock::new(|| "long name ".repeat(100));
        LazyLock::force(&NAME);
        install(|_| &NAME);
        write(acquire(MIB).unwrap().bottom() - GUARD, 1);
    });
    let Some(output) = output else { return };
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{text}");
    assert!(text.contains("long n' has overflowed its stack\nstack size: 1048576 bytes ("));
}

/// Faults and signals that are no overflow have the effect that they had before.
fn not_an_overflow(test: &str, before: fn(), fault: fn()) -> Option<std::process::ExitStatus> {
    let output = in_child(test, || {
        before();
        install(|_| "?");
        fault();
    })?;
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!text.contains("overflowed"), "{text}");
    Some(output.status)
}

fn handle(flags: i32, handler: usize) {
    // SAFETY: the handlers of these tests only exit.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        (action.sa_sigaction, action.sa_flags) = (handler, flags);
        assert_eq!(
            libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut()),
            0
        );
    }
}

#[test]
fn another_fault_kills_as_before() {
    // std's own handler is the previous one: it restores the default action and returns.
    let status = not_an_overflow("another_fault_kills_as_before", || {}, || write(8, 1));
    assert!(status.is_none_or(|status| status.signal() == Some(libc::SIGSEGV)));
}

#[test]
fn a_signal_that_was_sent_kills_as_before() {
    let status = not_an_overflow(
        "a_signal_that_was_sent_kills_as_before",
        || handle(0, libc::SIG_DFL),
        || signal::raise(libc::SIGSEGV),
    );
    assert!(status.is_none_or(|status| status.signal() == Some(libc::SIGSEGV)));
}

#[test]
fn an_ignored_signal_stays_ignored() {
    let status = not_an_overflow(
        "an_ignored_signal_stays_ignored",
        || handle(0, libc::SIG_IGN),
        || signal::raise(libc::SIGSEGV),
    );
    assert!(status.is_none_or(|status| status.success()));
}

#[test]
fn the_previous_handler_gets_the_record() {
    extern "C" fn exit(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        // SAFETY: the kernel's record.
        unsafe { libc::_exit((*info).si_addr() as i32) }
    }
    let status = not_an_overflow(
        "the_previous_handler_gets_the_record",
        || handle(libc::SA_SIGINFO, exit as *const () as usize),
        || write(42, 1),
    );
    assert!(status.is_none_or(|status| status.code() == Some(42)));
}

#[test]
fn a_previous_handler_for_one_time_is_called_once() {
    extern "C" fn note(_: i32) {
        crate::engine::sys::print(b"noted");
    }
    let test = "a_previous_handler_for_one_time_is_called_once";
    let before = || handle(libc::SA_RESETHAND, note as *const () as usize);
    let status = not_an_overflow(test, before, || write(8, 1));
    assert!(status.is_none_or(|status| status.signal() == Some(libc::SIGSEGV)));
}
