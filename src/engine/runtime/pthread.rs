//! Pthreads that are green threads: `pthread_create` makes one where the program has asked for that (`thread::adopt`, or
//! `GREENTHREAD_PTHREADS`), and other threads join or detach it by its `pthread_t`.
//!
//! # The `pthread_t`
//! It is the address of the thread's control block, as libc has it: so it equals `pthread_self()` in the thread, and a function
//! of libc's that gets it finds what it expects. The block lies in the thread's stack. So such a thread has its stack from
//! its creation on, and the stack stays as long as the `pthread_t` may be used (`sched::joinable`).
//!
//! Its result is a packet's (`spawn`), whose joiner is owned by the stack ([`ThreadStack::joiner`]) until the thread is joined or
//! detached.
//!
//! # Who is adopted
//! What is started in [`adopting`], and by threads that were started so: each green thread has a flag in its record, which it
//! gets from its creator, and a kernel thread has a thread-local.
//!
//! # Invariants
//! 1. `joiner` is written before the thread can run, and belongs to the thread that has claimed it.
//! 2. A caller vouches for its pthread, as C does: that the thread was not joined or detached.

use core::cell::Cell;
use core::ffi::c_void;
use std::io;
use std::sync::{Once, OnceLock};

use super::handle::{JoinHandle, Thread};
use super::options::{Mode, RuntimeOptions};
use super::spawn::{Builder, new_green, packet, set_out};
use super::start::no_green;
use super::{Backend, green, options};
use crate::engine::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::*};
use crate::engine::inspect::kernel;
use crate::engine::sched::start::{ThreadStack, give_back};
use crate::engine::sched::{Cluster, Green, Identity, current, signals, spawner};
use crate::engine::sys::{clock, die, kernel_thread, libraries, say, signal::Mask, variable};

// ==== who is adopted ====

thread_local! {
    /// That of a kernel thread.
    static ADOPTS: Cell<bool> = const { Cell::new(false) };
}

/// Whether the pthreads that the calling thread makes are green.
#[inline]
pub(crate) fn adopts() -> bool {
    match current::green() {
        Some(green) => green.adopts.get(),
        None => ADOPTS.get(),
    }
}

/// The same from now on; returns whether they were.
fn set_adopts(adopts: bool) -> bool {
    match current::green() {
        Some(green) => green.adopts.replace(adopts),
        None => ADOPTS.replace(adopts),
    }
}

/// `pthread_create` leads to the crate.
pub(crate) static IS_OURS: AtomicBool = AtomicBool::new(false);

/// Whether all pthreads of the process are to be green ones.
pub(crate) fn are_all() -> bool {
    static ALL: OnceLock<bool> = OnceLock::new();
    // A value that is not accepted is an error when the first runtime starts.
    *ALL.get_or_init(|| {
        let asks = |value: &[u8]| matches!(value, b"on" | b"children");
        variable::peek(c"GREENTHREAD_PTHREADS", asks) == Some(true)
    })
}

/// The stack size of pthreads for which C asks for none, if all are green: most threads get such a stack then.
pub(super) fn common_size() -> Option<usize> {
    let common = COMMON_SIZE.load(Relaxed);
    (common != 0).then_some(common)
}
pub(crate) static COMMON_SIZE: AtomicUsize = AtomicUsize::new(0);

/// Prepares the process, if all its pthreads are to be green; returns whether they are. The first of them would do so otherwise: it
/// may come while the loader runs a library's constructor, and this waits for the loader's lock.
pub(crate) fn prepare() -> io::Result<bool> {
    if are_all() {
        can_be()?;
    }
    Ok(are_all())
}

/// Fails if pthreads cannot be green threads here.
fn can_be() -> io::Result<()> {
    if variable::peek(c"GREENTHREAD_UNMODIFIED", |value| value == b"off") == Some(true) {
        return Err(no_green("GREENTHREAD_UNMODIFIED is off"));
    }
    if !IS_OURS.load(Relaxed) {
        return Err(no_green("the program has a pthread_create of its own"));
    }
    // The rest starts a thread, which waits for ever if the loader is just loading this library.
    if !libraries::libcs_names_lead_here() {
        return Err(no_green(green::LOADED_LATE));
    }
    let prepared = green::prepare(options::default_stack_size())?;
    prepared.map_err(|reason| no_green(&reason))
}

/// Calls `f`, in which pthreads are green threads.
pub(crate) fn adopting<T>(f: impl FnOnce() -> T) -> io::Result<T> {
    /// Puts back what was there, also if `f` unwinds.
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            set_adopts(self.0);
        }
    }
    if !current::is_forked_child() && RuntimeOptions::default().mode()? != Some(Mode::Kernel) {
        can_be()?;
        Backend::here()?;
    }
    let _before = Before(set_adopts(true));
    Ok(f())
}

/// The cluster on which a pthread runs that the calling thread makes. `None`: it is to be a kernel thread. `is_exempt`: whether it
/// is, though all threads of the process are to be green.
pub(crate) fn cluster_here(is_exempt: impl FnOnce() -> bool) -> Option<&'static Cluster> {
    if kernel_thread::is_making() || !adopts() && (!are_all() || is_exempt()) {
        return None;
    }
    if current::is_forked_child() {
        static SAID: Once = Once::new();
        SAID.call_once(|| say(format_args!("threads of a forked child are kernel threads")));
        return None;
    }
    // A handler, or code that holds a lock of the scheduler's.
    let may_enter = |green: &Green| green.off.load(Relaxed) == 0 && !green.says(Green::UNHOOKED);
    if current::is_hidden() || !current::green().is_none_or(may_enter) {
        return None;
    }
    Backend::here().ok()?.green()
}

// ==== its life ====

/// What a pthread returns, or gives to `pthread_exit`.
pub(crate) struct Value(pub(crate) *mut c_void);
// SAFETY: it is the program's, which hands it from thread to thread.
unsafe impl Send for Value {}

/// As the attributes of a pthread have it.
pub(crate) struct Attributes {
    pub(crate) stack_size: usize,
    pub(crate) is_detached: bool,
    /// In place of its creator's.
    pub(crate) mask: Option<Mask>,
}

/// Makes a green thread that runs `main`, and writes its pthread to `place` before that.
///
/// # Safety
/// `main` may run on another thread, after this call, too; a pthread can be written to `place`.
pub(crate) unsafe fn create(
    cluster: &'static Cluster,
    attributes: &Attributes,
    place: *mut libc::pthread_t,
    main: impl FnOnce() -> Value + Send,
) -> io::Result<()> {
    /// A thread that asks for a smaller stack than the cluster's gets one of those, which are at hand, unless they are so
    /// many times as large: a processor keeps stacks of one size. Pages that are not touched cost nothing.
    const LARGER: usize = 8;
    /// Above the numbers of kernel threads and those in blocks.
    const FIRST: u32 = 1 << 30;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    static FIRST_ONE: Once = Once::new();
    FIRST_ONE.call_once(signals::answer_calls);
    let common = cluster.config.stack_size;
    let size = attributes.stack_size;
    let size = (size > common || size.saturating_mul(LARGER) < common).then_some(size);
    size.map_or(Ok(()), options::check_stack_size)?;
    // SAFETY: the caller's promise.
    let (joiner, job) = unsafe { packet(Identity::new(None, None), None, main) };
    let green = new_green(cluster, size, true)?;
    let Some(stack) = green.stack() else {
        die("a pthread has no stack")
    };
    stack.joinable.begin(attributes.is_detached);
    match attributes.is_detached {
        true => drop(joiner),
        false => stack
            .joiner
            .store(joiner.into_raw().cast_mut().cast(), Relaxed),
    }
    let number = FIRST | NEXT.fetch_add(1, Relaxed) & (FIRST - 1);
    stack.number.store(number, Relaxed);
    // SAFETY: the caller's place.
    unsafe { place.write(stack.pthread() as libc::pthread_t) };
    set_out(cluster, green, &Builder::new(), attributes.mask, job);
    Ok(())
}

/// The stack of the green thread of this pthread, which C has made, and nobody has joined or detached yet. `None`: libc knows
/// the thread.
fn stack_of(thread: libc::pthread_t) -> Option<&'static ThreadStack> {
    let stack = ThreadStack::of_pthread(thread as usize)?;
    stack.joinable.is_pthread().then_some(stack)
}

/// Whether the pthread is such a green thread's, whether it lives or has ended.
pub(crate) fn is_ours(thread: libc::pthread_t) -> bool {
    stack_of(thread).is_some()
}

/// Whether the pthread, which is [ours](is_ours), has ended.
pub(crate) fn has_ended(thread: libc::pthread_t) -> bool {
    stack_of(thread).is_some_and(|stack| stack.joinable.has_ended())
}

/// The calling thread's number, if it is one: the kernel thread's is another's at the next switch.
pub(crate) fn own_number() -> Option<u32> {
    let stack = current::owner().and_then(Green::stack)?;
    (stack.joinable.is_pthread()).then(|| stack.number.load(Relaxed))
}

/// Whether the calling thread is one.
pub(crate) fn is_own() -> bool {
    own_number().is_some()
}

/// Joins the pthread, which is [ours](is_ours), and returns its result, or an error number of `pthread_join`'s; EINTR: there is a signal
/// for the caller. Waits until `deadline` (monotonic nanoseconds) at most; 0: not at all.
pub(crate) fn join(thread: libc::pthread_t, deadline: u64) -> Result<Value, i32> {
    let stack = stack_of(thread).ok_or(libc::ESRCH)?;
    if stack.thread_pointer as usize == current::mark() {
        return Err(libc::EDEADLK);
    }
    if !stack.joinable.claim() {
        let tries = deadline == 0 && !stack.joinable.has_ended();
        return Err(if tries { libc::EBUSY } else { libc::EINVAL });
    }
    let joiner = joiner_of(stack);
    let end = joiner.end();
    if !(end.has_come() || deadline != 0 && end.wait_for_pthread(deadline)) {
        let _kept = joiner.into_raw();
        stack.joinable.give_up();
        return Err(match deadline {
            0 => libc::EBUSY,
            _ if deadline <= clock::now() => libc::ETIMEDOUT,
            _ => libc::EINTR,
        });
    }
    let result = joiner.after_end();
    leave(stack);
    result.map_err(|_| die("a pthread has ended by a panic"))
}

/// Detaches the pthread. Returns what `pthread_detach` returns.
pub(crate) fn detach(thread: libc::pthread_t) -> i32 {
    match stack_of(thread) {
        None => libc::ESRCH,
        Some(stack) if !stack.joinable.claim() => libc::EINVAL,
        Some(stack) => {
            drop(joiner_of(stack));
            leave(stack);
            0
        }
    }
}

/// The joiner of the thread that has this stack, and that the caller has claimed.
fn joiner_of(stack: &ThreadStack) -> JoinHandle<Value> {
    let joiner = stack.joiner.load(Relaxed);
    // SAFETY: `create` has left the share of a packet with a `Value` there, and who has claimed the thread takes it, alone.
    JoinHandle::new(unsafe { Thread::from_raw(joiner.cast_const().cast()) })
}

/// The pthread is not used any more.
fn leave(stack: &'static ThreadStack) {
    if stack.joinable.leave() {
        give_back(stack);
    }
}

// ==== the end of the process ====

/// The first thread of the process ends by `pthread_exit`. As libc has it, the process ends with the last of the program's threads;
/// but libc would count the runtimes' kernel threads, too.
pub(crate) fn main_exits() {
    /// Nanoseconds between two looks.
    const PAUSE: u64 = 5_000_000;
    if current::is_forked_child() || Backend::all().is_empty() {
        return;
    }
    let wait = || {
        while !is_over() {
            kernel_thread::rest(PAUSE);
        }
        // SAFETY: as in any C program, other threads may run.
        unsafe { libc::exit(0) }
    };
    // If the system refuses it, the process goes on until somebody ends it.
    let _ = spawner::spawn_helper("gt-last", spawner::HELPER_STACK, Box::new(wait));
}

/// Whether no thread of the program's runs any more.
fn is_over() -> bool {
    let count = || {
        let all = Backend::all().into_iter();
        let counts = all.map(|running| running.backend.metrics());
        counts.fold((0, 0), |(spawns, live), more| {
            (spawns + more.spawns, live + more.live_threads)
        })
    };
    let before = count();
    // A thread that makes another one is there until that one is counted, or seen.
    before.1 == 0 && !kernel_thread::has_others(kernel::is_helper) && count() == before
}
