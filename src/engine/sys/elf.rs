//! The file of a program or a library (ELF, of 64 bits, little-endian): its sections, and its table of symbols.
//!
//! The file is mapped, and read as it lies there. What it says leads to other parts of it, never behind its end: what
//! makes no sense is not found. Compressed sections count as absent. The loader has mapped the same file: a program that writes to it, or
//! makes it shorter (SIGBUS), breaks the program with us or without.

use std::fs::File;
use std::path::Path;

use libc::{Elf64_Ehdr, Elf64_Shdr, Elf64_Sym};

use super::mm::Mapping;

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
        self.part(section.sh_offset, section.sh_size)
            .filter(|_| is_here)
    }

    fn bytes(&self) -> &[u8] {
        let length = self.0.end() - self.0.start();
        // SAFETY: the mapping is there as long as its value, and nobody writes to such a file.
        unsafe { core::slice::from_raw_parts(self.0.start() as *const u8, length) }
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
