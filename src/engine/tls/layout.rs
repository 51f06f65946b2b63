//! Where glibc keeps what: found out at start, never assumed.
//!
//! # Sources, best first
//!
//! 1. `_dl_get_tls_static_info`: size and alignment of a thread's static block.
//! 2. `_thread_db_*`: the descriptors that glibc exports for debuggers (libthread_db), one `[bits,
//!    count, offset]` for each field, one number for each size.
//! 3. A *probe thread*: a short-lived pthread on a stack we know. In its control block we search
//!    for what we can recognise: the stack's bounds, the robust list (an empty ring), the
//!    resolver's state, the first block of keys. A search must find exactly one place.
//! 4. The first words of the control block are fixed by the ABI (compilers emit `fs:0`, `fs:0x28`)
//!    or by 25 years of glibc. They are compared with the probe thread's and with our own; a
//!    mismatch is an error.
//!
//! # Invariants
//!
//! 1. `LAYOUT` is set once, before the first block exists, and only if every check passed.
//! 2. Each offset of a field plus its size is at most `control_size`.

use super::probe::{Probe, SELF, TCB};
use std::ffi::{CStr, c_void};
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicUsize};

/// The vector of modules, in the control block and in its descriptor.
pub(super) const VECTOR: usize = 0x08;
/// From `multiple_threads` up to the pointer guard: the same in every thread, copied from the probe
/// thread.
pub(super) const SHARED: Range<usize> = 0x18..0x38;
/// The word in which a thread says that the loader looks up a symbol for it (`gscope_flag`).
const LOOK_UP_FLAG: usize = 0x1c;
pub(super) const WORD: usize = size_of::<usize>();

/// What the blocks and the list of modules need to know of this glibc.
pub(super) struct Layout {
    /// Bytes of thread-locals and control block together.
    pub(super) static_size: usize,
    pub(super) align: usize,
    /// Bytes of the control block.
    pub(super) control_size: usize,
    tid: usize,
    list: usize,
    /// From the thread pointer to the kernel's rseq area, where glibc has one.
    rseq: Option<isize>,
    probe: Probe,
    pub(super) keys: Keys,
    pub(super) loader: Loader,
    pub(super) allocate: unsafe extern "C" fn(*mut u8) -> *mut u8,
    pub(super) deallocate: unsafe extern "C" fn(*mut u8, bool),
    pub(super) call_destructors: unsafe extern "C" fn(),
    pub(super) close_resolver: Option<unsafe extern "C" fn(*mut c_void)>,
}

/// pthread keys: a table of keys for the process, a table of tables of values for each thread.
pub(super) struct Keys {
    pub(super) table: *const u8,
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
    /// The loader's data, or as much of it as we look at.
    pub(super) global: *mut u8,
    pub(super) global_words: usize,
    /// The loader's pointer to the first node.
    pub(super) first: *const *const u8,
    pub(super) node_length: usize,
    pub(super) node_next: usize,
    pub(super) node_slots: usize,
    pub(super) slot_size: usize,
    pub(super) slot_generation: usize,
    pub(super) slot_map: usize,
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
    // Relaxed: who uses it has seen `LAYOUT`.
    NO_CACHE.store(found.probe.tcache.map_or(0, |word| word.none), Relaxed);
    LAYOUT.get_or_init(|| found);
    Ok(())
}

/// A kernel thread's stack in bytes, if code is to have `size` of it: libc puts the thread-locals on it
/// as well, and those of a program may be large. (Where they were not looked at, as in kernel-thread mode, libc
/// has to have enough.)
pub(crate) fn with_thread_locals(size: usize) -> usize {
    size + LAYOUT.get().map_or(0, |layout| layout.static_size)
}

/// From the thread pointer to malloc's `tcache` word, where one was recognised.
pub(crate) fn tcache_offset() -> Option<isize> {
    layout().probe.tcache.map(|word| word.offset)
}

/// In the control block at `thread_pointer`: whether the loader looks up a symbol for its thread.
///
/// # Safety
/// The control block is there for as long as the answer is used.
pub(crate) unsafe fn look_up_flag<'a>(thread_pointer: *mut u8) -> &'a AtomicU32 {
    // SAFETY: a word of the control block's head, which is written atomically.
    unsafe { AtomicU32::from_ptr(thread_pointer.add(LOOK_UP_FLAG).cast()) }
}

static NO_CACHE: AtomicUsize = AtomicUsize::new(0);

/// What that word holds in a thread without a cache.
#[inline(always)]
pub(crate) fn no_cache() -> usize {
    NO_CACHE.load(Relaxed)
}

impl Layout {
    fn find() -> Result<Layout, String> {
        no_shadow_stack()?;
        let (mut static_size, mut align) = (0, 0);
        // SAFETY: the function's type since glibc 2.3.
        unsafe {
            let info: unsafe extern "C" fn(*mut usize, *mut usize) =
                std::mem::transmute(symbol(c"_dl_get_tls_static_info")?);
            info(&mut static_size, &mut align);
        }
        let control_size = number(c"_thread_db_sizeof_pthread")?;
        check(
            align.is_power_of_two() && (64..=4096).contains(&align),
            "odd alignment of thread-local storage",
        )?;
        check(
            (0x300..0x4000).contains(&control_size),
            "odd size of the control block",
        )?;
        check(
            (control_size..1 << 24).contains(&static_size),
            "odd size of thread-local storage",
        )?;

        let inside = |field: Field| match field.offset + field.bytes <= control_size {
            true => Ok(field),
            false => Err(format!(
                "a field of the control block lies outside: {:?}",
                field
            )),
        };
        let tid = inside(field(c"_thread_db_pthread_tid", 4)?)?.offset;
        let list = inside(field(c"_thread_db_pthread_list", 2 * WORD)?)?.offset;
        let vector = inside(field(c"_thread_db_pthread_dtvp", WORD)?)?.offset;
        check(vector == VECTOR, "the vector of modules is not at fs:8")?;
        let blocks = inside(any_field(c"_thread_db_pthread_specific")?)?;

        let value_size = number(c"_thread_db_sizeof_pthread_key_data")?;
        let block_size = number(c"_thread_db_sizeof_pthread_key_data_level2")?;
        let sizes = value_size >= 2 * WORD && (value_size..control_size).contains(&block_size);
        check(sizes, "odd sizes of pthread keys")?;
        let pointers = blocks.offset..blocks.offset + blocks.bytes;
        let probe = Probe::run(static_size, control_size, pointers, block_size)?;
        let keys = Keys {
            table: symbol(c"__pthread_keys")?,
            key_size: number(c"_thread_db_sizeof_pthread_key_struct")?,
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
        let count = any_field(c"_thread_db___pthread_keys")?.count;
        check(
            keys.block_count * keys.values_per_block == count,
            "the number of pthread keys does not add up",
        )?;

        let head = field(c"_thread_db_rtld_global__dl_tls_dtv_slotinfo_list", WORD)?.offset;
        let global = symbol(c"_rtld_global")?;
        let loader = Loader {
            global,
            global_words: head / WORD,
            first: global.wrapping_add(head).cast(),
            node_length: field(c"_thread_db_dtv_slotinfo_list_len", WORD)?.offset,
            node_next: field(c"_thread_db_dtv_slotinfo_list_next", WORD)?.offset,
            node_slots: any_field(c"_thread_db_dtv_slotinfo_list_slotinfo")?.offset,
            slot_size: number(c"_thread_db_sizeof_dtv_slotinfo")?,
            slot_generation: field(c"_thread_db_dtv_slotinfo_gen", WORD)?.offset,
            slot_map: field(c"_thread_db_dtv_slotinfo_map", WORD)?.offset,
            map_module: field(c"_thread_db_link_map_l_tls_modid", WORD)?.offset,
            map_offset: field(c"_thread_db_link_map_l_tls_offset", WORD)?.offset,
            vector_entry: any_field(c"_thread_db_dtv_dtv")?.bits / 8,
            entry_counter: field(c"_thread_db_dtv_t_counter", WORD)?.offset,
            entry_pointer: field(c"_thread_db_dtv_t_pointer_val", WORD)?.offset,
        };
        check(
            loader.vector_entry == 2 * WORD,
            "odd size of an entry in the vector of modules",
        )?;

        // SAFETY: the types of these functions; all have been in glibc, unchanged, for more than a
        // decade.
        unsafe {
            Ok(Layout {
                static_size,
                align,
                control_size,
                tid,
                list,
                rseq: rseq_offset(static_size, control_size)?,
                probe,
                keys,
                loader,
                allocate: std::mem::transmute::<*mut u8, unsafe extern "C" fn(*mut u8) -> *mut u8>(
                    symbol(c"_dl_allocate_tls")?,
                ),
                deallocate: std::mem::transmute::<*mut u8, unsafe extern "C" fn(*mut u8, bool)>(
                    symbol(c"_dl_deallocate_tls")?,
                ),
                call_destructors: std::mem::transmute::<*mut u8, unsafe extern "C" fn()>(symbol(
                    c"__call_tls_dtors",
                )?),
                close_resolver: symbol(c"__res_nclose")
                    .ok()
                    .map(|f| std::mem::transmute::<*mut u8, unsafe extern "C" fn(*mut c_void)>(f)),
            })
        }
    }

    /// Fills in the control block at `thread_pointer` as `pthread_create` would.
    ///
    /// # Safety
    /// `_dl_allocate_tls` has just prepared the block, on zeroed memory.
    pub(super) unsafe fn fill(
        &self,
        thread_pointer: *mut u8,
        tid: u32,
        stack_bottom: usize,
        stack_size: usize,
    ) {
        let address = thread_pointer as usize;
        let set = |offset: usize, value: usize| {
            // SAFETY: every offset below lies within the control block (invariant 2).
            unsafe { *thread_pointer.add(offset).cast() = value }
        };
        set(TCB, address);
        set(SELF, address);
        for (i, &value) in self.probe.shared.iter().enumerate() {
            set(SHARED.start + i * WORD, value);
        }
        // Alone in the list of threads: nobody finds us there, and unlinking does no harm.
        set(self.list, address + self.list);
        set(self.list + WORD, address + self.list);
        set(self.keys.blocks, address + self.keys.first_block);
        let ring = address + self.probe.robust + WORD;
        set(self.probe.robust, ring);
        set(self.probe.robust + WORD, ring);
        set(self.probe.robust + 2 * WORD, self.probe.robust_futex);
        set(self.probe.stack, stack_bottom);
        set(self.probe.stack + WORD, stack_size);
        // SAFETY: the tid is a field of the control block; the other two offsets were seen to lie
        // in the block.
        unsafe {
            *thread_pointer.add(self.tid).cast() = tid;
            *thread_pointer.offset(self.probe.resolver_pointer).cast() =
                address + self.probe.resolver;
            if let Some(rseq) = self.rseq {
                // cpu_id_start stays 0, a valid index; cpu_id says "registration failed".
                *thread_pointer.offset(rseq + 4).cast() = -2i32;
            }
        }
    }

    /// The private thread id of a block, and the resolver's state in it.
    ///
    /// # Safety
    /// `thread_pointer` is a block's.
    pub(super) unsafe fn tid(&self, thread_pointer: *mut u8) -> u32 {
        // SAFETY: a field of the control block.
        unsafe { *thread_pointer.add(self.tid).cast() }
    }

    /// The resolver's state in a block.
    pub(super) fn resolver(&self, thread_pointer: *mut u8) -> *mut u8 {
        thread_pointer.wrapping_add(self.probe.resolver)
    }
}

/// Shadow stacks (Intel CET) do not follow a switch of stacks.
fn no_shadow_stack() -> Result<(), String> {
    const ARCH_SHSTK_STATUS: usize = 0x5005;
    let mut status = 0u64;
    // SAFETY: writes one word, or fails where the kernel does not know it.
    let failed = unsafe {
        crate::engine::arch::syscall(
            libc::SYS_arch_prctl,
            [ARCH_SHSTK_STATUS, &raw mut status as usize, 0, 0, 0, 0],
        )
    };
    check(failed != 0 || status & 1 == 0, "shadow stacks are on")
}

fn rseq_offset(static_size: usize, control_size: usize) -> Result<Option<isize>, String> {
    let Ok(offset) = symbol(c"__rseq_offset") else {
        return Ok(None);
    };
    // SAFETY: a `const ptrdiff_t`, public since glibc 2.35.
    let offset = unsafe { *offset.cast::<isize>() };
    let block = -((static_size - control_size) as isize)..=control_size as isize - 32;
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

fn any_field(name: &CStr) -> Result<Field, String> {
    // SAFETY: descriptors are three 32-bit numbers.
    let [bits, count, offset] = unsafe { *symbol(name)?.cast::<[u32; 3]>() }.map(|n| n as usize);
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

fn number(name: &CStr) -> Result<usize, String> {
    // SAFETY: a 32-bit number.
    Ok(unsafe { *symbol(name)?.cast::<u32>() } as usize)
}

pub(super) fn symbol(name: &CStr) -> Result<*mut u8, String> {
    // SAFETY: a search by name in what is loaded.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    check(!address.is_null(), &format!("this libc has no {name:?}"))?;
    Ok(address.cast())
}

pub(super) fn check(holds: bool, otherwise: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise.into()) }
}
