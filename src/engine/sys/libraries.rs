//! The loaded libraries, the program among them, as the loader lists them; and where libc's names lead.
//!
//! *Fork.* The loader holds a lock while it lists, and libc does not release that lock in a forked child: there the next
//! list would wait for ever. So a fork waits until no list is being read ([`before_fork`]), and a list until the fork
//! is over. Each waits for [`PATIENCE`] at most: another atfork handler may list libraries itself.
//!
//! | the fork | a list |
//! |---|---|
//! | raises [`FORKS`], then waits until it sees [`LISTS`] at 0 | raises [`LISTS`], then sees [`FORKS`] at 0; or lowers it, waits, and raises it again |
//!
//! Orderings: these two are SeqCst, so at least one sees the other.
//!
//! *Where libc's names lead.* The loader looks a name up in the program first, then in what was preloaded, then in the
//! libraries that the program is linked with, one after another. So calls of libc come to the crate's functions of the
//! same names (`src/libc`) if the crate is in the program, or in a library that was loaded with the program, before libc.
//! A *host* that loads such a library later has libc's functions: a host in C, an interpreter with an extension module,
//! the second of two plug-ins that have a copy of the crate each. There the crate does not hear of signal masks and
//! handlers, nor of `dlclose`; green threads would not be sound.
//!
//! The library's own references could be led to the crate's functions (as RTLD_DEEPBIND does, and linkers when they are
//! asked to), but not the host's, nor those of libraries to come. That would do harm: threads that wait at an address for
//! the crate would not hear of threads that wake them by way of libc. So it is all or nothing, and what counts is the
//! lookup that everybody shares.

use super::kernel_thread;
use crate::engine::arch::{self, thread_pointer};
use crate::engine::atomic::{
    AtomicU32,
    Ordering::{Relaxed, SeqCst},
};
use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;
use std::sync::{Once, OnceLock};

/// How many threads fork.
static FORKS: AtomicU32 = AtomicU32::new(0);
/// How many lists are being read.
static LISTS: AtomicU32 = AtomicU32::new(0);
/// Looks at the other, [`PAUSE`] apart. Without them `observe::load::forked_child` hangs.
const PATIENCE: u32 = 1000;
/// In nanoseconds.
const PAUSE: u64 = 100_000;

fn wait_while(condition: impl Fn() -> bool) {
    for _ in 0..PATIENCE {
        if !condition() {
            return;
        }
        kernel_thread::rest(PAUSE);
    }
}

/// The calling thread is about to fork.
pub(crate) fn before_fork() {
    // SeqCst: the file's header.
    FORKS.fetch_add(1, SeqCst);
    wait_while(|| LISTS.load(SeqCst) != 0);
}

/// It has forked: this is the parent.
pub(crate) fn after_fork() {
    FORKS.fetch_sub(1, Relaxed);
}

/// This is the child, where nobody lists.
pub(crate) fn forget_lists() {
    LISTS.store(0, Relaxed);
    FORKS.store(0, Relaxed);
}

/// The calling thread is about to read a list; it lowers [`LISTS`] when it has done so.
fn before_list() {
    // SeqCst, both: the file's header.
    LISTS.fetch_add(1, SeqCst);
    if FORKS.load(SeqCst) != 0 {
        LISTS.fetch_sub(1, Relaxed);
        wait_while(|| FORKS.load(Relaxed) != 0);
        LISTS.fetch_add(1, SeqCst);
    }
}

/// A library, during [`find`].
pub(crate) struct Library<'a> {
    pub(crate) name: &'a CStr,
    /// How many libraries were ever loaded.
    pub(crate) loads: u64,
    /// How often one was loaded or unloaded.
    pub(crate) changes: u64,
    /// The module of its thread-locals; 0 if it has none.
    pub(crate) module: usize,
    /// From the thread pointer to this thread's copy of its thread-locals, if it has one.
    pub(crate) own: Option<isize>,
    /// What is added to the addresses in its file.
    pub(crate) base: usize,
    pub(crate) headers: &'a [libc::Elf64_Phdr],
}

/// The image of a library's thread-locals: where its initial contents lie, and the size of all, in
/// bytes.
pub(crate) struct Image {
    pub(crate) start: *const u8,
    pub(crate) length: usize,
    pub(crate) size: usize,
}

impl Library<'_> {
    pub(crate) fn image(&self) -> Option<Image> {
        let is_image = |header: &&libc::Elf64_Phdr| header.p_type == libc::PT_TLS;
        let header = self.headers.iter().find(is_image)?;
        Some(Image {
            start: self.range(header).start as *const u8,
            length: header.p_filesz as usize,
            size: header.p_memsz as usize,
        })
    }

    pub(crate) fn contains(&self, address: usize) -> bool {
        let is_loaded = |header: &&libc::Elf64_Phdr| header.p_type == libc::PT_LOAD;
        let mut loaded = self.headers.iter().filter(is_loaded);
        loaded.any(|header| self.range(header).contains(&address))
    }

    /// Where it has instructions.
    pub(crate) fn code(&self) -> impl Iterator<Item = Range<usize>> {
        let is_code = |header: &&libc::Elf64_Phdr| {
            header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_X != 0
        };
        let code = self.headers.iter().filter(is_code);
        code.map(|header| self.range(header))
    }

    /// Whether it is libc itself (malloc and the like may be another library's).
    pub(crate) fn is_libc(&self) -> bool {
        self.contains(libc_function())
    }

    /// Where the segment is in memory.
    pub(crate) fn range(&self, header: &libc::Elf64_Phdr) -> Range<usize> {
        let start = self.base.wrapping_add(header.p_vaddr as usize);
        start..start.wrapping_add(header.p_memsz as usize)
    }
}

/// The address of a function of libc's, in libc. The address that the program has for it may be a stub of the program's own: one
/// that is not position-independent has such stubs, and the loader tells everybody their addresses.
fn libc_function() -> usize {
    static FOUND: OnceLock<usize> = OnceLock::new();
    // SAFETY: a valid name.
    let find = || unsafe { libc::dlsym(libc::RTLD_NEXT, c"gnu_get_libc_version".as_ptr()) };
    *FOUND.get_or_init(|| find().addr())
}

/// Shows `each` the libraries, one after another, until one answers. Meanwhile the loader holds the lock that keeps the
/// libraries from going.
pub(crate) fn find<T>(mut each: impl FnMut(&Library<'_>) -> Option<T>) -> Option<T> {
    let mut answer = None;
    let mut show = |library: &Library<'_>| {
        answer = each(library);
        answer.is_some()
    };
    let mut show: Show<'_> = &mut show;
    libc_function(); // the loader must not be asked in its callback, under its lock
    before_list();
    // SAFETY: the callback's argument is a `Show`, which lives through the call.
    unsafe { libc::dl_iterate_phdr(Some(show_library), (&raw mut show).cast()) };
    LISTS.fetch_sub(1, Relaxed);
    answer
}

/// Shows `each` all libraries: see [`find`].
pub(crate) fn visit(mut each: impl FnMut(&Library<'_>)) {
    find(|library| {
        each(library);
        None::<()>
    });
}

/// True: no other library is to be shown.
type Show<'a> = &'a mut dyn FnMut(&Library<'_>) -> bool;

unsafe extern "C" fn show_library(
    info: *mut libc::dl_phdr_info,
    _: usize,
    show: *mut c_void,
) -> c_int {
    // SAFETY: the loader's record, with its name and its table of program headers, which stand still under the loader's
    // lock; and the argument of `find`.
    let (info, name, headers, show) = unsafe {
        let info = &*info;
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
        let name = CStr::from_ptr(info.dlpi_name);
        (info, name, headers, &mut *show.cast::<Show<'_>>())
    };
    let own = info.dlpi_tls_data as isize;
    c_int::from(show(&Library {
        name,
        loads: info.dlpi_adds,
        // Both only grow, so a change of either changes the sum.
        changes: info.dlpi_adds.wrapping_add(info.dlpi_subs),
        module: info.dlpi_tls_modid,
        own: (own != 0).then(|| own - thread_pointer() as isize),
        base: info.dlpi_addr as usize,
        headers,
    }))
}

/// Whether libc's names lead to the crate's functions, everywhere in the process. The first call asks the loader.
pub(crate) fn libcs_names_lead_here() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    let answer = ANSWER.get().copied();
    // The look is outside of the lock: code that the loader calls may ask, too.
    answer.unwrap_or_else(|| {
        let is_so = do_libcs_names_lead_here();
        *ANSWER.get_or_init(|| is_so)
    })
}

#[cfg(not(target_feature = "crt-static"))]
fn do_libcs_names_lead_here() -> bool {
    /// What green threads are not sound without, and what wakes threads.
    const NEEDED: [&CStr; 5] = [
        c"pthread_sigmask",
        c"sigprocmask",
        c"sigaction",
        c"signal",
        c"dlclose",
    ];
    // Not RTLD_DEFAULT, which is what a library finds that was loaded with RTLD_DEEPBIND.
    // SAFETY: no name is the program itself, which is loaded, and stays.
    let program = unsafe { libc::dlopen(core::ptr::null(), libc::RTLD_LAZY) };
    let own = start_and_name(own_place()).map(|(start, _)| start);
    let is_ours = |name: &&CStr| {
        // SAFETY: a valid handle and a valid name.
        let found = unsafe { libc::dlsym(program, name.as_ptr()) };
        own.is_some() && start_and_name(found).map(|(start, _)| start) == own
    };
    !program.is_null() && NEEDED.iter().all(is_ours)
}

/// There is no loader. Other parts find out what a static program lacks.
#[cfg(target_feature = "crt-static")]
fn do_libcs_names_lead_here() -> bool {
    true
}

/// From now on the library that the crate is in stays loaded: kernel threads run its code, and handlers, keys'
/// destructors and the hooks of `fork` lead to it.
pub(crate) fn stay_loaded() {
    static DONE: Once = Once::new();
    DONE.call_once(|| {
        let entry = arch::auxiliary(libc::AT_ENTRY) as usize as *const c_void;
        let program = start_and_name(entry).map(|(start, _)| start);
        if let Some((start, name)) = start_and_name(own_place())
            && Some(start) != program
        {
            let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
            // SAFETY: the loader's name for a library that is loaded. The reference is kept.
            unsafe { libc::dlopen(name, flags) };
        }
    });
}

/// A place in the library that the crate is in.
fn own_place() -> *const c_void {
    static HERE: u8 = 0;
    (&raw const HERE).cast()
}

/// Where the program or the library begins that `place` is in, and the loader's name for it.
fn start_and_name(place: *const c_void) -> Option<(*mut c_void, *const core::ffi::c_char)> {
    // SAFETY: all zero is a valid value.
    let mut about: libc::Dl_info = unsafe { core::mem::zeroed() };
    // SAFETY: the loader takes any address, and writes what it knows of that to a valid place.
    let is_known = unsafe { libc::dladdr(place, &mut about) } != 0;
    is_known.then_some((about.dli_fbase, about.dli_fname))
}
