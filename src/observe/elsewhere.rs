//! The stand-in for `snapshot` and its kin where there are no green threads: the names of threads, and whether they
//! wait. What they wait for lies on their stacks, which nobody can read here.

use std::time::SystemTime;

use super::dump::{Depth, Entry, State};
use super::numbers::NumberMap;
use crate::engine::inspect::notes::ReadSection;
use crate::engine::inspect::{Identity, kernel};

/// All threads.
pub(super) struct Snapshot {
    pub(super) at: SystemTime,
    pub(super) threads: Vec<Entry>,
    /// The empty stack alone.
    pub(super) stacks: NumberMap<()>,
}

impl Snapshot {
    pub(super) fn take(_: Depth) -> Snapshot {
        let _section = ReadSection::begin();
        let entry = |kernel: &kernel::KernelThread| {
            let identity = kernel.identity();
            // SAFETY: it was seen in the read section, and so it stays.
            let identity: Option<&Identity> = unsafe { identity.as_ref() };
            Entry {
                id: identity.map_or(0, |identity| identity.id().get()),
                name: identity.and_then(Identity::name).map(Into::into),
                is_green: false,
                state: match kernel.parking().is_null() {
                    true => State::Running,
                    false => State::Parked,
                },
                since: kernel.millis(),
                cpu: None,
                wait: None,
                frames: None,
                system_call: None,
                spawned_at: identity.and_then(|identity| identity.spawned_at),
                stack: 0,
            }
        };
        let mut stacks = NumberMap::default();
        stacks.or_insert(0, ());
        Snapshot {
            at: SystemTime::now(),
            threads: kernel::all().map(entry).collect(),
            stacks,
        }
    }

    pub(super) fn frames(&self, _: u32, _: &mut Symbols) -> Vec<Symbol> {
        Vec::new()
    }

    /// Nobody knows who holds a lock here.
    pub(super) fn cycles(&self) -> Vec<Vec<u32>> {
        Vec::new()
    }
}

/// The names of functions; there are none.
#[derive(Default)]
pub(super) struct Symbols {}

/// A function of a stack.
#[allow(dead_code, reason = "nobody reads stacks here")]
pub(super) struct Symbol {
    pub(super) function: String,
    pub(super) file: Option<String>,
    pub(super) line: Option<u32>,
}

/// What is told of a descriptor that a thread waits for.
pub(super) fn descriptor_text(_: i32) -> Option<String> {
    None
}
