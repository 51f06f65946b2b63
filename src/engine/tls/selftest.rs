//! One green thread's life, tried before the first is spawned: does this glibc behave as we found
//! it described?
//!
//! Two threads run on one block, the second after a recycling. The values that each
//! must find are checked from inside, the destructors that must have run from outside. A failure is an
//! answer, not a panic.
//!
//! Over an unknown glibc the trial happens in a child process first ([`rehearse`]): if the trial crashes or hangs, the
//! child does. The child writes a byte once the trial is over, whatever came of it. The parent trusts the byte alone,
//! not the exit status: the program may ignore its children, or wait for all of them.

use super::block::{self, Block};
use super::layout::{self, PthreadKey};
use crate::engine::arch::{fresh_stack, set_thread_pointer, switch, thread_pointer};
use crate::engine::sys::mm::{self, Mapping, page};
use crate::engine::sys::signal;
use std::cell::{Cell, RefCell};
use std::io::{self, PipeWriter, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{ffi::c_void, sync::atomic::AtomicUsize, sync::atomic::Ordering::Relaxed};

/// A stack with a block, above a guard.
pub(super) struct TestSlot {
    pub(super) block: Block,
    _memory: Mapping,
}

impl TestSlot {
    /// A slot with `stack` bytes of stack, or a few more, and a fresh block.
    pub(super) fn new(stack: usize) -> io::Result<TestSlot> {
        let guard = page();
        let sizes = layout::layout().sizes;
        let size = (guard + stack + sizes.all() + sizes.align).next_multiple_of(page());
        let memory = Mapping::new(size)?;
        // SAFETY: a fresh mapping is zero and nobody else's.
        let block = unsafe {
            mm::guard(memory.0.start, guard)?;
            let thread_pointer = block::place(memory.0.end);
            block::create(thread_pointer, memory.0.start + guard, size - guard)?
        };
        Ok(TestSlot {
            block,
            _memory: memory,
        })
    }

    /// The life of one thread on the block, from `enter` to `exit`. A panic of `body` comes back as
    /// `None`.
    pub(super) fn run<T>(&mut self, body: impl FnOnce() -> T) -> Option<T> {
        let (mut body, mut result) = (Some(body), None);
        self.run_to_its_end(&mut || {
            // SAFETY: first and last on this thread; the body's panic stops here.
            unsafe {
                block::enter();
                let body = AssertUnwindSafe(|| body.take().map(|body| body()));
                result = catch_unwind(body).ok().flatten();
                block::exit();
            }
        });
        result
    }

    /// Runs `life`, which catches panics and never suspends, on the slot's stack and under the block's
    /// thread pointer. Never inlined, and touches no thread-local itself.
    ///
    /// malloc's cache goes along, as in the scheduler: otherwise it would be lost with the block.
    #[inline(never)]
    fn run_to_its_end(&mut self, life: &mut dyn FnMut()) {
        let (own, block) = (thread_pointer(), self.block.thread_pointer());
        let tcache = layout::tcache_offset();
        let mut thread = Thread { life, caller: 0 };
        let thread = &raw mut thread;
        // SAFETY: the thread ends here, so it outlives nothing that it borrows. The block is live, and
        // nobody else runs on it, nor on its stack, whose top is aligned. The cache's word is one in each of the two
        // blocks, and no call to malloc is under way on either.
        unsafe {
            let stack = fresh_stack(block::stack_top(block).addr(), live, thread.cast());
            let swap_tcache = || {
                if let Some(offset) = tcache {
                    let word = |block: *mut u8| block.wrapping_offset(offset).cast::<usize>();
                    word(own).swap(word(block));
                }
            };
            swap_tcache();
            set_thread_pointer(block);
            switch(&raw mut (*thread).caller, stack, 0);
            set_thread_pointer(own);
            swap_tcache();
        }
    }

    pub(super) fn recycle(&mut self) {
        // SAFETY: the slot's thread has ended, and left the stack.
        unsafe { block::recycle(self.block.thread_pointer()) };
    }
}

impl Drop for TestSlot {
    fn drop(&mut self) {
        // SAFETY: nobody uses the block, nor its cache of malloc's, which `run` has taken away.
        unsafe { block::destroy(self.block.thread_pointer()) };
    }
}

/// A thread that runs to its end at once, and where its caller waits meanwhile.
struct Thread<'a> {
    life: &'a mut dyn FnMut(),
    caller: usize,
}

/// # Safety
/// `thread` is a [`Thread`], whose caller has switched to this stack and waits.
unsafe extern "C" fn live(thread: *mut ()) -> ! {
    // SAFETY: the thread is there as long as its caller waits. The caller goes on by the last line, and the stack is left
    // for good.
    unsafe {
        let thread = &mut *thread.cast::<Thread<'_>>();
        (thread.life)();
        switch(&mut 0, thread.caller, 0);
    }
    unreachable!("nobody comes back")
}

static DROPPED: AtomicUsize = AtomicUsize::new(0);
static DESTROYED: AtomicUsize = AtomicUsize::new(0);

struct Counted;

impl Drop for Counted {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Relaxed);
    }
}

thread_local! {
    static INITIALISED: Cell<u64> = const { Cell::new(0x5eed) };
    static ZERO: Cell<u64> = const { Cell::new(0) };
    static WITH_DESTRUCTOR: RefCell<Option<Counted>> = const { RefCell::new(None) };
}

extern "C" fn destroy_value(value: *mut c_void) {
    DESTROYED.fetch_add(value as usize, Relaxed);
}

pub(super) fn run() -> Result<(), &'static str> {
    const STACK: usize = 256 << 10;
    let key = PthreadKey::new(Some(destroy_value)).ok_or("no pthread key")?;
    let _ = std::fs::read_link(""); // this leaves an error in errno
    let error = errno();
    INITIALISED.set(1);
    ZERO.set(1);
    let kernel_thread = std::thread::current().id();
    let mut slot = TestSlot::new(STACK).map_err(|_| "no memory")?;

    let mut live_once = || {
        let (dropped, destroyed) = (DROPPED.load(Relaxed), DESTROYED.load(Relaxed));
        slot.run(|| inside(&key, kernel_thread))
            .unwrap_or(Err("a panic"))?;
        slot.recycle();
        if DROPPED.load(Relaxed) != dropped + 1 {
            Err("a thread-local's destructor did not run exactly once")
        } else if DESTROYED.load(Relaxed) != destroyed + 7 {
            Err("a pthread key's destructor did not run exactly once")
        } else if INITIALISED.get() != 1 || ZERO.get() != 1 || errno() != error {
            Err("the kernel thread's own thread-locals changed")
        } else {
            Ok(())
        }
    };
    let result = live_once().and_then(|()| live_once());
    INITIALISED.set(0x5eed);
    ZERO.set(0);
    result
}

fn errno() -> Option<i32> {
    io::Error::last_os_error().raw_os_error()
}

fn inside(key: &PthreadKey, kernel_thread: std::thread::ThreadId) -> Result<(), &'static str> {
    let check = |holds: bool, otherwise| if holds { Ok(()) } else { Err(otherwise) };
    check(errno() == Some(0), "errno does not start as zero")?;
    check(
        INITIALISED.replace(2) == 0x5eed,
        "a thread-local does not start with its initial value",
    )?;
    check(
        ZERO.replace(2) == 0,
        "a thread-local does not start as zero",
    )?;
    WITH_DESTRUCTOR.set(Some(Counted));
    check(
        std::thread::current().id() != kernel_thread,
        "two threads have the same std::thread::Thread",
    )?;
    check(key.get().is_null(), "a pthread key starts with a value")?;
    check(key.set(7), "a pthread key cannot be set")?;
    check(key.get() as usize == 7, "a pthread key lost its value")?;
    // SAFETY: libc calls with valid arguments.
    unsafe {
        *libc::__errno_location() = 5;
        check(
            libc::isalpha(i32::from(b'a')) != 0,
            "the locale's tables are missing",
        )?;
        let mut mutex: libc::pthread_mutex_t = libc::PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
        let twice = libc::pthread_mutex_lock(&mut mutex) == 0
            && libc::pthread_mutex_trylock(&mut mutex) == 0;
        check(twice, "a recursive mutex cannot be locked twice")?;
        libc::pthread_mutex_unlock(&mut mutex);
        libc::pthread_mutex_unlock(&mut mutex);
    }
    let memory: Vec<Vec<u8>> = (0..8).map(|i| vec![i as u8; 16 << i]).collect();
    let is_sound = |bytes: &Vec<u8>| bytes.iter().all(|&byte| byte == bytes[0]);
    check(
        memory.iter().all(is_sound),
        "malloc gave overlapping memory",
    )
}

/// Tries it out in a child process. An error: this process must not try it.
pub(super) fn rehearse(trial: impl FnOnce()) -> Result<(), String> {
    let failed = |error| format!("no child process to try it in: {error}");
    let (mut reader, writer) = io::pipe().map_err(failed)?;
    // SAFETY: the child makes no use of what other threads had under way, but for libc's and the loader's locks.
    // libc's are free in a child; if the loader's is not, the trial hangs, and the child ends.
    match unsafe { libc::fork() } {
        -1 => Err(failed(io::Error::last_os_error())),
        0 => in_child(trial, writer),
        child => {
            drop(writer);
            let over = reader.read_exact(&mut [0]);
            // SAFETY: its exit status goes nowhere. An error: the program has waited for it.
            unsafe {
                let wait = || libc::waitpid(child, std::ptr::null_mut(), 0);
                while wait() < 0 && errno() == Some(libc::EINTR) {}
            }
            over.map_err(|_| "a child process that tried it did not come to the end".into())
        }
    }
}

/// Ends the process.
fn in_child(trial: impl FnOnce(), mut writer: PipeWriter) -> ! {
    /// The trial takes some milliseconds on an idle machine.
    const MOST_SECONDS: u32 = 5;
    use libc::{SIGABRT, SIGALRM, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP};
    // SAFETY: plain calls of libc's. The handlers are the program's, which has not crashed.
    unsafe {
        for number in [
            SIGABRT, SIGALRM, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP,
        ] {
            signal::set_default(number);
        }
        signal::set_mask(0);
        let no_core = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        libc::setrlimit(libc::RLIMIT_CORE, &no_core);
        libc::alarm(MOST_SECONDS);
    }
    if catch_unwind(AssertUnwindSafe(trial)).is_ok() {
        let _ = writer.write_all(&[1]);
    }
    // SAFETY: nothing of the program's runs at this process's end.
    unsafe { libc::_exit(0) }
}
