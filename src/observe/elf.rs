//! What the files of the program and of its libraries tell of an address: by their debug information, the function there and
//! those that were inlined into it, with their places in the source; by the table of symbols, the function alone. That has the
//! function's path, too, which debug information has not if it is only line tables.
//!
//! A file is mapped when it is first asked, and stays so as long as the value: for one dump. (Its pages are the
//! kernel's. What is parsed stays, too: some hundred KiB for a program of the size of the tests.) Debug information counts if it
//! is in that file itself, and not compressed.

use addr2line::{Context, Frame, Location};
use gimli::{Dwarf, LittleEndian};

use super::modules::{Bytes, Modules};
use crate::engine::inspect::system::elf::Elf;

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
        let mut outermost = None;
        if let Some(lines) = lines
            && let Ok(mut frames) = lines.find_frames(address as u64).skip_all_loads()
        {
            while let Ok(Some(frame)) = frames.next() {
                let inner = outermost.replace(frame);
                if let Some(Frame {
                    function: Some(function),
                    location,
                    ..
                }) = inner
                {
                    out(function.name.slice(), location);
                }
            }
        }
        let (function, place) =
            outermost.map_or((None, None), |frame| (frame.function, frame.location));
        let name = function.map(|function| function.name.slice());
        // One of Rust is mangled then.
        let with_path = name.filter(|name| name.starts_with(b"_"));
        if let Some(name) = with_path.or_else(|| elf.function_at(address)).or(name) {
            out(name, place);
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
