//! Names for addresses: functions, those that were inlined too, files and lines.
//!
//! A stack is shown in full, or in *short* form, as std's backtraces are: without the runtime's own frames on
//! top, and without what lies below the thread's closure. The first frame that is left is the public
//! function in which the thread waits. Which frames are cut is decided by one table ([`KINDS`]): by the file in
//! which a function stands, if that is known, or else by the function's path. (Debug information that is
//! only line tables has names without paths of inlined functions.)
//!
//! What a name is found by is in the files of the program and of its libraries ([`Module`]): by their debug information,
//! the function at an address and those that were inlined into it, with their places in the source; by the table of symbols,
//! the function alone. The table has the function's path, too, which debug information has not if it is only line tables.
//!
//! A file is mapped when it is first asked, and stays mapped as long as the value: for one dump. (Its pages are the
//! kernel's. What is parsed stays, too: some hundred KiB for a program of the size of the tests.) Debug information counts if
//! it is in that file itself, and not compressed. Where nothing may be allocated or mapped, `Modules::raw` still tells the
//! module and the address in it.

use core::convert::Infallible;
use core::num::NonZeroU64;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gimli::{AttributeValue, LittleEndian, Range, RangeIter, UnitOffset};

use super::numbers::NumberMap;
use super::unwind::{Bytes, Modules};
use crate::engine::inspect::system::libraries::Elf;
use crate::sys::variable;

/// The debug information of a file, a unit of it, and an entry of that.
type Dwarf = gimli::Dwarf<Bytes<'static>>;
type Unit = gimli::Unit<Bytes<'static>>;
type Entry = gimli::DebuggingInformationEntry<Bytes<'static>>;

/// Whether `RUST_BACKTRACE` asks for all of a stack.
pub(crate) fn is_full() -> bool {
    variable::read("RUST_BACKTRACE").is_some_and(|value| value == "full")
}

/// A function in which an instruction lies, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Symbol {
    /// The function's path, without the hash at its end. If it is not known, the module and an address in it.
    pub(crate) function: Arc<str>,
    /// As std's backtraces write it.
    pub(crate) file: Option<Arc<str>>,
    pub(crate) line: Option<u32>,
    pub(crate) kind: Kind,
}

/// The symbols of addresses, each of which is asked for once.
#[derive(Default)]
pub(crate) struct Symbols {
    known: NumberMap<Vec<Symbol>>,
    files: Files,
    /// This library's, once it was needed.
    own: Option<String>,
}

impl Symbols {
    /// Returns the functions for an address of `Unwinder::frames`: the function, and before it the functions
    /// that were inlined into it, the innermost first. Never none.
    pub(crate) fn of(&mut self, address: usize, modules: &Modules) -> &[Symbol] {
        if self.known.get(address as u64).is_none() {
            // The instruction that is meant lies before the address.
            let found = self.find(address.wrapping_sub(1), modules);
            self.known.or_insert(address as u64, found);
        }
        self.known.get(address as u64).map_or(&[], |found| found)
    }

    /// Returns the frames of a whole stack: all of them if `full`, or those of the short form.
    pub(crate) fn stack(&mut self, stack: &[usize], full: bool, modules: &Modules) -> Vec<Symbol> {
        let mut frames = Vec::with_capacity(stack.len());
        for &address in stack {
            frames.extend_from_slice(self.of(address, modules));
        }
        match full {
            true => frames,
            false => short(&frames).to_vec(),
        }
    }

    fn find(&mut self, address: usize, modules: &Modules) -> Vec<Symbol> {
        let folder = std::env::current_dir().ok();
        let own = || own_folder(&mut self.files, modules);
        let own: &str = self.own.get_or_insert_with(own);
        let mut found = Vec::new();
        let frames = frames_at(&mut self.files, address, modules).unwrap_or_default();
        for Frame { name, file, line } in frames {
            let Some(name) = &name else { continue };
            let name = String::from_utf8_lossy(name);
            let function = format!("{:#}", rustc_demangle::demangle(&name));
            let file = file.as_deref();
            found.push(Symbol {
                kind: kind(&function, file, own),
                function: function.into(),
                file: file.map(|file| shorten(file, folder.as_deref()).into()),
                line: line.filter(|&line| line != 0),
            });
        }
        if found.is_empty() {
            found.push(Symbol {
                function: raw_name(address, modules).into(),
                file: None,
                line: None,
                kind: Kind::Program,
            });
        }
        found
    }
}

fn raw_name(address: usize, modules: &Modules) -> String {
    match modules.raw(address) {
        Some((module, offset)) => format!("{module}+{offset:#x}"),
        None => format!("{address:#x}"),
    }
}

/// A file's path as std's short backtraces write it; of the compiler's hash in the path of a file of std's,
/// as much as `rustc --version` writes.
fn shorten(file: &Path, folder: Option<&Path>) -> String {
    const HASH: usize = 9;
    if let Some(Ok(inside)) = folder.map(|folder| file.strip_prefix(folder)) {
        return format!("./{}", inside.display());
    }
    let whole = file.to_string_lossy();
    let inside = whole.strip_prefix("/rustc/");
    match inside.and_then(|inside| inside.split_once('/')) {
        Some((hash, rest)) if hash.is_ascii() && hash.len() > HASH => {
            format!("/rustc/{}/{rest}", &hash[..HASH])
        }
        _ => whole.into_owned(),
    }
}

/// The files that were asked so far, by what is added to the addresses in them; `None`: there is no such file.
type Files = NumberMap<Option<Module>>;

/// A function, as its file has its name, and the place in it.
#[derive(Default)]
struct Frame {
    name: Option<Vec<u8>>,
    file: Option<PathBuf>,
    line: Option<u32>,
}

/// The functions at an address, the innermost first.
fn frames_at(files: &mut Files, address: usize, modules: &Modules) -> Option<Vec<Frame>> {
    let (path, bias) = modules.file(address)?;
    let open = || Elf::open(path).map(Module::new);
    let place = files.place(bias as u64, |_| true, open);
    let module = files.entries[place].1.as_mut()?;
    let address = address.wrapping_sub(bias);
    let mut frames = module.frames(address as u64).unwrap_or_default();
    let mut outermost = frames.pop().unwrap_or_default();
    // A name of Rust's that has the function's path is mangled: it begins with an underscore.
    let name = &mut outermost.name;
    if !name.as_ref().is_some_and(|name| name.starts_with(b"_"))
        && let Some(symbol) = module.elf.function_at(address)
    {
        *name = Some(symbol.into());
    }
    frames.push(outermost);
    Some(frames)
}

/// A file. Its fields are dropped in this order: the others refer to `elf`.
struct Module {
    dwarf: Dwarf,
    /// Units of compilation, and what was read of them when somebody asked for an address in them.
    units: Vec<(Unit, Option<Code>)>,
    elf: Elf,
}

/// From this address on, the code is of this file's and this line; `None`: there is no code.
type Row = (u64, Option<(u64, u32)>);

/// The functions and the lines of a unit.
#[derive(Default)]
struct Code {
    functions: Vec<(Range, UnitOffset)>,
    lines: Vec<Row>,
}

impl Module {
    fn new(elf: Elf) -> Module {
        let section = |id: gimli::SectionId| {
            let bytes: *const [u8] = elf.section(id.name().as_bytes()).unwrap_or_default();
            // SAFETY: of the mapping, which is there until `elf` is dropped, after all that is made of the bytes.
            Ok::<_, Infallible>(Bytes::new(unsafe { &*bytes }, LittleEndian))
        };
        let Ok(dwarf) = Dwarf::load(section);
        let headers = dwarf.units().map_while(Result::ok);
        let units = headers.filter_map(|header| dwarf.unit(header).ok());
        let units = units.map(|unit| (unit, None)).collect();
        Module { dwarf, units, elf }
    }

    /// The function at an address, behind those that were inlined into it there.
    fn frames(&mut self, address: u64) -> gimli::Result<Vec<Frame>> {
        let Module { dwarf, units, .. } = self;
        let has = |(unit, _): &(Unit, _)| holds(dwarf.unit_ranges(unit), address);
        let Some(index) = units.iter().position(has) else {
            return Ok(Vec::new());
        };
        let (unit, code) = &mut units[index];
        // What cannot be read is not tried again.
        let read = || Code::read(dwarf, unit).unwrap_or_default();
        let Code { functions, lines } = code.get_or_insert_with(read);
        let has = |row: &&[Row]| (row[0].0..row[1].0).contains(&address) && row[0].1.is_some();
        let mut place = lines.windows(2).find(has).and_then(|row| row[0].1);
        let has = |function: &&(Range, _)| (function.0.begin..function.0.end).contains(&address);
        let function = functions.iter().find(has).map(|function| function.1);
        let Module { dwarf, units, .. } = &*self;
        let unit = &units[index].0;
        let frame = |name, place: Option<(u64, u32)>| Frame {
            name,
            file: place.and_then(|(file, _)| path_of(dwarf, unit, file)),
            line: place.map(|(_, line)| line),
        };
        let Some(function) = function else {
            return Ok(vec![frame(None, place)]);
        };
        // The function, and what was inlined into it at this address: each is an entry below its caller's.
        let (mut entries, mut calls) = (unit.entries_at_offset(function)?, Vec::new());
        while let Some(entry) = entries.next_dfs()? {
            if !calls.is_empty() && entry.depth() <= 0 {
                break;
            }
            let is_inlined = entry.tag() == gimli::DW_TAG_inlined_subroutine;
            if calls.is_empty() || is_inlined && holds(dwarf.die_ranges(unit, entry), address) {
                calls.push(entry.clone());
            }
        }
        let mut frames = Vec::new();
        for entry in calls.iter().rev() {
            frames.push(frame(self.name_of(index, entry), place));
            // That is the place in the next function where it has called this one.
            let line = entry.attr(gimli::DW_AT_call_line);
            let line = line.and_then(|line| line.udata_value()).unwrap_or(0);
            place = match entry.attr_value(gimli::DW_AT_call_file) {
                Some(AttributeValue::FileIndex(file)) => Some((file, line as u32)),
                _ => None,
            };
        }
        Ok(frames)
    }

    /// The name of a function, mangled if it is known so: its own, or that of the function of which it is a copy.
    fn name_of(&self, mut index: usize, entry: &Entry) -> Option<Vec<u8>> {
        let Module { dwarf, units, .. } = self;
        let mut entry = entry.clone();
        // A chain of copies is short, unless it is a circle.
        for _ in 0..16 {
            let names = [
                gimli::DW_AT_linkage_name,
                gimli::DW_AT_MIPS_linkage_name,
                gimli::DW_AT_name,
            ];
            if let Some(name) = names.iter().find_map(|&name| entry.attr_value(name)) {
                return Some(
                    dwarf
                        .attr_string(&units[index].0, name)
                        .ok()?
                        .slice()
                        .into(),
                );
            }
            let original = entry.attr_value(gimli::DW_AT_abstract_origin);
            let offset = match original.or_else(|| entry.attr_value(gimli::DW_AT_specification))? {
                AttributeValue::UnitRef(offset) => offset,
                AttributeValue::DebugInfoRef(offset) => {
                    let inside = |(unit, _): &(Unit, _)| offset.to_unit_offset(&unit.header);
                    index = units.iter().position(|unit| inside(unit).is_some())?;
                    inside(&units[index])?
                }
                _ => return None,
            };
            entry = units[index].0.entry(offset).ok()?;
        }
        None
    }
}

impl Code {
    fn read(dwarf: &Dwarf, unit: &Unit) -> gimli::Result<Code> {
        let (mut functions, mut lines) = (Vec::new(), Vec::new());
        let mut entries = unit.entries_raw(None)?;
        while !entries.is_empty() {
            let offset = entries.next_offset();
            let Some(abbreviation) = entries.read_abbreviation()? else {
                continue;
            };
            entries.skip_attributes(abbreviation.attributes())?;
            if abbreviation.tag() == gimli::DW_TAG_subprogram {
                for range in dwarf.die_ranges(unit, &unit.entry(offset)?)? {
                    functions.push((range?, offset));
                }
            }
        }
        if let Some(program) = unit.line_program.clone() {
            let mut rows = program.rows();
            while let Some((_, row)) = rows.next_row()? {
                let line = row.line().map_or(0, NonZeroU64::get) as u32;
                let place = (!row.end_sequence()).then_some((row.file_index(), line));
                lines.push((row.address(), place));
            }
        }
        Ok(Code { functions, lines })
    }
}

/// Whether one of these ranges has the address. What cannot be read has none.
fn holds(ranges: gimli::Result<RangeIter<Bytes<'static>>>, address: u64) -> bool {
    let has = |range: Range| range.begin <= address && address < range.end;
    ranges.is_ok_and(|mut ranges| ranges.any(|range| range.is_ok_and(has)))
}

/// The path of a file that a unit knows by this number.
fn path_of(dwarf: &Dwarf, unit: &Unit, number: u64) -> Option<PathBuf> {
    let header = unit.line_program.as_ref()?.header();
    let is_used = number > 0 || header.version() >= 5;
    let file = header.file(number).filter(|_| is_used)?;
    let text = |bytes: Bytes<'static>| OsStr::from_bytes(bytes.slice());
    let mut path = PathBuf::from(unit.comp_dir.map(text).unwrap_or_default());
    if file.directory_index() != 0 {
        path.push(text(dwarf.attr_string(unit, file.directory(header)?).ok()?));
    }
    path.push(text(dwarf.attr_string(unit, file.path_name()).ok()?));
    Some(path)
}

/// What a function is, for a short backtrace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The runtime's own: cut away.
    Runtime,
    /// This library's: of those that follow on each other, the outermost is the one that the program has
    /// called, and stays.
    Public,
    /// std's, which both call: cut away where one of the above follows.
    Common,
    Program,
}

/// What a function's path begins with, what the path of its file contains, and what the function is then. The
/// first line that fits holds. The file's path begins with this library's folder where there is a `~`.
const KINDS: [(&str, &str, Kind); 10] = [
    // The tests of this folder play the program.
    (
        "greenthread::observe::unwind::tests::",
        "~src/observe/unwind/tests/",
        Kind::Program,
    ),
    // The program has called libc's function, and ours stands in its place.
    ("greenthread::libc::", "~src/libc/", Kind::Runtime),
    ("greenthread::engine::", "~src/engine/", Kind::Runtime),
    ("greenthread::sim::", "~src/sim/", Kind::Runtime),
    ("preempt_trampoline", "~arch/", Kind::Runtime),
    ("greenthread_way_back", "~arch/", Kind::Runtime),
    ("greenthread::", "~src/", Kind::Public),
    ("core::", "/library/core/src/", Kind::Common),
    ("alloc::", "/library/alloc/src/", Kind::Common),
    ("std::", "/library/std/src/", Kind::Common),
];

/// `own` is this library's folder, as the debug information has it, with a slash; empty if there is none.
fn kind(function: &str, file: Option<&Path>, own: &str) -> Kind {
    // A method's path may be `<path::Type as path::Trait>::method`.
    let path = function.trim_start_matches(['<', '&']);
    let file = file.map(Path::to_string_lossy);
    let fits = |(name, place, _): &&(&str, &str, Kind)| match (&file, place.strip_prefix('~')) {
        (None, _) => path.starts_with(name),
        (Some(file), None) => file.contains(place),
        (Some(file), Some(inside)) => {
            let rest = file.strip_prefix(own).filter(|_| !own.is_empty());
            rest.is_some_and(|rest| rest.starts_with(inside))
        }
    };
    KINDS.iter().find(fits).map_or(Kind::Program, |line| line.2)
}

/// Returns this library's folder, as the debug information has it.
fn own_folder(files: &mut Files, modules: &Modules) -> String {
    let own = own_folder as fn(&mut Files, &Modules) -> String as usize;
    let outermost = frames_at(files, own, modules).and_then(|mut frames| frames.pop());
    let file = outermost.and_then(|frame| frame.file).unwrap_or_default();
    let folder = file.to_str().and_then(|file| file.strip_suffix(OWN_FILE));
    folder.unwrap_or_default().to_owned()
}

/// This file, in the library's folder.
const OWN_FILE: &str = "src/observe/symbols.rs";

/// The frames that a short backtrace shows; all of them if it would show none.
fn short(frames: &[Symbol]) -> &[Symbol] {
    // std's name for the function below which a short backtrace ends.
    let is_bottom = |frame: &Symbol| frame.function.contains("__rust_begin_short_backtrace");
    let bottom = frames.iter().position(is_bottom);
    let above = &frames[..bottom.unwrap_or(frames.len())];
    let last = above.iter().rposition(|frame| frame.kind != Kind::Runtime);
    let end = last.map_or(0, |last| last + 1);
    let mut start = 0;
    for (index, frame) in frames[..end].iter().enumerate() {
        match frame.kind {
            Kind::Runtime => start = index + 1,
            Kind::Public => start = index,
            Kind::Common => {}
            Kind::Program => break,
        }
    }
    match &frames[start..end.max(start)] {
        [] => frames,
        shown => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(names: &[&str]) -> Vec<Symbol> {
        let symbol = |name: &&str| Symbol {
            function: (*name).into(),
            file: None,
            line: None,
            kind: kind(name, None, ""),
        };
        names.iter().map(symbol).collect()
    }

    #[track_caller]
    fn check(names: &[&str], shown: &[&str]) {
        assert_eq!(short(&frames(names)), frames(shown));
    }

    const BELOW: [&str; 6] = [
        "greenthread::engine::runtime::spawn::__rust_begin_short_backtrace",
        "core::ops::function::FnOnce::call_once",
        "std::panicking::try",
        "greenthread::engine::runtime::spawn::Packet<T,F>::act",
        "greenthread::engine::runtime::spawn::body",
        "greenthread::engine::arch::x86_64::switch::call_at_bottom",
    ];

    #[track_caller]
    fn check_thread(above: &[&str], shown: &[&str]) {
        check(&[above, &BELOW].concat(), shown);
    }

    #[test]
    fn a_parked_thread_shows_the_public_function_that_it_waits_in() {
        check_thread(
            &[
                "greenthread::engine::arch::x86_64::switch::switch",
                "greenthread::engine::sched::switch::Context::suspend",
                "core::ops::function::FnOnce::call_once",
                "<greenthread::engine::wait::queue::WaitQueue as core::fmt::Debug>::fmt",
                "greenthread::sync::raw_mutex::RawMutex::lock_slow",
                "greenthread::sync::mutex::Mutex<T>::lock",
                "core::option::Option<T>::map",
                "shop::serve",
                "greenthread::sync::once::Once::call_once",
                "shop::main::{{closure}}",
            ],
            &[
                "greenthread::sync::mutex::Mutex<T>::lock",
                "core::option::Option<T>::map",
                "shop::serve",
                "greenthread::sync::once::Once::call_once",
                "shop::main::{{closure}}",
            ],
        );
    }

    #[test]
    fn a_preempted_thread_shows_its_own_code() {
        check_thread(
            &[
                "greenthread::engine::sched::switch::Context::suspend",
                "greenthread::engine::sched::current::suspend_preempted",
                "preempt_trampoline",
                "core::iter::adapters::map::Map<I,F>::fold",
                "shop::count",
            ],
            &["core::iter::adapters::map::Map<I,F>::fold", "shop::count"],
        );
    }

    #[test]
    fn a_function_of_another_crate_is_not_taken_for_the_runtimes() {
        check_thread(
            &["greenthread_shop::engine", "greenthreads"],
            &["greenthread_shop::engine", "greenthreads"],
        );
    }

    #[test]
    fn a_file_says_more_than_a_name_without_a_path() {
        let own = "/home/me/.cargo/registry/src/x/greenthread-0.1.0/";
        let check = |name: &str, file: &str, expected| {
            let file = file.replace("OWN/", own);
            assert_eq!(kind(name, Some(Path::new(&file)), own), expected, "{file}");
        };
        check("lock<u32>", "OWN/src/sync/mutex.rs", Kind::Public);
        check("park", "OWN/src/engine/sched/park.rs", Kind::Runtime);
        check("switch", "OWN/arch/x86_64/switch.rs", Kind::Runtime);
        check(
            "call_once",
            "/rustc/1/library/core/src/ops/function.rs",
            Kind::Common,
        );
        check(
            "park",
            "/home/me/shop/src/engine/sched/park.rs",
            Kind::Program,
        );
        check("park", "OWN/examples/tour.rs", Kind::Program);
        assert_eq!(
            kind("lock", Some(Path::new("src/sync/mutex.rs")), ""),
            Kind::Program
        );
    }

    #[test]
    fn this_library_knows_its_folder() {
        let modules = Modules::load();
        let mut symbols = Symbols::default();
        let address = Modules::load as fn() -> Modules as usize + 1;
        let found = symbols.of(address, &modules).last().unwrap();
        assert_eq!(found.kind, Kind::Public, "{found:?}");
    }

    #[test]
    fn what_would_show_nothing_shows_all() {
        check(&[], &[]);
        check(&BELOW[4..], &BELOW[4..]);
        check(&BELOW, &BELOW);
        check(&["shop+0x10", "shop+0x20"], &["shop+0x10", "shop+0x20"]);
    }

    #[test]
    fn without_the_mark_the_runtime_is_cut_off_below_all_the_same() {
        check(&["shop::serve", BELOW[4], BELOW[5]], &["shop::serve"]);
    }

    #[test]
    fn the_whole_stack_is_shown_on_request() {
        let (mut symbols, modules) = (Symbols::default(), Modules::load());
        let engine = crate::__preemption_is_off as fn() -> bool as usize + 1;
        let short = symbols.stack(&[3, engine], false, &modules);
        let full = symbols.stack(&[3, engine], true, &modules);
        assert!(full.len() >= 2 && short.len() <= full.len());
        assert!(short == full || is_full() || short[0] == full[0]);
    }

    #[test]
    fn paths_are_short() {
        let folder = Some(Path::new("/home/me/shop"));
        let check = |file: &str, short: &str| assert_eq!(shorten(Path::new(file), folder), short);
        check("/home/me/shop/src/main.rs", "./src/main.rs");
        check("/home/me/shop2/src/main.rs", "/home/me/shop2/src/main.rs");
        check(
            "/rustc/f2d3ce0bd7f24a49f8f72d9000448f8838c4e850/library/std/src/thread.rs",
            "/rustc/f2d3ce0bd/library/std/src/thread.rs",
        );
        check(
            "/rustc/1/library/std/src/thread.rs",
            "/rustc/1/library/std/src/thread.rs",
        );
    }

    #[test]
    fn what_has_no_name_has_its_module() {
        let modules = Modules::load();
        let mut symbols = Symbols::default();
        let function: &str = &symbols.of(3, &modules)[0].function.clone();
        assert_eq!(function, "0x2");
        let own = what_has_no_name_has_its_module as fn() as usize + 1;
        assert!(raw_name(own, &modules).contains("+0x"));
        let found = symbols.of(own, &modules).to_vec();
        assert!(
            found
                .iter()
                .any(|symbol| symbol.function.ends_with("what_has_no_name_has_its_module")),
            "{found:?}"
        );
        assert_eq!(symbols.of(own, &modules), found);
    }
}
