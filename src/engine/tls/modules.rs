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
//!    touched: `exit` compares the loader's count of loads (`loads`) and renews the snapshot. After
//!    that the thread runs libc's code only, so its vector stands still until its block is recycled.
//!    (Unloading needs no renewal: the memory of a thread's thread-locals outlives the library.)
//! 2. An entry of a vector is used only if the vector is at least as new as the module (its
//!    *generation*). An older vector's entry belongs to a library that is gone, whose module id was
//!    given away again.
//! 3. A module is listed only once the loader has relocated it and entered it in its list (a thread
//!    may look in the middle of another's `dlopen`). Until then the snapshot counts as unfinished:
//!    the next look renews it.
//! 4. Snapshots are never freed, for the scheduler may be reading one: a renewal that changes
//!    something costs some 60 bytes a module, and each different image is kept once.
//!
//! A block remembers the number of the snapshot it was last brought up to date with; `enter` copies
//! in the static modules that came later. Threads that had already begun then are out of reach: if
//! such a library has anything but zeros in its image, that is reported.
//!
//! # Orderings
//!
//! `CURRENT` is stored with Release after the snapshot is complete, and loaded with Acquire.
//! `LOADS` is stored with Release after `CURRENT`; who loads it with Acquire and finds the loader's
//! present count, sees that `CURRENT`.

use super::layout::{Loader, VECTOR, layout};
use super::loads;
use crate::engine::arch::thread_pointer;
use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize};
use std::sync::{Mutex, PoisonError};

#[derive(PartialEq, Clone, Copy)]
struct Module {
    id: usize,
    /// The loader's generation that began with this module.
    generation: usize,
    /// Offset from the thread pointer, if static.
    offset: Option<isize>,
    /// Bytes in all; what the image does not cover is zero.
    size: usize,
    image: &'static [u8],
    /// The first snapshot that had it.
    since: u64,
}

struct Snapshot {
    number: u64,
    modules: Vec<Module>,
}

static CURRENT: AtomicPtr<Snapshot> = AtomicPtr::new(std::ptr::null_mut());
/// The number of loads that `CURRENT` belongs to.
static LOADS: AtomicU64 = AtomicU64::new(UNFINISHED);
const UNFINISHED: u64 = u64::MAX;
/// Held while renewing.
static HISTORY: Mutex<History> = Mutex::new(History {
    images: Vec::new(),
    reported: Vec::new(),
});

/// What is kept from one snapshot to the next.
struct History {
    /// The different images so far.
    images: Vec<&'static [u8]>,
    /// Libraries whose late arrival was reported.
    reported: Vec<String>,
}

pub(super) fn init() -> Result<(), String> {
    let loader = &layout().loader;
    // SAFETY: the loader's data, up to the pointer to its list.
    unsafe { loads::find_counter(loader.global, loader.global_words) };
    renew();
    match LOADS.load(Relaxed) {
        UNFINISHED => {
            Err("the loader's list of modules is unfinished, or not where it should be".into())
        }
        _ => Ok(()),
    }
}

/// Sees to it that the snapshot holds every library loaded by now.
pub(super) fn refresh() {
    // Acquire: with the Release in `renew`.
    if LOADS.load(Acquire) != loads::count() {
        renew();
    }
}

/// The number of the snapshot in force.
pub(super) fn number() -> u64 {
    current().number
}

/// Resets the thread-locals of every module, except libc's and the loader's. Returns the snapshot's
/// number.
///
/// # Safety
/// `thread_pointer` is the block of a thread that has ended with a `refresh`.
pub(super) unsafe fn reset(thread_pointer: *mut u8) -> u64 {
    let loader = &layout().loader;
    let snapshot = current();
    for module in &snapshot.modules {
        // SAFETY: invariants 1 and 2: the contents are as large as the module.
        unsafe {
            match module.offset {
                Some(offset) => module.write(thread_pointer.offset(offset)),
                None => {
                    if let Some(contents) = loader.contents(thread_pointer, module) {
                        module.write(contents)
                    }
                }
            }
        }
    }
    snapshot.number
}

/// Initialises the static modules that are newer than snapshot `seen`. Returns the number of the
/// one in force.
///
/// # Safety
/// `thread_pointer` is the block of a thread that has not begun.
pub(super) unsafe fn catch_up(thread_pointer: *mut u8, seen: u64) -> u64 {
    let snapshot = current();
    if snapshot.number != seen {
        for module in snapshot.modules.iter().filter(|module| module.since > seen) {
            if let Some(offset) = module.offset {
                // SAFETY: a static module's place in the block, which nobody uses yet.
                unsafe { module.write(thread_pointer.offset(offset)) };
            }
        }
    }
    snapshot.number
}

fn current() -> &'static Snapshot {
    // Acquire: with the Release in `renew`.
    // SAFETY: null only before `init`; never freed (invariant 4).
    unsafe { &*CURRENT.load(Acquire) }
}

impl Module {
    /// # Safety
    /// `contents` is this module's place in a block that nobody is using.
    #[inline(always)]
    unsafe fn write(&self, contents: *mut u8) {
        let length = self.image.len();
        // SAFETY: the place has `size` bytes, of which the image is a part.
        unsafe {
            contents.copy_from_nonoverlapping(self.image.as_ptr(), length);
            contents.add(length).write_bytes(0, self.size - length);
        }
    }
}

impl Loader {
    /// A dynamic module's contents in a block, if the thread ever touched it.
    ///
    /// # Safety
    /// `thread_pointer` is a block's, and its thread is not running.
    unsafe fn contents(&self, thread_pointer: *mut u8, module: &Module) -> Option<*mut u8> {
        const UNALLOCATED: usize = usize::MAX;
        // SAFETY: the vector's entry -1 counts the entries, entry 0 is its generation, entry n is
        // module n's.
        unsafe {
            let vector = *thread_pointer.add(VECTOR).cast::<*mut u8>();
            let word = |at: *mut u8| *at.cast::<usize>();
            let length = word(vector.sub(self.vector_entry).add(self.entry_counter));
            if module.id > length || word(vector.add(self.entry_counter)) < module.generation {
                return None;
            }
            let contents = word(vector.add(module.id * self.vector_entry + self.entry_pointer));
            (contents != 0 && contents != UNALLOCATED).then_some(contents as *mut u8)
        }
    }

    /// The loader's entry for module `id`: its generation and its link map, null if there is none
    /// (yet).
    fn slot(&self, id: usize) -> (usize, *const u8) {
        // SAFETY: the loader's list: nodes are never freed and their words are written atomically.
        let word = |base: *const u8, offset: usize| unsafe {
            AtomicUsize::from_ptr(base.add(offset).cast::<usize>().cast_mut()).load(Acquire)
        };
        let (mut node, mut first) = (word(self.first.cast(), 0) as *const u8, 0);
        while !node.is_null() {
            let length = word(node, self.node_length);
            if id < first + length {
                let slot = self.node_slots + (id - first) * self.slot_size;
                return (
                    word(node, slot + self.slot_generation),
                    word(node, slot + self.slot_map) as *const u8,
                );
            }
            first += length;
            node = word(node, self.node_next) as *const u8;
        }
        (0, std::ptr::null())
    }

    /// The offset of a static module; `None` for a dynamic one.
    ///
    /// # Safety
    /// `map` is a loaded library's link map.
    unsafe fn static_offset(&self, map: *const u8) -> Option<isize> {
        const UNDECIDED: usize = 0;
        const DYNAMIC: usize = usize::MAX;
        // SAFETY: a field of the link map, written atomically.
        let offset = unsafe {
            AtomicUsize::from_ptr(map.add(self.map_offset).cast::<usize>().cast_mut()).load(Relaxed)
        };
        (offset != UNDECIDED && offset != DYNAMIC).then_some(-(offset as isize))
    }
}

/// What one walk through the loaded libraries finds.
#[derive(Default)]
struct Found {
    loads: u64,
    unfinished: bool,
    images: Vec<&'static [u8]>,
    modules: Vec<Module>,
    names: Vec<String>,
}

#[cold]
fn renew() {
    let mut history = HISTORY.lock().unwrap_or_else(PoisonError::into_inner);
    let loader = &layout().loader;
    let mut found;
    loop {
        found = Found {
            images: std::mem::take(&mut history.images),
            ..Found::default()
        };
        // SAFETY: the callback's argument lives through the call.
        unsafe { libc::dl_iterate_phdr(Some(add_module), (&raw mut found).cast()) };
        history.images = std::mem::take(&mut found.images);
        // The loader enters a module in two steps under its lock. Passing through that lock (a
        // block is laid out under it) separates the two looks, so a half-entered module shows as a
        // difference. SAFETY: allocates a block and frees it.
        unsafe {
            let block = (layout().allocate)(std::ptr::null_mut());
            if !block.is_null() {
                (layout().deallocate)(block, true);
            }
        }
        if found
            .modules
            .iter()
            .all(|module| loader.slot(module.id).0 == module.generation)
        {
            break;
        }
    }
    // SAFETY: null or a snapshot, which is never freed.
    let old = unsafe { CURRENT.load(Relaxed).as_ref() };
    let number = old.map_or(0, |old| old.number + 1);
    let old = old.map_or(&[][..], |old| &old.modules);
    let mut news = number == 0 || old.len() != found.modules.len();
    for (module, name) in found.modules.iter_mut().zip(found.names) {
        let same = |known: &&Module| {
            Module {
                since: 0,
                ..**known
            } == *module
        };
        let known = old.iter().find(same);
        module.since = known.map_or(number, |known| known.since);
        news |= known.is_none();
        let late = number > 0 && known.is_none() && module.offset.is_some();
        let visible = module.image.iter().any(|&byte| byte != 0);
        if late && visible && !history.reported.contains(&name) {
            report(&name);
            history.reported.push(name);
        }
    }
    if news {
        let snapshot = Box::new(Snapshot {
            number,
            modules: found.modules,
        });
        CURRENT.store(Box::into_raw(snapshot), Release); // with the Acquire in `current`
    }
    LOADS.store(
        if found.unfinished {
            UNFINISHED
        } else {
            found.loads
        },
        Release,
    ); // with that in `refresh`
}

unsafe extern "C" fn add_module(
    info: *mut libc::dl_phdr_info,
    _: usize,
    found: *mut c_void,
) -> c_int {
    // SAFETY: the loader's argument and `renew`'s. The loader holds the lock that keeps libraries
    // from going.
    let (info, found) = unsafe { (&*info, &mut *found.cast::<Found>()) };
    found.loads = info.dlpi_adds;
    let id = info.dlpi_tls_modid;
    let headers = headers(info);
    let Some(tls) = headers.iter().find(|header| header.p_type == libc::PT_TLS) else {
        return 0;
    };
    if id == 0 || contains(info, libc_address()) || contains(info, layout().loader.first as usize) {
        return 0;
    }
    let (generation, map) = layout().loader.slot(id);
    // SAFETY: the map of a library that is loaded.
    if map.is_null() || unsafe { *map.add(layout().loader.map_module).cast::<usize>() } != id {
        found.unfinished = true; // invariant 3
        return 0;
    }
    // SAFETY: the library is loaded, hence its link map and its image are there. Its thread-locals'
    // initial image does not change once the library is relocated.
    let (offset, image) = unsafe {
        let image = (info.dlpi_addr as usize).wrapping_add(tls.p_vaddr as usize) as *const u8;
        let image = std::slice::from_raw_parts(image, tls.p_filesz as usize);
        (layout().loader.static_offset(map), image)
    };
    let own = info.dlpi_tls_data as isize - thread_pointer() as isize;
    if !info.dlpi_tls_data.is_null() && offset.is_some_and(|offset| offset != own) {
        found.unfinished = true; // not the offset that this thread has: we misread the loader
        return 0;
    }
    let image = match found.images.iter().find(|known| **known == image) {
        Some(known) => known,
        None => {
            let copy: &'static [u8] = Box::leak(image.into());
            found.images.push(copy);
            copy
        }
    };
    found.modules.push(Module {
        id,
        generation,
        offset,
        size: tls.p_memsz as usize,
        image,
        since: 0,
    });
    // SAFETY: a string of the loader's.
    found.names.push(
        unsafe { CStr::from_ptr(info.dlpi_name) }
            .to_string_lossy()
            .into_owned(),
    );
    0
}

fn report(library: &str) {
    let line = format!(
        "greenthread: {library} was loaded while green threads ran and has initialised initial-exec thread-locals: \
         in threads that had already started they begin as zero (load it before the first spawn)\n"
    );
    // Not `eprintln!`: this may run after the thread's own thread-locals are gone.
    // SAFETY: writes a string.
    unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
}

/// libc's own thread-locals in the block of a thread that the caller is: offset from the thread
/// pointer, and words.
pub(super) fn libc_block() -> Option<(isize, usize)> {
    unsafe extern "C" fn look(
        info: *mut libc::dl_phdr_info,
        _: usize,
        answer: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader's argument and ours.
        let (info, answer) = unsafe { (&*info, &mut *answer.cast::<Option<(isize, usize)>>()) };
        if !contains(info, libc_address()) || info.dlpi_tls_data.is_null() {
            return 0;
        }
        let offset = info.dlpi_tls_data as isize - thread_pointer() as isize;
        let tls = headers(info)
            .iter()
            .find(|header| header.p_type == libc::PT_TLS);
        *answer = tls.map(|tls| (offset, tls.p_memsz as usize / size_of::<usize>()));
        1
    }
    let mut answer = None;
    // SAFETY: the callback's argument lives through the call.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut answer).cast()) };
    answer
}

/// An address in libc (malloc and the like may be somebody else's).
fn libc_address() -> usize {
    libc::gnu_get_libc_version as *const () as usize
}

fn headers(info: &libc::dl_phdr_info) -> &[libc::Elf64_Phdr] {
    // SAFETY: the loader's table of program headers.
    unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum as usize) }
}

fn contains(info: &libc::dl_phdr_info, address: usize) -> bool {
    headers(info).iter().any(|header| {
        let start = (info.dlpi_addr as usize).wrapping_add(header.p_vaddr as usize);
        header.p_type == libc::PT_LOAD && address.wrapping_sub(start) < header.p_memsz as usize
    })
}
