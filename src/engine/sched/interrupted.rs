//! System calls that a preemption signal cuts short.
//!
//! The monitor does not signal a thread that is blocked, but a thread can enter a call while the
//! signal is under way, or be copying in one that will block later. Some calls then fail with
//! EINTR, or return with a part of the requested transfer, for no reason that the program knows of.
//! If libc made the call, the signal handler mends that:
//!
//! | the call | what is done |
//! |---|---|
//! | has failed with EINTR | it is made again, as if the signal had come before |
//! | has written, to a pipe or a stream, or received with MSG_WAITALL, a part | the thread goes on with the rest ([`go_on`]), and sees one result |
//! | anything else | nothing |
//!
//! A program with handlers of its own is left alone: it copes with both results, and may wait for
//! the EINTR that its own signal caused.
//!
//! *The lost value.* The result lies in the register of another value, which is needed to make the call
//! again, and to go on with it: on x86-64 that of the call's number, on aarch64 that of its first
//! argument. Where that can be found:
//!
//! | libc | x86-64: the number | aarch64: the first argument |
//! |---|---|---|
//! | up to glibc 2.40 | in an instruction before the call, `mov eax, number` or `xor eax, eax` | in the register that an instruction before the call has moved it from |
//! | since then: calls that are cancellation points are made in one place | on the stack, where the callers of that place pass it | on the stack, where our functions with libc's names keep it (`arch`, `kept`) |
//!
//! The position on the stack is [`learn`]ed at start, from a few calls of known numbers that are
//! interrupted on purpose; these are then made again, to see that it is right. Left alone is
//! - a call from elsewhere: a program's own assembly (threads that were seen to make such calls are hardly signalled:
//!   `monitor/strays`), and libc's `syscall`. (With the feature `unmodified` ours
//!   has its place, and makes a call that fails with EINTR again: [`mended_call`].)
//! - a call whose lost value is not found: on aarch64 with glibc 2.41 or newer a call of that one place that does
//!   not come by one of our functions (from libc itself, or without the feature `unmodified`), or is not in the
//!   list of `kept`. It fails with EINTR, or does a part.
//!
//! *The price.* A connection may break while a thread goes on with the rest: that part takes the
//! error, and the next call finds the connection closed. (If it is broken before, the rest is
//! left.) Descriptors with a time-out of their own are left alone. A call under way keeps its file.
//! A thread that goes on names the file anew, by its number: if another thread has closed that
//! meanwhile and the number is used again, the rest goes to another file. And between the parts the
//! thread can be preempted, while it holds its caller's locks: stdio's lock on the stream.

use core::mem::{MaybeUninit, size_of};
use core::ptr::null_mut;
use std::sync::Once;

use crate::engine::arch::{self, FinishedCall, Frame, SavedRegisters, Trampoline};
use crate::engine::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use crate::engine::sched::handlers;
use crate::engine::sys::signal::{self, Payload};
use crate::engine::sys::{call, kernel_thread, poll_now};

const EINTR: isize = -libc::EINTR as isize;

/// Whether nearly every call of libc's that a signal cuts short is mended.
pub(crate) const MENDS_NEARLY_ALL: bool = arch::CALLS_LOSE_THEIR_NUMBER;

/// Places where libc makes calls of different numbers.
static PLACES: [Place; 4] = [const { Place::new() }; 4];

/// One of them: the address behind the instruction; and how far above the stack pointer the number
/// lies.
struct Place {
    pc: AtomicUsize,
    number: AtomicUsize,
}

impl Place {
    const fn new() -> Place {
        Place {
            pc: AtomicUsize::new(0),
            number: AtomicUsize::new(0),
        }
    }
}

/// Called in the handler, if the thread was interrupted in libc: mends the call, if it was in one.
/// True: the thread will go on with the rest, and the handler must do nothing else with it now.
///
/// # Safety
/// libc's code is readable, and does not begin with a system call. `top`: the thread's stack reaches
/// so far, and has the space of [`Frame::room_needed`] below the stack pointer.
pub(super) unsafe fn mend(frame: &mut Frame<'_>, top: Option<usize>) -> bool {
    // SAFETY: the caller's promise.
    let call = match unsafe { frame.finished_call() } {
        Some(call) if call.result == EINTR || call.result > 0 => call,
        _ => return false,
    };
    // SAFETY: the caller's promise.
    let kept = || top.and_then(|top| unsafe { frame.kept_argument(top) });
    let lost = call.lost.or_else(|| number_on_stack(frame)).or_else(kept);
    let Some(lost) = lost else {
        return false;
    };
    let number = frame.call_number(lost);
    if call.result == EINTR {
        // An interrupted close has closed: the descriptor may be another's by now.
        if number != libc::SYS_close {
            frame.repeat_call(lost);
        }
        return false;
    }
    let goes_on = top.is_some() && Kind::of(number).is_some();
    if goes_on {
        // SAFETY: there is space.
        unsafe { frame.inject(Trampoline::GoOn(lost)) };
    }
    goes_on
}

/// The number of the call that the thread was interrupted behind, if it was made in one of [`PLACES`].
fn number_on_stack(frame: &Frame<'_>) -> Option<u64> {
    let is_here = |place: &&Place| place.pc.load(Relaxed) == frame.pc();
    let place = PLACES.iter().find(is_here)?;
    let number = (frame.sp() + place.number.load(Relaxed)) as *const u64;
    // SAFETY: at a place, the number was found to lie on the stack.
    Some(unsafe { number.read() })
}

/// Calls that may do a part of a transfer, and the calls that do the rest.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Write,
    WriteVector,
    Send,
    SendMessage,
    Receive,
    ReceiveMessage,
}

impl Kind {
    fn of(number: i64) -> Option<Kind> {
        Some(match number {
            libc::SYS_write => Kind::Write,
            libc::SYS_writev => Kind::WriteVector,
            libc::SYS_sendto => Kind::Send,
            libc::SYS_sendmsg => Kind::SendMessage,
            libc::SYS_recvfrom => Kind::Receive,
            libc::SYS_recvmsg => Kind::ReceiveMessage,
            _ => return None,
        })
    }

    fn receives(self) -> bool {
        matches!(self, Kind::Receive | Kind::ReceiveMessage)
    }
}

/// The transfer that a partly done call was asked for.
struct Transfer {
    kind: Kind,
    descriptor: usize,
    flags: usize,
    /// The buffers, one after the other; a call with one buffer has that one.
    buffers: *const libc::iovec,
    count: usize,
}

/// The destination of a trampoline, on the interrupted stack, preemptible: goes on with a call that
/// was interrupted after it had done a part.
pub(crate) unsafe extern "C" fn go_on(saved: &mut SavedRegisters) {
    let (number, arguments) = saved.call();
    let [descriptor, at, length, flags, ..] = arguments;
    let Some(kind) = Kind::of(number) else { return };
    let single = libc::iovec {
        iov_base: at as *mut libc::c_void,
        iov_len: length,
    };
    let mut transfer = Transfer {
        kind,
        descriptor,
        flags,
        buffers: &single,
        count: 1,
    };
    match kind {
        Kind::Write => transfer.flags = 0,
        Kind::Send | Kind::Receive => {}
        Kind::WriteVector => {
            (transfer.buffers, transfer.count) = (at as *const libc::iovec, length);
            transfer.flags = 0;
        }
        Kind::SendMessage | Kind::ReceiveMessage => {
            // SAFETY: the call has just read it, and belongs to this thread.
            let message = unsafe { &*(at as *const libc::msghdr) };
            (transfer.buffers, transfer.count) = (message.msg_iov, message.msg_iovlen);
            transfer.flags = length;
            if kind.receives() && !message.msg_control.is_null() {
                return; // more of that may come with the rest
            }
        }
    }
    let done = saved.call_result();
    // SAFETY: the call was given these buffers, for as long as it runs.
    while transfer.can_go_on() && unsafe { transfer.one_more(done) } {}
}

impl Transfer {
    /// Whether the rest would have come as well without the signal.
    fn can_go_on(&self) -> bool {
        let wanted = match self.kind.receives() {
            true => self.flags & libc::MSG_WAITALL as usize != 0,
            false => true,
        };
        const SPECIAL: i32 =
            libc::MSG_DONTWAIT | libc::MSG_PEEK | libc::MSG_OOB | libc::MSG_ZEROCOPY;
        wanted && self.flags & SPECIAL as usize == 0 && (self.is_pipe() || self.is_stream())
    }

    fn is_pipe(&self) -> bool {
        let mut about = MaybeUninit::<libc::stat>::uninit();
        let arguments = [self.descriptor, about.as_mut_ptr() as usize];
        // SAFETY: a valid place, written if the call succeeds.
        unsafe {
            call(libc::SYS_fstat, &arguments).is_ok()
                && about.assume_init().st_mode & libc::S_IFMT == libc::S_IFIFO
        }
    }

    /// Whether it is a stream socket, without a time-out, on which no error waits to be seen.
    fn is_stream(&self) -> bool {
        let limit = match self.kind.receives() {
            true => libc::SO_RCVTIMEO,
            false => libc::SO_SNDTIMEO,
        };
        let poll = || poll_now(self.descriptor as i32, 0);
        let polled = std::iter::repeat_with(poll).find(|polled| *polled != Err(libc::EINTR));
        self.option::<i32>(libc::SO_TYPE) == Some(libc::SOCK_STREAM)
            && self.option::<[u64; 2]>(limit) == Some([0; 2])
            && matches!(polled, Some(Ok(events)) if events & libc::POLLERR == 0)
    }

    fn option<T: Copy + Default>(&self, name: i32) -> Option<T> {
        let (mut value, mut length) = (T::default(), size_of::<T>() as u32);
        let (at, long) = (&raw mut value as usize, &raw mut length as usize);
        let arguments = [
            self.descriptor,
            libc::SOL_SOCKET as usize,
            name as usize,
            at,
            long,
        ];
        // SAFETY: valid places, and any bits are a `T` of those above.
        unsafe { call(libc::SYS_getsockopt, &arguments) }
            .is_ok()
            .then_some(value)
    }

    /// Makes one more call, for the bytes after the first `done` ones, to the end of the buffer
    /// that they end in. False: the transfer is complete, or the call moved nothing.
    ///
    /// # Safety
    /// The buffers are valid for the transfer.
    unsafe fn one_more(&self, done: &mut usize) -> bool {
        let mut before = 0;
        for i in 0..self.count {
            // SAFETY: the caller's promise.
            let buffer = unsafe { &*self.buffers.add(i) };
            if *done < before + buffer.iov_len {
                let rest = before + buffer.iov_len - *done;
                let at = buffer.iov_base as usize + (buffer.iov_len - rest);
                // SAFETY: the rest of a valid buffer.
                let moved = unsafe { self.transfer(at, rest) };
                *done += moved.unwrap_or(0);
                return moved.is_some();
            }
            before += buffer.iov_len;
        }
        false
    }

    /// # Safety
    /// The buffer is valid.
    unsafe fn transfer(&self, at: usize, length: usize) -> Option<usize> {
        let (number, flags) = match self.kind {
            Kind::Write | Kind::WriteVector => (libc::SYS_write, 0),
            Kind::Send | Kind::SendMessage => (libc::SYS_sendto, self.flags),
            Kind::Receive | Kind::ReceiveMessage => (libc::SYS_recvfrom, self.flags),
        };
        // SAFETY: the caller's promise.
        match unsafe { mended_call(number, &[self.descriptor, at, length, flags]) } {
            Ok(0) | Err(_) => None,
            Ok(moved) => Some(moved),
        }
    }
}

/// Makes a system call whose number is known; if our signal makes it fail with EINTR, again.
///
/// # Safety
/// As the system call demands.
pub(crate) unsafe fn mended_call(number: i64, arguments: &[usize]) -> Result<usize, i32> {
    loop {
        // SAFETY: the caller's promise.
        match unsafe { call(number, arguments) } {
            Err(libc::EINTR) if number != libc::SYS_close && !handlers::exist() => {}
            answer => return answer,
        }
    }
}

// ---- learning where libc has the number ----

/// The addressee of a signal that was sent to learn something.
pub(super) const TO_LEARN: u32 = u32::MAX;
/// The addressee of a signal whose call is to be mended.
pub(super) const TO_TRY: u32 = u32::MAX - 1;

/// The addressee of the signal that the pupil sends to itself, and the pupil's kernel thread; 0:
/// none.
static LESSON: AtomicU32 = AtomicU32::new(0);
static PUPIL: AtomicU32 = AtomicU32::new(0);

/// The payload of a signal that has none, if the pupil has sent it. Called in the handler.
pub(super) fn lesson() -> Option<Payload> {
    let who = LESSON.load(Relaxed);
    let is_ours = who != 0 && PUPIL.load(Relaxed) == kernel_thread::id() as u32;
    is_ours.then_some(Payload { who, tick: 0 })
}

/// How many words above the stack pointer the handler looks at.
const WORDS: usize = 24;

/// The calls of the thread that learns. Each has an index, so that the thread need not say the
/// call's number: otherwise two places on its stack could hold it.
const POLL: usize = 0;
const SELECT: usize = 1;
const SUSPEND: usize = 2;
const NUMBERS: [i64; 3] = [libc::SYS_ppoll, libc::SYS_pselect6, libc::SYS_rt_sigsuspend];

/// The index of the call that it makes.
static CALLED: AtomicUsize = AtomicUsize::new(0);
/// The handler's finding, if the number is not before the call: the call's address, and a bit for
/// each word that was the number.
static SEEN_PC: AtomicUsize = AtomicUsize::new(0);
static SEEN_WORDS: AtomicUsize = AtomicUsize::new(0);

/// Called in the handler of a signal that [`learn`] has sent.
///
/// # Safety
/// As [`mend`].
pub(super) unsafe fn note(frame: &Frame<'_>) {
    // SAFETY: the caller's promise; `learn` has so much of a stack above its calls.
    unsafe {
        let is_unseen = |call: &FinishedCall| call.result == EINTR && call.lost.is_none();
        if frame.finished_call().is_none_or(|call| !is_unseen(&call)) {
            return;
        }
        let number = NUMBERS[CALLED.load(Relaxed)];
        let is_it = |&i: &usize| *(frame.sp() as *const i64).add(i) == number;
        let words = (0..WORDS).filter(is_it).fold(0, |bits, i| bits | 1 << i);
        SEEN_WORDS.store(words, Relaxed);
    }
    SEEN_PC.store(frame.pc(), Relaxed);
}

/// Finds out, once, where libc has the number of a call: see the file's header. `signal` has our
/// handler.
pub(super) fn learn(signal: i32) {
    if !arch::CALLS_LOSE_THEIR_NUMBER {
        return; // the first argument was kept, or lies nowhere
    }
    static DONE: Once = Once::new();
    DONE.call_once(|| {
        let mask = signal::mask();
        signal::set_mask(mask | signal::bit(signal));
        let pupil = Pupil { signal, mask };
        let has_learnt = pupil
            .look_at_calls()
            .and_then(|has_seen| Ok(has_seen && pupil.are_calls_mended()?));
        signal::set_mask(mask);
        if let Ok(true) = has_learnt {
            return;
        }
        // A place that was not seen to be right is not used: a wrong number would make another
        // call.
        PLACES.iter().for_each(|place| place.pc.store(0, Relaxed));
        // Where no signal can be sent, none of ours interrupts a call.
        if let Ok(false) = has_learnt {
            eprintln!(
                "greenthread: this libc makes system calls in a way that is not known: \
                 calls that block can fail with EINTR when a thread is preempted"
            );
        }
    });
}

/// A thread that has the signal blocked, sends it to itself, and makes calls that let it in: no
/// other thread takes part, and nothing is waited for.
struct Pupil {
    signal: i32,
    mask: signal::Mask,
}

/// The system sends no signal: it refuses the call.
struct NotSent;

impl Pupil {
    fn look_at_calls(&self) -> Result<bool, NotSent> {
        let mut candidates = [!0; PLACES.len()];
        for state in [CANCEL_DISABLE, CANCEL_ENABLE] {
            for called in [POLL, SELECT, SUSPEND] {
                SEEN_PC.store(0, Relaxed);
                self.interrupt(called, TO_LEARN, state)?;
                let pc = SEEN_PC.load(Relaxed);
                if pc == 0 {
                    continue; // it is before the call
                }
                let is_its = |place: &Place| [0, pc].contains(&place.pc.load(Relaxed));
                let Some(i) = PLACES.iter().position(is_its) else {
                    return Ok(false);
                };
                PLACES[i].pc.store(pc, Relaxed);
                candidates[i] &= SEEN_WORDS.load(Relaxed);
            }
        }
        for (place, words) in PLACES.iter().zip(candidates) {
            let number = words.trailing_zeros() as usize * size_of::<usize>();
            place.number.store(number, Relaxed);
            if words == 0 {
                place.pc.store(0, Relaxed);
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn are_calls_mended(&self) -> Result<bool, NotSent> {
        for state in [CANCEL_DISABLE, CANCEL_ENABLE] {
            for called in [POLL, SELECT] {
                if self.interrupt(called, TO_TRY, state)? != 0 {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Makes libc call `called`, with the thread's cancellation in `state`, and lets a signal for
    /// `who` in meanwhile. Returns the call's result.
    fn interrupt(&self, called: usize, who: u32, state: i32) -> Result<i32, NotSent> {
        CALLED.store(called, Relaxed);
        let at_once = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        PUPIL.store(kernel_thread::id() as u32, Relaxed);
        // If it is not sent, `sigsuspend` would not come back. It comes below at the earliest.
        signal::send_to_self(self.signal).map_err(|_| NotSent)?;
        LESSON.store(who, Relaxed);
        let mut old_state = 0;
        // SAFETY: a zeroed set is valid, and begins with the kernel's mask; valid places. The thread's
        // state is put back.
        unsafe {
            let mut set: libc::sigset_t = core::mem::zeroed();
            *(&raw mut set).cast() = self.mask & !signal::bit(self.signal);
            pthread_setcancelstate(state, &mut old_state);
            let result = match called {
                POLL => libc::ppoll(null_mut(), 0, &at_once, &set),
                SELECT => {
                    let none = null_mut();
                    libc::pselect(0, none, none, none, &at_once, &set)
                }
                _ => libc::sigsuspend(&set),
            };
            pthread_setcancelstate(old_state, null_mut());
            LESSON.store(0, Relaxed);
            Ok(result)
        }
    }
}

const CANCEL_ENABLE: i32 = 0;
const CANCEL_DISABLE: i32 = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: i32, old: *mut i32) -> i32;
}
