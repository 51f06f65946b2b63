//! Preemption by signal: the monitor sends it, the handler decides, the trampoline (`arch`)
//! suspends.
//!
//! The handler runs on the kernel thread's alternate stack, touches no thread-local, and returns at
//! once. It accepts only if all of these conditions hold; else it declines, and the monitor tries
//! again or takes the processor:
//! 1. The payload names this worker and the switch that the monitor saw: a late signal hits no
//!    other thread.
//! 2. The thread is on its green stack (so: this kernel thread is that worker's, in user code),
//!    with space for the saved state, and that state is one that can be saved (`Frame::room_needed`).
//! 3. Preemption is not off.
//! 4. It is in no handler of the program's, which must not move to another kernel thread
//!    (`handlers`). A thread with a mask of its own is preempted as any other: the handler notes that the mask
//!    differs, and it travels with the thread.
//! 5. The instruction is not in libc or the loader, except in leaf functions called from outside: a
//!    thread suspended in libc may hold a lock of libc's that others need soon. The same holds for
//!    the program's own allocator if that is a library. But a thread that is about to wait in a
//!    call that begins anew can be suspended anywhere: it does nothing for others now.
//!
//! *System calls.* The monitor does not signal a thread that is blocked, or in a call that may block
//! (`announce`). But a thread can enter a call while the signal is under way. The system makes most calls again by
//! itself (SA_RESTART). Of the others the hooked ones are made again by us (`unmodified`); the rest fail with EINTR, or
//! do a part, as POSIX allows.
//!
//! *One at a time.* Real-time signals queue, and the user's are limited in number. A thread that
//! blocks all signals while it computes would have one more every 50 µs. So a worker remembers
//! that a signal is on its way (`Worker::expect_signal`), and gets no other until that one has
//! come.
//!
//! *None at all* can be sent while RLIMIT_SIGPENDING is used up. That limit counts the pending
//! signals of all processes of a user, and a real-time signal is not sent without its payload. (An
//! ordinary signal would be sent, but those belong to the program.) None can either where a filter refuses the
//! call. Then the monitor takes processors, the spawner reports it, once, and each look tries again.
//!
//! *The program's signals* for the whole process go to the threads that would take them without us
//! ([`would_take_others`]).
//!
//! Rule 5 saves time; it is not what makes preemption sound: see invariant 1 of `sched`.
//!
//! Rejected: suspending in the handler itself. The kernel would restore the old kernel thread's
//! alternate stack on the new one at `sigreturn`.

use core::ffi::CStr;
use core::ops::Range;
use std::ffi::CString;
use std::io;
use std::sync::OnceLock;

use crate::engine::arch::Frame;
use crate::engine::atomic::{AtomicU64, Ordering};
use crate::engine::inspect::hold;
use crate::engine::sched::{Green, ThreadFlags, Worker, handlers, switch::Bounds, worker};
use crate::engine::sys::kernel_thread::{Doing, Observer, SystemCall};
use crate::engine::sys::signal::{self, Mask, Payload};
use crate::engine::sys::{clock, kernel_thread, libraries, sanitizer};

/// A signal that is declined takes less CPU time than this, in nanoseconds.
pub(super) const HANDLING: u64 = 100_000;

/// The code in which a thread is not preempted, and the exceptions to it.
struct Text {
    /// The code of libc, of the loader, and of the allocator if it is another library.
    libc: Vec<Range<usize>>,
    leaves: Vec<Range<usize>>,
}

static TEXT: OnceLock<Text> = OnceLock::new();

/// Installs the handler. It allocates. Once per signal is enough; more calls do no harm. (Observers hold threads by the
/// signal in a process that preempts nobody, too: the signal is not reserved there.)
pub(crate) fn install(signal: i32) -> io::Result<()> {
    TEXT.get_or_init(|| Text {
        libc: libc_text(),
        leaves: leaf_functions(),
    });
    #[cfg(not(tsan))]
    signal::handle(signal, on_signal)?;
    #[cfg(tsan)]
    signal::handle(signal, screened)?;
    hold::use_signal(signal);
    Ok(())
}

/// Sends the preemption signal to `worker`, for the switch to `green` that it is in. False,
/// without a signal: `green` is blocked in the kernel, or in a call that may block, or the last
/// signal has not come yet. `has_moved`: whether its CPU clock has moved since the last look; it
/// decides where the kernel does not tell. The look was at `now`.
pub(crate) fn send(
    worker: &Worker,
    green: &Green,
    now: u64,
    has_moved: bool,
    observer: &mut Observer,
) -> bool {
    send_if(worker, green, now, |thread| {
        let is_blocked = observer.is_blocked(thread);
        if is_blocked == Some(true) {
            note_own_call(green, &observer.doing(thread));
        }
        !green.says(Green::MAY_BLOCK) && !is_blocked.unwrap_or(!has_moved)
    })
}

/// Notes whether `green`, which is blocked, makes calls by assembly of the program's own: nobody repeats such a call, if
/// a signal cuts it short.
pub(crate) fn note_own_call(green: &Green, doing: &Doing) {
    if let Doing::Call(call) = doing
        && !in_libc(call.program_counter)
        && !green.says(Green::ANNOUNCED | Green::MAY_BLOCK)
    {
        green.calls_itself.store(true, Ordering::Relaxed);
    }
}

/// Sends the signal to a worker whose thread waits in a call that begins anew, if the kernel says so:
/// the handler suspends the thread before that call, and the thread makes the call again when it goes
/// on.
pub(crate) fn evict(worker: &Worker, green: &Green, now: u64, observer: &mut Observer) {
    let begins_anew =
        |thread| matches!(observer.doing(thread), Doing::Call(call) if call.begins_anew());
    send_if(worker, green, now, begins_anew);
}

fn send_if(worker: &Worker, green: &Green, now: u64, is_ripe: impl FnOnce(i32) -> bool) -> bool {
    handlers::look(now);
    // Acquire, here and below: pairs with the Release stores of both in `switch::to`.
    let tick = worker.tick.load(Ordering::Acquire);
    let thread = worker.thread();
    let payload = Payload {
        who: worker.index,
        tick,
    };
    let is_current = || worker.current.is(green, Ordering::Acquire);
    thread != 0
        && !worker.is_spared(tick)
        && is_current()
        && green.off.load(Ordering::Relaxed) == 0
        && is_ripe(thread)
        && !would_take_others(worker.cluster().base_mask)
        // The question took a while: is it still the same thread?
        && worker.tick.load(Ordering::Relaxed) == tick
        && worker.expect_signal(thread, || {
            let process = std::process::id() as i32;
            let signal = worker.cluster().config.signal;
            let sent = signal::queue(0, process, thread, signal, payload);
            if let Err(number) = sent
                && number != libc::ESRCH
            {
                worker.cluster().spawner.tell_of_signals(number);
            }
            sent.is_ok()
        })
}

/// Whether a signal for the whole process is under way that a kernel thread with this mask would take. The caller blocks
/// all signals: the monitor before it sends one, the preemption signal's handler, and a worker before it takes any.
///
/// The kernel wakes one thread for such a signal, the first one if that takes it. But any thread that is about to run a
/// handler takes all signals that wait: a worker that is signalled now would take one from the program's first thread, in
/// a sleep, say, that the signal is to end. So that thread gets a moment to come to a CPU.
pub(super) fn would_take_others(mask: Mask) -> bool {
    /// How long a thread that was woken may wait for a CPU, on a busy system. Meanwhile processors are taken from
    /// threads that compute.
    const MOST: u64 = 500_000_000;
    /// Since when there has been one; 0: there is none.
    static SINCE: AtomicU64 = AtomicU64::new(0);
    // The preemption signal is for this thread alone; the monitor may have sent it again.
    if signal::pending() & !(mask | handlers::reserved()) == 0 {
        SINCE.store(0, Ordering::Relaxed);
        return false;
    }
    let now = clock::now();
    let begun = SINCE.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
    begun.is_ok() || begun.is_err_and(|since| now.saturating_sub(since) < MOST)
}

/// Waits while the calling kernel thread, which is about to have this mask, [would take](would_take_others) another
/// thread's signal; about `most` nanoseconds at most.
pub(super) fn leave_others(mask: Mask, most: u64) {
    /// Nanoseconds after which it asks again.
    const A_MOMENT: u64 = 100_000;
    let mut waited = 0;
    while waited < most && would_take_others(mask) {
        kernel_thread::rest(A_MOMENT);
        waited += A_MOMENT;
    }
}

#[cfg(tsan)]
sanitizer::screened!(screened, on_signal);

unsafe extern "C" fn on_signal(_: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let _unseen = sanitizer::unseen();
    // SAFETY: both are this handler's arguments, which the kernel has filled in.
    let (info, mut frame) = unsafe { (&*info, Frame::new(context)) };
    let payload = signal::payload(info);
    answer(payload, &mut frame);
    /// The signal may be for this thread alone, and wait for the end of this handler.
    const MOST: u64 = 10_000_000;
    // One may have come since this one was sent.
    leave_others(frame.mask(), MOST);
}

fn answer(payload: Option<Payload>, frame: &mut Frame<'_>) {
    let Some(payload) = payload else { return };
    if payload.who == hold::WHO {
        return hold::answer(payload, frame);
    }
    let Some(worker) = worker::get(payload.who as usize) else {
        return;
    };
    worker.expect_no_signal();
    let Some(green) = worker.current.load(Ordering::Relaxed) else {
        return;
    };
    let has_room = |stack: Bounds| {
        let needed = frame.room_needed();
        needed.is_some_and(|needed| (stack.bottom + needed..=stack.top).contains(&frame.sp()))
    };
    if !green.bounds().is_some_and(has_room)
        || worker.tick.load(Ordering::Relaxed) != payload.tick
        || green.off.load(Ordering::Relaxed) != 0
        || green.flags.has(ThreadFlags::HIDDEN)
        || worker.is_spared(payload.tick)
    {
        return;
    }
    if frame.mask() != worker.base_mask.get() {
        green.flags.add(ThreadFlags::MASK);
    }
    // SAFETY: the stack pointer lies in the green stack, which is mapped.
    let caller = unsafe { frame.return_address_of_leaf() };
    if !may_interrupt(frame.pc(), caller) && !is_about_to_wait(frame) {
        return;
    }
    green.off.store(1, Ordering::Relaxed);
    // SAFETY: the space was checked; the thread is in user code with preemption on, so it may be
    // suspended.
    unsafe { frame.inject() };
}

/// Rule 5. `caller`: where the function returns to, if it is a leaf.
fn may_interrupt(pc: usize, caller: usize) -> bool {
    let Some(text) = TEXT.get() else { return false };
    let in_leaf = |address| text.leaves.iter().any(|range| range.contains(&address));
    !in_libc(pc) || (in_leaf(pc) && !in_libc(caller))
}

/// Whether the thread is about to make a call that begins anew at any interruption.
fn is_about_to_wait(frame: &Frame<'_>) -> bool {
    let call = frame.call_ahead().map(|(number, arguments)| SystemCall {
        number,
        arguments,
        ..SystemCall::default()
    });
    call.is_some_and(|call| call.begins_anew())
}

fn in_libc(address: usize) -> bool {
    TEXT.get()
        .is_some_and(|text| text.libc.iter().any(|range| range.contains(&address)))
}

/// The executable segments of libc and of the loader, and of the library that `malloc` is found in.
fn libc_text() -> Vec<Range<usize>> {
    const PARTS: [&str; 2] = ["/libc.so", "/ld-linux"];
    // SAFETY: a valid name.
    let malloc = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"malloc".as_ptr()) }.addr();
    let mut found = Vec::new();
    libraries::visit(|library| {
        let name = library.name.to_string_lossy();
        let allocates = || library.code().any(|range| range.contains(&malloc));
        // The program itself has no name here: it also computes, so its code is not excluded.
        if PARTS.iter().any(|part| name.contains(part)) || !name.is_empty() && allocates() {
            found.extend(library.code());
        }
    });
    found
}

/// Functions of libc that call nothing and hold nothing: a thread can be suspended in them.
fn leaf_functions() -> Vec<Range<usize>> {
    const NAMES: &str = "memcpy memmove mempcpy memset memcmp bcmp memchr memrchr rawmemchr strlen strnlen strcmp \
        strncmp strchr strrchr syscall";
    let names = NAMES.split(' ').filter_map(|name| CString::new(name).ok());
    names.filter_map(|name| function_range(&name)).collect()
}

unsafe extern "C" {
    /// The unwinder's table entry for the function at `pc`; `bases[2]` receives the function's
    /// start.
    fn _Unwind_Find_FDE(pc: *const u8, bases: *mut [usize; 3]) -> *const u8;
}

/// Where the function `name`, as it was chosen for this processor, begins and ends, according to
/// its unwind entry.
fn function_range(name: &CStr) -> Option<Range<usize>> {
    // SAFETY: dlsym with a valid name; an unwind entry has its length (4 bytes), a CIE pointer (4),
    // the function's start (4, in glibc relative to itself) and its size (4). The start is checked
    // against the unwinder's answer.
    unsafe {
        // Not those that the program has in their place.
        let address = libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) as *const u8;
        if address.is_null() {
            return None;
        }
        let mut bases = [0; 3];
        let entry = _Unwind_Find_FDE(address.add(1), &mut bases);
        if entry.is_null() {
            return None;
        }
        let field = entry.add(8);
        let start =
            (field as usize).wrapping_add_signed(field.cast::<i32>().read_unaligned() as isize);
        let size = entry.add(12).cast::<u32>().read_unaligned() as usize;
        (start == bases[2] && start == address as usize).then(|| start..start + size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_are_found_within_libc() {
        let (libc, leaves) = (libc_text(), leaf_functions());
        assert!(!libc.is_empty());
        assert!(leaves.len() >= 10, "{leaves:?}");
        for leaf in leaves {
            assert!(
                libc.iter()
                    .any(|range| range.contains(&leaf.start) && range.contains(&(leaf.end - 1)))
            );
        }
    }
}
