//! The loaded libraries, the program among them, as the loader lists them.

use crate::engine::arch::thread_pointer;
use std::ffi::{CStr, c_int, c_void};
use std::ops::ControlFlow;
use std::sync::OnceLock;

/// One of them, during [`visit`].
pub(super) struct Library<'a> {
    pub(super) name: &'a CStr,
    /// How many libraries were ever loaded.
    pub(super) loads: u64,
    /// The module of its thread-locals; 0 if it has none.
    pub(super) module: usize,
    /// From the thread pointer to this thread's copy of its thread-locals, if it has one.
    pub(super) own: Option<isize>,
    /// What is added to the addresses in its file.
    base: usize,
    headers: &'a [libc::Elf64_Phdr],
}

/// The image of a library's thread-locals: where its initial contents lie, and the size of all, in
/// bytes.
pub(super) struct Image {
    pub(super) start: *const u8,
    pub(super) length: usize,
    pub(super) size: usize,
}

impl Library<'_> {
    pub(super) fn image(&self) -> Option<Image> {
        let is_image = |header: &&libc::Elf64_Phdr| header.p_type == libc::PT_TLS;
        let header = self.headers.iter().find(is_image)?;
        Some(Image {
            start: self.address(header) as *const u8,
            length: header.p_filesz as usize,
            size: header.p_memsz as usize,
        })
    }

    pub(super) fn contains(&self, address: usize) -> bool {
        self.headers.iter().any(|header| {
            let offset = address.wrapping_sub(self.address(header));
            header.p_type == libc::PT_LOAD && offset < header.p_memsz as usize
        })
    }

    /// Whether it is libc itself (malloc and the like may be another library's).
    pub(super) fn is_libc(&self) -> bool {
        self.contains(libc_function())
    }

    fn address(&self, header: &libc::Elf64_Phdr) -> usize {
        self.base.wrapping_add(header.p_vaddr as usize)
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
pub(super) fn visit<F: FnMut(&Library<'_>) -> ControlFlow<()>>(mut each: F) {
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
    // SAFETY: the callback's argument lives through the call.
    unsafe { libc::dl_iterate_phdr(Some(show::<F>), (&raw mut each).cast()) };
}

/// libc's own thread-locals in the block of the calling thread: offset from the thread pointer, and
/// words.
pub(super) fn libc_block() -> Option<(isize, usize)> {
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
