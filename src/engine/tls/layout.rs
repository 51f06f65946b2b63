//! Where glibc keeps its data about a thread: found out at start, never assumed.
//!
//! # Sources, best first
//!
//! 1. `_dl_get_tls_static_info`: size and alignment of a thread's static block.
//! 2. `_thread_db_*`: the descriptors that glibc exports for debuggers (libthread_db), one `[bits,
//!    count, offset]` for each field, one number for each size.
//! 3. A *probe thread*: a short-lived pthread on a stack we know. In its control block we search
//!    for parts that we can recognise: the stack's bounds, the robust list (an empty ring), the
//!    resolver's state, the first block of keys. A search must find exactly one place.
//! 4. The ABI says on which side of the thread pointer things lie, and what the control block begins with
//!    (`variant`). That is compared with the probe thread's block and with our own; a mismatch is an error.
//!
//! # Invariants
//!
//! 1. `LAYOUT` is set once, before the first block exists, and only if every check passed.
//! 2. Each field of the control block lies inside it.

use super::block::{Block, RECORD};
use super::glibc::{data, symbol};
use super::optional;
use super::probe::Probe;
use super::variant::VARIANT;
use super::words::Words;
use crate::engine::arch::thread_pointer;
use std::ffi::{CStr, c_void};
use std::mem::transmute;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicUsize};

/// Words of the control block that are the same in every thread, copied from the probe thread.
pub(super) const SHARED: Range<usize> = VARIANT.shared;
pub(super) const WORD: usize = size_of::<usize>();
/// Bytes of the kernel's rseq area, of the least size.
const RSEQ: usize = 32;
/// Bytes of a line of the caches.
const LINE: usize = 64;

/// The facts about this glibc that the blocks and the list of modules need.
pub(super) struct Layout {
    pub(super) sizes: Sizes,
    tid: usize,
    list: usize,
    /// From the thread pointer to the kernel's rseq area, where glibc has one.
    rseq: Option<isize>,
    probe: Probe,
    pub(super) keys: Keys,
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
    static_info: extern "C" fn(&mut usize, &mut usize),
}

/// pthread keys: a table of keys for the process, a table of tables of values for each thread.
pub(super) struct Keys {
    pub(super) table: Words<'static>,
    pub(super) key_size: usize,
    pub(super) key_sequence: usize,
    pub(super) key_destructor: usize,
    /// In the control block: pointers to blocks of values.
    pub(super) blocks: usize,
    pub(super) block_count: usize,
    /// In the control block: the first block itself.
    pub(super) first_block: usize,
    /// In the control block: a byte that says whether a value was ever set, where recognised.
    pub(super) used: Option<usize>,
    pub(super) values_per_block: usize,
    pub(super) value_size: usize,
    pub(super) value_sequence: usize,
    pub(super) value_data: usize,
}

/// The loader's list of modules with thread-locals, and a thread's vector of pointers to them (the
/// DTV).
pub(super) struct Loader {
    /// The loader's data, up to and with its pointer to the first node, and the words behind.
    pub(super) global: Words<'static>,
    pub(super) first: usize,
    pub(super) node_length: usize,
    pub(super) node_next: usize,
    pub(super) node_slots: usize,
    pub(super) slot_size: usize,
    pub(super) slot_generation: usize,
    pub(super) slot_map: usize,
    /// Bytes of a link map up to and with the fields below.
    pub(super) map_size: usize,
    pub(super) map_module: usize,
    pub(super) map_offset: usize,
    pub(super) vector_entry: usize,
    pub(super) entry_counter: usize,
    pub(super) entry_pointer: usize,
}

// SAFETY: the pointers lead to the loader's and libc's static data, which are read with atomic
// loads only.
unsafe impl Send for Layout {}
// SAFETY: as above; nothing in it changes.
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
        let found = libc::dlsym(libc::RTLD_DEFAULT, c"__pthread_get_minstack".as_ptr());
        if found.is_null() {
            return 0;
        }
        let smallest: Smallest = core::mem::transmute(found);
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
    // SAFETY: the control block's head; the caller's promise.
    unsafe { Words::new(control, SHARED.end) }.half(VARIANT.look_up_flag)
}

/// The kernel's name for the pthread `thread`, or a green thread's own one; 0 once a pthread has ended. `None`: where
/// glibc keeps it was not looked for.
///
/// # Safety
/// `thread` is a `pthread_t` whose control block is still there.
pub(crate) unsafe fn thread_id(thread: usize) -> Option<u32> {
    let offset = LAYOUT.get()?.tid;
    // SAFETY: a pthread's name is the address of its control block; the caller's promise.
    let control = unsafe { Words::new(thread as *const u8, offset + size_of::<u32>()) };
    Some(control.half(offset).load(Relaxed))
}

static NO_CACHE: AtomicUsize = AtomicUsize::new(0);

/// The value of that word in a thread without a cache.
#[inline(always)]
pub(crate) fn no_cache() -> usize {
    NO_CACHE.load(Relaxed)
}

impl Layout {
    fn find() -> Result<Layout, String> {
        let functions = Functions::find()?;
        let sizes = Sizes::ask(&functions)?;
        let inside = |field: Field| match field.offset + field.bytes <= sizes.control {
            true => Ok(field),
            false => Err(format!(
                "a field of the control block lies outside: {:?}",
                field
            )),
        };
        let tid = inside(field(c"_thread_db_pthread_tid", 4)?)?.offset;
        let list = inside(field(c"_thread_db_pthread_list", 2 * WORD)?)?.offset;
        let vector = field(c"_thread_db_pthread_dtvp", WORD)?.offset;
        check(
            vector == VARIANT.vector_in_descriptor(sizes.control),
            "the vector of modules is not where the ABI has it",
        )?;
        let blocks = inside(any_field(c"_thread_db_pthread_specific")?)?;
        let value_size = number(c"_thread_db_sizeof_pthread_key_data")?;
        let block_size = number(c"_thread_db_sizeof_pthread_key_data_level2")?;
        check(
            value_size >= 2 * WORD && (value_size..sizes.control).contains(&block_size),
            "odd sizes of pthread keys",
        )?;
        let pointers = blocks.offset..blocks.offset + blocks.bytes;
        let rseq = rseq_offset(sizes)?;
        let mut known = vec![tid..tid + 4, list..list + 2 * WORD];
        let in_control =
            |offset| usize::try_from(offset - VARIANT.control_block(sizes.control)).ok();
        if let Some(area) = rseq.and_then(in_control) {
            known.push(area..area + RSEQ);
        }
        let probe = Probe::run(sizes, pointers, block_size, known)?;
        Ok(Layout {
            sizes,
            tid,
            list,
            rseq,
            keys: Keys::find(blocks, value_size, block_size, &probe)?,
            probe,
            loader: Loader::find()?,
            functions,
        })
    }

    /// Fills in the control block of a block, which `_dl_allocate_tls` has just prepared on zeroed
    /// memory, as `pthread_create` would.
    pub(super) fn fill(&self, block: &Block, tid: u32, stack_bottom: usize, stack_size: usize) {
        let control = block.control();
        let address = control.start() as usize;
        let set = |offset: usize, value: usize| control.word(offset).store(value, Relaxed);
        self.probe.initial.restore(control);
        VARIANT.own_address.iter().for_each(|&at| set(at, address));
        for (i, &value) in self.probe.shared.iter().enumerate() {
            set(SHARED.start + i * WORD, value);
        }
        // Alone in the list of threads: no search finds it there, and unlinking does no harm.
        set(self.list, address + self.list);
        set(self.list + WORD, address + self.list);
        set(self.keys.blocks, address + self.keys.first_block);
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

    /// Puts right what the thread that has ended may have changed of the fields that begin otherwise.
    #[inline]
    pub(super) fn refill(&self, block: &Block) {
        self.probe.initial.restore(block.control());
    }

    /// The private thread id of a block.
    pub(super) fn tid(&self, block: &Block) -> u32 {
        block.control().half(self.tid).load(Relaxed)
    }

    /// The calling thread's control block, its id there, and where its ring of robust mutexes lies in it.
    pub(super) fn own_robust<'a>(&self) -> (Words<'a>, u32, usize) {
        let control = self.sizes.own_control_block();
        (
            control,
            control.half(self.tid).load(Relaxed),
            self.probe.robust,
        )
    }

    /// The resolver's state in a control block.
    #[inline]
    pub(super) fn resolver(&self) -> usize {
        self.probe.resolver
    }
}

impl Functions {
    fn find() -> Result<Functions, String> {
        type Close = unsafe extern "C" fn(*mut c_void);
        let close = symbol(c"__res_nclose").ok();
        // SAFETY: the types of these functions; all have been in glibc, unchanged, for more than a
        // decade.
        unsafe {
            Ok(Functions {
                allocate: transmute::<*mut u8, unsafe extern "C" fn(*mut u8) -> *mut u8>(symbol(
                    c"_dl_allocate_tls",
                )?),
                deallocate: transmute::<*mut u8, unsafe extern "C" fn(*mut u8, bool)>(symbol(
                    c"_dl_deallocate_tls",
                )?),
                call_destructors: transmute::<*mut u8, unsafe extern "C" fn()>(symbol(
                    c"__call_tls_dtors",
                )?),
                close_resolver: close.map(|close| transmute::<*mut u8, Close>(close)),
                static_info: transmute::<*mut u8, extern "C" fn(&mut usize, &mut usize)>(symbol(
                    c"_dl_get_tls_static_info",
                )?),
            })
        }
    }
}

impl Sizes {
    fn ask(functions: &Functions) -> Result<Sizes, String> {
        let (mut all, mut align) = (0, 0);
        (functions.static_info)(&mut all, &mut align);
        let control = number(c"_thread_db_sizeof_pthread")?;
        check(
            align.is_power_of_two() && (16..=4096).contains(&align),
            "odd alignment of thread-local storage",
        )?;
        check(
            (0x300..0x4000).contains(&control),
            "odd size of the control block",
        )?;
        check(
            (control..1 << 24).contains(&all),
            "odd size of thread-local storage",
        )?;
        let (below, above) = VARIANT.sides(all, control);
        Ok(Sizes {
            align: align.max(LINE),
            control,
            // Rounded up: what is glibc's begins at or above our record.
            below: below.next_multiple_of(LINE) + RECORD,
            above,
        })
    }

    /// Bytes of a block of ours, at least.
    pub(super) fn all(self) -> usize {
        self.below + self.above
    }

    /// The control block of the thread with this thread pointer.
    #[inline]
    pub(super) fn control_block(self, thread_pointer: *mut u8) -> *mut u8 {
        thread_pointer.wrapping_offset(VARIANT.control_block(self.control))
    }

    /// The control block of the calling thread, which has it for as long as it runs. Words of it are
    /// not for other threads.
    #[inline]
    pub(super) fn own_control_block<'a>(self) -> Words<'a> {
        // SAFETY: every thread has a control block, of this size.
        unsafe { Words::new(self.control_block(thread_pointer()), self.control) }
    }
}

impl Keys {
    fn find(
        blocks: Field,
        value_size: usize,
        block_size: usize,
        probe: &Probe,
    ) -> Result<Keys, String> {
        let count = any_field(c"_thread_db___pthread_keys")?.count;
        let key_size = number(c"_thread_db_sizeof_pthread_key_struct")?;
        let keys = Keys {
            table: data(c"__pthread_keys", count * key_size)?,
            key_size,
            key_sequence: field(c"_thread_db_pthread_key_struct_seq", WORD)?.offset,
            key_destructor: field(c"_thread_db_pthread_key_struct_destr", WORD)?.offset,
            blocks: blocks.offset,
            block_count: blocks.bytes / WORD,
            first_block: probe.first_block,
            used: probe.keys_used,
            values_per_block: block_size / value_size,
            value_size,
            value_sequence: field(c"_thread_db_pthread_key_data_seq", WORD)?.offset,
            value_data: field(c"_thread_db_pthread_key_data_data", WORD)?.offset,
        };
        check(
            keys.block_count * keys.values_per_block == count,
            "the number of pthread keys does not add up",
        )?;
        check(
            keys.key_sequence.max(keys.key_destructor) + WORD <= key_size
                && keys.value_sequence.max(keys.value_data) + WORD <= value_size,
            "odd fields of pthread keys",
        )?;
        Ok(keys)
    }
}

impl Loader {
    fn find() -> Result<Loader, String> {
        let first = field(c"_thread_db_rtld_global__dl_tls_dtv_slotinfo_list", WORD)?.offset;
        let map_module = field(c"_thread_db_link_map_l_tls_modid", WORD)?.offset;
        let map_offset = field(c"_thread_db_link_map_l_tls_offset", WORD)?.offset;
        let loader = Loader {
            global: data(c"_rtld_global", first + WORD + optional::BEHIND)?,
            first,
            node_length: field(c"_thread_db_dtv_slotinfo_list_len", WORD)?.offset,
            node_next: field(c"_thread_db_dtv_slotinfo_list_next", WORD)?.offset,
            node_slots: any_field(c"_thread_db_dtv_slotinfo_list_slotinfo")?.offset,
            slot_size: number(c"_thread_db_sizeof_dtv_slotinfo")?,
            slot_generation: field(c"_thread_db_dtv_slotinfo_gen", WORD)?.offset,
            slot_map: field(c"_thread_db_dtv_slotinfo_map", WORD)?.offset,
            map_size: map_module.max(map_offset) + WORD,
            map_module,
            map_offset,
            vector_entry: any_field(c"_thread_db_dtv_dtv")?.bits / 8,
            entry_counter: field(c"_thread_db_dtv_t_counter", WORD)?.offset,
            entry_pointer: field(c"_thread_db_dtv_t_pointer_val", WORD)?.offset,
        };
        check(
            loader.vector_entry == 2 * WORD
                && loader.entry_counter.max(loader.entry_pointer) <= WORD,
            "odd entries in the vector of modules",
        )?;
        check(
            loader.node_length.max(loader.node_next) + WORD <= loader.node_slots
                && loader.slot_generation.max(loader.slot_map) + WORD <= loader.slot_size,
            "odd nodes in the list of modules",
        )?;
        Ok(loader)
    }

    /// An address in the loader's data.
    pub(super) fn address(&self) -> usize {
        self.global.start() as usize + self.first
    }
}

/// The public `const ptrdiff_t` of glibc since 2.35.
fn rseq_offset(sizes: Sizes) -> Result<Option<isize>, String> {
    let Ok(offset) = data(c"__rseq_offset", WORD) else {
        return Ok(None);
    };
    let offset = offset.word(0).load(Relaxed) as isize;
    let block = -((sizes.below - RECORD) as isize)..=(sizes.above - RSEQ) as isize;
    check(
        block.contains(&offset),
        "the rseq area lies outside the block",
    )?;
    Ok(Some(offset))
}

#[derive(Debug, Clone, Copy)]
struct Field {
    bits: usize,
    bytes: usize,
    count: usize,
    offset: usize,
}

/// A field of `bytes` bytes, from its descriptor.
fn field(name: &CStr, bytes: usize) -> Result<Field, String> {
    let field = any_field(name)?;
    check(
        field.bytes == bytes,
        &format!("{name:?} has {} bytes, not {bytes}", field.bytes),
    )?;
    Ok(field)
}

/// A descriptor: three 32-bit numbers.
fn any_field(name: &CStr) -> Result<Field, String> {
    let descriptor = data(name, 12)?;
    let [bits, count, offset] = [0, 4, 8].map(|at| descriptor.half(at).load(Relaxed) as usize);
    check(
        bits % 8 == 0 && offset < 1 << 16,
        &format!("odd descriptor {name:?}"),
    )?;
    Ok(Field {
        bits,
        bytes: bits / 8,
        count,
        offset,
    })
}

/// A size: a 32-bit number.
fn number(name: &CStr) -> Result<usize, String> {
    Ok(data(name, 4)?.half(0).load(Relaxed) as usize)
}

pub(super) fn check(holds: bool, otherwise: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise.into()) }
}
