//! One green thread's life, tried before the first is spawned: does this glibc behave as we found
//! it described?
//!
//! Two threads run on one block, the second after a recycling. The values that each
//! must find are checked from inside, the destructors that must have run from outside. A failure is an
//! answer, not a panic.

use super::block::{self, Block};
use super::glibc::Key;
use super::{Place, layout};
use crate::engine::arch::{fresh_stack, set_thread_pointer, switch, thread_pointer};
use crate::engine::sys::mm::{self, Mapping, page};
use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// A stack with a block, above a guard.
pub(super) struct Slot {
    /// There is one until the slot is dropped.
    block: Option<Block>,
    place: Place,
    _memory: Mapping,
}

impl Slot {
    /// A slot with `stack` bytes of stack, or a few more, and a fresh block.
    pub(super) fn new(stack: usize) -> io::Result<Slot> {
        let guard = page();
        let size = (guard + stack + block::most()).next_multiple_of(page());
        let memory = Mapping::new(size)?;
        let place = block::place(memory.end());
        // SAFETY: a fresh mapping is zero and nobody else's.
        let block = unsafe {
            mm::guard(memory.start(), guard)?;
            block::create(&place, memory.start() + guard, size - guard)?
        };
        Ok(Slot {
            block: Some(block),
            place,
            _memory: memory,
        })
    }

    pub(super) fn block(&mut self) -> &mut Block {
        self.block.as_mut().expect("a slot has a block")
    }

    /// The life of one thread on the block, from `enter` to `exit`. A panic of `body` comes back as
    /// `None`.
    pub(super) fn run<T>(&mut self, body: impl FnOnce() -> T) -> Option<T> {
        let life = || {
            // SAFETY: first and last on this thread; the body's panic stops here.
            unsafe {
                block::enter();
                let result = catch_unwind(AssertUnwindSafe(body)).ok();
                block::exit();
                result
            }
        };
        let stack_top = self.place.stack_top;
        run_to_its_end(stack_top, life, self.block(), layout::tcache_offset())
    }

    pub(super) fn recycle(&mut self) {
        self.block().recycle();
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            block.destroy();
        }
    }
}

/// A thread that runs to its end at once, and where its caller waits meanwhile.
struct Thread<T, F> {
    life: Option<F>,
    result: Option<T>,
    caller: usize,
}

/// # Safety
/// `thread` is one, its caller has switched to this stack and waits.
unsafe extern "C" fn live<T, F: FnOnce() -> T>(thread: *mut ()) -> ! {
    // SAFETY: the caller's promise. The caller goes on by the last line, and the stack is left for good.
    unsafe {
        let thread = &mut *thread.cast::<Thread<T, F>>();
        thread.result = thread.life.take().map(|life| life());
        let mut left = 0;
        switch(&mut left, thread.caller, 0);
    }
    unreachable!("nobody comes back")
}

/// Runs `life`, which catches panics and never suspends, on the stack below `stack_top` and under the block's
/// thread pointer. Never inlined, and touches no thread-local itself.
///
/// malloc's cache goes along, as in the scheduler: otherwise it would be lost with the block.
#[inline(never)]
fn run_to_its_end<T, F: FnOnce() -> T>(
    stack_top: usize,
    life: F,
    block: &mut Block,
    tcache: Option<isize>,
) -> T {
    let (own, block) = (thread_pointer(), block.thread_pointer());
    let mut thread = Thread {
        life: Some(life),
        result: None,
        caller: 0,
    };
    let thread: *mut Thread<T, F> = &mut thread;
    // SAFETY: the thread ends here, so it outlives nothing that it borrows. The block is live, and
    // nobody else runs on it, nor on its stack, whose top is aligned. The cache's word is one in each of the two
    // blocks, and no call to malloc is under way on either.
    let result = unsafe {
        let stack = fresh_stack(stack_top, live::<T, F>, thread.cast());
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
        (*thread).result.take()
    };
    result.expect("it has run to its end")
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
    let key = Key::new(Some(destroy_value)).ok_or("no pthread key")?;
    let error = fail();
    INITIALISED.set(1);
    ZERO.set(1);
    let kernel_thread = std::thread::current().id();
    let mut slot = Slot::new(STACK).map_err(|_| "no memory")?;

    let mut result = Ok(());
    for thread in 1..=2 {
        let (dropped, destroyed) = (DROPPED.load(Relaxed), DESTROYED.load(Relaxed));
        let life = || inside(&key, kernel_thread);
        result = slot.run(life).unwrap_or(Err("a panic"));
        if result.is_err() {
            break;
        }
        if DROPPED.load(Relaxed) != dropped + 1 {
            result = Err("a thread-local's destructor did not run exactly once");
        } else if DESTROYED.load(Relaxed) != destroyed + 7 {
            result = Err("a pthread key's destructor did not run exactly once");
        } else if INITIALISED.get() != 1 || ZERO.get() != 1 || errno() != error {
            result = Err("the kernel thread's own thread-locals changed");
        }
        if result.is_err() || thread == 2 {
            break;
        }
        slot.recycle();
    }
    INITIALISED.set(0x5eed);
    ZERO.set(0);
    result
}

/// Leaves an error in errno.
fn fail() -> Option<i32> {
    std::fs::read_link("")
        .err()
        .and_then(|error| error.raw_os_error())
}

fn errno() -> Option<i32> {
    io::Error::last_os_error().raw_os_error()
}

fn inside(key: &Key, kernel_thread: std::thread::ThreadId) -> Result<(), &'static str> {
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
    let sound = memory
        .iter()
        .enumerate()
        .all(|(i, bytes)| bytes.iter().all(|&byte| byte == i as u8));
    check(sound, "malloc gave overlapping memory")
}
