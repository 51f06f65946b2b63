//! What the files of the program and of its libraries tell of an address: by their debug information, the function there and
//! those that were inlined into it, with their places in the source; where they have none, the function alone, by the table of
//! symbols.
//!
//! A file is mapped when it is first asked, and stays so as long as the value: for one dump. (Its pages are the
//! kernel's. What is parsed stays, too: some hundred KiB for a program of the size of the tests.) Debug information counts if it
//! is in that file itself, and not compressed.

use addr2line::{Context, Location};
use gimli::{Dwarf, LittleEndian};

use super::modules::{Bytes, Modules};
use crate::engine::sys::elf::Elf;

/// The files that were asked so far, by what is added to the addresses in them; `None`: there is no such file.
#[derive(Default)]
pub(super) struct DebugInfo(Vec<(usize, Option<Module>)>);

struct Module {
    /// Dropped before what it refers to: `elf`.
    lines: Option<Context<Bytes<'static>>>,
    elf: Elf,
}

impl DebugInfo {
    /// Gives out the functions at an address, the innermost first: the name, as the file has it, and the place in it.
    pub(super) fn of(
        &mut self,
        address: usize,
        modules: &Modules,
        mut out: impl FnMut(&[u8], Option<Location<'_>>),
    ) {
        let Some((path, bias)) = modules.file(address) else {
            return;
        };
        let known = self.0.iter().position(|(known, _)| *known == bias);
        let index = known.unwrap_or_else(|| {
            self.0.push((bias, Elf::open(path).map(Module::new)));
            self.0.len() - 1
        });
        let Some(Module { lines, elf }) = &self.0[index].1 else {
            return;
        };
        let address = address.wrapping_sub(bias);
        let by_table = || {
            let mut functions = elf.functions();
            let found = functions.find(|function| function.addresses().contains(&address));
            found.map(|function| function.name())
        };
        let mut is_known = false;
        if let Some(lines) = lines
            && let Ok(mut frames) = lines.find_frames(address as u64).skip_all_loads()
        {
            while let Ok(Some(frame)) = frames.next() {
                is_known = true;
                let name = frame.function.map(|function| function.name.slice());
                if let Some(name) = name.or_else(by_table) {
                    out(name, frame.location);
                }
            }
        }
        if !is_known && let Some(name) = by_table() {
            out(name, None);
        }
    }
}

impl Module {
    fn new(elf: Elf) -> Module {
        let section = |id: gimli::SectionId| {
            let bytes: *const [u8] = elf.section(id.name().as_bytes()).unwrap_or_default();
            // SAFETY: of the mapping, which is there until `elf` is dropped, after `lines`.
            Ok::<_, gimli::Error>(Bytes::new(unsafe { &*bytes }, LittleEndian))
        };
        let lines = Dwarf::load(section).and_then(Context::from_dwarf).ok();
        Module { lines, elf }
    }
}
