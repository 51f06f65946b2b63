//! One green thread's life, tried before the first is spawned: does this glibc behave as we found
//! it described?
//!
//! Two threads run on one block, the second after a recycling. What each must see is checked from
//! inside; what must have been destroyed, from outside. A failure is an answer, not a panic.

use super::{Place, block, layout};
use crate::engine::arch::{set_thread_pointer, thread_pointer};
use crate::engine::sys::mm::{self, PAGE};
use corosensei::stack::{Stack, StackPointer};
use corosensei::{Coroutine, CoroutineResult};
use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// A stack with a block, above a guard.
pub(super) struct Slot {
    memory: usize,
    size: usize,
    pub(super) place: Place,
}

const GUARD: usize = PAGE;

impl Slot {
    /// A slot with `stack` bytes of stack, or a few more, and a fresh block.
    pub(super) fn new(stack: usize) -> io::Result<Slot> {
        let size = (GUARD + stack + block::most()).next_multiple_of(PAGE);
        let memory = mm::map(size)?;
        // SAFETY: a fresh mapping is zero and nobody else's.
        let made = unsafe {
            mm::guard(memory, GUARD).and_then(|()| {
                let place = block::place(memory + size);
                block::create(&place, memory + GUARD, size - GUARD)?;
                Ok(Slot {
                    memory,
                    size,
                    place,
                })
            })
        };
        made.inspect_err(|_| {
            // SAFETY: nothing uses it.
            let _ = unsafe { mm::unmap(memory, size) };
        })
    }

    /// The life of one thread on the block, from `enter` to `exit`. A panic of `body` comes back as
    /// `None`.
    pub(super) fn run<T>(&mut self, body: impl FnOnce() -> T) -> Option<T> {
        let life = |_: &corosensei::Yielder<(), ()>, ()| {
            // SAFETY: first and last on this thread; the body's panic stops here.
            unsafe {
                block::enter();
                let result = catch_unwind(AssertUnwindSafe(body)).ok();
                block::exit();
                result
            }
        };
        let stack = Bounds(self.place.stack_top, self.memory + GUARD);
        // SAFETY: neither the closure nor what it borrows outlives this call: it never suspends.
        let mut thread = unsafe { Coroutine::with_stack_unchecked(stack, life) };
        // SAFETY: the block is this slot's and idle.
        match unsafe {
            resume(
                &mut thread,
                self.place.thread_pointer,
                layout::tcache_offset(),
            )
        } {
            CoroutineResult::Return(result) => result,
            CoroutineResult::Yield(()) => unreachable!("it never suspends"),
        }
    }

    pub(super) fn recycle(&mut self) {
        // SAFETY: `run` has returned, so the thread has ended.
        unsafe { block::recycle(self.place.thread_pointer) }
    }
}

#[cfg(test)]
impl Slot {
    /// Destroys the block and creates another in its place.
    pub(super) fn renew(&mut self) {
        let top = (self.memory + self.size) as *mut u8;
        let length = top as usize - self.place.stack_top;
        // SAFETY: nothing runs on the block.
        unsafe {
            block::destroy(self.place.thread_pointer);
            top.sub(length).write_bytes(0, length);
            let (bottom, size) = (self.memory + GUARD, self.size - GUARD);
            block::create(&self.place, bottom, size).expect("memory");
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // SAFETY: nothing runs on it, nothing points to it.
        unsafe {
            block::destroy(self.place.thread_pointer);
            let _ = mm::unmap(self.memory, self.size);
        }
    }
}

struct Bounds(usize, usize);

// SAFETY: both ends are 16-aligned and lie in the slot's own mapping, with nothing but stack
// between.
unsafe impl Stack for Bounds {
    fn base(&self) -> StackPointer {
        StackPointer::new(self.0).expect("not null")
    }
    fn limit(&self) -> StackPointer {
        StackPointer::new(self.1).expect("not null")
    }
}

/// Runs the thread to its end under its own thread pointer. Never inlined, and touches no
/// thread-local itself.
///
/// malloc's cache goes along, as in the scheduler: otherwise it would be lost with the block.
///
/// # Safety
/// The block at `block` is live, and nobody runs on it.
#[inline(never)]
unsafe fn resume<T>(
    thread: &mut Coroutine<(), (), T, Bounds>,
    block: *mut u8,
    tcache: Option<isize>,
) -> CoroutineResult<(), T> {
    let own = thread_pointer();
    let swap_tcache = || {
        if let Some(offset) = tcache {
            let word = |block: *mut u8| block.wrapping_offset(offset).cast::<usize>();
            // SAFETY: a word in each of the two blocks; no call to malloc is under way on either.
            unsafe { word(own).swap(word(block)) };
        }
    };
    // SAFETY: the caller's promise; the thread's body catches panics, so nothing unwinds past the
    // second switch.
    unsafe {
        swap_tcache();
        set_thread_pointer(block);
        let result = thread.resume(());
        set_thread_pointer(own);
        swap_tcache();
        result
    }
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

unsafe extern "C" fn destroy_value(value: *mut c_void) {
    DESTROYED.fetch_add(value as usize, Relaxed);
}

pub(super) fn run() -> Result<(), &'static str> {
    const STACK: usize = 256 << 10;
    let errno = || io::Error::last_os_error().raw_os_error();
    let mut key = 0;
    // SAFETY: a key with a destructor of the right type, deleted below.
    unsafe {
        if libc::pthread_key_create(&mut key, Some(destroy_value)) != 0 {
            return Err("no pthread key");
        }
        *libc::__errno_location() = 77;
    }
    INITIALISED.set(1);
    ZERO.set(1);
    let kernel_thread = std::thread::current().id();
    let mut slot = Slot::new(STACK).map_err(|_| "no memory")?;

    let mut result = Ok(());
    for thread in 1..=2 {
        let (dropped, destroyed) = (DROPPED.load(Relaxed), DESTROYED.load(Relaxed));
        let life = || inside(key, kernel_thread);
        result = slot.run(life).unwrap_or(Err("a panic"));
        if result.is_err() {
            break;
        }
        if DROPPED.load(Relaxed) != dropped + 1 {
            result = Err("a thread-local's destructor did not run exactly once");
        } else if DESTROYED.load(Relaxed) != destroyed + 7 {
            result = Err("a pthread key's destructor did not run exactly once");
        } else if INITIALISED.get() != 1 || ZERO.get() != 1 || errno() != Some(77) {
            result = Err("the kernel thread's own thread-locals changed");
        }
        if result.is_err() || thread == 2 {
            break;
        }
        slot.recycle();
    }
    // SAFETY: the key from above; no thread has a value for it.
    unsafe { libc::pthread_key_delete(key) };
    INITIALISED.set(0x5eed);
    ZERO.set(0);
    result
}

fn inside(
    key: libc::pthread_key_t,
    kernel_thread: std::thread::ThreadId,
) -> Result<(), &'static str> {
    let check = |holds: bool, otherwise| if holds { Ok(()) } else { Err(otherwise) };
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
    // SAFETY: libc calls with valid arguments.
    unsafe {
        let errno = libc::__errno_location();
        check(*errno == 0, "errno does not start as zero")?;
        *errno = 5;
        check(
            libc::pthread_getspecific(key).is_null(),
            "a pthread key starts with a value",
        )?;
        check(
            libc::pthread_setspecific(key, 7 as *const c_void) == 0,
            "a pthread key cannot be set",
        )?;
        check(
            libc::pthread_getspecific(key) as usize == 7,
            "a pthread key lost its value",
        )?;
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
    let memory: Vec<Vec<u8>> = (0..64).map(|i| vec![i as u8; 16 << (i % 12)]).collect();
    let sound = memory
        .iter()
        .enumerate()
        .all(|(i, bytes)| bytes.iter().all(|&byte| byte == i as u8));
    check(sound, "malloc gave overlapping memory")
}
