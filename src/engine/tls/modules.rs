//! The modules: the program and every loaded library that has thread-locals, with their initial
//! contents.
//!
//! Recycling a block means copying these contents in again. Libraries come and go meanwhile
//! (`dlopen`, NSS, a plug-in), and the scheduler may neither wait for the loader's locks nor read a
//! library that may be unmapped. So it works from a *snapshot*: an immutable list of modules, each
//! with our own copy of its initial image.
//!
//! # Two kinds of module
//!
//! - *static*: at the same offset from the thread pointer in every block (all that were loaded at
//!   start, and later ones compiled for the initial-exec model);
//! - *dynamic*: allocated by the loader when a thread first touches it, found through the thread's
//!   vector (DTV).
//!
//! # Invariants
//!
//! 1. When a thread ends, the snapshot in force holds every module that the thread can have
//!    touched: `exit` compares the loader's count of changes ([`changes`]) and renews the snapshot. After
//!    that the thread runs libc's code only, so its vector stands still until its block is recycled.
//! 2. An entry of a vector is used only if the vector is at least as new as the module (its
//!    *generation*), and the loader's list still has the module with that generation. The entry of an
//!    older vector belongs to a library that is gone, whose module id was given away again. So can that
//!    of a newer one if the module has gone, too: the loader brings the entries of modules that are
//!    loaded up to date, and leaves those above the highest id in use (`_dl_update_slotinfo`).
//! 3. A module is listed only once the loader has relocated it and entered it in its list (a thread
//!    may look in the middle of another's `dlopen`). Until then the snapshot counts as unfinished:
//!    the next look renews it. While a loader gives an id away for the second time, the list has the
//!    new module with generation 0, or, in glibc 2.36 as it first came, with that of the old one's end:
//!    then invariant 2 finds out, and the snapshot counts as unfinished from then on.
//! 4. Snapshots are never freed, for the scheduler may be reading one: a renewal that changes
//!    something costs some 60 bytes a module, and each different image is kept once.
//!
//! A block remembers the number of the snapshot it was last brought up to date with; `enter` copies
//! in the static modules that came later. Threads that had already begun then are out of reach: if
//! such a library has anything but zeros in its image, that is reported.
//!
//! # How often the modules have changed
//!
//! That is compared at each thread's start and end, so it must cost nothing. The loader tells how many libraries were
//! loaded in `dl_iterate_phdr`, but under a lock of the whole process, which a thread may hold for long (a backtrace). So
//! we read the loader's own *generation*, which it counts up whenever modules have come or gone, before it runs any code
//! of theirs: the fifth word behind its list of modules. The words there are believed only of a libc that is known, and
//! only if they are what they must be ([`behind_list`]); else the function is called every time.
//!
//! # Later libraries are kept out of the static blocks
//!
//! Code for aarch64 reaches its thread-locals by *descriptors* (TLSDESC), so the loader may choose where they lie
//! when the library is loaded. The loader prefers the static block, as long as a rest of it lasts that is set aside
//! for this (512 bytes). Then it initialises the thread-locals in the blocks of all pthreads; of green
//! threads that run already it does not know (the limit in [`tls`](super)). So this rest is taken away
//! ([`init`]): what can be dynamic is dynamic then. A library that demands the static block still gets a
//! place there, from another rest.
//!
//! The number is the third word behind the loader's list of modules. If it is not recognised, nothing is done, and such
//! libraries are reported.
//!
//! # Orderings
//!
//! `CURRENT` is stored with Release after the snapshot is complete, and loaded with Acquire.
//! `CHANGES` is stored with Release after `CURRENT`; a thread that loads it with Acquire and finds the
//! loader's present count sees that `CURRENT`. `UNFINISHED` is no count, so it is stored with Relaxed.
//! The loader's generation is read with Relaxed: a thread that uses a library knows of its loading, so the thread sees a
//! generation that has counted it. A renewal reads it before it looks, and passes through the loader's lock, under which
//! it was counted up, before it looks for the last time. The rest is read with Relaxed, too; the loader changes it under
//! its lock: if it does so at this moment, a library more is static.

use super::block::Block;
use super::layout::{
    BlockWords, Entry, IS_II, Layout, ListNode, Loader, VECTOR, VectorSlot, WORD, is_known, layout,
};
use crate::engine::sys;
use crate::engine::sys::libraries::{self, Library};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize};
use std::sync::{Mutex, OnceLock, PoisonError};

#[derive(PartialEq, Clone, Copy)]
struct Module {
    id: usize,
    /// The loader's generation that began with this module.
    generation: usize,
    /// Offset from the thread pointer, if static.
    offset: Option<isize>,
    /// Bytes in all; those behind the image are zero.
    size: usize,
    image: &'static [u8],
    /// The first snapshot that had it.
    since: usize,
}

struct Snapshot {
    number: usize,
    modules: Vec<Module>,
}

/// Whether compilers reach thread-locals by descriptors, unless they are told otherwise.
const HAS_DESCRIPTORS: bool = cfg!(target_arch = "aarch64");

static CURRENT: AtomicPtr<Snapshot> = AtomicPtr::new(std::ptr::null_mut());
/// The count of changes that `CURRENT` belongs to.
static CHANGES: AtomicU64 = AtomicU64::new(UNFINISHED);
const UNFINISHED: u64 = u64::MAX;
/// The loader's generation, if it was recognised.
static GENERATION: OnceLock<&AtomicUsize> = OnceLock::new();
/// The different images so far. Held while renewing.
static IMAGES: Mutex<Vec<&'static [u8]>> = Mutex::new(Vec::new());

pub(super) fn init() -> Result<(), String> {
    if let Some([_, _, rest, _, generation]) = behind_list(layout()) {
        if HAS_DESCRIPTORS {
            rest.store(0, Relaxed);
        }
        GENERATION.get_or_init(|| generation);
    }
    renew();
    match CHANGES.load(Relaxed) {
        UNFINISHED => {
            Err("the loader's list of modules is unfinished, or not where it should be".into())
        }
        _ => Ok(()),
    }
}

/// Sees to it that the snapshot holds every module there is by now.
#[inline]
pub(super) fn refresh() {
    // Acquire: with the Release in `renew`.
    if CHANGES.load(Acquire) != changes() {
        renew();
    }
}

/// The number of the snapshot in force.
pub(super) fn number() -> usize {
    current().number
}

/// Resets the thread-locals of every module, except libc's and the loader's, in the block of a thread
/// that has ended with a `refresh`.
#[inline]
pub(super) fn reset(block: &mut Block) {
    let snapshot = current();
    for module in &snapshot.modules {
        module.restore(block);
    }
    block.seen().store(snapshot.number, Relaxed);
}

/// Initialises the static modules that are newer than the last snapshot that the block has seen; its thread has not begun.
#[inline]
pub(super) fn catch_up(block: &mut Block) {
    let (snapshot, seen) = (current(), block.seen().load(Relaxed));
    if snapshot.number != seen {
        let is_new = |module: &&Module| module.since > seen && module.offset.is_some();
        let new = snapshot.modules.iter().filter(is_new);
        new.for_each(|module| module.restore(block));
        block.seen().store(snapshot.number, Relaxed);
    }
}

#[inline]
fn current() -> &'static Snapshot {
    last_snapshot().expect("tls::init has succeeded")
}

/// The snapshot in force; none before the first.
#[inline]
fn last_snapshot() -> Option<&'static Snapshot> {
    // Acquire: with the Release in `renew`.
    // SAFETY: null or a snapshot, which is never freed (invariant 4).
    unsafe { CURRENT.load(Acquire).as_ref() }
}

impl Module {
    /// Restores the initial contents of the module in a block, if they lie there.
    #[inline(always)]
    fn restore(&self, block: &mut Block) {
        let contents = match self.offset {
            Some(offset) => block.thread_pointer().wrapping_offset(offset),
            None => match layout().loader.contents(block, self) {
                Some(contents) => contents,
                None => return,
            },
        };
        let length = self.image.len();
        // SAFETY: the module's place in a block that nobody uses (invariants 1 and 2). It has `size`
        // bytes, of which the image is a part.
        unsafe {
            contents.copy_from_nonoverlapping(self.image.as_ptr(), length);
            contents.add(length).write_bytes(0, self.size - length);
        }
    }
}

impl Loader {
    /// A dynamic module's contents in a block, if the thread ever touched it. An entry that may be
    /// another module's is taken out of use.
    fn contents(&self, block: &Block, module: &Module) -> Option<*mut u8> {
        const UNALLOCATED: usize = usize::MAX;
        let vector = block.local(VECTOR).load(Relaxed) as *const Entry;
        // SAFETY: the vector's entry -1 counts the entries, entry 0 is its generation, entry n is
        // module n's. The block's thread does not run, so the vector stands still.
        let vector = unsafe {
            let length = (*vector.sub(1)).value.load(Relaxed);
            std::slice::from_raw_parts(vector, length + 1)
        };
        let place = &vector.get(module.id)?.value;
        let contents = place.load(Relaxed);
        let is_older = vector[0].value.load(Relaxed) < module.generation;
        if is_older || contents == 0 || contents == UNALLOCATED {
            return None;
        }
        let (generation, map) = self.slot(module.id);
        if generation != module.generation {
            // Invariant 2. The loader allocates anew when the module with this id is next touched, and
            // still knows the memory that is to be freed.
            place.store(UNALLOCATED, Relaxed);
            if !map.is_null() {
                CHANGES.store(UNFINISHED, Relaxed);
            }
            return None;
        }
        Some(contents as *mut u8)
    }

    /// The loader's entry for module `id`: its generation and its link map, null if there is none
    /// (yet).
    fn slot(&self, id: usize) -> (usize, *const u8) {
        let mut next = self.global.word(self.first).load(Acquire);
        let mut first = 0;
        // SAFETY: a node of the loader's list, which is never freed, and whose words are written atomically.
        while let Some(node) = unsafe { (next as *const ListNode).as_ref() } {
            let length = node.length.load(Acquire);
            // SAFETY: the node has as many slots behind it as it says.
            let slots = unsafe {
                let slots = (next as *const ListNode).add(1).cast::<VectorSlot>();
                std::slice::from_raw_parts(slots, length)
            };
            if let Some(slot) = slots.get(id - first) {
                let map = slot.map.load(Acquire) as *const u8;
                return (slot.generation.load(Acquire), map);
            }
            first += length;
            next = node.next.load(Acquire);
        }
        (0, std::ptr::null())
    }

    /// The offset of a static module, by the link map of its library; `None` for a dynamic one.
    fn static_offset(&self, map: BlockWords<'_>) -> Option<isize> {
        const UNDECIDED: isize = 0;
        const DYNAMIC: isize = -1;
        let distance = map.word(self.map_offset).load(Relaxed) as isize;
        let offset = if IS_II { -distance } else { distance };
        (distance != UNDECIDED && distance != DYNAMIC).then_some(offset)
    }
}

#[cold]
fn renew() {
    let mut images = IMAGES.lock().unwrap_or_else(PoisonError::into_inner);
    let changes = changes();
    let (is_unfinished, mut modules) = look(&mut images);
    let old = last_snapshot();
    let number = old.map_or(0, |old| old.number + 1);
    let old = old.map_or(&[][..], |old| &old.modules);
    // A module that has gone needs no new snapshot: the memory of a thread's thread-locals outlives the library.
    let mut news = number == 0;
    for module in &mut modules {
        let same = |&known: &&Module| Module { since: 0, ..*known } == *module;
        let known = old.iter().find(same);
        module.since = known.map_or(number, |known| known.since);
        news |= known.is_none();
        let is_late = number > 0 && known.is_none() && module.offset.is_some();
        if is_late && module.image.iter().any(|&byte| byte != 0) {
            report(module.id);
        }
    }
    if news {
        let snapshot = Box::new(Snapshot { number, modules });
        CURRENT.store(Box::into_raw(snapshot), Release); // with the Acquire in `last_snapshot`
    }
    let changes = if is_unfinished { UNFINISHED } else { changes };
    CHANGES.store(changes, Release); // with the Acquire in `refresh`
}

/// Looks at the loaded libraries until two looks, one after the other, find the same modules: returns those, and
/// whether the looks are unfinished. `images` are those known before, and then those known now.
fn look(images: &mut Vec<&'static [u8]>) -> (bool, Vec<Module>) {
    let mut before = look_once(images);
    loop {
        pass_through_lock();
        let now = look_once(images);
        if now == before {
            return now;
        }
        before = now;
    }
}

fn look_once(images: &mut Vec<&'static [u8]>) -> (bool, Vec<Module>) {
    let (mut is_unfinished, mut modules) = (false, Vec::new());
    libraries::visit(|library| match find_module(library, images) {
        Ok(found) => modules.extend(found),
        Err(Unfinished) => is_unfinished = true,
    });
    (is_unfinished, modules)
}

/// The loader enters a module in two steps under its lock. Passing through that lock (a block is laid
/// out under it) separates two looks, so a half-entered module shows as a difference.
fn pass_through_lock() {
    let functions = &layout().functions;
    // SAFETY: allocates a block and frees it.
    unsafe {
        let block = (functions.allocate)(std::ptr::null_mut());
        if !block.is_null() {
            (functions.deallocate)(block, true);
        }
    }
}

/// The loader is at work on a library, or we misread the loader: invariant 3.
struct Unfinished;

/// The module of a library, if it has thread-locals that we reset. Its image is one of `images`, to
/// which it is added if it is new.
fn find_module(
    library: &Library<'_>,
    images: &mut Vec<&'static [u8]>,
) -> Result<Option<Module>, Unfinished> {
    let loader = &layout().loader;
    let list = loader.global.start() as usize + loader.first;
    let (id, is_loader) = (library.module, library.contains(list));
    let Some((image, size)) = library.image() else {
        return Ok(None);
    };
    if id == 0 || library.is_libc() || is_loader {
        return Ok(None);
    }
    let (generation, map) = loader.slot(id);
    if map.is_null() || generation == 0 {
        return Err(Unfinished);
    }
    // SAFETY: the library is loaded, hence its link map is there, and its words are written atomically.
    let map = unsafe { BlockWords::new(map, loader.map_module.max(loader.map_offset) + WORD) };
    if map.word(loader.map_module).load(Relaxed) != id {
        return Err(Unfinished);
    }
    let offset = loader.static_offset(map);
    if library.own.is_some() && offset.is_some() && offset != library.own {
        return Err(Unfinished); // not the offset that this thread has: we misread the loader
    }
    // Its contents do not change once the library is relocated.
    let image = match images.iter().find(|known| **known == image) {
        Some(known) => known,
        None => {
            let copy: &'static [u8] = Box::leak(image.into());
            images.push(copy);
            copy
        }
    };
    Ok(Some(Module {
        id,
        generation,
        offset,
        size,
        image,
        since: 0,
    }))
}

/// Says, once for each library, that threads which run already see zeroes.
fn report(module: usize) {
    static REPORTED: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let name = |library: &Library<'_>| {
        (library.module == module).then(|| library.name.to_string_lossy().into_owned())
    };
    // If the library has gone again meanwhile, there is nothing to warn of.
    let Some(library) = libraries::find(name) else {
        return;
    };
    let mut reported = REPORTED.lock().unwrap_or_else(PoisonError::into_inner);
    if reported.contains(&library) {
        return;
    }
    let line = format!(
        "greenthread: {library} was loaded while green threads ran and has initialised initial-exec thread-locals: \
         in threads that had already started they begin as zero (load it before the first spawn)\n"
    );
    // Not `eprintln!`: this may run after the thread's own thread-locals are gone.
    sys::print(line.as_bytes());
    reported.push(library);
}

/// How often modules have come or gone so far: the loader's generation. If that is not known, the number of libraries
/// that were ever loaded (the memory of a thread's thread-locals outlives its library).
#[inline]
fn changes() -> u64 {
    match GENERATION.get() {
        Some(generation) => generation.load(Relaxed) as u64,
        None => ask_loads(),
    }
}

#[cold]
fn ask_loads() -> u64 {
    libraries::find(|library| Some(library.loads)).unwrap_or(0)
}

/// Words behind the list of modules: how many of them are static, the bytes in use, those set aside, the vector of
/// the first thread, the generation.
const WORDS: usize = 5;
/// Bytes of the loader's data behind its list of modules.
pub(super) const BEHIND_LIST: usize = WORDS * WORD;

/// Returns those words, if they are recognised.
fn behind_list(layout: &Layout) -> Option<[&'static AtomicUsize; WORDS]> {
    let loader = &layout.loader;
    let word = |i: usize| loader.global.word(loader.first + (1 + i) * WORD);
    let words = std::array::from_fn(word);
    let [modules, used, rest, vector, generation] = words.map(|word| word.load(Relaxed));
    let all = layout.sizes.all();
    let is_recognised = is_known()
        && (1..1 << 10).contains(&modules)
        && (1..=all).contains(&used)
        && rest <= all - used
        && vector > 1 << 16
        && vector.is_multiple_of(WORD)
        && generation < 1 << 32;
    is_recognised.then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_behind_the_list_are_recognised() {
        super::super::init().expect("green threads work here");
        assert!(behind_list(layout()).is_some() && GENERATION.get().is_some());
    }
}
