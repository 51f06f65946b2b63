//! The life of one block: create, enter, exit, recycle, destroy (the picture is in the parent
//! module).
//!
//! # Invariants
//!
//! 1. A block's private thread id is unique among the blocks that exist, and is no kernel thread's:
//!    glibc's recursive, error-checking and robust mutexes tell owners apart by it. It stays with
//!    the block when it is recycled, as the kernel reuses ids (and as glibc reuses the address of
//!    the control block).
//! 2. `recycle` takes no lock, allocates nothing, and touches no thread-local.
//! 3. libc's own thread-locals are not reset: malloc's arena and buffers are worth keeping. What a
//!    new thread can tell apart (locale, errno, dlerror, the resolver) is put right in `enter` and
//!    `exit`.
//! 4. After the last destructor of a pthread key nothing allocates: an allocator may know a thread
//!    by its key alone, would take this one for new, and keep it in its lists when the block is
//!    recycled (jemalloc does). The exception is a thread whose destructors set keys again in every
//!    round, if a library is loaded meanwhile: what they set leaks with pthreads, too.

use super::layout::layout;
use super::{keys, modules};
use crate::engine::arch::thread_pointer;
use std::io;
use std::sync::{Mutex, PoisonError};

/// locale.h's `LC_GLOBAL_LOCALE`.
const GLOBAL_LOCALE: libc::locale_t = -1isize as libc::locale_t;

/// Where the parts of a block lie.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    /// The control block.
    pub(crate) thread_pointer: *mut u8,
    /// The highest usable address of the stack, 16-aligned.
    pub(crate) stack_top: usize,
}

/// Our own record in the block, just below the thread-locals.
#[repr(C, align(64))]
struct Record {
    /// The snapshot of modules that the block was last brought up to date with.
    seen: u64,
}

/// Where things lie if the block ends at `top`.
pub(crate) fn place(top: usize) -> Place {
    let layout = layout();
    let thread_pointer = (top - layout.control_size) & !(layout.align - 1);
    let record = thread_pointer - record_below();
    Place {
        thread_pointer: thread_pointer as *mut u8,
        stack_top: record,
    }
}

/// Where the stack below a block begins.
pub(crate) fn stack_top(thread_pointer: *mut u8) -> *mut u8 {
    thread_pointer.wrapping_sub(record_below())
}

/// Bytes from a block's stack to its top, at most.
pub(super) fn most() -> usize {
    let layout = layout();
    record_below() + layout.control_size + layout.align
}

fn record_below() -> usize {
    let layout = layout();
    // Rounded up: thread-locals begin at or above it.
    (layout.static_size - layout.control_size).next_multiple_of(64) + size_of::<Record>()
}

/// # Safety
/// `thread_pointer` is a block's.
unsafe fn record<'a>(thread_pointer: *mut u8) -> &'a mut Record {
    // SAFETY: part of the block; only its thread and who owns the block between two threads use it.
    unsafe { &mut *thread_pointer.sub(record_below()).cast() }
}

/// Builds a block on zeroed memory. Allocates.
///
/// # Safety
/// The memory from `place.stack_top` to the `top` it was computed from is zero and not in use.
pub(crate) unsafe fn create(
    place: &Place,
    stack_bottom: usize,
    stack_size: usize,
) -> io::Result<()> {
    let tid = Tids::take().ok_or(io::ErrorKind::OutOfMemory)?;
    // Before the loader copies its images in: what is loaded in between is then copied once more by
    // `enter`.
    let seen = modules::number();
    // SAFETY: the caller's memory is as the layout demands.
    unsafe {
        if (layout().allocate)(place.thread_pointer).is_null() {
            Tids::give_back(tid);
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        layout().fill(place.thread_pointer, tid, stack_bottom, stack_size);
        record(place.thread_pointer).seen = seen;
    }
    Ok(())
}

/// The first code of every green thread, whether its block was created or recycled. Preemptible: if
/// libraries were loaded, it takes the loader's locks and allocates.
///
/// # Safety
/// Runs on the green thread, once.
pub(crate) unsafe fn enter() {
    let thread_pointer = thread_pointer();
    modules::refresh();
    // SAFETY: the thread's own block, before it has done anything. `uselocale` also sets up the
    // tables behind `isalpha` and its like, which libc does for its own threads.
    unsafe {
        let record = record(thread_pointer);
        record.seen = modules::catch_up(thread_pointer, record.seen);
        libc::uselocale(GLOBAL_LOCALE);
        *libc::__errno_location() = 0;
    }
}

/// The last code of every green thread: runs the destructors of its thread-locals and pthread keys.
/// Preemptible.
///
/// # Safety
/// Runs on the green thread. After it the thread runs no code that uses a thread-local with a
/// destructor, unless this is then called again.
pub(crate) unsafe fn exit() {
    const ITERATIONS: usize = 4; // PTHREAD_DESTRUCTOR_ITERATIONS
    let layout = layout();
    // SAFETY: as libc does when a kernel thread ends, in this order.
    unsafe {
        (layout.call_destructors)();
        for round in 0.. {
            modules::refresh(); // invariant 4
            if round == ITERATIONS || !keys::used() || !keys::run_destructors() {
                break;
            }
            (layout.call_destructors)();
        }
        if keys::used() {
            keys::clear();
        }
        while !libc::dlerror().is_null() {}
        libc::uselocale(GLOBAL_LOCALE);
        close_resolver(layout.resolver(thread_pointer()));
    }
}

/// Lets go of what the resolver keeps for this thread, if it was used.
///
/// # Safety
/// `state` is the thread's `struct __res_state`.
unsafe fn close_resolver(state: *mut u8) {
    /// How `struct __res_state` begins (resolv.h).
    #[repr(C)]
    struct State {
        retransmit: i32,
        retry: i32,
        options: u64,
        servers: i32,
    }
    // SAFETY: as libc does when a kernel thread ends: no options means "initialise again".
    unsafe {
        let head: *mut State = state.cast();
        if (*head).servers != 0
            && let Some(close) = layout().close_resolver
        {
            close(state.cast());
            (*head).options = 0;
        }
    }
}

/// Makes the block of an ended thread as good as new.
///
/// # Safety
/// Its thread has ended with `exit`, and its stack was left for good.
pub(crate) unsafe fn recycle(thread_pointer: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { record(thread_pointer).seen = modules::reset(thread_pointer) };
}

/// Frees what `create` allocated; the memory is the caller's again. What malloc's cache holds in
/// the block is lost: the caller has moved the cache away (`tcache_offset`).
///
/// # Safety
/// No thread runs or will run on the block.
pub(crate) unsafe fn destroy(thread_pointer: *mut u8) {
    // SAFETY: the caller's promise. `false`: the block itself is not the loader's to free.
    unsafe {
        Tids::give_back(layout().tid(thread_pointer));
        (layout().deallocate)(thread_pointer, false);
    }
}

/// The private thread ids: all that were ever used are in use or on the list.
struct Tids {
    next: u32,
    free: Vec<u32>,
}

static TIDS: Mutex<Tids> = Mutex::new(Tids {
    next: Tids::FIRST,
    free: Vec::new(),
});

impl Tids {
    /// Above the kernel's highest (2^22), within the 30 bits that a futex has for an owner.
    const FIRST: u32 = 0x2000_0000;
    const END: u32 = 0x4000_0000;

    fn take() -> Option<u32> {
        let mut tids = TIDS.lock().unwrap_or_else(PoisonError::into_inner);
        tids.free.pop().or_else(|| {
            let tid = tids.next;
            tids.next += (tid < Tids::END) as u32;
            (tid < Tids::END).then_some(tid)
        })
    }

    fn give_back(tid: u32) {
        TIDS.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .free
            .push(tid);
    }
}
