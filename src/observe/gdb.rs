//! Green threads in a debugger: what gdb needs to know to find them, and the script that does.
//!
//! gdb cannot ask the program: it may have crashed, or be a core file. Nor does it know the crate's types: a
//! release build has symbols, and perhaps line numbers. So the program carries a [`Table`], under a name that
//! gdb finds among the symbols, and the script ([`SCRIPT`]) reads memory with nothing but the
//! addresses and the offsets in that table.
//!
//! | in the program | read by the script |
//! |---|---|
//! | `greenthread_debugger`: a [`Table`] | one word an entry, and the entries' names |
//! | the section `.debug_gdb_scripts` | gdb itself, when it loads the program |
//!
//! Invariants:
//! 1. The table is in every program that starts a cluster: [`prepare`] writes to it, and `used` keeps its
//!    layout from the optimizer. The table leads to the script, so the linker keeps that, too. (The section is
//!    one that is loaded, which costs an address range and no memory: otherwise `strip --strip-debug`, which
//!    cargo applies to release builds without debug information, would drop it.)
//! 2. What the table does not know at compile time is there before the first green thread: the entries that
//!    [`prepare`] fills in. They are 0 before.
//!
//! Entries are found by name, so a script can read the table of a younger crate as long as the names that it
//! needs are there. A change in the meaning of an entry is a new version.
//!
//! Two versions of the crate in one program would clash over this symbol, as they do over those of the
//! trampolines (`arch`). A library that is loaded at run time may have a table of its own: the script reads all
//! that it finds.

use core::mem::offset_of;
use core::panic::Location;
use core::ptr::from_ref;

use crate::atomic::{AtomicUsize, Ordering::Relaxed};
use crate::engine::inspect::layout::{
    Bounds, Green, Identity, ParkState, Parking, Roster, ThreadFlags, ThreadStack, Waiter, Worker,
    thread,
};
use crate::engine::inspect::notes::{Locator, WaitKind, WaitReason};
use crate::sys::clock;

/// The script as gdb expects it in its section: a byte that says Python, a name, the text, a null. The parts run in a
/// module of their own, since all scripts of gdb's share one namespace. So a part stands in quotes.
macro_rules! parts {
    ($($name:literal)*) => {
        const PARTS: &str = concat!(
            "\x04gdb.inlined-script.greenthread\n",
            "import types\n",
            "greenthread_gdb = types.ModuleType('greenthread_gdb')\n",
            $("exec(compile(r'''", include_str!(concat!("gdb/", $name)), "''', 'greenthread/", $name, "', 'exec'), greenthread_gdb.__dict__)\n",)*
            "\0"
        );
    };
}

parts!("threads.py" "stacks.py" "commands.py");

#[used]
#[unsafe(link_section = ".debug_gdb_scripts")]
static SCRIPT: [u8; PARTS.len()] = *PARTS.as_bytes().first_chunk().unwrap();

/// Declares the table with the names of its entries.
macro_rules! table {
    ($($(#[$doc:meta])* $name:ident: $kind:ty = $value:expr,)*) => {
        /// One word an entry.
        #[repr(C)]
        struct Table {
            version: usize,
            /// The number of entries, these four included.
            entries: usize,
            /// The entries' names, one after another, with a space behind each.
            names: *const u8,
            names_length: usize,
            $($(#[$doc])* $name: $kind,)*
        }

        const NAMES: &str = concat!("version entries names names_length ", $(stringify!($name), " ",)*);

        /// The table. Its name is known to the script.
        #[used]
        #[unsafe(no_mangle)]
        #[allow(non_upper_case_globals, reason = "a debugger's user may type it")]
        static greenthread_debugger: Table = Table {
            version: 1,
            entries: size_of::<Table>() / size_of::<usize>(),
            names: NAMES.as_ptr(),
            names_length: NAMES.len(),
            $($name: $value,)*
        };
    };
}

table! {
    script: *const u8 = (&raw const SCRIPT).cast(),
    /// Some code of the crate's: it leads to the folder in which the crate was compiled.
    code: fn(i32) = prepare,
    /// Every record: pieces of some, which are linked.
    roster: *const Roster = thread::roster(),
    piece_records: usize = thread::BATCH,
    piece_older: usize = thread::OLDER,
    /// Milliseconds, of four bytes.
    clock: *const () = (&raw const clock::COARSE).cast(),
    green_size: usize = size_of::<Green>(),
    green_thread_pointer: usize = offset_of!(Green, thread_pointer),
    green_flags: usize = offset_of!(Green, flags),
    flag_new: usize = ThreadFlags::NEW as usize,
    green_worker: usize = offset_of!(Green, worker),
    green_since: usize = Green::SINCE,
    green_identity: usize = offset_of!(Green, identity),
    green_parking: usize = Green::PARKING,
    green_stack: usize = Green::STACK,
    /// The stack pointer that a suspended thread has left.
    green_stack_pointer: usize = Green::STACK_POINTER,
    worker_current: usize = offset_of!(Worker, current),
    worker_kernel_thread: usize = offset_of!(Worker, kernel_thread),
    stack_bounds: usize = offset_of!(ThreadStack, bounds),
    stack_bottom: usize = offset_of!(Bounds, bottom),
    stack_top: usize = offset_of!(Bounds, top),
    identity_id: usize = offset_of!(Identity, id),
    /// Null, or the address of a slice's two words.
    identity_name: usize = offset_of!(Identity, name),
    identity_place: usize = offset_of!(Identity, spawned_at),
    parking_waiter: usize = offset_of!(Parking, waiter),
    parking_deadline: usize = offset_of!(Parking, deadline),
    parking_kind: usize = offset_of!(Parking, reason) + offset_of!(WaitReason, kind),
    parking_of: usize = offset_of!(Parking, reason) + offset_of!(WaitReason, of),
    waiter_state: usize = Waiter::STATE,
    state_parked: usize = ParkState::PARKED as usize,
    kind_name: usize = offset_of!(WaitKind, name),
    kind_locator: usize = offset_of!(WaitKind, locator),
    locator_holder: usize = Locator::HOLDER,
    locator_target: usize = Locator::TARGET,
    locator_descriptor: usize = Locator::DESCRIPTOR,
    /// The parts of a place in the source, which is std's type: the two words of the file's name, and the line;
    /// one more than the offset, and 0 if it is not known.
    place_file: AtomicUsize = AtomicUsize::new(0),
    place_line: AtomicUsize = AtomicUsize::new(0),
    /// The preemption signals in use, a bit each: bit `n - 1` for signal `n`.
    signals: AtomicUsize = AtomicUsize::new(0),
}

// SAFETY: nothing is read or written through its pointers.
unsafe impl Sync for Table {}

/// Fills in what is known at run time, for a cluster that is about to start with this preemption signal.
pub(crate) fn prepare(signal: i32) {
    let table = &greenthread_debugger;
    let [file, line] = parts_of_a_place();
    table.place_file.store(file, Relaxed);
    table.place_line.store(line, Relaxed);
    table.signals.fetch_or(1 << (signal - 1), Relaxed);
}

/// Where a `Location` has its file's name and its line: one more than the offset, 0 for one that was not found.
///
/// The type is std's own, and its fields are private. So the parts are looked for in an example, in which they
/// are all different.
fn parts_of_a_place() -> [usize; 2] {
    const HALF: usize = size_of::<u32>();
    const HALVES: usize = size_of::<Location<'static>>() / HALF;
    let example = Location::caller();
    let first = from_ref(example).cast::<u32>();
    // SAFETY: a place consists of a file's name and two numbers, of four bytes each, without gaps; and if
    // there were any, a static has initialized memory in them.
    let halves: [u32; HALVES] = core::array::from_fn(|i| unsafe { first.add(i).read() });
    // The first half of a text's address, as it lies in memory, is the lower one.
    [example.file().as_ptr().addr() as u32, example.line()].map(|part| {
        let found = halves.iter().position(|&half| half == part);
        found.map_or(0, |i| i * HALF + 1)
    })
}

#[cfg(test)]
mod tests;
