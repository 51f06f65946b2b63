//! The loaded libraries, the program among them, as the loader lists them.

use crate::engine::arch::thread_pointer;
use std::ffi::{CStr, c_int, c_void};
use std::ops::{ControlFlow, Range};
use std::sync::OnceLock;

/// One of them, during [`visit`].
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
            // Both only grow, so a change of either changes the sum.
            changes: info.dlpi_adds.wrapping_add(info.dlpi_subs),
            module: info.dlpi_tls_modid,
            own: (own != 0).then(|| own - thread_pointer() as isize),
            base: info.dlpi_addr as usize,
            headers,
        };
        c_int::from(each(&library).is_break())
    }
    libc_function(); // the loader must not be asked in its callback, under its lock
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
