//! ThreadSanitizer, in a crate that is built with it on x86-64 (`cfg(tsan)`): a green thread is what it calls a fiber.
//!
//! The sanitizer knows a thread by a state of its own, which a word in the thread's thread-locals leads to. The runtime makes
//! such a state for each green thread ([`Fiber`]), and that word of the thread's block leads to it. A worker changes the
//! state beside each switch. That is done at home: the sanitizer's function finds the kernel thread's by the word in the
//! kernel thread's thread-locals. So the run loop comes home after each switch, before anybody else can have the thread.
//!
//! What one thread has done before another one is learnt from the program's atomics, and from those of the crate that the
//! program asked for: a park state, the lock of a channel. Not from the scheduler's, or else all threads of a processor would seem to wait
//! for each other, and no race between two would be found. So what is done at home, between `sched::current` and its
//! end, and by a thread on its way from its stack or to it, is not seen ([`Unseen`](super::Unseen)). What passes from thread to thread there is told ([`publish`]).
//!
//! A stack and a block are used by one thread after another, which is no race: all that is known of accesses to them is
//! forgotten in between ([`forget_accesses`]).
//!
//! The runtime takes locks of its own inside the program's loads and stores. No thread is preempted
//! there, or else a scheduler would wait for it: [`TEXT`] has the addresses of that code, and a signal that comes there
//! is as if it had not come.
//!
//! There can be 8,128 threads at once, green and other ones; the sanitizer ends the process that has more.

use core::arch::asm;
use core::cell::Cell;
use core::ffi::{CStr, c_void};
use std::path::Path;

use libc::Elf64_Sym;

use crate::engine::arch;
use crate::engine::atomic::{AtomicIsize, AtomicUsize, Ordering};
use crate::engine::sys::elf::{self, Elf};

type State = *mut c_void;

unsafe extern "C" {
    fn __tsan_get_current_fiber() -> State;
    fn __tsan_create_fiber(flags: u32) -> State;
    fn __tsan_destroy_fiber(fiber: State);
    fn __tsan_switch_to_fiber(fiber: State, flags: u32);
    fn __tsan_acquire(address: *mut c_void);
    fn __tsan_release(address: *mut c_void);
    fn AnnotateIgnoreReadsBegin(file: *const u8, line: i32);
    fn AnnotateIgnoreReadsEnd(file: *const u8, line: i32);
    fn AnnotateIgnoreWritesBegin(file: *const u8, line: i32);
    fn AnnotateIgnoreWritesEnd(file: *const u8, line: i32);
    fn AnnotateIgnoreSyncBegin(file: *const u8, line: i32);
    fn AnnotateIgnoreSyncEnd(file: *const u8, line: i32);
}

/// Who is switched to has not waited for who is left.
const NO_SYNC: u32 = 1;

/// From the thread pointer to the word that leads to a thread's state.
static CURRENT: AtomicIsize = AtomicIsize::new(0);

/// The code of the sanitizer's runtime: its first address, and the one behind the last.
pub(crate) static TEXT: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

thread_local! {
    /// The state of this kernel thread of the runtime.
    static HOME: Cell<State> = const { Cell::new(core::ptr::null_mut()) };
}

/// Finds what the other functions need. An error says what was not found.
pub(super) fn learn() -> Result<(), String> {
    let current = find_current().ok_or("ThreadSanitizer keeps its state in an unknown place")?;
    let [start, end] = find_text().ok_or(
        "the functions of ThreadSanitizer cannot be told from others: the program has no symbols",
    )?;
    CURRENT.store(current, Ordering::Relaxed);
    TEXT[0].store(start, Ordering::Relaxed);
    TEXT[1].store(end, Ordering::Relaxed);
    Ok(())
}

/// Of the words that the sanitizer has in each thread, the one that changes as the state does.
fn find_current() -> Option<isize> {
    const WORDS: usize = 64;
    let begin: isize;
    // SAFETY: the place in the global offset table has the distance of the sanitizer's thread-locals.
    unsafe {
        asm!("mov {}, qword ptr [rip + _ZN6__tsan22cur_thread_placeholderE@GOTTPOFF]", out(reg) begin);
    }
    let distances = (0..WORDS).map(|i| begin + (i * size_of::<usize>()) as isize);
    let word = |distance: isize| {
        let place = arch::thread_pointer().wrapping_offset(distance);
        // SAFETY: of this thread's thread-locals, of which the sanitizer has more than these.
        unsafe { arch::stack_word(place.addr()) }
    };
    // SAFETY: a new state is this thread's for a moment, and the old one then.
    unsafe {
        let (home, other) = (__tsan_get_current_fiber(), __tsan_create_fiber(0));
        let leads_to = |state: State| move |distance: &isize| word(*distance) == state.addr();
        hide();
        __tsan_switch_to_fiber(other, NO_SYNC);
        hide();
        let candidates: Vec<isize> = distances.filter(leads_to(other)).collect();
        reveal();
        __tsan_switch_to_fiber(home, NO_SYNC);
        reveal();
        __tsan_destroy_fiber(other);
        let mut found = candidates.into_iter().filter(leads_to(home));
        found.next().filter(|_| found.next().is_none())
    }
}

/// The linker has put the runtime's functions one after another. Others may have names like `__tsan_on_report`.
fn find_text() -> Option<[usize; 2]> {
    let file = Elf::open(Path::new("/proc/self/exe"))?;
    let (symbols, names) = file.symbols()?;
    let functions = || symbols.iter().filter(|symbol| elf::is_function(symbol));
    let name = |symbol: &Elf64_Sym| elf::text(names, symbol.st_name);
    let known = functions().find(|symbol| name(symbol) == b"__tsan_create_fiber")?;
    let moved = (__tsan_create_fiber as *const () as u64).wrapping_sub(known.st_value);
    let is_runtimes = |symbol: &&Elf64_Sym| {
        let spaces: [&[u8]; 4] = [
            b"_ZN6__tsan",
            b"_ZNK6__tsan",
            b"_ZN11__sanitizer",
            b"_ZNK11__sanitizer",
        ];
        let name = name(symbol);
        spaces.iter().any(|space| name.starts_with(space))
    };
    let all = || functions().filter(is_runtimes);
    let start = all().map(|symbol| symbol.st_value).min()?;
    let end = all().map(|symbol| symbol.st_value + symbol.st_size).max()?;
    Some([start, end].map(|address| moved.wrapping_add(address) as usize))
}

/// The state of a green thread; none while no thread lives in its stack.
pub(crate) struct Fiber(Cell<State>);

// SAFETY: the stack's holder alone uses it.
unsafe impl Sync for Fiber {}

impl Fiber {
    pub(crate) const fn new() -> Fiber {
        Fiber(Cell::new(core::ptr::null_mut()))
    }

    /// A thread will live in the block with this thread pointer.
    pub(crate) fn begin(&self, thread_pointer: *mut u8) {
        // SAFETY: the sanitizer's memory for it is not the program's.
        let state = unsafe { __tsan_create_fiber(0) };
        self.0.set(state);
        lead(thread_pointer, state);
        self.in_its_name(hide);
    }

    /// Calls a function in the name of the thread, which does not run.
    fn in_its_name(&self, function: fn()) {
        // SAFETY: the states are alive, and the caller's.
        unsafe {
            let own = __tsan_get_current_fiber();
            __tsan_switch_to_fiber(self.0.get(), NO_SYNC);
            function();
            __tsan_switch_to_fiber(own, NO_SYNC);
        }
    }

    /// The thread has ended, which lived in the memory from `start` to `end`; the pages are its alone.
    pub(crate) fn end(&self, start: usize, end: usize) {
        let end = end.next_multiple_of(arch::page_size());
        self.in_its_name(reveal);
        // SAFETY: nobody runs with it; the memory is the caller's.
        unsafe {
            __tsan_destroy_fiber(self.0.replace(core::ptr::null_mut()));
            forget_accesses(start, end - start);
        }
    }

    /// The calling kernel thread, which is at home, is about to switch to the thread. Inlined: what begins in the one's name, to the
    /// sanitizer, ends in it.
    #[inline(always)]
    pub(crate) fn enter(&self) {
        // SAFETY: the caller owns the thread. The states are alive.
        unsafe {
            HOME.set(__tsan_get_current_fiber());
            __tsan_switch_to_fiber(self.0.get(), NO_SYNC);
        }
    }

    /// It has come back, and is at home.
    #[inline(always)]
    pub(crate) fn leave(&self) {
        // SAFETY: the kernel thread's own state.
        unsafe { __tsan_switch_to_fiber(HOME.get(), NO_SYNC) };
    }
}

/// What runs with this thread pointer does so in the caller's name, for now.
pub(super) fn lend_own(thread_pointer: *mut u8) {
    // SAFETY: it returns the caller's state.
    lead(thread_pointer, unsafe { __tsan_get_current_fiber() });
}

fn lead(thread_pointer: *mut u8, state: State) {
    let place = thread_pointer.wrapping_offset(CURRENT.load(Ordering::Relaxed));
    // SAFETY: the sanitizer's word in a block that is the caller's.
    unsafe { place.cast::<State>().write(state) };
}

/// Nothing that this thread does is seen, from now on.
pub(super) fn hide() {
    // SAFETY: counts in the thread's state.
    unsafe {
        AnnotateIgnoreReadsBegin(core::ptr::null(), 0);
        AnnotateIgnoreWritesBegin(core::ptr::null(), 0);
        AnnotateIgnoreSyncBegin(core::ptr::null(), 0);
    }
}

/// Takes a [`hide`] back.
pub(super) fn reveal() {
    // SAFETY: as above.
    unsafe {
        AnnotateIgnoreSyncEnd(core::ptr::null(), 0);
        AnnotateIgnoreWritesEnd(core::ptr::null(), 0);
        AnnotateIgnoreReadsEnd(core::ptr::null(), 0);
    }
}

pub(super) fn publish(at: usize) {
    // SAFETY: the address is a name.
    unsafe { __tsan_release(at as *mut c_void) };
}

pub(super) fn observe(at: usize) {
    // SAFETY: as above.
    unsafe { __tsan_acquire(at as *mut c_void) };
}

/// Whatever was done in this memory, whole pages, concerns nobody any more.
///
/// # Safety
/// The memory is the caller's.
pub(super) unsafe fn forget_accesses(start: usize, length: usize) {
    const WORD: usize = size_of::<usize>();
    // The sanitizer's function does that first. Then the kernel refuses, since the address is not a page's.
    // SAFETY: nothing is unmapped.
    let refused = unsafe { libc::munmap((start - WORD) as *mut c_void, length + WORD) };
    debug_assert_eq!(refused, -1);
}

unsafe extern "C" {
    fn __interceptor_pthread_sigmask();
    fn __interceptor_sigprocmask();
    fn __interceptor_sigaction();
    fn __interceptor_dlclose();
}

/// The sanitizer's functions in the place of libc's, as far as the crate has functions with libc's names itself.
static INTERCEPTORS: [(&CStr, unsafe extern "C" fn()); 4] = [
    (c"pthread_sigmask", __interceptor_pthread_sigmask),
    (c"sigprocmask", __interceptor_sigprocmask),
    (c"sigaction", __interceptor_sigaction),
    (c"dlclose", __interceptor_dlclose),
];

/// The sanitizer's function in the place of libc's `name`.
pub(super) fn interceptor(name: &CStr) -> Option<usize> {
    let found = INTERCEPTORS.iter().find(|(known, _)| *known == name);
    found.map(|(_, function)| *function as usize)
}

/// Defines the function `$name`, which as a signal's handler does nothing in the sanitizer's code, and is `$handler` elsewhere. The
/// sanitizer does not see it itself.
macro_rules! screened {
    ($name:ident, $handler:path) => {
        #[unsafe(naked)]
        unsafe extern "C" fn $name(_: i32, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
            const COUNTER: usize = core::mem::offset_of!(libc::ucontext_t, uc_mcontext)
                + size_of::<libc::greg_t>() * libc::REG_RIP as usize;
            core::arch::naked_asm!(
                "mov rax, [rdx + {counter}]",
                "cmp rax, [rip + {text}]",
                "jb 2f",
                "cmp rax, [rip + {text} + 8]",
                "jae 2f",
                "ret",
                "2: jmp {handler}",
                counter = const COUNTER,
                text = sym $crate::engine::sys::sanitizer::tsan::TEXT,
                handler = sym $handler,
            )
        }
    };
}
pub(crate) use screened;
