//! Signals for one green thread, and cancellation by C: what `sched::directed` notes, the thread heeds here.
//!
//! A hooked call is *interruptible* ([`interruptible`]): before it begins, and when it has ended, the thread handles the signals that
//! have come for it alone. If one of them has cut the call short, it fails with EINTR; or it is made again, if the handlers have
//! SA_RESTART and the kernel would make such a call again, too ([`Interruption`]).
//!
//! The same calls are cancellation points: libc's flag, in the control block, says that the thread is cancelled, and
//! `pthread_testcancel` unwinds it from here. Locks are neither. A wait for a condition holds the mutex again by then.
//!
//! | call | for a green thread |
//! |---|---|
//! | `pthread_kill`, `pthread_sigqueue` | noted; a value is not kept |
//! | `sigwait`, `sigwaitinfo`, `sigtimedwait` | take notes, too. The wait itself blocks the kernel thread, which gets the signal |
//! | `sigpending` | has the notes |
//! | `pthread_sigmask` and its kin | what they unblock is handled at once (`libc::signals`) |
//! | `pthread_cancel` | libc's, which sets the flag; and noted. A green thread that C has not made has no cleanup by C: ENOTSUP |
//! | `pthread_setcancelstate` | libc's; a thread that is cancelled already, and lets itself be cancelled again, looks |
//! | asynchronous cancellation | acts at the next of these calls |

use core::ffi::c_int;

use libc::{pthread_t, siginfo_t, sigset_t, timespec};

use super::create::to;
use crate::engine::facade::blocking;
pub(in crate::libc) use crate::engine::hooks::directed::Interruption;
use crate::engine::hooks::directed::{self, CANCEL, LOOK, OWN};
use crate::engine::hooks::signals::{answer_calls, begun, call_as_the_kernel, cancel_here};
use crate::engine::hooks::{Who, pthread};
use crate::libc::descriptor::{can_be_written, value_at};
use crate::libc::poll::for_time;
use crate::libc::{errno, fail, set_errno};
use crate::sys::kernel_thread;
use crate::sys::signal::{Mask, action, bit, sent_here, set_mask};

impl Interruption {
    /// That of a function of libc's.
    pub(in crate::libc) const fn of(name: &str) -> Interruption {
        match name.as_bytes() {
            // Locks, and `sched_yield`, are no cancellation points.
            [b'p', b't', ..] | [b's', b'c', ..] => Interruption::None,
            // They are not made again, by signal(7).
            b"nanosleep" | b"clock_nanosleep" | b"usleep" | b"sleep" | b"poll" | b"ppoll"
            | b"__poll_chk" | b"select" | b"pselect" | b"epoll_wait" | b"epoll_pwait"
            | b"epoll_pwait2" | b"msgrcv" | b"msgsnd" | b"semop" | b"semtimedop" | b"pause"
            | b"sigsuspend" | b"sigwaitinfo" | b"sigtimedwait" => Interruption::Returns,
            _ => Interruption::Restarts,
        }
    }
}

/// Makes a hooked call. The thread may unwind before it, and after.
#[inline]
pub(in crate::libc) fn interruptible<T>(how: Interruption, mut call: impl FnMut() -> T) -> T {
    if how == Interruption::None {
        return call();
    }
    if directed::pending() != 0 {
        heed(!0);
    }
    loop {
        let answer = directed::during(how, &mut call);
        if directed::pending() == 0 || directed::due() == 0 {
            return answer;
        }
        let errno = errno();
        // SAFETY: numbers, or a pointer. A call fails with a number all of whose bits are set.
        let has_failed = unsafe {
            let bytes = (&raw const answer).cast::<u8>();
            let mut bytes = core::slice::from_raw_parts(bytes, size_of::<T>()).iter();
            bytes.all(|&byte| byte == 0xff)
        };
        let is_cut = has_failed && errno == libc::EINTR;
        // A call that has done something is over: the thread is cancelled in the next one.
        let restarts = heed(if is_cut { !0 } else { !OWN });
        set_errno(errno);
        if !is_cut
            || !restarts.unwrap_or(true)
            || how == Interruption::Returns && restarts.is_some()
        {
            return answer;
        }
    }
}

/// Handles those of `signals` that are due for the calling thread. Returns whether all handlers that have run have SA_RESTART; `None`:
/// none has run. With libc's own signals among them the thread may be cancelled here.
#[cold]
pub(in crate::libc) fn heed(signals: Mask) -> Option<bool> {
    unsafe extern "C-unwind" {
        fn pthread_testcancel();
    }
    let before = errno();
    let mut all = None;
    while let Some(number) = directed::take(directed::due() & signals) {
        if bit(number) & OWN != 0 {
            if number == CANCEL {
                cancel_here();
            }
            // SAFETY: it takes nothing.
            unsafe { pthread_testcancel() };
        } else if let Some(restarts) = call_as_the_kernel(number, 0) {
            all = Some(restarts && all != Some(false));
        }
    }
    set_errno(before);
    all
}

/// Handles signals where the thread cannot be cancelled.
pub(in crate::libc) fn handle() {
    heed(!OWN);
}

/// Makes `call`, during which the kernel thread has another mask: a signal that only the thread's own one blocks is handled.
pub(in crate::libc) fn under(mask: Mask, mut call: impl FnMut() -> c_int) -> c_int {
    loop {
        if directed::pending() & !mask & !OWN != 0 {
            let own = set_mask(mask);
            handle();
            set_mask(own);
            return fail(libc::EINTR);
        }
        let before = begun();
        let answer = call();
        let is_cut = answer == -1 && errno() == libc::EINTR && begun() == before;
        if !is_cut || directed::pending() & OWN != 0 {
            return answer;
        }
    }
}

/// Sends the signal, which is one, to a green thread that is not the caller.
pub(in crate::libc) fn send(thread: pthread_t, number: c_int) {
    let ignores = |action: libc::sigaction| match action.sa_sigaction {
        libc::SIG_IGN => true,
        libc::SIG_DFL => matches!(
            number,
            libc::SIGCHLD | libc::SIGURG | libc::SIGWINCH | libc::SIGCONT
        ),
        _ => false,
    };
    match number {
        libc::SIGKILL | libc::SIGSTOP => {
            // SAFETY: numbers.
            _ = unsafe { libc::kill(kernel_thread::process(), number) }
        }
        // A thread that blocks the signal and fetches it would get it. But who ignores a signal seldom does.
        _ if action(number, None).is_ok_and(ignores) => {}
        _ => directed::send(thread as usize, number),
    }
}

/// Waits for one of the signals of `set`: takes a note, or makes `wait`, which returns a signal's number, or -1.
fn await_signal(
    set: *const sigset_t,
    info: *mut siginfo_t,
    mut wait: impl FnMut() -> c_int,
) -> c_int {
    // The first word of libc's set has all signals. If the kernel could not read it, it says so.
    let mask = value_at(set.cast::<Mask>()).unwrap_or(0) & !OWN;
    loop {
        if directed::pending() & mask != 0 && !info.is_null() && !can_be_written(info, 1) {
            return fail(libc::EFAULT);
        }
        if let Some(number) = directed::take(mask) {
            if !info.is_null() {
                // SAFETY: the caller's place.
                unsafe { info.write(sent_here(number)) };
            }
            return number;
        }
        let before = begun();
        let answer = wait();
        let is_called = answer == -1 && errno() == libc::EINTR && begun() == before;
        if !is_called || directed::due() != 0 {
            return answer;
        }
    }
}

hooked! {
    fn sigwait(set: *const sigset_t, signal: *mut c_int) -> c_int {
        let before = errno();
        let nowhere = core::ptr::null_mut();
        // libc's own function waits on when a handler has run.
        let number = loop {
            // SAFETY: the caller's set.
            match await_signal(set, nowhere, || unsafe { blocking(|| sigwaitinfo::real(set, nowhere)) }) {
                -1 if errno() == libc::EINTR => _ = heed(!0),
                number => break number,
            }
        };
        let answer = if number > 0 { 0 } else { errno() };
        set_errno(before);
        if number > 0 {
            // SAFETY: the caller's place.
            unsafe { signal.write(number) };
        }
        answer
    }

    fn sigwaitinfo(set: *const sigset_t, info: *mut siginfo_t) -> c_int where real() {
        await_signal(set, info, || blocking(real))
    }

    fn sigtimedwait(set: *const sigset_t, info: *mut siginfo_t, time: *const timespec) -> c_int
    where real(time) {
        for_time(time, core::ptr::null(), real, |limit| {
            await_signal(set, info, || blocking(|| limit.once()))
        })
    }

    fn sigsuspend(mask: *const sigset_t) -> c_int where real() {
        match value_at(mask.cast::<Mask>()) {
            Some(mask) => under(mask, || blocking(real)),
            None => real(),
        }
    }
}

interposed! {
    fn sigpending(set: *mut sigset_t) -> c_int where real() {
        let answer = real();
        let noted = directed::pending() & !OWN;
        if answer == 0 && noted != 0 {
            // SAFETY: the caller's set, which libc has written.
            unsafe { *set.cast::<Mask>() |= noted };
        }
        answer
    }

    fn pthread_cancel(thread: pthread_t) -> c_int where real() {
        if !pthread::is_ours(thread) {
            return match Who::is(thread).green() {
                Some(_) => libc::ENOTSUP,
                None => real(),
            };
        }
        if pthread::has_ended(thread) {
            return 0;
        }
        // It sets the flag; or it sends its signal to the thread's own number, and finds nobody.
        let is_sent = real() != 0;
        answer_calls();
        directed::send(thread as usize, if is_sent { CANCEL } else { LOOK });
        0
    }

    // libc's flag stays as it is: a thread that computes is not cancelled before its next call.
    fn pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int where real() {
        match directed::set_type(kind) {
            Some(before) if (0..=1).contains(&kind) => {
                to(old)(before);
                if kind != 0 {
                    heed(OWN); // a request that is pending acts
                }
                0
            }
            _ => real(),
        }
    }

    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int where real() {
        const ENABLE: c_int = 0; // pthread.h's PTHREAD_CANCEL_ENABLE
        let answer = real();
        if answer == 0 {
            directed::let_cancel(state == ENABLE);
        }
        answer
    }
}
