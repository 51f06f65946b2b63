//! glibc: which one this is, where it keeps its data about a thread (found out at start, never assumed), its memory, and
//! the functions of its own and of the loader's that this folder calls, behind safe functions.
//!
//! # Which glibc this is
//! Much of what the runtime relies on is found out and tried when it starts (`probe`, `selftest`). Some of it
//! cannot be tried without danger, so it is known only of the versions that the crate was tested on:
//!
//! | glibc | what is done |
//! |---|---|
//! | before [`OLDEST`] | kernel threads |
//! | from [`OLDEST`] to [`NEWEST`] | green threads |
//! | after [`NEWEST`] | green threads, if every trial succeeds, in a child process first, without the tricks that no trial proves |
//!
//! Those tricks are malloc's cache, which then stays in the stacks (it costs memory), and the loader's way
//! to wait for threads that resolve symbols: a library that is closed then stays loaded.
//!
//! # Sources of the layout, best first
//!
//! 1. `_dl_get_tls_static_info`: size and alignment of a thread's static block.
//! 2. `_thread_db_*`: the descriptors that glibc exports for debuggers (libthread_db), one `[bits,
//!    count, offset]` for each field, one number for each size. Small structures that have been the same for 20 years are
//!    types here, and the descriptors must agree (`STRUCTURES`).
//! 3. A *probe thread*: a short-lived pthread on a stack we know. In its control block we search
//!    for parts that we can recognise: the stack's bounds, the robust list (an empty ring), the
//!    resolver's state, the first block of keys. A search must find exactly one place.
//! 4. The ABI says on which side of the thread pointer things lie, and what the control block begins with. That is
//!    compared with the probe thread's block and with our own; a mismatch is an error.
//!
//! # The ABI's two variants
//!
//! ```text
//!   variant I (aarch64)                       variant II (x86-64)
//!
//!   |                       | high addresses  |                       |
//!   | thread-locals         |                 | control block:        |
//!   +-----------------------+                 |   self, vector, self  |
//!   | vector, a word        |                 +-----------------------+ <- thread pointer
//!   +-----------------------+ <- thread       | thread-locals         |
//!   | control block         |    pointer      |                       |
//!   |                       | low addresses   |                       |
//! ```
//!
//! Offsets are in bytes; those of the control block's head are fixed by the ABI (compilers emit them) or by 25 years of
//! glibc.
//!
//! # The memory of glibc
//! [`BlockWords`] of a control block, a vector, a table of keys. The unsafe step is to say where such memory lies, and how
//! much of it there is. From then on each access checks that it lies inside and is aligned. That costs a comparison, in
//! places where a comparison does not matter: at the start and the end of a thread, and when a library is loaded. All
//! accesses are atomic, since libc and other threads change some of these words meanwhile.
//!
//! # Invariants
//!
//! 1. `LAYOUT` is set once, before the first block exists, and only if every check passed.
//! 2. Each field of the control block lies inside it.

use super::block::{Block, RECORD};
use super::modules::BEHIND_LIST;
use super::probe::Probe;
use crate::engine::arch::thread_pointer;
use crate::engine::sys::{kernel_thread, mm::Mapping};
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize};
use std::{marker::PhantomData, ops::Range, sync::OnceLock, sync::atomic::Ordering::Relaxed};

// ==== the layout ====

/// The ABI's variant here is II: the control block lies above the thread pointer, the thread-locals below.
pub(super) const IS_II: bool = cfg!(target_arch = "x86_64");
/// From the thread pointer: the word that leads to the vector of modules.
pub(super) const VECTOR: isize = if IS_II { 8 } else { 0 };
/// In the control block: words that hold its own address.
pub(super) const OWN_ADDRESS: &[usize] = if IS_II { &[0, 0x10] } else { &[] };
/// In the control block: values that are the same in every thread.
pub(super) const GUARDS: &[usize] = if IS_II { &[0x28, 0x30] } else { &[] };
/// In the control block: words that are the same in every thread, from `multiple_threads` up to the last guard. They are
/// copied from the probe thread.
pub(super) const SHARED: Range<usize> = if IS_II { 0x18..0x38 } else { 0..8 };
/// In the control block: the word in which a thread says that the loader looks up a symbol for it (`gscope_flag`).
const LOOK_UP_FLAG: usize = if IS_II { 0x1c } else { 4 };

pub(super) const WORD: usize = size_of::<usize>();
/// Bytes of the kernel's rseq area, of the least size.
const RSEQ: usize = 32;
/// Bytes of a line of the caches.
const LINE: usize = 64;

/// The facts about this glibc that the blocks and the list of modules need.
pub(super) struct Layout {
    pub(super) sizes: Sizes,
    /// In the control block: the thread's id.
    pub(super) tid: usize,
    /// The flags of a thread's cancellation, and of its end.
    pub(super) cancellation: usize,
    /// In the control block: the links of the list of threads.
    list: usize,
    /// From the thread pointer to the kernel's rseq area, where glibc has one.
    rseq: Option<isize>,
    pub(super) probe: Probe,
    /// The pthread keys of the process.
    pub(super) keys: &'static [Key],
    /// In the control block: pointers to blocks of values of pthread keys, the first of which lies in the control block
    /// itself.
    pub(super) values: Range<usize>,
    pub(super) loader: Loader,
    pub(super) functions: Functions,
}

/// The sizes of a thread's block, as glibc tells them.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub(super) align: usize,
    /// Bytes of the control block.
    pub(super) control: usize,
    /// Bytes of a block of ours below its thread pointer, our record among them.
    pub(super) below: usize,
    /// And above it.
    pub(super) above: usize,
}

/// Functions by which glibc's own parts make and end threads.
pub(super) struct Functions {
    pub(super) allocate: unsafe extern "C" fn(*mut u8) -> *mut u8,
    pub(super) deallocate: unsafe extern "C" fn(*mut u8, bool),
    pub(super) call_destructors: unsafe extern "C" fn(),
    pub(super) close_resolver: Option<unsafe extern "C" fn(*mut c_void)>,
}

/// A pthread key.
#[repr(C)]
pub(super) struct Key {
    pub(super) sequence: AtomicUsize,
    pub(super) destructor: AtomicUsize,
}

/// A thread's value of a pthread key. The values lie in blocks.
#[repr(C)]
pub(super) struct Value {
    pub(super) sequence: AtomicUsize,
    pub(super) data: AtomicUsize,
}

/// How many values a block has.
pub(super) const VALUES: usize = 32;
pub(super) type Values = [Value; VALUES];

/// A node of the loader's list of modules with thread-locals. Its slots lie behind it.
#[repr(C)]
pub(super) struct ListNode {
    pub(super) length: AtomicUsize,
    pub(super) next: AtomicUsize,
}

/// A module's slot in that list.
#[repr(C)]
pub(super) struct VectorSlot {
    pub(super) generation: AtomicUsize,
    /// The address of the module's link map.
    pub(super) map: AtomicUsize,
}

/// An entry of a thread's vector of modules (the DTV): a number in its first two entries, else the address of a module's
/// contents.
#[repr(C)]
pub(super) struct Entry {
    pub(super) value: AtomicUsize,
    to_free: usize,
}

/// What glibc says of these structures: the offsets of their fields, and their sizes.
const STRUCTURES: [(&CStr, usize); 16] = [
    (c"_thread_db_sizeof_pthread_key_struct", size_of::<Key>()),
    (c"_thread_db_pthread_key_struct_seq", 0),
    (c"_thread_db_pthread_key_struct_destr", WORD),
    (c"_thread_db_sizeof_pthread_key_data", size_of::<Value>()),
    (c"_thread_db_sizeof_pthread_key_data_level2", BLOCK),
    (c"_thread_db_pthread_key_data_seq", 0),
    (c"_thread_db_pthread_key_data_data", WORD),
    (c"_thread_db_dtv_slotinfo_list_len", 0),
    (c"_thread_db_dtv_slotinfo_list_next", WORD),
    (
        c"_thread_db_dtv_slotinfo_list_slotinfo",
        size_of::<ListNode>(),
    ),
    (c"_thread_db_sizeof_dtv_slotinfo", size_of::<VectorSlot>()),
    (c"_thread_db_dtv_slotinfo_gen", 0),
    (c"_thread_db_dtv_slotinfo_map", WORD),
    (c"_thread_db_dtv_dtv", 0),
    (c"_thread_db_dtv_t_counter", 0),
    (c"_thread_db_dtv_t_pointer_val", 0),
];
/// Bytes of a block of values.
pub(super) const BLOCK: usize = size_of::<Values>();

/// The loader's data.
pub(super) struct Loader {
    /// Up to and with the pointer to the first node of the list of modules, and the words behind.
    pub(super) global: BlockWords<'static>,
    /// Where that pointer lies.
    pub(super) first: usize,
    /// In a link map.
    pub(super) map_module: usize,
    pub(super) map_offset: usize,
}

// SAFETY: the pointers lead to the loader's and libc's static data, which are read with atomic
// loads only.
unsafe impl Send for Layout {}
// SAFETY: those loads are atomic, and nothing else in it changes.
unsafe impl Sync for Layout {}

static LAYOUT: OnceLock<Layout> = OnceLock::new();

/// The layout; there is one whenever there are blocks.
#[inline(always)]
pub(super) fn layout() -> &'static Layout {
    LAYOUT.get().expect("tls::init has succeeded")
}

pub(super) fn init() -> Result<(), String> {
    let found = Layout::find()?;
    // Relaxed: its users have seen `LAYOUT`.
    NO_CACHE.store(found.probe.tcache.map_or(0, |word| word.none), Relaxed);
    LAYOUT.get_or_init(|| found);
    Ok(())
}

/// A kernel thread's stack in bytes, if code is to have `size` of it: libc puts the thread-locals on it
/// as well, and those of a program may be large. (Where they were not looked at, as in kernel-thread mode, libc
/// is asked.)
pub(crate) fn with_thread_locals(size: usize) -> usize {
    let block = LAYOUT.get().map(|layout| layout.sizes.all());
    size + block.unwrap_or_else(smallest_stack)
}

/// The distance of `place` from the calling thread's thread pointer, if it lies in the block: then it is the same in
/// every thread. What the loader gives a library that comes later may lie elsewhere.
pub(crate) fn distance_in_block(place: *const u8) -> Option<isize> {
    let sizes = layout().sizes;
    let block = -((sizes.below - RECORD) as isize)..sizes.above as isize;
    let distance = place as isize - thread_pointer() as isize;
    block.contains(&distance).then_some(distance)
}

/// The smallest stack that libc accepts, thread-locals included; 0 if it does not tell.
fn smallest_stack() -> usize {
    type Smallest = unsafe extern "C" fn(*const libc::pthread_attr_t) -> usize;
    // SAFETY: the name is that of a function of glibc's with this type, which std calls, too; it gets
    // attributes, which are initialised first and destroyed last.
    unsafe {
        let Ok(smallest) = function::<Smallest>(c"__pthread_get_minstack") else {
            return 0;
        };
        let mut attributes = core::mem::zeroed();
        libc::pthread_attr_init(&mut attributes);
        let size = smallest(&attributes);
        libc::pthread_attr_destroy(&mut attributes);
        size
    }
}

/// From the thread pointer to malloc's `tcache` word, where one was recognised.
pub(crate) fn tcache_offset() -> Option<isize> {
    layout().probe.tcache.map(|word| word.offset)
}

/// In the control block of the thread with this thread pointer: whether the loader looks up a symbol for
/// it.
///
/// # Safety
/// The control block is there for as long as the answer is used.
pub(crate) unsafe fn look_up_flag<'a>(thread_pointer: *mut u8) -> &'a AtomicU32 {
    let control = layout().sizes.control_block(thread_pointer);
    // SAFETY: the control block is there, and begins with these words.
    unsafe { BlockWords::new(control, SHARED.end) }.half(LOOK_UP_FLAG)
}

/// The kernel's name for the pthread `thread`, or a green thread's own one; 0 once a pthread has ended. `None`: where
/// glibc keeps it was not looked for.
///
/// # Safety
/// `thread` is a `pthread_t` whose control block is still there.
pub(crate) unsafe fn thread_id(thread: usize) -> Option<u32> {
    let offset = LAYOUT.get()?.tid;
    // SAFETY: a pthread's name is the address of its control block, which is still there.
    let control = unsafe { BlockWords::new(thread as *const u8, offset + size_of::<u32>()) };
    Some(control.half(offset).load(Relaxed))
}

/// The value of that word in a thread without a cache. Relaxed, all accesses: it is stored before the first thread begins.
pub(crate) static NO_CACHE: AtomicUsize = AtomicUsize::new(0);

impl Layout {
    fn find() -> Result<Layout, String> {
        // SAFETY: the fields have the types of these functions; all have been in glibc, unchanged, for more than a
        // decade.
        let functions = unsafe {
            Functions {
                allocate: function(c"_dl_allocate_tls")?,
                deallocate: function(c"_dl_deallocate_tls")?,
                call_destructors: function(c"__call_tls_dtors")?,
                close_resolver: function(c"__res_nclose").ok(),
            }
        };
        let sizes = Sizes::ask()?;
        for (name, expected) in STRUCTURES {
            let found = match name.to_bytes().starts_with(b"_thread_db_sizeof") {
                true => number(name)?,
                false => any_field(name)?.0.start,
            };
            if found != expected {
                return Err(format!("{name:?} is {found}, not {expected}"));
            }
        }
        if any_field(c"_thread_db_dtv_dtv")?.0.len() != size_of::<Entry>() {
            return Err("odd entries in the vector of modules".into());
        }
        let tid = field(c"_thread_db_pthread_tid", 4)?;
        let cancellation = field(c"_thread_db_pthread_cancelhandling", 4)?;
        let list = field(c"_thread_db_pthread_list", 2 * WORD)?;
        let (values, _) = any_field(c"_thread_db_pthread_specific")?;
        let ends = [tid + 4, list + 2 * WORD, values.end];
        if let Some(end) = ends.into_iter().find(|&end| end > sizes.control) {
            return Err(format!(
                "a field of the control block lies outside: up to {end:#x}"
            ));
        }
        let vector = field(c"_thread_db_pthread_dtvp", WORD)?;
        if vector as isize != VECTOR - sizes.control_offset() {
            return Err("the vector of modules is not where the ABI has it".into());
        }
        let (_, count) = any_field(c"_thread_db___pthread_keys")?;
        if values.len() / WORD * BLOCK != count * size_of::<Value>() {
            return Err("the number of pthread keys does not add up".into());
        }
        let keys = data(c"__pthread_keys", count * size_of::<Key>())?;
        let rseq = rseq_offset(sizes)?;
        let mut known = vec![tid..tid + 4, list..list + 2 * WORD];
        let in_control = |offset| usize::try_from(offset - sizes.control_offset()).ok();
        known.extend(rseq.and_then(in_control).map(|area| area..area + RSEQ));
        let probe = Probe::run(sizes, values.clone(), known)?;
        let first = field(c"_thread_db_rtld_global__dl_tls_dtv_slotinfo_list", WORD)?;
        let loader = Loader {
            global: data(c"_rtld_global", first + WORD + BEHIND_LIST)?,
            first,
            map_module: field(c"_thread_db_link_map_l_tls_modid", WORD)?,
            map_offset: field(c"_thread_db_link_map_l_tls_offset", WORD)?,
        };
        Ok(Layout {
            sizes,
            tid,
            cancellation,
            list,
            rseq,
            probe,
            // SAFETY: the table has `count` keys, which libc and other threads change as atomics.
            keys: unsafe { std::slice::from_raw_parts(keys.start().cast(), count) },
            values,
            loader,
            functions,
        })
    }

    /// Fills in the control block of a block, which `_dl_allocate_tls` has just prepared on zeroed
    /// memory, as `pthread_create` would.
    pub(super) fn fill(&self, block: &Block, tid: u32, stack_bottom: usize, stack_size: usize) {
        let control = block.control();
        let address = control.start() as usize;
        let set = |offset: usize, value: usize| control.word(offset).store(value, Relaxed);
        self.restore_initial(control);
        OWN_ADDRESS.iter().for_each(|&at| set(at, address));
        for (i, &value) in self.probe.shared.iter().enumerate() {
            set(SHARED.start + i * WORD, value);
        }
        // The block is alone in its list of threads: no search finds it there, and unlinking it does no harm.
        set(self.list, address + self.list);
        set(self.list + WORD, address + self.list);
        set(self.values.start, address + self.probe.first_block);
        let ring = address + self.probe.robust + WORD;
        set(self.probe.robust, ring);
        set(self.probe.robust + WORD, ring);
        set(self.probe.robust + 2 * WORD, self.probe.robust_futex);
        set(self.probe.stack, stack_bottom);
        set(self.probe.stack + WORD, stack_size);
        control.half(self.tid).store(tid, Relaxed);
        let resolver = block.local(self.probe.resolver_pointer);
        resolver.store(address + self.probe.resolver, Relaxed);
        if let Some(rseq) = self.rseq {
            // cpu_id_start stays 0, a valid index; cpu_id says "registration failed".
            block.half(rseq + 4).store(-2_i32 as u32, Relaxed);
        }
    }

    /// Writes the fields that do not begin as zero into the control block of a thread that has not begun.
    #[inline]
    pub(super) fn restore_initial(&self, control: BlockWords<'_>) {
        for &(at, word) in &self.probe.initial {
            control.word(at).store(word, Relaxed);
        }
    }
}

impl Sizes {
    fn ask() -> Result<Sizes, String> {
        type StaticInfo = unsafe extern "C" fn(&mut usize, &mut usize);
        let (mut all, mut align) = (0, 0);
        // SAFETY: the function of the loader's that writes two sizes.
        unsafe { function::<StaticInfo>(c"_dl_get_tls_static_info")?(&mut all, &mut align) };
        let control = number(c"_thread_db_sizeof_pthread")?;
        if !align.is_power_of_two() || !(16..=4096).contains(&align) {
            return Err("odd alignment of thread-local storage".into());
        }
        if !(0x300..0x4000).contains(&control) {
            return Err("odd size of the control block".into());
        }
        if !(control..1 << 24).contains(&all) {
            return Err("odd size of thread-local storage".into());
        }
        // The loader's size includes the control block only where that lies above.
        let (below, above) = match IS_II {
            true => (all - control, control),
            false => (control, all),
        };
        Ok(Sizes {
            align: align.max(LINE),
            control,
            // The size is rounded up, so that glibc's part begins at our record's end or above.
            below: below.next_multiple_of(LINE) + RECORD,
            above,
        })
    }

    /// Bytes of a block of ours, at least.
    pub(super) fn all(self) -> usize {
        self.below + self.above
    }

    /// From the thread pointer to the control block.
    #[inline]
    pub(super) fn control_offset(self) -> isize {
        if IS_II { 0 } else { -(self.control as isize) }
    }

    /// The control block of the thread with this thread pointer.
    #[inline]
    pub(super) fn control_block(self, thread_pointer: *mut u8) -> *mut u8 {
        thread_pointer.wrapping_offset(self.control_offset())
    }

    /// The control block of the calling thread, which has it for as long as it runs. BlockWords of it are
    /// not for other threads.
    #[inline]
    pub(super) fn own_control_block<'a>(self) -> BlockWords<'a> {
        // SAFETY: every thread has a control block, of this size.
        unsafe { BlockWords::new(self.control_block(thread_pointer()), self.control) }
    }
}

/// The public `const ptrdiff_t` of glibc since 2.35.
fn rseq_offset(sizes: Sizes) -> Result<Option<isize>, String> {
    let Ok(offset) = data(c"__rseq_offset", WORD) else {
        return Ok(None);
    };
    let offset = offset.word(0).load(Relaxed) as isize;
    let block = -((sizes.below - RECORD) as isize)..=(sizes.above - RSEQ) as isize;
    match block.contains(&offset) {
        true => Ok(Some(offset)),
        false => Err("the rseq area lies outside the block".into()),
    }
}

/// The offset of a field of `bytes` bytes, from its descriptor.
fn field(name: &CStr, bytes: usize) -> Result<usize, String> {
    let (field, _) = any_field(name)?;
    match field.len() == bytes {
        true => Ok(field.start),
        false => Err(format!("{name:?} has {} bytes, not {bytes}", field.len())),
    }
}

/// Where a field lies, and how many values it has, from its descriptor: three 32-bit numbers.
fn any_field(name: &CStr) -> Result<(Range<usize>, usize), String> {
    let descriptor = data(name, 12)?;
    let [bits, count, offset] = [0, 4, 8].map(|at| descriptor.half(at).load(Relaxed) as usize);
    if bits % 8 != 0 || offset >= 1 << 16 {
        return Err(format!("odd descriptor {name:?}"));
    }
    Ok((offset..offset + bits / 8, count))
}

/// A size: a 32-bit number.
fn number(name: &CStr) -> Result<usize, String> {
    Ok(data(name, 4)?.half(0).load(Relaxed) as usize)
}

// ==== glibc ====

type Version = (u32, u32);

const OLDEST: Version = (2, 34);
const NEWEST: Version = (2, 43);

/// This glibc's version. An error: it is too old.
pub(super) fn version() -> Result<Version, String> {
    // SAFETY: libc's own text, with a NUL at its end.
    let name = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
    judge(&name.to_string_lossy())
}

/// Whether the crate was tested with this glibc.
pub(crate) fn is_known() -> bool {
    version().is_ok_and(|version| version <= NEWEST)
}

/// Reads a version such as `2.36`. What is developed towards 2.44 is 2.43.9000. What is no number counts as 0.
fn judge(name: &str) -> Result<Version, String> {
    const TOWARDS_THE_NEXT: u32 = 90;
    let mut numbers = name.split('.').map(|number| number.parse().unwrap_or(0));
    let [major, minor, patch] = std::array::from_fn(|_| numbers.next().unwrap_or(0));
    let version = (major, minor + u32::from(patch >= TOWARDS_THE_NEXT));
    let (major, minor) = OLDEST;
    match version >= OLDEST {
        true => Ok(version),
        false => Err(format!("glibc {name} is older than glibc {major}.{minor}")),
    }
}

/// Memory whose words can be read and written, for as long as `'a`.
#[derive(Clone, Copy)]
pub(super) struct BlockWords<'a> {
    start: *mut u8,
    length: usize,
    memory: PhantomData<&'a AtomicUsize>,
}

impl<'a> BlockWords<'a> {
    /// # Safety
    /// During `'a` the `length` bytes at `start` are mapped, and nothing writes there at the same
    /// time except by this type. (libc, the loader and the switch write to the block of a thread
    /// that does not run, or that runs them.)
    #[inline]
    pub(super) unsafe fn new(start: *const u8, length: usize) -> BlockWords<'a> {
        BlockWords {
            start: start.cast_mut(),
            length,
            memory: PhantomData,
        }
    }

    #[inline]
    pub(super) fn start(self) -> *mut u8 {
        self.start
    }

    /// The part that begins at `offset`.
    #[inline]
    pub(super) fn from(self, offset: usize) -> BlockWords<'a> {
        BlockWords {
            start: self.start.wrapping_add(offset),
            length: self.length.saturating_sub(offset),
            ..self
        }
    }

    #[inline]
    pub(super) fn word(self, offset: usize) -> &'a AtomicUsize {
        self.at(offset)
    }

    #[inline]
    pub(super) fn half(self, offset: usize) -> &'a AtomicU32 {
        self.at(offset)
    }

    #[inline]
    pub(super) fn byte(self, offset: usize) -> &'a AtomicU8 {
        self.at(offset)
    }

    #[inline]
    fn at<T: Atomic>(self, offset: usize) -> &'a T {
        let is_inside = offset <= self.length && size_of::<T>() <= self.length - offset;
        let place = self.start.wrapping_add(offset).cast::<T>();
        assert!(
            is_inside && place.is_aligned(),
            "{offset} is no place in {} bytes",
            self.length
        );
        // SAFETY: the place is inside and aligned, any bits are a value of the type, and the rest is
        // the promise of `new`.
        unsafe { &*place }
    }
}

/// An atomic integer, which is aligned to its size.
trait Atomic {}
impl Atomic for AtomicU8 {}
impl Atomic for AtomicU32 {}
impl Atomic for AtomicUsize {}

/// The data of that name, of which glibc has `length` bytes.
pub(super) fn data(name: &CStr, length: usize) -> Result<BlockWords<'static>, String> {
    let start = symbol(name)?;
    // SAFETY: a variable of glibc's. Its type, and so its length, has not changed for decades.
    Ok(unsafe { BlockWords::new(start, length) })
}

/// The address of the variable or function of that name.
pub(super) fn symbol(name: &CStr) -> Result<*mut u8, String> {
    // SAFETY: a search by name in all libraries.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    match address.is_null() {
        false => Ok(address.cast()),
        true => Err(format!("this libc has no {name:?}")),
    }
}

/// The function of that name.
///
/// # Safety
/// `F` is the type of a pointer to that function.
pub(super) unsafe fn function<F: Copy>(name: &CStr) -> Result<F, String> {
    const { assert!(size_of::<F>() == size_of::<*mut u8>()) };
    // SAFETY: the address is that of a function whose type `F` points to.
    symbol(name).map(|address| unsafe { std::mem::transmute_copy(&address) })
}

/// A pthread key, deleted with its value.
pub(super) struct PthreadKey(libc::pthread_key_t);

impl PthreadKey {
    /// A new key, unless there are too many. A thread that ends passes its value to `destructor`.
    pub(super) fn new(destructor: Option<extern "C" fn(*mut c_void)>) -> Option<PthreadKey> {
        let mut key = 0;
        let destructor = destructor.map(|function| function as _);
        // SAFETY: the destructor takes any value.
        let failed = unsafe { libc::pthread_key_create(&mut key, destructor) };
        (failed == 0).then(|| PthreadKey(key))
    }

    /// The calling thread's value.
    pub(super) fn get(&self) -> *mut c_void {
        // SAFETY: a live key.
        unsafe { libc::pthread_getspecific(self.0) }
    }

    /// Sets the calling thread's value. False: there is no memory.
    pub(super) fn set(&self, value: usize) -> bool {
        // SAFETY: a live key, whose destructor takes any value.
        unsafe { libc::pthread_setspecific(self.0, value as *const c_void) == 0 }
    }
}

impl Drop for PthreadKey {
    fn drop(&mut self) {
        // SAFETY: a live key, which nobody has a reference to.
        unsafe { libc::pthread_key_delete(self.0) };
    }
}

/// Runs `main` to its end on a short-lived pthread, whose stack is all of `stack`; it gets the address of
/// the pthread's argument. False: no such thread can be made.
pub(super) fn run_on<F: FnMut(usize) + Send>(stack: &mut Mapping, main: &mut F) -> bool {
    extern "C" fn run<F: FnMut(usize)>(main: *mut c_void) -> *mut c_void {
        // SAFETY: the argument below, which is waited for.
        unsafe { (*main.cast::<F>())(main.addr()) };
        std::ptr::null_mut()
    }
    let argument = std::ptr::from_mut(main).cast();
    let mut thread = 0;
    // SAFETY: the attributes are initialised first and destroyed last; the stack and the closure are
    // borrowed for as long as the thread lives: it is joined.
    unsafe {
        let mut attributes = std::mem::zeroed();
        libc::pthread_attr_init(&mut attributes);
        libc::pthread_attr_setstack(&mut attributes, stack.0.start as *mut c_void, stack.0.len());
        let create = || libc::pthread_create(&mut thread, &attributes, run::<F>, argument);
        let failed = kernel_thread::making(create);
        libc::pthread_attr_destroy(&mut attributes);
        failed == 0 && libc::pthread_join(thread, std::ptr::null_mut()) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn only_versions_that_were_tested_are_known() {
        for name in ["2.34", "2.36", "2.43", "2.42.9000", "2.43.2"] {
            assert!(judge(name).is_ok_and(|version| version <= NEWEST), "{name}");
        }
        for name in ["2.44", "2.43.9000", "2.100", "3.0"] {
            assert!(judge(name).is_ok_and(|version| version > NEWEST), "{name}");
        }
        for name in ["2.33", "2.4", "1.99", "odd", ""] {
            assert!(judge(name).is_err(), "{name}");
        }
        assert!(version().is_ok());
    }

    #[test]
    fn only_places_inside_can_be_had() {
        let memory = [const { AtomicUsize::new(0) }; 3];
        // SAFETY: a local, of atomics.
        let words = unsafe { BlockWords::new(memory.as_ptr().cast(), 20) };
        words.word(8).store(0x0102_0304_0506_0708, Relaxed);
        assert_eq!(memory[1].load(Relaxed), 0x0102_0304_0506_0708);
        assert_eq!(words.half(12).load(Relaxed), 0x0102_0304);
        assert_eq!(words.byte(8).load(Relaxed), 8);
        words.byte(19).store(1, Relaxed);
        assert_eq!(words.half(16).load(Relaxed), 1 << 24);
        for outside in [16, 24, 9, 4, 1 << 20, usize::MAX, usize::MAX - 7] {
            let look = AssertUnwindSafe(|| words.word(outside).load(Relaxed));
            assert!(catch_unwind(look).is_err(), "{outside}");
        }
    }
}
