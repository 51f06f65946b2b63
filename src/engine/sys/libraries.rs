//! The loaded libraries, the program among them, as the loader lists them.
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

use super::kernel_thread;
use crate::engine::arch::thread_pointer;
use crate::engine::atomic::{
    AtomicU32,
    Ordering::{Relaxed, SeqCst},
};
use std::ffi::{CStr, c_int, c_void};
use std::ops::{ControlFlow, Range};
use std::sync::OnceLock;

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

/// A list that is being read.
struct Listing;

impl Listing {
    fn begin() -> Listing {
        // SeqCst, both: the file's header.
        LISTS.fetch_add(1, SeqCst);
        if FORKS.load(SeqCst) != 0 {
            LISTS.fetch_sub(1, Relaxed);
            wait_while(|| FORKS.load(Relaxed) != 0);
            LISTS.fetch_add(1, SeqCst);
        }
        Listing
    }
}

impl Drop for Listing {
    fn drop(&mut self) {
        LISTS.fetch_sub(1, Relaxed);
    }
}

/// One of them, during [`visit`].
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

    /// Its segments, by kind, with what the file has in each.
    pub(crate) fn segments(&self) -> impl Iterator<Item = (u32, &[u8])> {
        // One of none may lie at null.
        let there = self.headers.iter().filter(|header| header.p_filesz != 0);
        there.map(|header| {
            let (start, length) = (self.range(header).start, header.p_filesz as usize);
            // SAFETY: the loader has mapped the segments, and keeps them while it shows the library.
            let bytes = unsafe { core::slice::from_raw_parts(start as *const u8, length) };
            (header.p_type, bytes)
        })
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

/// Shows `each` the libraries, one after another, until it breaks off. Meanwhile the loader holds the
/// lock that keeps them from going.
pub(crate) fn visit<F: FnMut(&Library<'_>) -> ControlFlow<()>>(mut each: F) {
    unsafe extern "C" fn show<F: FnMut(&Library<'_>) -> ControlFlow<()>>(
        info: *mut libc::dl_phdr_info,
        _: usize,
        each: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader's argument, with its name and its table of program headers; and ours.
        let (info, name, headers, each) = unsafe {
            let info = &*info;
            let count = info.dlpi_phnum as usize;
            let headers = std::slice::from_raw_parts(info.dlpi_phdr, count);
            (
                info,
                CStr::from_ptr(info.dlpi_name),
                headers,
                &mut *each.cast::<F>(),
            )
        };
        let own = info.dlpi_tls_data as isize;
        let library = Library {
            name,
            loads: info.dlpi_adds,
            module: info.dlpi_tls_modid,
            own: (own != 0).then(|| own - thread_pointer() as isize),
            base: info.dlpi_addr as usize,
            headers,
        };
        c_int::from(each(&library).is_break())
    }
    libc_function(); // the loader must not be asked in its callback, under its lock
    let _listing = Listing::begin();
    // SAFETY: the callback's argument lives through the call.
    unsafe { libc::dl_iterate_phdr(Some(show::<F>), (&raw mut each).cast()) };
}

/// libc's own thread-locals in the block of the calling thread: offset from the thread pointer, and
/// words.
pub(crate) fn libc_block() -> Option<(isize, usize)> {
    let mut answer = None;
    visit(|library| {
        let (Some(offset), true) = (library.own, library.is_libc()) else {
            return ControlFlow::Continue(());
        };
        let words = |image: Image| image.size / size_of::<usize>();
        answer = library.image().map(|image| (offset, words(image)));
        ControlFlow::Break(())
    });
    answer
}
