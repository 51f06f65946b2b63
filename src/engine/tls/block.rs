//! The life of one block: create, enter, exit, recycle, destroy (the picture is in the parent
//! module); with the end of a thread's pthread keys and of its robust mutexes, which is a part of `exit`.
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
//!
//! # pthread keys
//! (`pthread_setspecific`.) glibc keeps values in blocks of 32: the first lies in the control block, further ones are
//! allocated. glibc runs the destructors only when a kernel thread ends, in a function that no other code can call;
//! [`run_destructors`] does the same for green threads.
//!
//! # Robust mutexes
//! glibc keeps a ring of those that a thread holds in the control block, and gives its address to the kernel, which walks
//! the ring when a kernel thread ends (`exit_robust_list` in Linux' `kernel/futex`). The kernel does not know a green
//! thread's ring, so [`leave_robust_mutexes`] does the same, step for step: a mutex that has the thread's id gets the mark
//! "its owner died" in place of the id, and one thread that waits for the mutex is woken, and will find the mark. The
//! mutex that the thread was about to take or to give back (`pending`) may be in the ring or not.
//!
//! Waiters of a robust mutex wait in the kernel, in a futex that other processes may share, since that is where the
//! kernel wakes them. A mutex that inherits priorities is marked, and nobody is woken. A mutex may lie in memory that is
//! gone: such words are read guarded, and the walk ends where one cannot be read.
//!
//! | word | the ring, from `probe.robust` |
//! |---|---|
//! | 0 | its last mutex |
//! | 1 | its first mutex: the head, to which the last one leads back |
//! | 2 | from an entry to the futex of its mutex |
//! | 3 | the pending one |
//!
//! The lowest bit of an entry says that the mutex inherits priorities.

use super::layout::{BlockWords, VALUES, Values, WORD, layout};
use super::modules;
use crate::engine::arch::thread_pointer;
use crate::engine::sys::{sanitizer, syscall, word};
use std::sync::atomic::{AtomicU32, AtomicUsize};
use std::sync::{Mutex, PoisonError};
use std::{ffi::c_void, io, sync::atomic::Ordering::Relaxed};

/// locale.h's `LC_GLOBAL_LOCALE`.
const GLOBAL_LOCALE: libc::locale_t = -1isize as libc::locale_t;

/// Bytes of our own record in the block, below all that is glibc's. Its first word is the number of
/// the snapshot of modules that the block was last brought up to date with.
pub(super) const RECORD: usize = 64;

/// The thread pointer of a block that ends at `top`.
pub(crate) fn place(top: usize) -> *mut u8 {
    let sizes = layout().sizes;
    ((top - sizes.above) & !(sizes.align - 1)) as *mut u8
}

/// Where the stack below a block begins: its highest usable address, 16-aligned.
pub(crate) fn stack_top(thread_pointer: *mut u8) -> *mut u8 {
    thread_pointer.wrapping_sub(layout().sizes.below)
}

/// Where the control block of a block lies: the thread's name as a pthread.
pub(crate) fn control_block(thread_pointer: *mut u8) -> usize {
    layout().sizes.control_block(thread_pointer).addr()
}

/// A block that no thread uses: its thread has not begun, or has ended.
pub(crate) struct Block {
    /// All of it, from our record up.
    words: BlockWords<'static>,
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
        // SAFETY: a block has these bytes on both sides, and no thread uses them.
        let words = unsafe { BlockWords::new(start, sizes.all()) };
        Block { words, base }
    }

    #[inline]
    pub(super) fn thread_pointer(&self) -> *mut u8 {
        self.words.start().wrapping_add(self.base)
    }

    #[inline]
    pub(super) fn control(&self) -> BlockWords<'_> {
        let offset = layout().sizes.control_offset();
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

    /// The private thread id.
    pub(super) fn tid(&self) -> u32 {
        self.control().half(layout().tid).load(Relaxed)
    }

    /// The number of the snapshot that it was last brought up to date with.
    #[inline]
    pub(super) fn seen(&self) -> &AtomicUsize {
        self.words.word(0)
    }
}

/// Builds a block on zeroed memory. Allocates.
///
/// # Safety
/// The thread pointer is that of a [`place`]. The memory from its [`stack_top`] to the end of that place is zero and not in
/// use.
pub(crate) unsafe fn create(
    thread_pointer: *mut u8,
    stack_bottom: usize,
    stack_size: usize,
) -> io::Result<Block> {
    let tid = Tids::take().ok_or(io::ErrorKind::OutOfMemory)?;
    // The number is read before the loader copies the images. If a library is loaded in between, `enter` copies its image
    // once more.
    let seen = modules::number();
    // SAFETY: the memory is zero and nobody's, and has the bytes that the layout demands.
    let block = unsafe {
        if (layout().functions.allocate)(thread_pointer).is_null() {
            Tids::give_back(tid);
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        Block::of(thread_pointer)
    };
    layout().fill(&block, tid, stack_bottom, stack_size);
    sanitizer::lend_own(thread_pointer);
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
        modules::catch_up(&mut Block::of(thread_pointer()));
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
    let layout = layout();
    let call_destructors = layout.functions.call_destructors;
    let control = layout.sizes.own_control_block();
    // SAFETY: as libc does when a kernel thread ends, in this order.
    unsafe {
        call_destructors();
        let mut had_values = false;
        for round in 0.. {
            modules::refresh(); // invariant 4
            if round == ITERATIONS || !has_values(control) {
                break;
            }
            had_values = true;
            // As in glibc: a destructor that sets a value again sets this again.
            has_no_values(control);
            if !run_destructors(control) {
                break;
            }
            call_destructors();
        }
        if had_values {
            forget_values(control);
        }
        // This forgets the thread's last error of the loader, and frees its text.
        while !libc::dlerror().is_null() {}
        libc::uselocale(GLOBAL_LOCALE);
        close_resolver();
    }
    leave_robust_mutexes();
}

// The pthread keys of the calling thread, which ends: only `exit` calls these, with its control block.

/// Whether the thread set a value since the last [`forget_values`]. True if that cannot be
/// told.
fn has_values(control: BlockWords<'_>) -> bool {
    let is_set = |used| control.byte(used).load(Relaxed) != 0;
    layout().probe.keys_used.is_none_or(is_set)
}

fn has_no_values(control: BlockWords<'_>) {
    if let Some(used) = layout().probe.keys_used {
        control.byte(used).store(0, Relaxed);
    }
}

/// The pointers to blocks of values; such a block is absent until the thread sets one of its values.
fn value_blocks(control: BlockWords<'_>) -> impl Iterator<Item = &AtomicUsize> {
    let places = layout().values.clone().step_by(WORD);
    places.map(move |place| control.word(place))
}

/// Runs the destructor of every key that has a value. True if there was one: it may have set values again.
///
/// Other threads create and delete keys meanwhile. POSIX leaves it to the program that a key is not deleted while its
/// destructor is due.
fn run_destructors(control: BlockWords<'_>) -> bool {
    let mut any = false;
    for (block, keys) in value_blocks(control).zip(layout().keys.chunks(VALUES)) {
        // SAFETY: where the layout finds such a pointer, glibc has as many values. They are there until
        // `forget_values`, which is the last to read them. (A destructor may add blocks; it never removes one.)
        let Some(values) = (unsafe { (block.load(Relaxed) as *const Values).as_ref() }) else {
            continue;
        };
        for (value, key) in values.iter().zip(keys) {
            let data = value.data.load(Relaxed);
            if data == 0 {
                continue;
            }
            value.data.store(0, Relaxed);
            let destructor = key.destructor.load(Relaxed);
            // A key that was deleted after the value was set has another sequence number.
            let is_due = key.sequence.load(Relaxed) == value.sequence.load(Relaxed);
            if destructor != 0 && is_due {
                any = true;
                type Destructor = unsafe extern "C" fn(*mut c_void);
                // SAFETY: the key's destructor, called with the key's value by a thread that ends, as when a
                // kernel thread ends.
                unsafe {
                    let destructor = std::mem::transmute::<usize, Destructor>(destructor);
                    destructor(data as *mut c_void);
                }
            }
        }
    }
    any
}

/// Forgets all values: a value that a destructor set again in the last round leaks, as with pthreads.
fn forget_values(control: BlockWords<'_>) {
    for (i, block) in value_blocks(control).enumerate() {
        let values = block.load(Relaxed) as *mut Values;
        if i == 0 {
            // SAFETY: the thread's own values, in the control block, which nothing reads any more: the thread ends.
            unsafe { values.write_bytes(0, 1) };
        } else {
            block.store(0, Relaxed);
            // SAFETY: the thread's own values, which are malloc's, or absent.
            unsafe { libc::free(values.cast()) };
        }
    }
    has_no_values(control);
}

/// Does what the kernel does for a thread that ends: its robust mutexes have no owner from now on, and its ring is empty.
fn leave_robust_mutexes() {
    /// Entries that are looked at, at most: as the kernel has it, against rings that do not end.
    const MOST: usize = 2048;
    let (control, ring) = (layout().sizes.own_control_block(), layout().probe.robust);
    let head = control.word(ring + WORD);
    let pending = control.word(ring + 3 * WORD);
    let empty = core::ptr::from_ref(head).addr();
    if head.load(Relaxed) == empty && pending.load(Relaxed) == 0 {
        return;
    }
    let tid = control.half(layout().tid).load(Relaxed);
    let to_futex = control.word(ring + 2 * WORD).load(Relaxed);
    // The word of an entry: the entry's address, and whether its mutex inherits priorities.
    let split = |word: usize| (word & !1, word & 1 != 0);
    let (last, last_inherits) = split(pending.load(Relaxed));
    let (mut entry, mut inherits) = split(head.load(Relaxed));
    for _ in 0..MOST {
        if entry == empty {
            break;
        }
        // The next owner of the mutex changes the entry, so the entry is read before the mutex is left.
        let next = word::read(entry);
        let is_left = entry == last
            || leave_mutex(entry.wrapping_add(to_futex), tid, inherits, false).is_some();
        match next.filter(|_| is_left) {
            Some(next) => (entry, inherits) = split(next),
            None => break,
        }
    }
    if last != 0 {
        leave_mutex(last.wrapping_add(to_futex), tid, last_inherits, true);
    }
    control.word(ring).store(empty, Relaxed);
    head.store(empty, Relaxed);
    pending.store(0, Relaxed);
}

/// The thread `tid` has ended: if it owns the mutex, the mutex is marked, and one thread that waits is woken. `None`: the
/// word cannot be read or written.
fn leave_mutex(futex: usize, tid: u32, inherits: bool, is_pending: bool) -> Option<()> {
    // A futex's word (linux/futex.h).
    use libc::{FUTEX_OWNER_DIED as DIED, FUTEX_TID_MASK as OWNER, FUTEX_WAITERS as WAITERS};
    if !futex.is_multiple_of(4) {
        return None;
    }
    let next = |word: u32| match word & OWNER == tid {
        true => word & WAITERS | DIED,
        false => word,
    };
    let before = word::update(futex, next)?;
    let was_ours = before & OWNER == tid && before & WAITERS != 0;
    // The thread may have given the mutex back already, without having woken a waiter yet.
    let was_given_back = is_pending && before & OWNER == 0;
    if !inherits && (was_ours || was_given_back) {
        // SAFETY: the kernel takes the address for a name.
        let _ = unsafe { syscall!(libc::SYS_futex, futex, libc::FUTEX_WAKE, 1, 0, 0, 0) };
    }
    Some(())
}

/// Lets go of the data that the resolver keeps for this thread, if it was used.
fn close_resolver() {
    // How `struct __res_state` begins (resolv.h): two words of 32 bits, options, number of servers.
    const OPTIONS: usize = 8;
    const SERVERS: usize = 16;
    let layout = layout();
    let (state, control) = (layout.probe.resolver, layout.sizes.own_control_block());
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
    // SAFETY: the thread has ended, and its stack was left: nobody uses the block.
    let mut block = unsafe { Block::of(thread_pointer) };
    // The thread that has ended may have changed fields that have another initial value.
    layout().restore_initial(block.control());
    modules::reset(&mut block);
    sanitizer::lend_own(thread_pointer);
}

/// A thread is about to begin in this block: the last one may have ended by `pthread_exit`, or have been cancelled after its end.
#[inline]
pub(crate) fn forget_cancellation(thread_pointer: *mut u8) {
    // SAFETY: the block is the caller's, and no thread uses it.
    let block = unsafe { Block::of(thread_pointer) };
    let word = block.control().half(layout().cancellation);
    word.store(0, Relaxed);
}

/// Takes a block apart, and frees what `create` allocated; its memory is the caller's again. A cache of malloc's in the block
/// would be lost: the caller has moved it away (`tcache_offset`). Takes malloc's locks. What remains is
/// malloc's count of the threads that use an arena, which glibc lets nobody else lower: the arena is
/// shared with others, but never free for one thread alone.
///
/// # Safety
/// The block was `recycle`d, or created and not entered; nobody uses it, and it has no cache of
/// malloc's (`tcache_offset`).
pub(crate) unsafe fn destroy(thread_pointer: *mut u8) {
    // SAFETY: nobody uses the block, or will. It was laid out by this function's counterpart. `false`: the block itself is not
    // the loader's to free.
    unsafe {
        Tids::give_back(Block::of(thread_pointer).tid());
        (layout().functions.deallocate)(thread_pointer, false);
    }
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
        let mut tids = TIDS.lock().unwrap_or_else(PoisonError::into_inner);
        tids.free.push(tid);
    }
}
