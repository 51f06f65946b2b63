//! The system calls in which threads were blocked when the monitor took their processors: a count for
//! each number, and for each place, which is a call and where its thread was spawned. A user who reads them sees
//! which calls still hold kernel threads, and whose they are.
//!
//! One thread writes, the cluster's monitor; times are added by the kernel threads that were blocked, while
//! times are measured (`observe::measure`). The table of places is never cleared: when it is full, further places
//! go without.
//!
//! *Whose call it is.* The monitor does not own the thread, which may go on and end at any moment. So it reads the
//! address of the thread's identity, then the word there, which may be freed memory (`sys::word`), and then
//! the first address again. A thread that ends clears that address before it frees; if it is the same, and
//! the machine has switched to no thread meanwhile (`tick`), the word was what it should be.
//!
//! Ordering: a place's key is stored with Release when its other half is there; readers load it with Acquire.

use core::fmt;
use core::panic::Location;

use super::Machine;
use crate::engine::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};
use crate::engine::green::{Green, Identity};
use crate::engine::sys::atomic_static::AtomicStatic;
use crate::engine::sys::observer::Doing;
use crate::engine::sys::word;

/// Numbers of system calls are below this, on all kernels so far.
const NUMBERS: usize = 512;
/// How many of them a user gets to see.
const SHOWN: usize = 10;

/// How many places there can be.
const PLACES: usize = 256;

/// How often threads were blocked in each call, and at each place.
pub(crate) struct BlockedCalls {
    counts: Box<[AtomicU64]>,
    places: Box<[Place]>,
}

/// One place.
pub(crate) struct Place {
    /// One more than the call's number; 0: the entry is free.
    key: AtomicU64,
    spawned_at: AtomicStatic<Location<'static>>,
    count: AtomicU64,
    nanos: AtomicU64,
}

/// A call that has blocked threads.
pub(crate) struct Blocked {
    pub(crate) name: String,
    pub(crate) count: u64,
    /// The most frequent places, the most frequent first.
    pub(crate) places: Vec<BlockedAt>,
}

/// A place where threads were blocked.
pub(crate) struct BlockedAt {
    pub(crate) spawned_at: Option<&'static Location<'static>>,
    pub(crate) count: u64,
    /// For how long, if that was measured.
    pub(crate) nanos: u64,
}

impl Blocked {
    /// Adds what is known of a place, perhaps to what is known of it already: a place in generic code has
    /// several addresses.
    fn add(&mut self, more: BlockedAt) {
        match self
            .places
            .iter_mut()
            .find(|known| known.spawned_at == more.spawned_at)
        {
            Some(known) => {
                known.count += more.count;
                known.nanos += more.nanos;
            }
            None => self.places.push(more),
        }
    }
}

impl BlockedCalls {
    pub(crate) fn new() -> BlockedCalls {
        BlockedCalls {
            // Not by way of the stack, which may be small.
            counts: (0..NUMBERS).map(|_| AtomicU64::new(0)).collect(),
            places: (0..PLACES).map(|_| Place::free()).collect(),
        }
    }

    /// The place of `green`, which is blocked on `machine` and `doing` this. The monitor's.
    pub(super) fn find(
        &self,
        doing: &Doing,
        machine: &'static Machine,
        green: &'static Green,
    ) -> Option<&Place> {
        let key = number_of(doing)? as u64 + 1;
        let spawned_at = spawned_at(machine, green);
        let address = spawned_at.map_or(0, |at| core::ptr::from_ref(at).addr());
        let first = (address >> 3).wrapping_add(key as usize * 31);
        (0..PLACES).find_map(|step| {
            let entry = &self.places[first.wrapping_add(step) % PLACES];
            if entry.key.load(Relaxed) == 0 {
                entry.spawned_at.store(spawned_at, Relaxed);
                // Release: partner: Acquire in `most_frequent`.
                entry.key.store(key, Release);
            }
            entry.is(key, address).then_some(entry)
        })
    }

    /// Counts a thread that was seen `doing` this, at `place`, when it lost its processor.
    pub(super) fn note(&self, doing: &Doing, place: Option<&Place>) {
        if let Some(number) = number_of(doing) {
            self.counts[number].fetch_add(1, Relaxed);
        }
        if let Some(place) = place {
            place.count.fetch_add(1, Relaxed);
        }
    }

    /// The calls in which threads were blocked most often, in that order.
    pub(crate) fn most_frequent(&self) -> Vec<Blocked> {
        let counts = self.counts.iter().map(|count| count.load(Relaxed));
        let mut named = Vec::<Blocked>::new();
        for (number, count) in counts.enumerate().filter(|(_, count)| *count != 0) {
            // Several numbers have one name.
            let name = Name(number as i64).to_string();
            let known = named.iter().position(|known| known.name == name);
            let known = known.unwrap_or_else(|| {
                named.push(Blocked {
                    name,
                    count: 0,
                    places: Vec::new(),
                });
                named.len() - 1
            });
            named[known].count += count;
            self.places_of(number)
                .for_each(|place| named[known].add(place));
        }
        named.sort_by_key(|blocked| core::cmp::Reverse(blocked.count));
        named.truncate(SHOWN);
        for blocked in &mut named {
            blocked
                .places
                .sort_by_key(|place| core::cmp::Reverse(place.count));
            blocked.places.truncate(SHOWN);
        }
        named
    }

    fn places_of(&self, number: usize) -> impl Iterator<Item = BlockedAt> {
        let key = number as u64 + 1;
        // Acquire: partner: Release in `find`.
        let places = self
            .places
            .iter()
            .filter(move |entry| entry.key.load(Acquire) == key);
        let places = places.map(|entry| BlockedAt {
            spawned_at: entry.spawned_at.load(Relaxed),
            count: entry.count.load(Relaxed),
            nanos: entry.nanos.load(Relaxed),
        });
        places.filter(|place| place.count != 0)
    }
}

impl Place {
    const fn free() -> Place {
        Place {
            key: AtomicU64::new(0),
            spawned_at: AtomicStatic::none(),
            count: AtomicU64::new(0),
            nanos: AtomicU64::new(0),
        }
    }

    /// The number of the call.
    pub(crate) fn call(&self) -> u64 {
        self.key.load(Relaxed) - 1
    }

    pub(crate) fn spawned_at(&self) -> Option<&'static Location<'static>> {
        self.spawned_at.load(Relaxed)
    }

    /// Adds the time for which a thread held a kernel thread here.
    pub(crate) fn add_time(&self, nanos: u64) {
        self.nanos.fetch_add(nanos, Relaxed);
    }

    fn is(&self, key: u64, spawned_at: usize) -> bool {
        let at = self.spawned_at.load(Relaxed);
        let at = at.map_or(0, |at| core::ptr::from_ref(at).addr());
        self.key.load(Relaxed) == key && at == spawned_at
    }
}

fn number_of(doing: &Doing) -> Option<usize> {
    match doing {
        Doing::Call(call) => usize::try_from(call.number).ok().filter(|&n| n < NUMBERS),
        _ => None,
    }
}

/// Where `green` was spawned, which `machine` was seen to run; see the header.
fn spawned_at(
    machine: &'static Machine,
    green: &'static Green,
) -> Option<&'static Location<'static>> {
    let tick = machine.tick.load(Acquire);
    let identity = green.identity.load(Acquire).addr();
    if identity == 0 {
        return None;
    }
    let address = word::read(identity.checked_add(Identity::PLACE)?)?;
    // Acquire: the looks below come after the read.
    fence(Acquire);
    let same = machine.is_running(green)
        && machine.tick.load(Relaxed) == tick
        && green.identity.load(Relaxed).addr() == identity;
    let location = core::ptr::with_exposed_provenance::<Location<'static>>(address);
    match same {
        // SAFETY: the thread has lived all the while, so the word is its identity's: null, or a location,
        // which is static.
        true => unsafe { location.as_ref() },
        false => None,
    }
}

/// The name of system call `number`.
pub(crate) fn name(number: i64) -> String {
    Name(number).to_string()
}

/// The name of a call that newer ones have superseded: younger architectures have only those.
#[cfg(target_arch = "x86_64")]
fn superseded(number: i64) -> Option<&'static str> {
    Some(match number {
        libc::SYS_poll => "poll",
        libc::SYS_select => "select",
        libc::SYS_epoll_wait => "epoll_wait",
        libc::SYS_open => "open",
        libc::SYS_stat => "stat",
        libc::SYS_lstat => "lstat",
        libc::SYS_access => "access",
        libc::SYS_fork => "fork",
        libc::SYS_vfork => "vfork",
        libc::SYS_rename => "rename",
        libc::SYS_mkdir => "mkdir",
        libc::SYS_unlink => "unlink",
        libc::SYS_pause => "pause",
        _ => return None,
    })
}

#[cfg(not(target_arch = "x86_64"))]
fn superseded(_: i64) -> Option<&'static str> {
    None
}

/// A system call's name, of those that block.
pub(super) struct Name(pub(super) i64);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            libc::SYS_futex => "futex",
            libc::SYS_read => "read",
            libc::SYS_write => "write",
            libc::SYS_readv => "readv",
            libc::SYS_writev => "writev",
            libc::SYS_recvfrom => "recvfrom",
            libc::SYS_sendto => "sendto",
            libc::SYS_accept | libc::SYS_accept4 => "accept",
            libc::SYS_connect => "connect",
            libc::SYS_recvmsg => "recvmsg",
            libc::SYS_sendmsg => "sendmsg",
            libc::SYS_sendfile => "sendfile",
            libc::SYS_splice => "splice",
            libc::SYS_openat => "open",
            libc::SYS_fcntl => "fcntl",
            libc::SYS_ppoll => "poll",
            libc::SYS_pselect6 => "select",
            libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => "epoll_wait",
            libc::SYS_nanosleep | libc::SYS_clock_nanosleep => "nanosleep",
            libc::SYS_wait4 | libc::SYS_waitid => "wait",
            libc::SYS_flock => "flock",
            libc::SYS_fsync | libc::SYS_fdatasync => "fsync",
            libc::SYS_fstat => "fstat",
            libc::SYS_newfstatat => "newfstatat",
            libc::SYS_statx => "statx",
            libc::SYS_pread64 => "pread64",
            libc::SYS_pwrite64 => "pwrite64",
            libc::SYS_preadv => "preadv",
            libc::SYS_pwritev => "pwritev",
            libc::SYS_mmap => "mmap",
            libc::SYS_mprotect => "mprotect",
            libc::SYS_munmap => "munmap",
            libc::SYS_mremap => "mremap",
            libc::SYS_madvise => "madvise",
            libc::SYS_msync => "msync",
            libc::SYS_brk => "brk",
            libc::SYS_close => "close",
            libc::SYS_socket => "socket",
            libc::SYS_socketpair => "socketpair",
            libc::SYS_bind => "bind",
            libc::SYS_listen => "listen",
            libc::SYS_shutdown => "shutdown",
            libc::SYS_ioctl => "ioctl",
            libc::SYS_clone => "clone",
            libc::SYS_clone3 => "clone3",
            libc::SYS_execve => "execve",
            libc::SYS_sched_yield => "sched_yield",
            libc::SYS_renameat2 => "renameat2",
            libc::SYS_unlinkat => "unlinkat",
            libc::SYS_getdents64 => "getdents64",
            libc::SYS_truncate => "truncate",
            libc::SYS_ftruncate => "ftruncate",
            libc::SYS_fallocate => "fallocate",
            libc::SYS_sync => "sync",
            libc::SYS_syncfs => "syncfs",
            libc::SYS_sync_file_range => "sync_file_range",
            libc::SYS_copy_file_range => "copy_file_range",
            libc::SYS_getrandom => "getrandom",
            libc::SYS_rt_sigtimedwait => "rt_sigtimedwait",
            libc::SYS_rt_sigsuspend => "rt_sigsuspend",
            libc::SYS_semop => "semop",
            libc::SYS_msgsnd => "msgsnd",
            libc::SYS_msgrcv => "msgrcv",
            libc::SYS_mq_timedsend => "mq_timedsend",
            libc::SYS_mq_timedreceive => "mq_timedreceive",
            libc::SYS_io_uring_enter => "io_uring_enter",
            number => match superseded(number) {
                Some(name) => name,
                None => return write!(f, "system call {number}"),
            },
        };
        f.write_str(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two calls of one name, and a place with two addresses, as one in generic code has: it is told of once.
    #[test]
    fn equal_places_are_one() {
        let calls = BlockedCalls::new();
        let here = Location::caller();
        let again: &'static Location<'static> = Box::leak(Box::new(*here));
        let blocked = [
            (libc::SYS_wait4, here, 1),
            (libc::SYS_wait4, again, 2),
            (libc::SYS_waitid, again, 4),
        ];
        for (entry, (number, spawned_at, count)) in calls.places.iter().zip(blocked) {
            calls.counts[number as usize].fetch_add(count, Relaxed);
            entry.spawned_at.store(Some(spawned_at), Relaxed);
            entry.key.store(number as u64 + 1, Relaxed);
            entry.count.store(count, Relaxed);
        }
        let told = calls.most_frequent();
        let [wait] = &told[..] else {
            panic!("{} calls", told.len())
        };
        assert_eq!((wait.name.as_str(), wait.count), ("wait", 7));
        let [place] = &wait.places[..] else {
            panic!("{} places", wait.places.len())
        };
        assert_eq!((place.spawned_at, place.count), (Some(here), 7));
    }
}
