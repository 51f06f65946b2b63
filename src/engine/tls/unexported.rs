//! Names that libpthread does not export.
//!
//! Up to glibc 2.33 the descriptors for debuggers and the table of pthread keys are local to
//! libpthread, which is a library of its own. Debuggers find them in the table of symbols in its file.
//! So do we; distributions leave that table in this one library, for debuggers' sake.
//!
//! The file may not be what was loaded: an update may have replaced it since. So it is read only if it has
//! the build id of the library in memory.

use super::libraries::{self, Library};
use object::elf::FileHeader64;
use object::read::elf::ElfFile;
use object::{NativeEndian, Object, ObjectSymbol};
use std::collections::HashMap;
use std::ffi::{CStr, OsStr};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::OnceLock;

/// The address of libpthread's data or function of that name.
pub(super) fn find(name: &CStr) -> Option<*mut u8> {
    static ADDRESSES: OnceLock<HashMap<Vec<u8>, usize>> = OnceLock::new();
    let addresses = ADDRESSES.get_or_init(|| addresses().unwrap_or_default());
    let address = *addresses.get(name.to_bytes())?;
    Some(std::ptr::with_exposed_provenance_mut(address))
}

/// libpthread, as it was loaded.
struct Loaded {
    path: PathBuf,
    base: usize,
    build_id: Vec<u8>,
}

/// Every name of libpthread's that has an address.
fn addresses() -> Option<HashMap<Vec<u8>, usize>> {
    let library = libpthread()?;
    let file = std::fs::read(&library.path).ok()?;
    let file = ElfFile::<FileHeader64<NativeEndian>>::parse(&*file).ok()?;
    if file.build_id().ok()? != Some(&library.build_id) {
        return None;
    }
    let defined = file.symbols().filter(|symbol| symbol.is_definition());
    let address = |offset: u64| library.base.wrapping_add(offset as usize);
    let named = |symbol: &object::read::elf::ElfSymbol<'_, '_, FileHeader64<NativeEndian>>| {
        Some((
            symbol.name_bytes().ok()?.to_vec(),
            address(symbol.address()),
        ))
    };
    Some(defined.filter_map(|symbol| named(&symbol)).collect())
}

fn libpthread() -> Option<Loaded> {
    let mut found = None;
    libraries::visit(|library: &Library<'_>| {
        let path = library.name.to_bytes();
        let file = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
        if !file.starts_with(b"libpthread") {
            return ControlFlow::Continue(());
        }
        found = library.build_id().map(|build_id| Loaded {
            path: OsStr::from_bytes(path).into(),
            base: library.base,
            build_id: build_id.into(),
        });
        ControlFlow::Break(())
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::c_void;

    /// The base of the library that a function is a part of.
    fn base_of(function: *mut c_void) -> usize {
        // SAFETY: all zero is valid; it is filled in.
        let mut about: libc::Dl_info = unsafe { std::mem::zeroed() };
        // SAFETY: any address, and a place for what is known of it.
        assert_ne!(unsafe { libc::dladdr(function, &mut about) }, 0);
        about.dli_fbase.addr()
    }

    /// Where libpthread is a library of its own, a name that it exports, too, has the same address in its
    /// file's table. (A newer libc has an empty one for programs that were made with an older libc.)
    #[test]
    fn names_have_their_addresses() {
        // SAFETY: a valid name.
        let known = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"pthread_getspecific".as_ptr()) };
        let Some(library) = libpthread().filter(|library| library.base == base_of(known)) else {
            return println!("libpthread is a part of this libc");
        };
        println!("{}", library.path.display());
        for name in [
            c"pthread_getspecific",
            c"pthread_setspecific",
            c"pthread_key_delete",
        ] {
            // SAFETY: a valid name.
            let exported = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
            assert_eq!(find(name), Some(exported.cast()), "{name:?}");
        }
        assert!(find(c"_thread_db_sizeof_pthread").is_some());
        assert_eq!(find(c"no such name"), None);
    }
}
