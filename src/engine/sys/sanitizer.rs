//! Sanitizers: runtimes by which a compiler finds faults in a program, while the program runs.
//!
//! Such a runtime keeps a record of each kernel thread in the kernel thread's thread-locals, and the bounds of its
//! stack. A green thread has thread-locals and a stack of its own, which the runtime has never seen. So where there is
//! a sanitizer that does not get along with that, every thread is a kernel thread.
//!
//! The runtime is in the program, in a shared library, or not there. The names of its functions are weak: their
//! addresses, which the linker or the loader fills in, are null if there is no such function. (`dlsym` finds nothing in
//! a program whose linker was not told to export the names.)
//!
//! # AddressSanitizer
//! gets along with green threads in a crate that is built with it on x86-64 (`cfg(asan)`). To this sanitizer a green
//! thread is a thread that it does not know: its thread-locals have no record, and allocations go by way of those that all
//! such threads share. The sanitizer marks memory that must not be touched, as the gaps between the variables of a frame;
//! a function's end takes the function's marks away. Three things are left to be told:
//! 1. The last frames of a thread end without a return: the marks go when the stack changes hands ([`forget_frames`]). So
//!    do those on memory that is unmapped.
//! 2. Frames of other threads are read by instructions that the sanitizer does not see (`arch::stack_word`).
//! 3. What only a green thread's stack or thread-locals lead to has not leaked ([`holds_pointers`]).
//!
//! # ThreadSanitizer
//! gets along with green threads in a crate that is built with it on x86-64 (`cfg(tsan)`): a green thread is what this
//! sanitizer calls a fiber.
//!
//! The sanitizer knows a thread by a state of its own, which a word in the thread's thread-locals leads to. The runtime
//! makes such a state for each green thread ([`Fiber`]), and that word of the thread's block leads to the state. A worker
//! changes the state beside each switch, under the kernel thread's own thread pointer: the sanitizer's function finds the
//! kernel thread's state by the word in the kernel thread's thread-locals. So the run loop sets the native thread pointer
//! after each switch, before anybody else can have the thread.
//!
//! The sanitizer learns from the program's atomics what one thread has done before another one, and from those atomics of
//! the crate that the program asked for: a ticket, the lock of a channel. It does not learn from the scheduler's, or else
//! all threads of a processor would seem to wait for each other, and no race between two would be found. So what is done
//! under the native thread pointer, between `sched::current` and its end, and by a thread on its way from its stack or to
//! it, is not seen ([`Unseen`]). What passes from thread to thread there is told ([`publish`]).
//!
//! A stack and a block are used by one thread after another, which is no race: all that is known of accesses to them is
//! forgotten in between ([`forget`]).
//!
//! The sanitizer's runtime takes locks of its own inside the program's loads and stores. No thread is preempted there, or
//! else a scheduler would wait for that thread: `TEXT` has the addresses of that code, and a signal that comes there does
//! nothing.
//!
//! There can be 8,128 threads at once, green and other ones; the sanitizer ends the process that has more.

use core::{arch::global_asm, ffi::c_void};

#[cfg(tsan)]
pub(crate) use self::tsan::*;
#[cfg(not(tsan))]
pub(crate) use super::no_tsan::*;
pub(crate) use super::unseen::{Unseen, unseen};

/// The sanitizers, in the order of the functions below.
const NAMES: [&str; 8] = [
    "AddressSanitizer",
    "HWAddressSanitizer",
    "ThreadSanitizer",
    "MemorySanitizer",
    "LeakSanitizer",
    "RealtimeSanitizer",
    "SafeStack",
    "DataFlowSanitizer",
];

// Of each sanitizer the address of a function that it alone has.
global_asm!(
    ".pushsection .data.rel.ro.greenthread_sanitizers, \"aw\"",
    ".p2align 3",
    ".hidden greenthread_sanitizers",
    ".globl greenthread_sanitizers",
    "greenthread_sanitizers:",
    ".irp name, __asan_init, __hwasan_init, __tsan_init, __msan_init, __lsan_init, __rtsan_init, \
     __safestack_init, dfsan_set_label",
    ".weak \\name",
    ".quad \\name",
    ".endr",
    ".popsection",
);

unsafe extern "C" {
    #[link_name = "greenthread_sanitizers"]
    static FUNCTIONS: [*const c_void; NAMES.len()];
}

/// The sanitizer in this process, if there is one that green threads do not get along with.
pub(crate) fn unsupported() -> Option<&'static str> {
    // SAFETY: the words above, as many as names, which nobody writes once the loader has.
    let functions = unsafe { FUNCTIONS.iter() };
    let (_, name) = functions.zip(NAMES).find(|(at, _)| !at.is_null())?;
    Some(name).filter(|&name| match name {
        "AddressSanitizer" => !cfg!(asan),
        "ThreadSanitizer" => !cfg!(tsan),
        _ => true,
    })
}

/// Nobody uses this memory any more. Changes what the sanitizers know, not the memory.
pub(crate) fn forget(start: usize, length: usize) {
    #[cfg(asan)]
    forget_frames(start, length);
    forget_accesses(start, length);
}

#[cfg(asan)]
unsafe extern "C" {
    fn __asan_unpoison_memory_region(start: *const c_void, length: usize);
    fn __lsan_register_root_region(start: *const c_void, length: usize);
    fn __lsan_unregister_root_region(start: *const c_void, length: usize);
}

/// The frames in this memory are gone, although nothing has returned from them. If somebody uses the memory all the same,
/// the sanitizer finds no faults in that.
#[cfg(asan)]
pub(crate) fn forget_frames(start: usize, length: usize) {
    // SAFETY: the function changes marks only, of any memory. It takes no lock.
    unsafe { __asan_unpoison_memory_region(start as *const c_void, length) };
}

/// Pointers from this memory count, from now on. Takes a lock that only preemptible threads take.
#[cfg(asan)]
pub(crate) fn holds_pointers(start: usize, end: usize) {
    // SAFETY: it notes the two numbers.
    unsafe { __lsan_register_root_region(start as *const c_void, end - start) };
}

/// Pointers from this memory count no more.
#[cfg(asan)]
pub(crate) fn holds_no_pointers(start: usize, end: usize) {
    // SAFETY: `holds_pointers` has noted the two numbers.
    unsafe { __lsan_unregister_root_region(start as *const c_void, end - start) };
}

#[cfg(tsan)]
mod tsan {
    use core::arch::asm;
    use core::cell::Cell;
    use core::ffi::{CStr, c_void};
    use std::path::Path;

    use libc::Elf64_Sym;

    use crate::engine::arch;
    use crate::engine::atomic::{AtomicIsize, AtomicUsize, Ordering};
    use crate::engine::sys::libraries::{Elf, is_function, text};

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

    /// The thread that is switched to has not waited for the one that is left.
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
    pub(crate) fn learn() -> Result<(), String> {
        let current =
            find_current().ok_or("ThreadSanitizer keeps its state in an unknown place")?;
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
            see_again();
            __tsan_switch_to_fiber(home, NO_SYNC);
            see_again();
            __tsan_destroy_fiber(other);
            let mut found = candidates.into_iter().filter(leads_to(home));
            found.next().filter(|_| found.next().is_none())
        }
    }

    /// The linker has put the runtime's functions one after another. Others may have names like `__tsan_on_report`.
    fn find_text() -> Option<[usize; 2]> {
        let file = Elf::open(Path::new("/proc/self/exe"))?;
        let (symbols, names) = file.symbols()?;
        let functions = || symbols.iter().filter(|symbol| is_function(symbol));
        let name = |symbol: &Elf64_Sym| text(names, symbol.st_name);
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
            self.in_its_name(see_again);
            // SAFETY: nobody runs with the state.
            unsafe { __tsan_destroy_fiber(self.0.replace(core::ptr::null_mut())) };
            forget_accesses(start, end - start);
        }

        /// The calling kernel thread, under its own thread pointer, is about to switch to the thread. Inlined: what begins in the one's name, to the
        /// sanitizer, ends in it.
        #[inline(always)]
        pub(crate) fn enter(&self) {
            // SAFETY: the caller owns the thread. The states are alive.
            unsafe {
                HOME.set(__tsan_get_current_fiber());
                __tsan_switch_to_fiber(self.0.get(), NO_SYNC);
            }
        }

        /// The kernel thread has come back, and has its own thread pointer.
        #[inline(always)]
        pub(crate) fn leave(&self) {
            // SAFETY: the kernel thread's own state.
            unsafe { __tsan_switch_to_fiber(HOME.get(), NO_SYNC) };
        }
    }

    /// Code that runs with this thread pointer runs in the caller's name, for now.
    pub(crate) fn lend_own(thread_pointer: *mut u8) {
        // SAFETY: it returns the caller's state.
        lead(thread_pointer, unsafe { __tsan_get_current_fiber() });
    }

    fn lead(thread_pointer: *mut u8, state: State) {
        let place = thread_pointer.wrapping_offset(CURRENT.load(Ordering::Relaxed));
        // SAFETY: the sanitizer's word in a block that is the caller's.
        unsafe { place.cast::<State>().write(state) };
    }

    /// Nothing that this thread does is seen, from now on.
    pub(crate) fn hide() {
        // SAFETY: counts in the thread's state.
        unsafe {
            AnnotateIgnoreReadsBegin(core::ptr::null(), 0);
            AnnotateIgnoreWritesBegin(core::ptr::null(), 0);
            AnnotateIgnoreSyncBegin(core::ptr::null(), 0);
        }
    }

    /// Takes a [`hide`] back: what the end of an [`Unseen`] does, for one that was forgotten, too.
    pub(crate) fn see_again() {
        // SAFETY: counts in the thread's state.
        unsafe {
            AnnotateIgnoreSyncEnd(core::ptr::null(), 0);
            AnnotateIgnoreWritesEnd(core::ptr::null(), 0);
            AnnotateIgnoreReadsEnd(core::ptr::null(), 0);
        }
    }

    /// What the caller has done comes before what is done by a thread that [`observe`]s the same address later; the scheduler
    /// sees to that, unseen by the sanitizer.
    pub(crate) fn publish<T>(at: &T) {
        // SAFETY: the address is a name.
        unsafe { __tsan_release(core::ptr::from_ref(at).cast_mut().cast()) };
    }

    /// See [`publish`].
    pub(crate) fn observe<T>(at: &T) {
        // SAFETY: the address is a name.
        unsafe { __tsan_acquire(core::ptr::from_ref(at).cast_mut().cast()) };
    }

    /// Whatever was done in this memory, whole pages, concerns nobody any more.
    pub(crate) fn forget_accesses(start: usize, length: usize) {
        const WORD: usize = size_of::<usize>();
        // The sanitizer's `munmap` forgets the accesses first. Then the kernel refuses the call, since the
        // address is not a multiple of the page size.
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

    /// The sanitizer's function in the place of libc's `name`, as far as the crate has a function with that name itself.
    pub(crate) fn interceptor(name: &CStr) -> Option<usize> {
        let function = match name.to_bytes() {
            b"pthread_sigmask" => __interceptor_pthread_sigmask,
            b"sigprocmask" => __interceptor_sigprocmask,
            b"sigaction" => __interceptor_sigaction,
            b"dlclose" => __interceptor_dlclose,
            _ => return None,
        } as unsafe extern "C" fn();
        Some(function as usize)
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
                    text = sym $crate::engine::sys::sanitizer::TEXT,
                    handler = sym $handler,
                )
            }
        };
    }
    pub(crate) use screened;
}
