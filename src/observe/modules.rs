//! The program and its libraries, as they are loaded now: where their code lies, and their unwind tables.
//!
//! A library can be unloaded while its tables are in use. So the tables of libraries are copied, in the
//! loader's callback, where nothing is unloaded; only the program's own are used where they lie, for the
//! program stays. A reference (`dlopen`) would need no copy, but then the last `dlclose` would be ours,
//! and the library's destructors would run in a thread that knows nothing of them.
//!
//! The callback runs under the loader's lock, and allocates nothing: an allocator may ask the loader for
//! something while it holds its own lock. The first walk counts, the second one copies into memory that
//! was made between the two; if a library has come meanwhile, both are made again.

use core::ops::Range;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use gimli::{BaseAddresses, EhFrame, EhFrameHdr, EndianSlice, LittleEndian};

use crate::engine::inspect::system::libraries::{self, Library};

/// Bytes of an unwind table.
pub(super) type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// What is loaded, ordered by address.
pub(crate) struct Modules {
    list: Vec<Module>,
    /// What the modules' ranges of bytes are ranges of.
    copies: Vec<u8>,
    /// The program's name.
    program: String,
}

/// The program, or one library.
struct Module {
    /// From its first executable byte to its last.
    code: Range<usize>,
    /// What is added to the addresses in its file.
    bias: usize,
    /// Its file, as the loader names it; empty if it is the program.
    path: Place,
    tables: Option<Tables>,
}

/// The two unwind tables, and the addresses to which their contents are relative.
struct Tables {
    header: (usize, Place),
    frames: (usize, Place),
}

enum Place {
    Mapped(&'static [u8]),
    Copied(Range<usize>),
}

/// The unwind tables of one module, to search in.
pub(super) struct View<'a> {
    pub(super) header: EhFrameHdr<Bytes<'a>>,
    pub(super) frames: EhFrame<Bytes<'a>>,
    pub(super) bases: BaseAddresses,
}

impl Modules {
    /// Returns what is loaded now.
    pub(crate) fn load() -> Modules {
        let program = std::env::current_exe().unwrap_or_default();
        let program = program.file_name().unwrap_or_default();
        let mut walk = Walk::default();
        loop {
            walk = Walk {
                list: Vec::with_capacity(walk.modules),
                copies: Vec::with_capacity(walk.bytes),
                ..Walk::default()
            };
            libraries::visit(|library| walk.visit(library));
            if walk.modules == walk.list.len() && walk.bytes == walk.copies.len() {
                break;
            }
        }
        walk.list.sort_unstable_by_key(|module| module.code.start);
        Modules {
            list: walk.list,
            copies: walk.copies,
            program: program.to_string_lossy().into_owned(),
        }
    }

    fn find(&self, address: usize) -> Option<&Module> {
        let behind = self
            .list
            .partition_point(|module| module.code.start <= address);
        let module = &self.list[behind.checked_sub(1)?];
        module.code.contains(&address).then_some(module)
    }

    /// Whether `address` may be one of an instruction.
    pub(crate) fn has_code(&self, address: usize) -> bool {
        self.find(address).is_some()
    }

    /// The module's name (a file's name without its folders) and the address in its file.
    pub(crate) fn raw(&self, address: usize) -> Option<(&str, usize)> {
        let module = self.find(address)?;
        let name = match self.bytes(&module.path).rsplit(|&byte| byte == b'/').next() {
            None | Some([]) => &self.program,
            Some(name) => core::str::from_utf8(name).unwrap_or("?"),
        };
        Some((name, address.wrapping_sub(module.bias)))
    }

    /// The module's file, and what is added to the addresses in it.
    pub(super) fn file(&self, address: usize) -> Option<(&Path, usize)> {
        let module = self.find(address)?;
        let path = match self.bytes(&module.path) {
            [] => b"/proc/self/exe",
            path => path,
        };
        Some((Path::new(OsStr::from_bytes(path)), module.bias))
    }

    /// The unwind tables of the module that has the instruction at `address`.
    pub(super) fn tables(&self, address: usize) -> Option<View<'_>> {
        let tables = self.find(address)?.tables.as_ref()?;
        let mut frames = EhFrame::new(self.bytes(&tables.frames.1), LittleEndian);
        frames.set_address_size(size_of::<usize>() as u8);
        frames.set_vendor(super::unwind::here::VENDOR);
        Some(View {
            header: EhFrameHdr::new(self.bytes(&tables.header.1), LittleEndian),
            frames,
            bases: BaseAddresses::default()
                .set_eh_frame_hdr(tables.header.0 as u64)
                .set_eh_frame(tables.frames.0 as u64),
        })
    }

    fn bytes<'a>(&'a self, place: &'a Place) -> &'a [u8] {
        match place {
            Place::Mapped(bytes) => bytes,
            Place::Copied(range) => &self.copies[range.clone()],
        }
    }
}

/// One walk through what is loaded: counts it all, and keeps what there is space for.
#[derive(Default)]
struct Walk {
    list: Vec<Module>,
    copies: Vec<u8>,
    modules: usize,
    bytes: usize,
}

impl Walk {
    fn visit(&mut self, library: &Library<'_>) {
        let is_program = self.modules == 0;
        let code = library
            .code()
            .reduce(|one, other| one.start.min(other.start)..one.end.max(other.end));
        let Some(code) = code else { return };
        let path = self.copy(library.name.to_bytes());
        let tables = tables_in(library).map(|(header, frames)| {
            let mut place = |bytes: &[u8]| {
                let place = match is_program {
                    // SAFETY: the program's segments stay mapped.
                    true => Place::Mapped(unsafe { &*core::ptr::from_ref(bytes) }),
                    false => self.copy(bytes),
                };
                (bytes.as_ptr().addr(), place)
            };
            Tables {
                header: place(header),
                frames: place(frames),
            }
        });
        self.modules += 1;
        if self.list.len() < self.list.capacity() {
            self.list.push(Module {
                code,
                bias: library.base,
                path,
                tables,
            });
        }
    }

    fn copy(&mut self, bytes: &[u8]) -> Place {
        self.bytes += bytes.len();
        let start = self.copies.len();
        if bytes.len() > self.copies.capacity() - start {
            return Place::Copied(0..0);
        }
        self.copies.extend_from_slice(bytes);
        Place::Copied(start..self.copies.len())
    }
}

/// The search table, and what lies in its segment from the unwind table on, if there are both.
fn tables_in<'a>(library: &'a Library<'_>) -> Option<(&'a [u8], &'a [u8])> {
    let of_kind = |kind| library.segments().filter(move |(its, _)| *its == kind);
    let (_, header) = of_kind(libc::PT_GNU_EH_FRAME).next()?;
    let bases = BaseAddresses::default().set_eh_frame_hdr(header.as_ptr().addr() as u64);
    let parsed = EhFrameHdr::new(header, LittleEndian)
        .parse(&bases, size_of::<usize>() as u8)
        .ok()?;
    parsed.table()?;
    let frames = parsed.eh_frame_ptr().direct().ok()? as usize;
    of_kind(libc::PT_LOAD).find_map(|(_, segment)| {
        let at = frames.checked_sub(segment.as_ptr().addr())?;
        let frames = segment.get(at..).filter(|rest| !rest.is_empty())?;
        Some((header, frames))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_found_where_it_is() {
        let modules = Modules::load();
        let own = code_is_found_where_it_is as fn() as usize;
        let exe = std::env::current_exe().unwrap();
        let (name, offset) = modules.raw(own).unwrap();
        assert_eq!(name, exe.file_name().unwrap().to_str().unwrap());
        assert!(offset <= own);
        assert!(modules.tables(own).is_some());
        let (name, _) = modules.raw(libc::getpid as *const () as usize).unwrap();
        assert!(name.contains("libc"), "{name}");
        assert_eq!(modules.raw(0), None);
        assert_eq!(modules.raw(usize::MAX), None);
        assert_eq!(modules.raw((&raw const modules) as usize), None);
    }

    #[test]
    fn what_is_loaded_and_unloaded_is_noticed() {
        // SAFETY: a library of libc's, and a function of its.
        let (library, function) = unsafe {
            let library = libc::dlopen(c"libresolv.so.2".as_ptr(), libc::RTLD_NOW);
            assert!(!library.is_null());
            (library, libc::dlsym(library, c"ns_get16".as_ptr()) as usize)
        };
        assert!(function != 0);
        let with = Modules::load();
        assert_eq!(with.raw(function).unwrap().0, "libresolv.so.2");
        assert!(with.tables(function).is_some());
        // SAFETY: the handle from above, which is not used again.
        assert_eq!(unsafe { libc::dlclose(library) }, 0);
        if Modules::load().has_code(function) {
            return eprintln!("the library stays loaded");
        }
        // The tables are still there.
        let view = with.tables(function).unwrap();
        let header = view.header.parse(&view.bases, 8).unwrap();
        assert!(header.table().is_some());
    }
}
