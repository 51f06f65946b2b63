//! The life of one block: create, enter, exit, recycle, destroy (the picture is in the parent
//! module).
//!
//! # Invariants
//!
//! 1. A block's private thread id is unique among the blocks that exist, and is no kernel thread's, nor one of the
//!    first 128 of another process: glibc's recursive, error-checking and robust mutexes tell owners apart by it. It stays with
//!    the block when it is recycled, as the kernel reuses ids (and as glibc reuses the address of
//!    the control block).
//! 2. `recycle` takes no lock, allocates nothing, and touches no thread-local.
//! 3. libc's own thread-locals are not reset: malloc's arena and buffers are worth keeping. `enter` and
//!    `exit` put right those that a new thread can tell apart (locale, errno, dlerror, the resolver).
//! 4. After the last destructor of a pthread key nothing allocates: an allocator may know a thread
//!    by its key alone, would take this one for new, and keep it in its lists when the block is
//!    recycled (jemalloc does). The exception is a thread whose destructors set keys again in every
//!    round, if a library is loaded meanwhile: such values leak with pthreads, too.

use super::layout::layout;
use super::variant::VARIANT;
use super::words::Words;
use super::{glibc, keys, modules, robust};
use crate::engine::arch::thread_pointer;
use crate::engine::sys::sanitizer;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicUsize};
use std::sync::{Mutex, PoisonError};

/// locale.h's `LC_GLOBAL_LOCALE`.
const GLOBAL_LOCALE: libc::locale_t = -1isize as libc::locale_t;

/// Where the parts of a block lie.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    /// The thread pointer.
    pub(crate) thread_pointer: *mut u8,
    /// The highest usable address of the stack, 16-aligned.
    pub(crate) stack_top: usize,
}

/// Bytes of our own record in the block, below all that is glibc's. Its first word is the number of
/// the snapshot of modules that the block was last brought up to date with.
pub(super) const RECORD: usize = 64;

/// Where things lie if the block ends at `top`.
pub(crate) fn place(top: usize) -> Place {
    let sizes = layout().sizes;
    let thread_pointer = (top - sizes.above) & !(sizes.align - 1);
    let record = thread_pointer - sizes.below;
    Place {
        thread_pointer: thread_pointer as *mut u8,
        stack_top: record,
    }
}

/// Where the stack below a block begins.
pub(crate) fn stack_top(thread_pointer: *mut u8) -> *mut u8 {
    thread_pointer.wrapping_sub(layout().sizes.below)
}

/// Where the control block of a block lies: the thread's name as a pthread.
pub(crate) fn control_block(thread_pointer: *mut u8) -> usize {
    let offset = VARIANT.control_block(layout().sizes.control);
    thread_pointer.addr().wrapping_add_signed(offset)
}

/// Bytes from a block's stack to its top, at most.
pub(super) fn most() -> usize {
    let sizes = layout().sizes;
    sizes.all() + sizes.align
}

/// A block that no thread uses: its thread has not begun, or has ended.
pub(crate) struct Block {
    /// All of it, from our record up.
    words: Words<'static>,
    /// The thread pointer's place in it.
    base: usize,
}

impl Block {
    /// # Safety
    /// `thread_pointer` is that of a block in which `_dl_allocate_tls` has laid things out, and no
    /// thread uses it for as long as the value is used.
    #[inline]
    unsafe fn of(thread_pointer: *mut u8) -> Block {
        let sizes = &layout().sizes;
        let base = sizes.below;
        let start = thread_pointer.wrapping_sub(base);
        // SAFETY: the caller's promise; a block has these bytes on both sides.
        let words = unsafe { Words::new(start, sizes.all()) };
        Block { words, base }
    }

    #[inline]
    pub(super) fn thread_pointer(&self) -> *mut u8 {
        self.words.start().wrapping_add(self.base)
    }

    #[inline]
    pub(super) fn control(&self) -> Words<'_> {
        let offset = VARIANT.control_block(layout().sizes.control);
        self.words.from(self.base.wrapping_add_signed(offset))
    }

    /// A word at an offset from the thread pointer.
    pub(super) fn local(&self, offset: isize) -> &AtomicUsize {
        self.words.word(self.base.wrapping_add_signed(offset))
    }

    /// Half a word at an offset from the thread pointer.
    pub(super) fn half(&self, offset: isize) -> &AtomicU32 {
        self.words.half(self.base.wrapping_add_signed(offset))
    }

    /// The number of the snapshot that it was last brought up to date with.
    #[inline]
    fn seen(&self) -> &AtomicUsize {
        self.words.word(0)
    }

    /// Makes the block of an ended thread as good as new.
    #[inline]
    pub(super) fn recycle(&mut self) {
        layout().refill(self);
        let seen = modules::reset(self);
        self.seen().store(seen, Relaxed);
        sanitizer::lend_own(self.thread_pointer());
    }

    /// Frees what `create` allocated; the memory is the caller's again. A cache of malloc's in the block
    /// is lost: the caller has moved it away (`tcache_offset`).
    pub(super) fn destroy(self) {
        Tids::give_back(layout().tid(&self));
        // SAFETY: laid out by its counterpart. `false`: the block itself is not the loader's to free.
        unsafe { (layout().functions.deallocate)(self.thread_pointer(), false) };
    }
}

/// Builds a block on zeroed memory. Allocates.
///
/// # Safety
/// The memory from `place.stack_top` to the `top` it was computed from is zero and not in use.
pub(crate) unsafe fn create(
    place: &Place,
    stack_bottom: usize,
    stack_size: usize,
) -> io::Result<Block> {
    let tid = Tids::take().ok_or(io::ErrorKind::OutOfMemory)?;
    // Before the loader copies its images in: `enter` then copies the images of libraries loaded in
    // between once more.
    let seen = modules::number();
    // SAFETY: the caller's memory is as the layout demands.
    let block = unsafe {
        if (layout().functions.allocate)(place.thread_pointer).is_null() {
            Tids::give_back(tid);
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        Block::of(place.thread_pointer)
    };
    layout().fill(&block, tid, stack_bottom, stack_size);
    sanitizer::lend_own(place.thread_pointer);
    block.seen().store(seen, Relaxed);
    Ok(block)
}

/// The first code of every green thread, whether its block was created or recycled. Preemptible: if
/// libraries were loaded, it takes the loader's locks and allocates.
///
/// # Safety
/// Runs on the green thread, once.
pub(crate) unsafe fn enter() {
    // SAFETY: the thread's own block, before it has done anything. `uselocale` also sets up the
    // tables behind `isalpha` and its like, which libc does for its own threads. It comes first:
    // the rest may allocate, and malloc may need these tables.
    unsafe {
        libc::uselocale(GLOBAL_LOCALE);
        modules::refresh();
        let mut block = Block::of(thread_pointer());
        let before = block.seen().load(Relaxed);
        let seen = modules::catch_up(&mut block, before);
        if seen != before {
            block.seen().store(seen, Relaxed);
        }
    }
    forget_errno();
}

/// Sets the running thread's errno to 0, as at the beginning of a thread.
pub(crate) fn forget_errno() {
    // SAFETY: the thread's own word.
    unsafe { *libc::__errno_location() = 0 };
}

/// The last code of every green thread: runs the destructors of its thread-locals and pthread keys, and lets go of its
/// robust mutexes. Preemptible.
///
/// # Safety
/// Runs on the green thread. After it the thread runs no code that uses a thread-local with a
/// destructor, unless this is then called again.
pub(crate) unsafe fn exit() {
    const ITERATIONS: usize = 4; // PTHREAD_DESTRUCTOR_ITERATIONS
    let call_destructors = layout().functions.call_destructors;
    // SAFETY: as libc does when a kernel thread ends, in this order.
    unsafe {
        call_destructors();
        for round in 0.. {
            modules::refresh(); // invariant 4
            if round == ITERATIONS || !keys::used() || !keys::run_destructors() {
                break;
            }
            call_destructors();
        }
        if keys::used() {
            keys::clear();
        }
        glibc::forget_error();
        libc::uselocale(GLOBAL_LOCALE);
        close_resolver();
    }
    robust::let_go();
}

/// Lets go of the data that the resolver keeps for this thread, if it was used.
fn close_resolver() {
    // How `struct __res_state` begins (resolv.h): two words of 32 bits, options, number of servers.
    const OPTIONS: usize = 8;
    const SERVERS: usize = 16;
    let layout = layout();
    let (state, control) = (layout.resolver(), layout.sizes.own_control_block());
    if control.half(state + SERVERS).load(Relaxed) != 0
        && let Some(close) = layout.functions.close_resolver
    {
        // SAFETY: as libc does when a kernel thread ends: no options means "initialise again".
        unsafe { close(control.start().wrapping_add(state).cast()) };
        control.word(state + OPTIONS).store(0, Relaxed);
    }
}

/// Makes the block of an ended thread as good as new.
///
/// # Safety
/// Its thread has ended with `exit`, and its stack was left for good.
pub(crate) unsafe fn recycle(thread_pointer: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { Block::of(thread_pointer) }.recycle();
}

/// Takes a block apart; its memory is the caller's again. Takes malloc's locks. What remains is
/// malloc's count of the threads that use an arena, which glibc lets nobody else lower: the arena is
/// shared with others, but never free for one thread alone.
///
/// # Safety
/// The block was `recycle`d, or created and not entered; nobody uses it, and it has no cache of
/// malloc's (`tcache_offset`).
pub(crate) unsafe fn destroy(thread_pointer: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { Block::of(thread_pointer) }.destroy();
}

/// The private thread ids: all that were ever used are in use or on the list.
struct Tids {
    /// How many were ever used.
    used: u32,
    free: Vec<u32>,
}

static TIDS: Mutex<Tids> = Mutex::new(Tids {
    used: 0,
    free: Vec::new(),
});

impl Tids {
    /// Above the kernel's highest (2^22), within the 30 bits that a futex has for an owner.
    const FIRST: u32 = 0x2000_0000;
    /// How many there are.
    const ALL: u32 = 0x2000_0000;
    /// Processes that share a mutex tell owners apart by these ids, too: each begins elsewhere, a step of this length for
    /// each id that the kernel has for processes.
    const STEP: u32 = 1 << (29 - 22);
    /// Odd, so that no two processes have one beginning; and those that were started one after the other, and share,
    /// begin far apart.
    const SCATTER: u32 = 0x9e37_79b1;

    fn take() -> Option<u32> {
        let mut tids = TIDS.lock().unwrap_or_else(PoisonError::into_inner);
        tids.free.pop().or_else(|| {
            let begin = std::process::id().wrapping_mul(Self::SCATTER) % (Self::ALL / Self::STEP);
            let tid = (begin * Self::STEP).wrapping_add(tids.used) % Self::ALL + Self::FIRST;
            let is_left = tids.used < Self::ALL;
            tids.used += u32::from(is_left);
            is_left.then_some(tid)
        })
    }

    fn give_back(tid: u32) {
        TIDS.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .free
            .push(tid);
    }
}
