//! The schedule of one seed: which thread runs after each point, and what time it is.
//!
//! One kernel thread runs all green threads, and this is their policy. A thread comes to a point before each operation that
//! others could see ([`at`]), or, if that is an atomic one, [`behind`] it: there the schedule decides whether the thread stays,
//! which costs no switch, or gives way.
//! When a thread has left its stack, [`Policy::next`] says who follows.
//!
//! | a strategy | at a point | when a thread has left its stack |
//! |---|---|---|
//! | random walk | gives way at one point of 2^k, to any ready thread; k is drawn for each seed | any ready thread |
//! | PCT of depth d | gives way to a ready thread with a higher priority; at d - 1 points by chance its own falls below those of all new threads | the ready thread with the highest priority |
//! | round robin | gives way | the thread that has been ready for longest |
//!
//! PCT is Burckhardt, Kothari, Musuvathi and Nagarakatte's "A randomized scheduler with probabilistic guarantees of finding bugs"
//! (ASPLOS 2010). Its bound, 1/(n k^(d-1)) for n threads and k steps, holds for points, and for the k of the first run.
//!
//! # Giving way
//! A thread that waits by looking would never end under PCT. So [`SPINS`] loads in a row that show nothing new, of up to [`SEEN`]
//! words, count as a `yield_now`: the thread gives way, and under PCT its priority becomes the lowest. A change that changes
//! nothing, such as a compare-and-swap that fails, is a load here. A thread that stores something begins to count anew.
//!
//! # Time
//! Each point adds 50 to 150 ns, and a clock is read after a point: so clocks are monotonic, and a thread that computes can miss
//! a deadline. If no thread is ready, the clock jumps to the next deadline. If the threads that are ready only poll clocks,
//! or give way in vain, the next deadline comes nearer: after each [`ALONE`] such steps of a thread they are twice as long as
//! before. Now and then, in each seed more or less often, a thread is *stalled*: it is put aside for a time between 1 µs and
//! 16 s, each order of magnitude as likely, as a system puts threads aside that has others to run.
//!
//! # Invariants
//! 1. What is decided depends on the seed and on what the threads do, and on nothing else: no address, no real time, no number
//!    that lives longer than a seed's run. (An address tells whether a load shows something new, and no more.)
//! 2. Only the process's one worker comes here, with preemption off, or before there are threads: [`State`] has one user at a
//!    time. Another kernel thread, where there may be one, reads the time, and makes threads ready by way of [`INBOX`].
//! 3. Nothing here allocates: a thread may be in the middle of an allocator that is compiled with points.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use std::backtrace::Backtrace;
use std::time::Duration;

use super::record::{End, Sheet};
use super::{FailureKind, Strategy};
use crate::atomic::Ordering::Relaxed;
use crate::engine::facade::{at_point, own_mark, with_points};
use crate::policy::{ForOthers, Lock, Next, Others, Policy, Queue, Readied, Ready, Seat};
use crate::sys::clock::{self, NEVER};
use crate::sys::kernel_thread;
use crate::sys::simulated::{self, Step, draw};

/// The most threads of one seed: nothing here allocates then.
const MOST_THREADS: usize = 1 << 20;
/// How many looks in a row that show nothing new are taken for a wait: a spin lock's holder runs soon.
const SPINS: u32 = 100;
/// A thread that waits may look at so many words in turn.
const SEEN: usize = 4;
/// How often a thread polls in vain before time runs faster: a program that measures something short is not misled.
const ALONE: u64 = 1000;
/// So many changes a thread makes between two steps in which it polls, and still gets nowhere: it takes a lock each time.
const POLL: u32 = 8;
/// After so many points the run loop asks the kernel for events: who waits for a pipe goes on beside others that compute.
const LOOK_OUTSIDE: u64 = 256;
/// The deepest PCT.
pub(super) const MOST_DEPTH: u32 = 16;
/// When a simulated process's monotonic clock begins: no program takes it for a time that is not set.
const BEGIN: u64 = 1_000_000_000_000;
/// The mean of what a point takes. It is in nanoseconds, as all times are here.
const PACE: u64 = 100;

/// What holds for all seeds of a check.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) max_points: u64,
    pub(super) max_time: u64,
    /// Since 1970, at the beginning.
    pub(super) start: u64,
    pub(super) stalls: u32,
    pub(super) spurious: u32,
    pub(super) cpus: usize,
    pub(super) allows_threads: bool,
    pub(super) allows_outside: bool,
}

/// Where one thread stands; its number is its place.
#[derive(Clone, Copy, Default)]
struct Standing {
    /// Under PCT the highest runs.
    priority: u64,
    /// What the thread has loaded last, and how often in a row that was nothing new.
    seen: [usize; SEEN],
    looks: u32,
    /// How many changes it has made since it polled, or gave way.
    changes: u32,
    /// How many numbers by chance the thread has asked for (`getrandom`).
    drawn: u32,
}

/// A thread that is ready.
struct Waiting {
    thread: Ready,
    number: usize,
    /// Until when it is stalled.
    until: u64,
}

struct State {
    rules: Rules,
    strategy: Strategy,
    /// Under the round robin in the order in which they became ready.
    ready: Vec<Waiting>,
    stalled: Vec<Waiting>,
    /// The thread that runs seed after seed, if it is ready.
    root: Option<Ready>,
    threads: Vec<Standing>,
    /// The place in `ready` of the thread that a point has chosen.
    chosen: Option<usize>,
    /// The running thread gives way at a point, until then if it is stalled.
    gives_way_until: Option<u64>,
    /// How many points the other threads have left, once the first thread of a run has ended.
    rest: Option<u64>,
    /// The run loop is to look at its timers, and for events.
    is_due: bool,
    ending: Option<FailureKind>,
    /// A run that is to be compared ends at this point.
    until: u64,
    now: u64,
    /// When the first stalled thread goes on.
    wakes_at: u64,
    /// How many steps in a row threads have polled, or given way, while nobody has got on.
    idle: u64,
    /// One of so many points, less one, is a random walk's turn; at one of so many a thread is stalled.
    rarity: u64,
    stalls: u32,
    /// PCT's falls: at which point, and to which priority; the next one is the last. And the lowest priority so far.
    falls: Vec<(u64, u64)>,
    lowest: u64,
    /// The highest priority of a thread that is ready; 0 if there is none.
    top: u64,
    /// What the run amounts to, and how it ends.
    sheet: &'static Sheet,
}

struct Place(UnsafeCell<Option<State>>);

// SAFETY: invariant 2.
unsafe impl Sync for Place {}

static PLACE: Place = Place(UnsafeCell::new(None));

/// Runs `f` on the state. `f` calls nothing that comes here again.
#[inline]
fn with<T>(f: impl FnOnce(&mut State) -> T) -> Option<T> {
    // SAFETY: invariant 2, and the reference ends with the call.
    unsafe { &mut *PLACE.0.get() }.as_mut().map(f)
}

/// The number of the thread that runs seed after seed, and has no points.
const ROOT: usize = 0;
/// Priorities of threads that have given way are below this, those that have fallen begin here, and those of new threads are
/// far above.
const LOWEST: u64 = 1 << 62;

/// The process is simulated from now on.
pub(super) fn begin(rules: Rules, sheet: &'static Sheet) {
    let state = State {
        rules,
        strategy: Strategy::Random,
        ready: Vec::with_capacity(MOST_THREADS),
        stalled: Vec::with_capacity(MOST_THREADS),
        root: None,
        threads: Vec::with_capacity(MOST_THREADS),
        chosen: None,
        gives_way_until: None,
        rest: None,
        is_due: false,
        ending: None,
        until: u64::MAX,
        now: BEGIN,
        wakes_at: NEVER,
        idle: 0,
        rarity: 0,
        stalls: 0,
        falls: Vec::with_capacity(MOST_DEPTH as usize),
        lowest: LOWEST,
        top: 0,
        sheet,
    };
    // SAFETY: invariant 2: there are no threads yet.
    unsafe { *PLACE.0.get() = Some(state) };
    simulated::begin(Some(simulated::Hooks {
        point: at,
        gives_way: let_others_run,
        is_spurious,
        nothing_is_ready,
        time,
    }));
}

/// One seed begins. Its threads are those that are spawned from now on. Its run ends at point `until`, to be compared with others.
pub(super) fn begin_seed(seed: u64, strategy: Strategy, steps: u64, until: u64) {
    simulated::seed(simulated::mix(seed));
    with(|state| {
        (state.strategy, state.until) = (strategy, until);
        state.threads.truncate(ROOT + 1);
        (state.now, state.wakes_at, state.idle) = (BEGIN, NEVER, 0);
        clock::note(BEGIN);
        state.rest = None;
        state.sheet.begin_seed(seed);
        state.rarity = (1 << (1 + simulated::choose(6))) - 1;
        state.stalls = state.rules.stalls.div_ceil(1 << simulated::choose(6));
        state.lowest = LOWEST;
        state.falls.clear();
        if let Strategy::Pct { depth } = strategy {
            // Which of two falls is the deeper one is left to chance, too.
            let at = || 1 + simulated::choose(steps.max(1) as usize) as u64;
            let falls = (1..depth).map(|level| (at(), LOWEST + u64::from(level)));
            state.falls.extend(falls);
            state.falls.sort_unstable_by(|one, other| other.cmp(one));
        }
    });
}

/// The first thread of a run has ended: those that are ready may go on for a while, so that threads which are about to end do.
/// No chance decides any more, and nothing is noted. Returns whether one of them may get on.
pub(super) fn drain() -> bool {
    /// A thread that ends comes to some dozens of points.
    const REST: u64 = 1000;
    let may_get_on = |state: &mut State| {
        let rest = *state.rest.get_or_insert(REST);
        let stalled = state.stalled.iter().map(|waiting| waiting.until);
        state.now = stalled.fold(state.now, u64::max);
        rest != 0 && !(state.ready.is_empty() && state.stalled.is_empty())
    };
    with(may_get_on) == Some(true)
}

/// The virtual time since the beginning of the seed's run; zero in any other process.
///
/// It is no point, and takes no time.
///
/// ```
/// use greenthread::sim;
/// use std::time::Duration;
///
/// sim::check(10, || {
///     std::thread::sleep(Duration::from_secs(3600));
///     assert!(sim::elapsed() >= Duration::from_secs(3600));
/// });
/// assert_eq!(sim::elapsed(), Duration::ZERO);
/// ```
pub fn elapsed() -> Duration {
    Duration::from_nanos(with(|state| state.now - BEGIN).unwrap_or(0))
}

/// The number of the calling thread in its run; `None` in a process that is not simulated.
pub(crate) fn own() -> Option<usize> {
    let mark = simulated::is_on().then(own_mark).flatten();
    mark.map(|mark| mark as usize)
}

/// A number by chance for the calling thread alone: the same in each schedule, as long as the thread asks as often. `None`: it
/// is no thread of a run.
pub(super) fn own_number() -> Option<u64> {
    let number = own()?;
    with(|state| {
        let standing = &mut state.threads[number];
        standing.drawn += 1;
        simulated::mix(simulated::seeded() ^ (number as u64) << 32 ^ u64::from(standing.drawn))
    })
}

/// How many CPUs there are.
pub(crate) fn cpus() -> Option<i64> {
    with(|state| state.rules.cpus as i64)
}

/// What goes outside by starting a kernel thread.
pub(crate) const KERNEL_THREAD: &str = "starts a kernel thread";

/// The calling thread is about to do what no seed repeats. Ends the run if that is not allowed.
pub(crate) fn goes(what: &str) {
    let Some((rules, sheet)) = with(|state| (state.rules, state.sheet)) else {
        return;
    };
    let is_allowed = match what {
        KERNEL_THREAD => rules.allows_threads,
        _ => rules.allows_outside,
    };
    if !is_allowed {
        simulated::begin(None);
        sheet.say(&format!("{what}\n{}", Backtrace::force_capture()));
        sheet.fail(FailureKind::Outside);
    }
    simulated::has_others();
    sheet.count(|run| run.is_repeatable = false);
}

/// A signal's handler: the process does not get on. Where it is, is noted, and the process ends.
pub(super) unsafe extern "C" fn stand_still(_: i32, _: *mut libc::siginfo_t, _: *mut c_void) {
    let seen = with(|state| (state.sheet, state.now - BEGIN));
    match seen.map(|(sheet, time)| (sheet, time, sheet.end.get())) {
        Some((sheet, time, End::Not)) => {
            sheet.choose(own().unwrap_or(ROOT), 0, time);
            sheet.fail(FailureKind::Stuck);
        }
        // Its run is over: what is left may compute.
        Some((sheet, _, End::Passed)) => sheet.end(End::Passed),
        _ => {}
    }
}

/// The calling thread is about to do `what`.
#[inline(always)]
pub(super) fn at(what: Step) {
    if has_points() {
        come(what, what.kind());
    }
}

/// The calling thread has done `what`, an atomic operation, and comes to its point now.
#[cfg(greenthread_points)]
#[inline(always)]
pub(super) fn behind(what: Step) {
    come(what, what.kind() | BEHIND);
}

/// Part of a kind: the operation is done.
pub(super) const BEHIND: u64 = 8;

/// Whether the calling thread comes to points: inside the runtime are many atomic operations, at which nothing is decided. (In an
/// ordinary process a worker may have the thread pointer of a thread that runs elsewhere by now.)
#[inline(always)]
pub(super) fn has_points() -> bool {
    simulated::is_on() && with_points().is_some()
}

#[inline(never)]
fn come(what: Step, kind: u64) {
    at_point(|mark| with(|state| state.decide(mark as usize, what, kind)) == Some(true));
}

/// A clock is read: what it shows. Any kernel thread may ask, once there are several.
fn time(clock: libc::clockid_t) -> u64 {
    at(Step::Look);
    let told = |state: &mut State| match clock {
        libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE | libc::CLOCK_TAI => {
            state.rules.start.saturating_add(state.now - BEGIN)
        }
        libc::CLOCK_PROCESS_CPUTIME_ID | libc::CLOCK_THREAD_CPUTIME_ID | ..0 => {
            state.sheet.run.get().points * PACE
        }
        _ => state.now,
    };
    with(told).unwrap_or(BEGIN)
}

/// The calling thread is about to leave its stack, for others.
fn let_others_run() {
    if let Some(number) = own().filter(|&number| number != ROOT) {
        with(|state| state.give_way(number));
    }
}

/// Whether the calling thread's wait ends at once.
fn is_spurious() -> bool {
    let is_spurious = |state: &mut State| is_one_in(state.rules.spurious, draw() as u32);
    own().is_some_and(|number| number != ROOT) && with(is_spurious) == Some(true)
}

/// What a point takes.
fn step(luck: u64) -> u64 {
    PACE / 2 + (((luck & 0xff) * (PACE + 1)) >> 8)
}

fn fold(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95)
}

/// Whether a chance of one in `many` has come; never if `many` is 0.
fn is_one_in(many: u32, luck: u32) -> bool {
    many != 0 && (u64::from(luck) * u64::from(many)) >> 32 == 0
}

impl State {
    /// Whether thread `number`, at a point of this kind, where it does `what`, gives way.
    fn decide(&mut self, number: usize, what: Step, kind: u64) -> bool {
        if number == ROOT {
            return false;
        }
        if let Some(rest) = &mut self.rest {
            *rest = rest.saturating_sub(1);
            return *rest == 0;
        }
        let luck = draw();
        self.now = self.now.saturating_add(step(luck));
        self.sheet.count(|run| {
            run.points += 1;
            run.atomics += u64::from(what.is_atomic());
            run.hash = fold(run.hash, (number as u64) << 8 | kind);
        });
        let points = self.sheet.run.get().points;
        while let Some(&(at, priority)) = self.falls.last()
            && at <= points
        {
            self.falls.pop();
            self.threads[number].priority = priority;
        }
        let waits = self.waits_by_looking(number, what);
        if waits {
            self.give_way(number);
        } else if what == Step::Look {
            self.hurry_if_idle(number);
        }
        self.ending = self.ending.or(self.is_over());
        self.is_due = simulated::deadline() <= self.now || points.is_multiple_of(LOOK_OUTSIDE);
        let leaves = self.ending.is_some() || self.is_due || self.wakes_at <= self.now;
        let is_stalled = is_one_in(self.stalls, (luck >> 8) as u32);
        if !(leaves || is_stalled || self.prefers_another(number, waits, luck >> 40)) {
            return false;
        }
        let least = is_stalled.then(|| 1000_u64 << simulated::choose(24));
        let length = least.map_or(0, |least| least + draw() % least);
        self.gives_way_until = Some(self.now.saturating_add(length));
        if self.sheet.is_traced.get() {
            self.sheet.choose(number, kind, self.now - BEGIN);
        }
        true
    }

    fn is_over(&self) -> Option<FailureKind> {
        let points = self.sheet.run.get().points;
        match () {
            () if points >= self.until => Some(FailureKind::Different),
            () if points > self.rules.max_points => Some(FailureKind::Points),
            () if self.now - BEGIN > self.rules.max_time => Some(FailureKind::Time),
            () => None,
        }
    }

    /// Whether the thread has seen nothing new for so long that it seems to wait.
    fn waits_by_looking(&mut self, number: usize, what: Step) -> bool {
        let standing = &mut self.threads[number];
        match what {
            Step::Load(word) if standing.seen.contains(&word) => standing.looks += 1,
            Step::Load(word) => {
                standing.seen.rotate_right(1);
                (standing.seen[0], standing.looks) = (word, 0);
            }
            Step::Look => standing.looks += 1,
            Step::Store | Step::Change => {
                (standing.looks, standing.changes) = (0, standing.changes + 1);
                self.idle *= u64::from(standing.changes <= POLL);
            }
            Step::Fence | Step::Call => {}
        }
        let waits = standing.looks == SPINS;
        standing.looks %= SPINS;
        waits
    }

    /// The thread lets others run first.
    fn give_way(&mut self, number: usize) {
        self.lowest -= 1;
        self.threads[number].priority = self.lowest;
        self.hurry_if_idle(number);
    }

    /// A thread polls, or gives way. If the threads that are ready do nothing else, time passes faster and faster, up to the next
    /// thing that happens.
    fn hurry_if_idle(&mut self, number: usize) {
        self.threads[number].changes = 0;
        self.idle += 1;
        let rounds = self.idle / ALONE / (self.ready.len() as u64 + 1);
        if rounds != 0 {
            let end = BEGIN.saturating_add(self.rules.max_time);
            let next = simulated::deadline().min(self.wakes_at).min(end);
            // Twice as fast each time: code that only measures is not brought to the end.
            let jump = PACE << rounds.min(40);
            self.now = self.now.max(next.min(self.now.saturating_add(jump)));
        }
    }

    /// Whether the strategy lets another thread that is ready run here.
    fn prefers_another(&mut self, number: usize, waits: bool, luck: u64) -> bool {
        let others = self.ready.len();
        match self.strategy {
            Strategy::Pct { .. } => self.top > self.threads[number].priority,
            _ if others == 0 => false,
            Strategy::RoundRobin => true,
            _ if waits => true,
            _ => {
                // The thread itself is one of those among which chance decides.
                let place = (luck & self.rarity == 0).then(|| simulated::choose(others + 1));
                self.chosen = place.filter(|&place| place < others);
                self.chosen.is_some()
            }
        }
    }

    /// The highest priority of a ready thread, and the thread's place; zeroes if there is none.
    fn highest(&self) -> (u64, usize) {
        let priority = |waiting: &Waiting| self.threads[waiting.number].priority;
        let priorities = self.ready.iter().map(priority);
        priorities.zip(0..).max().unwrap_or_default()
    }
}

// ==== the policy ====

/// The mark of a thread that has no number yet.
const NEW: u64 = u64::MAX;

/// Threads that were made ready from outside.
static INBOX: Lock<Queue> = Lock::new(Queue::new());

/// The policy of a simulated process.
pub(super) struct Schedule;

impl Policy for Schedule {
    fn ready(&self, thread: Ready, how: Readied, seat: Option<&Seat>) -> ForOthers {
        if how == Readied::Spawned {
            thread.mark_as_new(NEW);
        }
        match seat {
            Some(_) => {
                with(|state| {
                    state.idle *= u64::from(how == Readied::Yielded);
                    state.ready(thread);
                });
            }
            // Another kernel thread may have made it ready, or the worker before it had its processor.
            None => INBOX.lock().push(thread),
        }
        // The only processor sleeps until it has run the first thread.
        ForOthers::when(seat.is_none())
    }

    fn next(&self, _: &Seat, _: Others) -> Option<Next> {
        with(State::next).flatten().map(Next::from)
    }

    fn len(&self, processor: Option<usize>) -> usize {
        let len = || with(|state| state.ready.len() + usize::from(state.root.is_some()));
        processor.map_or_else(|| len().unwrap_or(0) + INBOX.lock().len(), |_| 0)
    }
}

impl State {
    fn ready(&mut self, thread: Ready) {
        if thread.mark().load(Relaxed) == NEW {
            let number = self.threads.len();
            if number == MOST_THREADS {
                crate::sys::die("a simulated process has too many threads");
            }
            thread.mark().store(number as u64, Relaxed);
            self.sheet.name(number, thread.who());
            self.threads.push(Standing {
                priority: (LOWEST << 1) + (draw() >> 2),
                ..Standing::default()
            });
        }
        let number = thread.mark().load(Relaxed) as usize;
        if number == ROOT {
            self.root = Some(thread);
            return;
        }
        let until = self.gives_way_until.take().unwrap_or(0);
        let waiting = Waiting {
            thread,
            number,
            until,
        };
        if until > self.now {
            self.wakes_at = self.wakes_at.min(until);
            self.stalled.push(waiting);
        } else {
            self.top = self.top.max(self.threads[number].priority);
            self.ready.push(waiting);
        }
    }

    /// The thread that runs next. `None`: there is none, or the run loop is to look around first.
    fn next(&mut self) -> Option<Ready> {
        while let Some(thread) = INBOX.lock().pop() {
            self.ready(thread);
        }
        if self.ending.is_some() || core::mem::take(&mut self.is_due) {
            return None;
        }
        if self.wakes_at <= self.now {
            self.wake_stalled();
        }
        // The thread that runs seed after seed goes first, but for the rest of a run.
        let goes_last = self.rest.is_some_and(|rest| rest != 0) && !self.ready.is_empty();
        if !goes_last && let Some(root) = self.root.take() {
            return Some(root);
        }
        let count = self.ready.len();
        let chosen = self.chosen.take().filter(|&place| place < count);
        let place = match (self.strategy, chosen) {
            _ if count == 0 => return None,
            (_, Some(place)) => place,
            (Strategy::Pct { .. }, _) => self.highest().1,
            (Strategy::RoundRobin, _) => 0,
            _ => simulated::choose(count),
        };
        let next = match self.strategy {
            Strategy::RoundRobin => self.ready.remove(place),
            _ => self.ready.swap_remove(place),
        };
        if let Strategy::Pct { .. } = self.strategy {
            self.top = self.highest().0;
        }
        self.sheet.count(|run| run.switches += 1);
        self.sheet.follow(next.number);
        Some(next.thread)
    }

    fn wake_stalled(&mut self) {
        let now = self.now;
        let is_over = |waiting: &mut Waiting| waiting.until <= now;
        for woken in self.stalled.extract_if(.., is_over) {
            self.top = self.top.max(self.threads[woken.number].priority);
            self.ready.push(woken);
        }
        let wakes = self.stalled.iter().map(|waiting| waiting.until);
        self.wakes_at = wakes.min().unwrap_or(NEVER);
    }

    fn pass_time(&mut self, earliest: u64) {
        /// How long a run that has gone outside waits for the outside before it looks again.
        const A_MOMENT: u64 = 100_000;
        if self.ending.is_some() || !self.ready.is_empty() {
            // The run loop has looked around.
            return;
        }
        let next = earliest.min(self.wakes_at);
        if self.stalled.is_empty() && !self.sheet.run.get().is_repeatable {
            kernel_thread::rest(A_MOMENT);
            self.now += A_MOMENT;
        } else if next != NEVER {
            self.now = self.now.max(next);
        } else {
            self.ending = Some(FailureKind::Deadlock);
            return;
        }
        clock::note(self.now);
        self.ending = self.is_over();
    }
}

/// No thread is ready, or the run is to end. The earliest deadline of those that wait is this one.
fn nothing_is_ready(earliest: u64) {
    let ended = with(|state| {
        state.pass_time(earliest);
        // A dump is made by a kernel thread.
        state.rules.allows_threads |= state.ending.is_some();
        Some((state.sheet, state.ending?))
    });
    if let Some((sheet, kind)) = ended.flatten() {
        sheet.fail(kind);
    }
}
