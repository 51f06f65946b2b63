//! The probe thread: a short-lived pthread on a stack we know, which searches its own control block
//! for parts that it can recognise. Each search must find exactly one place.
//!
//! The probe thread also makes libc leave its single-threaded shortcuts (atomics without `lock`, stdio without
//! locks) before a second green thread can exist.
//!
//! # Fields that do not begin as zero, and that nobody describes: flags and states
//!
//! A block is made of zeroes and of what `layout` knows. If zero says something else to glibc than "a
//! joinable thread, which runs, on a stack of the caller's", glibc may free that stack: since 2.43 a zero in
//! one field says that the thread has ended, and `pthread_detach` of oneself then gives the stack away. So
//! a block begins with what the probe thread was found to begin with, which is such a thread.
//!
//! A word that may be an address is not copied. It must be an address in the probe thread's stack or in a
//! library's code, where the thread's own stack, its start and its argument lie. Another one is a field
//! that the crate does not know: then a glibc that was not tested is refused.

use super::layout::{
    BLOCK, BlockWords, GUARDS, OWN_ADDRESS, PthreadKey, SHARED, Sizes, WORD, data, is_known, run_on,
};
use crate::engine::arch::thread_pointer;
use crate::engine::sys::libraries;
use crate::engine::sys::mm::{Mapping, page};
use std::sync::atomic::Ordering::Relaxed;
use std::{cell::Cell, ffi::c_void, hint::black_box, ops::Range, sync::atomic::AtomicUsize};

/// Where in the control block, as offsets in bytes.
pub(super) struct Probe {
    /// The stack's lowest address, followed by its size.
    pub(super) stack: usize,
    /// The empty ring of robust mutexes: last, first, offset of the futex, pending.
    pub(super) robust: usize,
    /// The value of the third of these words.
    pub(super) robust_futex: usize,
    /// The resolver's state.
    pub(super) resolver: usize,
    /// The thread-local that points to it, as an offset from the thread pointer.
    pub(super) resolver_pointer: isize,
    /// The first block of values of pthread keys.
    pub(super) first_block: usize,
    /// A byte that is set with the thread's first value of a pthread key, where recognised.
    pub(super) keys_used: Option<usize>,
    /// The values of the words in `SHARED`.
    pub(super) shared: [usize; SHARED.end / WORD - SHARED.start / WORD],
    /// Fields that do not begin as zero, and that nobody describes: their offsets, and their values.
    pub(super) initial: Vec<(usize, usize)>,
    /// malloc's `tcache`, where recognised.
    pub(super) tcache: Option<CacheWord>,
}

/// The thread-local through which malloc finds its per-thread cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct CacheWord {
    /// From the thread pointer.
    pub(super) offset: isize,
    /// Its value in a thread that has no cache: null, or the address of an empty one that all
    /// share (glibc 2.43 reads through it without a look).
    pub(super) none: usize,
}

/// The facts that the thread needs.
struct Task {
    /// Its stack, from the lowest address to the highest.
    stack: Range<usize>,
    /// Of the thread that asks.
    guards: Vec<usize>,
    sizes: Sizes,
    /// Where the control block points to blocks of values of pthread keys.
    values: Range<usize>,
    /// Other parts of the control block that the layout knows.
    known: Vec<Range<usize>>,
    key: PthreadKey,
}

impl Probe {
    pub(super) fn run(
        sizes: Sizes,
        values: Range<usize>,
        known: Vec<Range<usize>>,
    ) -> Result<Probe, String> {
        const STACK: usize = 1 << 20;
        let size = (STACK + sizes.all()).next_multiple_of(page());
        let mut stack = Mapping::new(size).map_err(|_| "no memory for the probe thread")?;
        let task = Task {
            stack: stack.0.clone(),
            guards: guards_of(sizes.own_control_block()),
            sizes,
            values,
            known,
            key: PthreadKey::new(None).ok_or("no pthread key for the probe thread")?,
        };
        let libc = libc_block();
        let mut answer = Err("the probe thread did not run".into());
        run_on(&mut stack, &mut |argument| {
            // The search comes first, before anything else on this thread calls malloc.
            let tcache = libc.filter(|_| is_known()).and_then(find_tcache);
            answer = look_around(&task, argument).map(|found| Probe { tcache, ..found });
        });
        answer
    }
}

fn look_around(task: &Task, argument: usize) -> Result<Probe, String> {
    let control = task.sizes.own_control_block();
    let address = control.start() as usize;
    let words = &copy(task.sizes);
    if !(task.stack.start..=task.stack.end - task.sizes.control).contains(&address) {
        return Err("the control block is not on its stack".into());
    }
    if OWN_ADDRESS.iter().any(|&at| words[at / WORD] != address) {
        return Err("the control block does not point to itself".into());
    }
    if guards_of(control) != task.guards {
        return Err("the guards differ from thread to thread".into());
    }
    if words[SHARED.start / WORD] > 1 {
        return Err("the first word that threads share is not a flag".into());
    }

    let bounds = |_, w: &[usize]| w[0] == task.stack.start && w[1] == task.stack.len();
    let stack = only(words, "stack bounds", bounds)?;
    let ring = |at, w: &[usize]| w[0] == address + at + WORD && w[1] == w[0] && w[3] == 0;
    let robust = only(words, "robust list", ring)?;
    let robust_futex = words[robust / WORD + 2];
    if !(-256..0).contains(&(robust_futex as isize)) {
        return Err("odd offset of the futex in a robust mutex".into());
    }
    let first_block = words[task.values.start / WORD].wrapping_sub(address);
    if first_block >= task.sizes.control - BLOCK {
        return Err("the first block of keys lies elsewhere".into());
    }
    let pointer = data(c"__resp", WORD)?; // this thread's own
    let resolver = pointer.word(0).load(Relaxed).wrapping_sub(address);
    if resolver >= task.sizes.control {
        return Err("the resolver's state lies elsewhere".into());
    }
    let known = [
        0..SHARED.end + WORD,
        stack..stack + 2 * WORD,
        robust..robust + 4 * WORD,
        task.values.clone(),
        first_block..first_block + BLOCK,
    ];
    let known = [&known, &*task.known].concat();
    let own = [task.stack.clone(), argument..argument + 1];
    Ok(Probe {
        initial: find_initial(words, &known, &own)?,
        stack,
        robust,
        robust_futex,
        resolver,
        resolver_pointer: pointer.start() as isize - thread_pointer() as isize,
        first_block,
        keys_used: find_keys_used(task, first_block),
        shared: std::array::from_fn(|i| words[SHARED.start / WORD + i]),
        tcache: None,
    })
}

/// libc's own thread-locals in the block of the calling thread: offset from the thread pointer, and words.
fn libc_block() -> Option<(isize, usize)> {
    libraries::find(|library| {
        let (_, size) = library.image().filter(|_| library.is_libc())?;
        Some((library.own?, size / WORD))
    })
}

fn guards_of(control: BlockWords<'_>) -> Vec<usize> {
    let value = |&at: &usize| control.word(at).load(Relaxed);
    GUARDS.iter().map(value).collect()
}

/// The words of this thread's control block. (The joining thread writes one of them meanwhile.)
fn copy(sizes: Sizes) -> Vec<usize> {
    let own = sizes.own_control_block();
    let word = |i: usize| own.word(i * WORD).load(Relaxed);
    (0..sizes.control / WORD).map(word).collect()
}

/// The offset of the only place where `is` holds for the four words there.
fn only(
    words: &[usize],
    what: &str,
    is: impl Fn(usize, &[usize]) -> bool,
) -> Result<usize, String> {
    let mut found = (0..words.len() - 3).filter(|&i| is(i * WORD, &words[i..]));
    match (found.next(), found.next()) {
        (Some(i), None) => Ok(i * WORD),
        (None, _) => Err(format!("the control block has no {what}")),
        _ => Err(format!("the control block has more than one {what}")),
    }
}

/// Finds the byte outside the values that a first `pthread_setspecific` changes from 0 to 1.
fn find_keys_used(task: &Task, first_block: usize) -> Option<usize> {
    let before = copy(task.sizes);
    task.key.set(0x0202_0202_0202);
    let after = copy(task.sizes);
    let values = first_block..first_block + BLOCK;
    let is_value = |at: usize| values.contains(&at) || task.values.contains(&at);
    let byte = |words: &[usize], at: usize| words[at / WORD].to_ne_bytes()[at % WORD];
    let mut found = (0..task.sizes.control)
        .filter(|&at| byte(&before, at) == 0 && byte(&after, at) == 1 && !is_value(at));
    let (first, second) = (found.next()?, found.next());
    task.key.set(0);
    second.is_none().then_some(first)
}

/// Finds malloc's `tcache` among libc's thread-locals: the word that this thread's first calls of `malloc`
/// make point to a chunk which, once another chunk is freed, holds that one's address, and no more
/// once it is taken again.
///
/// Then it does what the scheduler will do: takes the cache away, by putting back the
/// value that the word had before, and brings it again. In between malloc must make another.
fn find_tcache((offset, words): (isize, usize)) -> Option<CacheWord> {
    const MOST: usize = 256;
    let mut before = [0; MOST];
    let words = words.min(MOST);
    let start = thread_pointer().wrapping_offset(offset);
    // SAFETY: libc's block of this thread, which nobody else writes, and what the pointers that
    // malloc has just put there point to: chunks and arenas, which have a word before them and are
    // larger than we look.
    unsafe {
        let libc = BlockWords::new(start, words * WORD);
        let word = |i: usize| libc.word(i * WORD);
        for (i, before) in before[..words].iter_mut().enumerate() {
            *before = word(i).load(Relaxed);
        }
        // Compilers know malloc and free, and would remove a pair of calls without effect.
        let size = Cell::new(24);
        let allocate = || black_box(libc::malloc(black_box(size.get()))) as usize;
        let free = |chunk: usize| libc::free(black_box(chunk as *mut c_void));
        let read = |address: usize| (address as *const usize).read_volatile();
        // The first chunk may bring enough others of its size to fill the cache; the second one leaves a place.
        let (first, chunk) = (allocate(), allocate());
        // The chunk is larger than asked for if the rest of its memory was too small for a chunk of its own. The cache keeps
        // it among chunks of its real size.
        size.set(libc::malloc_usable_size(chunk as *mut c_void));
        free(chunk);
        let holds = |table: usize, chunk: usize| {
            // A chunk's size lies before it, with three flags; an arena has something else there.
            let size = read(table - WORD) & !7;
            let words = (512..8192).contains(&size).then(|| size / WORD - 1);
            (0..words.unwrap_or(0)).any(|i| read(table + i * WORD) == chunk)
        };
        let is_table = |&i: &usize| {
            let table = word(i).load(Relaxed);
            table != before[i] && table % 16 == 0 && table > 1 << 16 && holds(table, chunk)
        };
        let mut found = (0..words).filter(is_table);
        let found = found.next().filter(|_| found.next().is_none());
        let found = found.filter(|&found| {
            can_be_taken_away(word(found), before[found], chunk, allocate, free, holds)
        });
        free(first);
        found.map(|found| CacheWord {
            offset: offset + (found * WORD) as isize,
            none: before[found],
        })
    }
}

/// Takes the cache behind `place` away, and brings it again. `chunk` is the one freed last, `none` was
/// in the place before the first. A table `holds` a chunk, if it lies in that cache.
fn can_be_taken_away(
    place: &AtomicUsize,
    none: usize,
    chunk: usize,
    allocate: impl Fn() -> usize,
    free: impl Fn(usize),
    holds: impl Fn(usize, usize) -> bool,
) -> bool {
    let again = allocate();
    let own = place.load(Relaxed);
    let is_taken = again == chunk && !holds(own, chunk);
    if !is_taken {
        free(again);
        return false;
    }
    place.store(none, Relaxed);
    // The first call is a `free`, since a thread may begin by freeing memory that others have allocated.
    free(chunk);
    let chunk = allocate();
    free(chunk);
    let other = place.load(Relaxed);
    let is_another = other != own && other != none && holds(other, chunk);
    let again = allocate();
    place.store(own, Relaxed);
    free(again);
    if is_another && again == chunk {
        // An empty cache is a chunk like any other, and libc frees it in this way, too.
        free(other);
    }
    is_another && holds(own, again)
}

/// Looks at the `words` of the probe thread's control block, except the `known` parts. `own` are
/// addresses that the thread's words may hold.
fn find_initial(
    words: &[usize],
    known: &[Range<usize>],
    own: &[Range<usize>],
) -> Result<Vec<(usize, usize)>, String> {
    // A word is small if it is no address, but one or two small numbers: nothing lies in the first MiB, and the upper half
    // of any address above 4 GiB goes with a lower half that is hardly ever small.
    const SMALL: usize = 1 << 20;
    let is_small = |word: usize| word as u32 as usize <= SMALL && word >> 32 <= SMALL;
    let is_described = |at: usize| known.iter().any(|range| range.contains(&at));
    let is_own = |word: usize| own.iter().any(|range| range.contains(&word));
    let unknown = (0..words.len()).map(|i| (i * WORD, words[i]));
    let mut found = Vec::new();
    for (at, word) in unknown.filter(|&(at, word)| word != 0 && !is_described(at)) {
        if is_small(word) {
            found.push((at, word));
        } else if !is_known() && !is_own(word) && !is_code(word) {
            return Err(format!(
                "the control block has a field that is not known, at {at:#x}: {word:#x}"
            ));
        }
    }
    Ok(found)
}

/// Whether it lies in the program or in a library.
fn is_code(address: usize) -> bool {
    libraries::find(|library| library.contains(address).then_some(())).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    /// How a malloc behaves for a thread that has no cache.
    #[derive(Clone, Copy, PartialEq)]
    enum Kind {
        /// Up to glibc 2.42: the word is null, and any call makes a cache.
        Null,
        /// glibc 2.43: the word leads to an empty cache of all threads, and is read without a look.
        Shared,
        /// One that makes a cache once a thread, and does without afterwards.
        Once,
        /// One that keeps the cache's address in another place, too.
        Elsewhere,
    }

    const SHARED_CACHE: usize = 0x1000;

    /// A malloc with chunks of one size. Its caches are chunks, too.
    struct Malloc {
        kind: Kind,
        word: AtomicUsize,
        caches: RefCell<BTreeMap<usize, Vec<usize>>>,
        next: Cell<usize>,
        made: Cell<usize>,
        first: Cell<usize>,
    }

    impl Malloc {
        fn new(kind: Kind) -> Malloc {
            let none = if kind == Kind::Shared {
                SHARED_CACHE
            } else {
                0
            };
            Malloc {
                kind,
                word: AtomicUsize::new(none),
                caches: RefCell::default(),
                next: Cell::new(0x1_0000),
                made: Cell::new(0),
                first: Cell::new(0),
            }
        }

        fn chunk(&self) -> usize {
            self.next.replace(self.next.get() + 0x20)
        }

        /// The thread's cache.
        fn cache(&self) -> Option<usize> {
            let word = self.word.load(Relaxed);
            match self.kind {
                Kind::Elsewhere if self.first.get() != 0 => return Some(self.first.get()),
                Kind::Shared if word == 0 => panic!("a crash: null is read through"),
                Kind::Shared if word == SHARED_CACHE => {}
                Kind::Once if word == 0 && self.made.get() == 1 => return None,
                _ if word == 0 => {}
                _ => return Some(word),
            }
            let cache = self.chunk();
            self.caches.borrow_mut().insert(cache, Vec::new());
            self.made.set(self.made.get() + 1);
            self.first.set(cache);
            self.word.store(cache, Relaxed);
            Some(cache)
        }

        fn allocate(&self) -> usize {
            let own = self.cache();
            let mut caches = self.caches.borrow_mut();
            let kept = own.and_then(|own| caches.get_mut(&own)?.pop());
            kept.unwrap_or_else(|| self.chunk())
        }

        fn free(&self, chunk: usize) {
            let own = self.cache();
            let mut caches = self.caches.borrow_mut();
            if let Some(chunks) = own.and_then(|own| caches.get_mut(&own)) {
                chunks.push(chunk);
            }
        }

        /// Whether its cache can be taken away, by the trial, if `none` is what a thread without one has.
        fn lets_go(&self, none: usize) -> bool {
            let chunk = self.allocate();
            self.free(chunk);
            let holds = |table: usize, chunk: usize| {
                let caches = self.caches.borrow();
                caches
                    .get(&table)
                    .is_some_and(|chunks| chunks.contains(&chunk))
            };
            can_be_taken_away(
                &self.word,
                none,
                chunk,
                || self.allocate(),
                |chunk| self.free(chunk),
                holds,
            )
        }
    }

    #[test]
    fn a_cache_that_malloc_needs_stays() {
        let none = |malloc: &Malloc| malloc.word.load(Relaxed);
        for kind in [Kind::Null, Kind::Shared] {
            let malloc = Malloc::new(kind);
            assert!(malloc.lets_go(none(&malloc)));
        }
        for kind in [Kind::Once, Kind::Elsewhere] {
            let malloc = Malloc::new(kind);
            assert!(!malloc.lets_go(none(&malloc)));
        }
        // What the runtime did when 2.43 came: it took null for the word of any thread without a cache.
        let null = || Malloc::new(Kind::Shared).lets_go(0);
        assert!(std::panic::catch_unwind(null).is_err());
    }

    /// This glibc's is found, and with it the word of a thread that has none.
    #[test]
    fn this_malloc_is_known() {
        let libc = libc_block().expect("libc has thread-locals");
        // std's threads have called malloc before any code of ours.
        let run = |body: &mut (dyn FnMut() + Send)| {
            let mut stack = Mapping::new(1 << 20).expect("memory");
            assert!(run_on(&mut stack, &mut |_| body()));
        };
        for _ in 0..20 {
            // An arena with many free chunks of the size that is looked at, for the next thread.
            run(&mut || {
                // SAFETY: each chunk is freed once.
                unsafe {
                    let chunks = [(); 40].map(|()| black_box(libc::malloc(black_box(24))));
                    chunks.into_iter().for_each(|chunk| libc::free(chunk));
                }
            });
            let mut found = None;
            run(&mut || found = find_tcache(libc));
            assert!(found.is_some());
        }
    }

    #[test]
    fn small_numbers_are_copied_and_addresses_are_not() {
        let words = [7, 0, 0x0002_0001_0000, 0x7f12_3456_7890, 0x88_0000_0000, 3];
        let (known, own) = (0..8, 0x7f12_0000_0000..0x7f13_0000_0000);
        let initial = find_initial(
            &words,
            std::slice::from_ref(&known),
            std::slice::from_ref(&own),
        );
        let initial = initial.unwrap_or_else(|why| panic!("{why}"));
        let expected = [(16, 0x0002_0001_0000), (32, 0x88_0000_0000), (40, 3)];
        assert_eq!(initial, expected);
    }

    #[test]
    fn code_is_found() {
        assert!(is_code(code_is_found as *const () as usize));
        let local = 0_u8;
        assert!(!is_code(&raw const local as usize));
    }
}
