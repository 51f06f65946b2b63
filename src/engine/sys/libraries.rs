//! The loaded libraries, the program among them, as the loader lists them ([`find`]); where libc's names lead; what is in
//! their files ([`Elf`]); and functions with libc's names that leave no frame of Rust's below libc's own.
//!
//! # Lists and forks
//! The loader holds a lock while it lists, and libc does not release that lock in a forked child: there the next
//! list would wait for ever. So a fork waits until no list is being read ([`before_fork`]), and a list until the fork
//! is over. Each waits for [`PATIENCE`] at most: another atfork handler may list libraries itself.
//!
//! | the fork | a list |
//! |---|---|
//! | raises [`FORKS`], then waits until it sees [`LISTS`] at 0 | raises [`LISTS`], then sees [`FORKS`] at 0; or lowers it, waits, and raises it again |
//!
//! Orderings: these two are SeqCst, so at least one sees the other.
//!
//! # Where libc's names lead
//! The loader looks a name up in the program first, then in what was preloaded, then in the
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
//!
//! # Their files
//! A file (ELF, of 64 bits, little-endian) has sections, and a table of symbols. The file is mapped, and read as it lies
//! there. What it says leads to other parts of it, never behind its end: what makes no sense is not found. Compressed
//! sections count as absent. The loader has mapped the same file: a program that writes to it, or makes it shorter
//! (SIGBUS), breaks the program with us or without.
//!
//! # Frames below libc's own
//! A C thread that is cancelled unwinds, and so does a C++ exception in `pthread_once`. In a program with
//! `panic = "abort"` each frame of a Rust function aborts if somebody unwinds through it, whatever its ABI. So functions
//! with libc's names are naked, and come in two forms:
//!
//! - [`jump_where`]: a function of Rust's says where to go on, and the arguments go there. It has returned by then.
//! - [`call_around`]: `before` says what to call with the arguments, and a number; `after` gets the number, and the answer,
//!   whose own answer counts. If the call unwinds, `unwound` gets the number. It is called by [`personality`], the
//!   function that an unwinder asks about the frame.

use std::ffi::{CStr, c_int, c_void};
use std::sync::{Once, OnceLock};
use std::{fs::File, ops::Range, path::Path};

use libc::{Elf64_Ehdr, Elf64_Shdr, Elf64_Sym};

use super::kernel_thread;
use super::mm::Mapping;
use crate::engine::arch::{self, thread_pointer};
pub(crate) use crate::engine::arch::{call_around, jump_where};
use crate::engine::atomic::{AtomicU32, Ordering::*};

// ==== the loaded libraries ====

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
pub(crate) extern "C" fn before_fork() {
    // SeqCst: the file's header.
    FORKS.fetch_add(1, SeqCst);
    wait_while(|| LISTS.load(SeqCst) != 0);
}

/// It has forked: this is the parent.
pub(crate) extern "C" fn after_fork() {
    FORKS.fetch_sub(1, Relaxed);
}

/// This is the child, where nobody lists.
pub(crate) fn forget_lists() {
    LISTS.store(0, Relaxed);
    FORKS.store(0, Relaxed);
}

/// A library, during [`find`].
pub(crate) struct Library<'a> {
    pub(crate) name: &'a CStr,
    /// How many libraries were ever loaded.
    pub(crate) loads: u64,
    /// The module of its thread-locals; 0 if it has none.
    pub(crate) module: usize,
    /// From the thread pointer to this thread's copy of its thread-locals, if it has one.
    pub(crate) own: Option<isize>,
    /// What is added to the addresses in its file.
    pub(crate) base: usize,
    pub(crate) headers: &'a [libc::Elf64_Phdr],
}

impl Library<'_> {
    /// Of its thread-locals the initial contents, and the size of all, in bytes.
    pub(crate) fn image(&self) -> Option<(&[u8], usize)> {
        let header = self.headers_of(libc::PT_TLS).next()?;
        Some((self.contents(header), header.p_memsz as usize))
    }

    pub(crate) fn contains(&self, address: usize) -> bool {
        let mut loaded = self.headers_of(libc::PT_LOAD);
        loaded.any(|header| self.range(header).contains(&address))
    }

    /// Where it has instructions.
    pub(crate) fn code(&self) -> impl Iterator<Item = Range<usize>> {
        let loaded = self.headers_of(libc::PT_LOAD);
        let code = loaded.filter(|header| header.p_flags & libc::PF_X != 0);
        code.map(|header| self.range(header))
    }

    fn headers_of(&self, kind: u32) -> impl Iterator<Item = &libc::Elf64_Phdr> {
        let headers = self.headers.iter();
        headers.filter(move |header| header.p_type == kind)
    }

    /// Its segments of a kind: what the file has in each.
    pub(crate) fn segments(&self, kind: u32) -> impl Iterator<Item = &[u8]> {
        self.headers_of(kind).map(|header| self.contents(header))
    }

    /// What the file has in this segment.
    fn contents(&self, header: &libc::Elf64_Phdr) -> &[u8] {
        let start = self.range(header).start as *const u8;
        match header.p_filesz as usize {
            0 => &[], // such a segment may lie at null
            // SAFETY: the loader has mapped the segments, and keeps them while it shows the library.
            length => unsafe { core::slice::from_raw_parts(start, length) },
        }
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
pub(crate) fn find<T, F: FnMut(&Library<'_>) -> Option<T>>(each: F) -> Option<T> {
    let mut search = (each, None);
    libc_function(); // the loader must not be asked in its callback, under its lock
    // SeqCst, both: the file's header.
    LISTS.fetch_add(1, SeqCst);
    if FORKS.load(SeqCst) != 0 {
        LISTS.fetch_sub(1, Relaxed);
        wait_while(|| FORKS.load(Relaxed) != 0);
        LISTS.fetch_add(1, SeqCst);
    }
    // SAFETY: the callback's argument has its type, and lives through the call.
    unsafe { libc::dl_iterate_phdr(Some(show_library::<T, F>), (&raw mut search).cast()) };
    LISTS.fetch_sub(1, Relaxed);
    search.1
}

/// Shows `each` all libraries: see [`find`].
pub(crate) fn visit(mut each: impl FnMut(&Library<'_>)) {
    find(|library| {
        each(library);
        None::<()>
    });
}

/// For [`find`]. Not 0: no other library is to be shown.
unsafe extern "C" fn show_library<T, F: FnMut(&Library<'_>) -> Option<T>>(
    info: *mut libc::dl_phdr_info,
    _: usize,
    search: *mut c_void,
) -> c_int {
    // SAFETY: the loader's record, with its name and its table of program headers, which stand still under the loader's
    // lock; and the argument of `find`.
    let (info, name, headers, (each, answer)) = unsafe {
        let info = &*info;
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
        let name = CStr::from_ptr(info.dlpi_name);
        (info, name, headers, &mut *search.cast::<(F, Option<T>)>())
    };
    let own = info.dlpi_tls_data as isize;
    *answer = each(&Library {
        name,
        loads: info.dlpi_adds,
        module: info.dlpi_tls_modid,
        own: (own != 0).then(|| own - thread_pointer() as isize),
        base: info.dlpi_addr as usize,
        headers,
    });
    c_int::from(answer.is_some())
}

/// Whether libc's names lead to the crate's functions, everywhere in the process. The first call asks the loader.
pub(crate) fn libcs_names_lead_here() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    let answer = ANSWER.get().copied();
    // The loader is asked outside of the lock of `ANSWER`: code that the loader calls may come here, too.
    answer.unwrap_or_else(|| {
        // A static program has no loader. Other parts find out what it lacks.
        let is_so = cfg!(target_feature = "crt-static") || do_libcs_names_lead_here();
        *ANSWER.get_or_init(|| is_so)
    })
}

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

/// The name of the program's file.
pub(crate) fn program() -> &'static [u8] {
    unsafe extern "C" {
        static program_invocation_short_name: *const core::ffi::c_char;
    }
    // SAFETY: libc's variable, a text since the program was loaded.
    unsafe { CStr::from_ptr(program_invocation_short_name) }.to_bytes()
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

// ==== files ====

// elf.h
const START: &[u8] = b"\x7fELF\x02\x01";
const SHT_SYMTAB: u32 = 2;
const SHT_NOBITS: u32 = 8;
const SHT_DYNSYM: u32 = 11;
const SHF_COMPRESSED: u64 = 1 << 11;
const SHN_UNDEF: u16 = 0;
const STT_FUNC: u8 = 2;

/// A file that is mapped, to be read only.
pub(crate) struct Elf(Mapping);

impl Elf {
    /// Maps the file. One of another format has nothing in it.
    pub(crate) fn open(path: &Path) -> Option<Elf> {
        Mapping::of_file(&File::open(path).ok()?).map(Elf).ok()
    }

    /// The contents of a section.
    pub(crate) fn section(&self, name: &[u8]) -> Option<&[u8]> {
        let (sections, names) = self.sections()?;
        let names = self.contents(sections.get(names)?)?;
        let is_it = |section: &&Elf64_Shdr| text(names, section.sh_name) == name;
        self.contents(sections.iter().find(is_it)?)
    }

    /// The name of the function at an address, as the file has that.
    pub(crate) fn function_at(&self, address: usize) -> Option<&[u8]> {
        let (symbols, names) = self.symbols()?;
        let is_at = |symbol: &&Elf64_Sym| {
            (address as u64).wrapping_sub(symbol.st_value) < symbol.st_size && is_function(symbol)
        };
        let found = symbols.iter().find(is_at)?;
        Some(text(names, found.st_name))
    }

    /// The table of symbols and the bytes that have their names: of all symbols or, if the file was stripped of those, of what
    /// other files use.
    pub(crate) fn symbols(&self) -> Option<(&[Elf64_Sym], &[u8])> {
        let (sections, _) = self.sections()?;
        let table = |kind| sections.iter().find(|section| section.sh_type == kind);
        let table = table(SHT_SYMTAB).or_else(|| table(SHT_DYNSYM))?;
        let names = self.contents(sections.get(table.sh_link as usize)?)?;
        Some((values(self.contents(table)?), names))
    }

    /// The headers of the sections, and which of these has their names.
    fn sections(&self) -> Option<(&[Elf64_Shdr], usize)> {
        let header: &Elf64_Ehdr = values(self.bytes()).first()?;
        if !header.e_ident.starts_with(START) {
            return None;
        }
        let length = usize::from(header.e_shnum) * size_of::<Elf64_Shdr>();
        let sections = values(self.part(header.e_shoff, length as u64)?);
        Some((sections, header.e_shstrndx.into()))
    }

    fn contents(&self, section: &Elf64_Shdr) -> Option<&[u8]> {
        let is_here = section.sh_type != SHT_NOBITS && section.sh_flags & SHF_COMPRESSED == 0;
        is_here.then(|| self.part(section.sh_offset, section.sh_size))?
    }

    fn bytes(&self) -> &[u8] {
        let Mapping(place) = &self.0;
        // SAFETY: the mapping is there as long as its value, and nobody writes to such a file.
        unsafe { core::slice::from_raw_parts(place.start as *const u8, place.len()) }
    }

    fn part(&self, start: u64, length: u64) -> Option<&[u8]> {
        let rest = self.bytes().get(start as usize..)?;
        rest.get(..length as usize)
    }
}

/// A type of which any bytes are a value.
///
/// # Safety
/// The type consists of numbers.
unsafe trait Numbers {}
// SAFETY: these records of elf.h consist of numbers.
unsafe impl Numbers for Elf64_Ehdr {}
// SAFETY: likewise.
unsafe impl Numbers for Elf64_Shdr {}
// SAFETY: likewise.
unsafe impl Numbers for Elf64_Sym {}

/// As many whole values as the bytes have. None, if the first does not lie where such a value may.
fn values<T: Numbers>(bytes: &[u8]) -> &[T] {
    // SAFETY: any bytes are a `T`, which `align_to` aligns.
    match unsafe { bytes.align_to() } {
        ([], values, _) => values,
        _ => &[],
    }
}

/// Whether it is a function in this file, and not one that it uses of another.
pub(crate) fn is_function(symbol: &Elf64_Sym) -> bool {
    symbol.st_info & 15 == STT_FUNC && symbol.st_shndx != SHN_UNDEF
}

/// The text that begins there, and ends with a zero.
pub(crate) fn text(names: &[u8], start: u32) -> &[u8] {
    let rest = names.get(start as usize..).unwrap_or_default();
    rest.split(|&byte| byte == 0).next().unwrap_or_default()
}

// ==== frames below libc's own ====

/// What a `before` says.
#[repr(C)]
pub(crate) struct Decision {
    /// What to call. Null: nothing, and the number is the answer.
    function: *const (),
    number: usize,
}

impl Decision {
    pub(crate) fn call(function: *const (), number: usize) -> Decision {
        Decision { function, number }
    }

    pub(crate) fn answer(answer: c_int) -> Decision {
        Decision::call(core::ptr::null(), answer as usize)
    }
}

/// From the stack pointer of a frame of [`call_around`]: what its call leaves undone.
#[repr(C)]
struct Frame {
    arguments: [usize; 2],
    unwound: unsafe extern "C" fn(usize),
    number: usize,
}

/// An unwinder asks what is to be done at such a frame: go on; and the second time, what was left undone.
pub(crate) unsafe extern "C" fn personality(
    _version: c_int,
    actions: c_int,
    _class: u64,
    _exception: *mut c_void,
    context: *mut c_void,
) -> c_int {
    unsafe extern "C" {
        fn _Unwind_GetCFA(context: *mut c_void) -> usize;
    }
    // unwind.h
    const CLEANUP_PHASE: c_int = 2;
    const CONTINUE_UNWIND: c_int = 8;
    if actions & CLEANUP_PHASE != 0 {
        // SAFETY: the unwinder's own context, which names the stack pointer at the call. The frame lies there as long as
        // it is unwound.
        unsafe {
            let frame = &*(_Unwind_GetCFA(context) as *const Frame);
            (frame.unwound)(frame.number);
        }
    }
    CONTINUE_UNWIND
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Elf {
        Elf::open(Path::new("/proc/self/exe")).unwrap()
    }

    #[test]
    fn sections_and_functions_are_found() {
        let own = own();
        assert!(
            own.section(b".interp").unwrap().ends_with(b".so.2\0")
                || cfg!(not(target_arch = "x86_64"))
        );
        assert_eq!(own.section(b".bss"), None);
        assert_eq!(own.section(b"no such section"), None);
        let (symbols, names) = own.symbols().unwrap();
        let mut functions = symbols.iter().filter(|symbol| is_function(symbol));
        let main = functions.find(|symbol| text(names, symbol.st_name) == b"main");
        let main = main.unwrap().st_value as usize;
        assert_eq!(own.function_at(main), Some(&b"main"[..]));
        assert_eq!(own.function_at(0), None);
    }

    /// Whatever the file says.
    #[test]
    fn nothing_is_read_behind_the_end() {
        let path = std::env::temp_dir().join(format!("greenthread-elf-{}", std::process::id()));
        let own = own();
        let whole = own.bytes();
        let check = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            let Some(elf) = Elf::open(&path) else { return };
            let _ = elf.section(b".debug_info");
            let _ = elf.function_at(0x1234);
        };
        for length in [0, 1, 6, 63, 64, 65, 4096, 100_000] {
            check(&whole[..length]);
        }
        // The header's numbers, and with them the place of the sections.
        let sections = u64::from_le_bytes(whole[40..48].try_into().unwrap()) as usize;
        let mut small = whole[..64].to_vec();
        small.extend_from_slice(&whole[sections..]);
        small[40..48].copy_from_slice(&64_u64.to_le_bytes());
        check(&small);
        for at in 0..small.len().min(64 + 64 * 40) {
            let before = std::mem::replace(&mut small[at], 0xff);
            check(&small);
            small[at] = before;
        }
        std::fs::remove_file(&path).unwrap();
    }
}
