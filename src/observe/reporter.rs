//! The reporter: a kernel thread that writes dumps when SIGQUIT comes, and looks for deadlocks.
//!
//! The signal's handler leaves a note, sets a timer and wakes the reporter; so a dump is made whatever the interrupted thread
//! was doing. A thread that holds the allocator's lock for ever stops the reporter, too. Then the timer sends SIGQUIT
//! again, and the handler finds the old note: it says where else to look.
//!
//! | [`SINCE`] | the handler | the reporter |
//! |---|---|---|
//! | 0: no dump is asked for | notes the time, sets the timer | – |
//! | a short time ago | asks once more | resets it when it has made the dump, and the timer |
//! | [`PATIENCE`] ago | writes [`STUCK`] | is stuck, or still at work |
//!
//! The reporter looks for a deadlock when it hears that threads have become quiet
//! (`inspect::kernel::quiet`), but rarely. Nobody tells it when a kernel thread ends that might have helped, so it looks
//! at a program that rests from time to time, more and more seldom.
//!
//! # Deadlocks
//! They are threads that wait for each other, and programs in which every thread waits.
//!
//! *A cycle.* A thread that waits for a lock leads to the thread that holds the lock, and one that joins leads to the
//! other thread. A cycle among these is a deadlock, whatever else the program does. The threads were not looked at
//! at one moment, so each is looked at again (`look_again`): if none has run since, and each still waits for the next, the
//! cycle stood all the while.
//!
//! *All.* Every thread waits, without a deadline, for what only threads of the process end; and the process has no other
//! thread, and no signal handler, that could. Two passes that find the same waits make sure that all waited at
//! once, between the two. Where anything is not known, there is no alarm:
//!
//! | what could wake a thread | how it is seen |
//! |---|---|
//! | another green thread | it runs, or is ready, or waits for something from outside |
//! | a timer | the wait has a deadline |
//! | a socket, a file, a child, another process | the kind of wait is one from outside, or the thread is blocked in the kernel |
//! | a kernel thread that holds a handle | it is not known to wait |
//! | a signal | the program has handlers |
//! | a future's waker | the kind of wait is one from outside |

use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::sync::{Mutex, Once, OnceLock};

use super::numbers::{NumberMap, digest};
use super::snapshot::{Depth, Snapshot};
use super::start::Plan;
use super::text::Json;
use super::{employ, lock, socket, warn};
use crate::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::engine::facade::{is_forked_child, program_ignores};
use crate::engine::inspect::kernel::{self, quiet};
use crate::engine::inspect::layout::Parking;
use crate::engine::inspect::system::{kernel_thread, print};
use crate::engine::inspect::threads::{AnyThread, Doing, ThreadSnapshot};
use crate::engine::inspect::{all, may_be_woken};
use crate::engine::public::OnDeadlock;
use crate::sys::{clock, signal, variable};

/// How long it waits between two looks, and between the two passes of one.
const REST: u64 = 500_000_000;
const BETWEEN_PASSES: u64 = 20_000_000;
/// How long it waits at most for news before it looks again.
const LONGEST_WAIT: u64 = 64_000_000_000;

/// How many dumps were asked for.
static ASKED: AtomicU32 = AtomicU32::new(0);
/// When the first one was that is not done, by the monotonic clock; 0: none.
static SINCE: AtomicU64 = AtomicU64::new(0);
/// Tells the handler that [`PATIENCE`] is over. It is not there if the system refuses it.
static TIMER: OnceLock<Option<clock::Timer>> = OnceLock::new();
/// How long a dump may take before the program says so.
const PATIENCE: u64 = 5_000_000_000;
const STUCK: &[u8] = b"greenthread: the dump is not done after 5 s. If a thread holds the allocator's lock, it never is: \
    attach gdb, and ask it with `info greenthreads`.\n";

/// What to do about a deadlock: what a builder has asked for last, or else the environment.
static ON_DEADLOCK: Mutex<Option<OnDeadlock>> = Mutex::new(None);

/// Starts the reporter, once, unless it would have nothing to do; and what else is planned.
pub(super) fn start(plan: &Plan) {
    static STARTED: Mutex<bool> = Mutex::new(false);
    let before = *lock(&ON_DEADLOCK);
    *lock(&ON_DEADLOCK) = plan.by_builder.or(before).or(plan.by_environment);
    if plan.by_builder.is_some() {
        // The reporter may be asleep without a time limit.
        quiet::tell_now();
    }
    plan.socket.iter().for_each(|path| socket::start(path));
    static WARNS: Once = Once::new();
    if let Some(leak) = plan.warnings {
        // If the kernel thread cannot be started, the program goes on without warnings.
        WARNS.call_once(|| _ = employ("gt-warner", move || warn::live(leak)));
    }
    let mut started = lock(&STARTED);
    if *started {
        return;
    }
    // The signal stays the program's if the program handles or ignores it. If the program was started with the signal
    // ignored, that does not count: a shell does so for all that a script runs in the background.
    let is_free = signal::is_unhandled(libc::SIGQUIT, !program_ignores(libc::SIGQUIT));
    let listens = plan.on_signal && is_free;
    if !listens && action() == OnDeadlock::Ignore {
        return;
    }
    *started = employ("gt-reporter", live).is_ok();
    if *started && listens {
        TIMER.get_or_init(|| clock::Timer::of_signal(libc::SIGQUIT));
        // If the system refuses the handler, the signal does what it did before.
        let _ = signal::handle(libc::SIGQUIT, on_quit);
    }
}

unsafe extern "C" fn on_quit(_: i32, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    if is_forked_child() {
        return;
    }
    let now = clock::now();
    match SINCE.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => set_timer(PATIENCE),
        // The signal is the timer's, or that of a user who asks again.
        Err(since) if now.saturating_sub(since) >= PATIENCE => return print(STUCK),
        Err(_) => {}
    }
    ASKED.fetch_add(1, Ordering::Relaxed);
    quiet::tell_now();
}

fn set_timer(nanos: u64) {
    let timer = TIMER.get().into_iter().flatten();
    timer.for_each(|timer| timer.set(nanos));
}

fn live() {
    let (mut done, mut has_reported) = (0, false);
    let mut look_at = 0;
    let mut pause = REST;
    loop {
        let asked = ASKED.load(Ordering::Relaxed);
        if asked != done {
            // Whether the signal is still ours. A handler of the program's may call the former one, as `signal::Signals`
            // does; and yet the signal is the program's.
            let is_ours =
                |action: libc::sigaction| action.sa_sigaction == on_quit as *const () as usize;
            if signal::action(libc::SIGQUIT, None).is_ok_and(is_ours) {
                let _ = write_dump(&Snapshot::take(Depth::Stacks), "");
            }
            done = asked;
            set_timer(0);
            SINCE.store(0, Ordering::Relaxed);
        }
        if has_reported || action() == OnDeadlock::Ignore {
            quiet::wait(None);
        } else if clock::now() < look_at {
            quiet::wait(Some(look_at));
        } else if finds_deadlock() {
            report();
            has_reported = true;
        } else {
            look_at = clock::now() + REST;
            pause = match quiet::wait(Some(clock::now() + pause)) {
                true => REST,
                false => LONGEST_WAIT.min(2 * pause),
            };
        }
    }
}

/// Looks for a deadlock of all threads. From now on it is told when threads become quiet.
fn finds_deadlock() -> bool {
    quiet::be_interested();
    let digest = all_wait();
    digest.is_some() && {
        kernel_thread::rest(BETWEEN_PASSES);
        all_wait() == digest
    }
}

fn action() -> OnDeadlock {
    lock(&ON_DEADLOCK).unwrap_or(OnDeadlock::Report)
}

/// Says that every thread waits.
fn report() {
    let snapshot = Snapshot::take(Depth::Stacks);
    let mut head =
        "greenthread: deadlock: every thread waits for another, and nothing outside can wake one\n"
            .to_owned();
    for cycle in snapshot.cycles() {
        head += "these wait for each other:\n";
        head += &snapshot.describe_cycle(&cycle);
    }
    let _ = write_dump(&snapshot, &head);
    super::events::deadlock(snapshot.threads.len());
    if action() == OnDeadlock::Abort {
        std::process::abort();
    }
}

/// Writes a dump where `GREENTHREAD_DUMP` says: at the end of that file, or to standard error. A file whose name ends
/// in `.json` gets JSON.
fn write_dump(snapshot: &Snapshot, head: &str) -> io::Result<()> {
    let path = variable::read("GREENTHREAD_DUMP").map(PathBuf::from);
    let file = path.as_ref().and_then(|path| {
        let file = OpenOptions::new().create(true).append(true).open(path);
        if let Err(error) = &file {
            let text = format!("greenthread: GREENTHREAD_DUMP={path:?}: {error}\n");
            let _ = io::stderr().write_all(text.as_bytes());
        }
        file.ok()
    });
    let extension = path.as_ref().and_then(|path| path.extension());
    let is_json = extension.is_some_and(|extension| extension == "json");
    let mut to: Box<dyn Write> = match file {
        Some(file) if is_json => {
            let mut to = BufWriter::new(file);
            let written = writeln!(to, "{}", Json(snapshot)).and_then(|()| to.flush());
            io::stderr().write_all(head.as_bytes())?;
            return written;
        }
        Some(file) => Box::new(file),
        None => Box::new(io::stderr()),
    };
    to.write_all(head.as_bytes())?;
    to.write_all(snapshot.text().as_bytes())
}

// ==== deadlocks ====

impl Snapshot {
    /// The threads that wait for each other, each for the next and the last for the first: places among the entries.
    pub(crate) fn cycles(&self) -> Vec<Vec<u32>> {
        let next = |place: u32| -> Option<u32> {
            let entry = &self.threads[place as usize];
            entry.wait.as_ref().filter(|wait| wait.left.is_none())?.whom
        };
        // In which walk a thread was first met.
        let mut walk_of = vec![None; self.threads.len()];
        let mut found = Vec::new();
        for start in 0..self.threads.len() as u32 {
            let mut at = Some(start);
            while let Some(place) = at.filter(|&place| walk_of[place as usize].is_none()) {
                walk_of[place as usize] = Some(start);
                at = next(place);
            }
            if let Some(entry) = at.filter(|&place| walk_of[place as usize] == Some(start)) {
                let onward = |&place: &u32| next(place).filter(|&next| next != entry);
                found.push(core::iter::successors(Some(entry), onward).collect::<Vec<u32>>());
            }
        }
        found.retain(|cycle| self.stands(cycle));
        found
    }

    /// Whether the threads still wait for each other. That a thread has not run does not suffice: the lock that the thread
    /// waits for may have got another holder, while the first holder went on and waits elsewhere by now.
    fn stands(&self, cycle: &[u32]) -> bool {
        let entry = |&place: &u32| &self.threads[place as usize];
        let followers = cycle.iter().cycle().skip(1);
        let mut steps = cycle.iter().zip(followers);
        // No thread has run between the looks of the dump and the last question, so all steps were true at one moment: a
        // thread that does not run gives no lock away.
        let stands = |place| entry(place).look_again().is_some();
        cycle.iter().all(stands)
            && steps.all(|(place, next)| entry(place).waits_still_for(entry(next)))
            && cycle.iter().all(stands)
    }
}

/// A digest of all waits, if every thread waits for another: if a second look finds the same digest, all threads waited at
/// once in between. `None`: a thread can go on, or something from outside can wake one.
fn all_wait() -> Option<u64> {
    if may_be_woken() {
        return None;
    }
    // The digest differs if any wait differs.
    let (mut waits, mut threads) = (0, 0);
    let mut add = |seen: ThreadSnapshot| {
        waits_inside(&seen).then(|| {
            waits = digest((waits, seen.thread.record(), seen.turns));
            threads += 1;
        })
    };
    let mut known = NumberMap::default();
    known.or_insert(kernel_thread::id() as u64, ());
    for thread in kernel::all() {
        match AnyThread::Kernel(thread).look() {
            _ if thread.is_helper() => {}
            Some(seen) => add(seen)?,
            // The thread has ended. If it is still there, its task below is not known, and so there is no alarm.
            None => continue,
        }
        known.or_insert(thread.thread() as u64, ());
    }
    for task in std::fs::read_dir("/proc/self/task").ok()? {
        let name = task.ok()?.file_name();
        let thread = name.to_str().and_then(|name| name.parse().ok());
        thread.and_then(|thread| known.get(thread))?;
    }
    let green = all().filter(|thread| matches!(thread, AnyThread::Green(_)));
    for seen in green.filter_map(AnyThread::look) {
        add(seen)?;
    }
    (threads != 0).then_some(waits)
}

fn waits_inside(seen: &ThreadSnapshot) -> bool {
    let is_inside =
        |parking: Parking| parking.deadline == clock::NEVER && parking.reason.kind.is_inside;
    seen.doing == Doing::Parked && seen.waiting.is_some_and(is_inside)
}
