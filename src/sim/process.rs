//! The processes of a check.
//!
//! ```text
//!   the test's own process          the server: the test again        a simulated process
//!   check ── runs itself again ──►  check ── forks, batch by batch ──►  seed after seed, until one fails
//!         ◄── the verdict, a file ─         ◄── a sheet in shared memory ──
//! ```
//!
//! The program is run again, so that a seed's run finds statics as they are before the test, and so that a run may end in
//! whatever way: by an abort, by a signal, by the end of its time. It is told in [`VARIABLE`] which check of the test it is to do, and
//! where the verdict goes. The verdicts of earlier checks are in that file, and are given out there as they were here: so the
//! test comes to the one check, in which the process ends.
//!
//! The server has one thread that does anything, which is the test's; it prepares what a runtime needs of a process, and starts
//! none. So its forks may start one. A batch ends early if a run leaves threads or descriptors behind.
//!
//! A process is *fresh*, and runs one seed; or *warm*: it has run [`WARM_UP`] before, which makes what is made once, and runs
//! seed after seed. With [`Isolation::Auto`] the server's first process runs that three times. If the third run is like the
//! second, and none fails, processes are warm; or else statics matter, and they are fresh.
//!
//! A seed that fails is run once more, alone and traced, in a process of the same kind. If it does not fail then, the seeds before
//! it in its batch are run, too.

use core::cell::{Cell, RefCell};
use core::ffi::CStr;
use core::ops::Range;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::panic::{catch_unwind, resume_unwind};
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use std::{env, fs, thread};

use super::record::{End, MOST_SEEDS, Sheet};
use super::report::{self, Failure, FailureKind, Verdict};
use super::schedule::{self, Schedule};
use super::{Builder, Isolation, POINTS, SEED, Strategy, Summary};
use crate::atomic::{AtomicU64, Ordering::Relaxed};
use crate::engine::facade::{Backend, RuntimeOptions, text_of};
use crate::sys::calls::{answer, pidfd};
use crate::sys::{self, simulated, variable};

/// The file with the verdicts of earlier checks, for a server's own; and, behind a space, which check it is for.
const VARIABLE: &CStr = c"GREENTHREAD_SIM";
/// A simulated process that uses so much CPU time, or that is blocked for so many looks, without coming to a point is ended.
const PATIENCE: Duration = Duration::from_secs(5);
const BLOCKED: u32 = 60 * 1000 / LOOK as u32;
/// How often it is looked whether processes get on, in milliseconds.
const LOOK: i32 = 250;

/// The run that warms a process up: no thread is interrupted but by a wait.
const WARM_UP: Strategy = Strategy::Pct { depth: 1 };

pub(super) type Body = Arc<dyn Fn() + Send + Sync>;
/// How often servers are asked, and for what: [`ask_once`], [`compare`].
type Asks = fn(&Builder) -> io::Result<Verdict>;

/// What the system is asked for so that it gives a process the same addresses each time.
const SAME: libc::c_int = libc::ADDR_NO_RANDOMIZE;

/// A variable of the environment.
type Variable = (&'static str, String);

/// The variable's value in a server.
static ASKED: OnceLock<Vec<u8>> = OnceLock::new();

thread_local! {
    /// The verdicts of the checks that the calling thread has done.
    static DONE: RefCell<String> = const { RefCell::new(String::new()) };
    /// How many bytes of them the thread has been given, in a server.
    static GIVEN: Cell<usize> = const { Cell::new(0) };
}

/// Does a check: in the test's own process, with the help of servers that `asks` starts; or, in a server, for good.
pub(super) fn check(builder: &Builder, body: Body, asks: Asks) -> Verdict {
    given(builder, &body).unwrap_or_else(|| {
        // Servers of later checks of the test are told, too.
        let verdict = told(asks(builder));
        DONE.with_borrow_mut(|done| *done += &verdict.encode());
        verdict
    })
}

/// Has each seed run once.
pub(super) fn ask_once(builder: &Builder) -> io::Result<Verdict> {
    ask(builder, SAME, &[])
}

/// Has each seed run twice, and compares the hashes of all runs. The second time the environment is another one, and so are the
/// addresses, unless they are to be the same.
pub(super) fn compare(builder: &Builder) -> io::Result<Verdict> {
    let padding = [("GREENTHREAD_SIM_PADDING", "x".repeat(3000))];
    let again = if builder.same_addresses { SAME } else { 0 };
    let (first, second) = (ask_once(builder)?, ask(builder, again, &padding)?);
    for verdict in [&first, &second] {
        if verdict.failure.is_some() {
            return Ok(verdict.clone());
        }
    }
    let mut both = first.hashes.iter().zip(&second.hashes);
    let Some((&(seed, _), _)) = both.find(|(one, other)| one != other) else {
        return Ok(first);
    };
    let name = builder.strategy.name(first.steps, seed, seed);
    let until = |points: u64, addresses, more: &[Variable]| {
        let own = [(SEED, name.clone()), (POINTS, points.to_string())];
        let verdict = ask(builder, addresses, &[&own[..], more].concat())?;
        verdict.failure.ok_or(io::Error::from(io::ErrorKind::Other))
    };
    // The first point at which they differ is looked for by runs that end early.
    let (mut alike, mut step) = (0, 1 << 24);
    let text = format!("sim: two runs of seed {name} differed, and others of it alone did not\n");
    let mut found = Failure::new(FailureKind::Different, &name, Summary::default(), text);
    while step != 0 {
        let one = until(alike + step, SAME, &[]);
        let other = until(alike + step, again, &padding);
        match (one, other) {
            (Ok(one), Ok(other)) if one.summary().hash == other.summary().hash => alike += step,
            // One of them may end before.
            (one, other) => found = other.or(one).unwrap_or(found),
        }
        step /= 2;
    }
    Ok(found.into())
}

/// The program is loaded: takes the variable, which is meant for this process, and not for its children.
pub(crate) fn when_loaded() {
    let asked = variable::peek(VARIABLE, <[u8]>::to_vec);
    // SAFETY: nothing else runs yet.
    unsafe { libc::unsetenv(VARIABLE.as_ptr()) };
    asked.map(|asked| ASKED.set(asked));
}

/// A number by chance in a server, where what is made before the seeds, such as a map that the closure has, is the same each time.
pub(super) fn own_number() -> Option<u64> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    ASKED.get()?;
    Some(simulated::mix(COUNT.fetch_add(1, Relaxed)))
}

fn told(verdict: io::Result<Verdict>) -> Verdict {
    verdict.unwrap_or_else(|error| Failure::impossible(error.to_string()).into())
}

/// In a server: the verdict of a check that the test has made before the one that the server is for, in which it does not return.
fn given(builder: &Builder, body: &Body) -> Option<Verdict> {
    assert!(!super::is_simulated(), "sim: a check inside a check");
    let (file, check) = str::from_utf8(ASKED.get()?).ok()?.split_once(' ')?;
    if GIVEN.get() == 0 {
        DONE.set(fs::read_to_string(file).unwrap_or_default());
    }
    let verdict = DONE.with_borrow(|done| {
        let rest = &done[GIVEN.get()..];
        let end = rest.find(report::END)? + 1;
        GIVEN.set(GIVEN.get() + end);
        Verdict::decode(&rest[..end], "")
    });
    if verdict.is_some() {
        return verdict;
    }
    if check != builder.place {
        let other = format!("sim: a process was run for the check at {check}, and came to another");
        return Some(Failure::impossible(other).into());
    }
    let verdict = told(serve(builder, body));
    let told = fs::write(file, DONE.take() + &verdict.encode());
    // SAFETY: the process ends at once: it was made for this.
    unsafe { libc::_exit(told.is_err().into()) }
}

// ==== the test's own process ====

/// A file without a name. Other processes open it by its path.
fn file() -> io::Result<OwnedFd> {
    // SAFETY: a plain call, with a string.
    let file = unsafe { libc::memfd_create(c"greenthread-sim".as_ptr(), libc::MFD_CLOEXEC) };
    // SAFETY: the descriptor was just made.
    answer(file).map(|file| unsafe { OwnedFd::from_raw_fd(file as RawFd) })
}

/// Runs the test again, in a process that does the check that the test has come to.
fn ask(builder: &Builder, addresses: libc::c_int, variables: &[Variable]) -> io::Result<Verdict> {
    let [told, out, error] = [file()?, file()?, file()?];
    let path = |file: &OwnedFd| format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let done = DONE.with_borrow(String::clone);
    fs::write(path(&told), &done)?;
    let mut command = Command::new(env::current_exe()?);
    let current = thread::current();
    let unnamed = "sim: a check on a thread without a name: accepted are the test's thread and the main thread";
    let test = current.name().ok_or_else(|| io::Error::other(unnamed))?;
    if test == "main" {
        command.args(env::args_os().skip(1));
    } else {
        // As libtest names its threads.
        let how = "--exact --nocapture --test-threads=1 --include-ignored";
        command.arg(test).args(how.split(' '));
    }
    let asked = format!("{} {}", path(&told), builder.place);
    command.env("GREENTHREAD_SIM", asked);
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    let persona = move || {
        // SAFETY: plain calls. (In a container they may be refused: then addresses differ.)
        unsafe { libc::personality((libc::personality(!0) | addresses) as u64) };
        Ok(())
    };
    // SAFETY: the closure makes system calls alone.
    unsafe { command.pre_exec(persona) };
    // Not pipes: a run may print more than these take.
    command.stdout(out.try_clone()?).stderr(error.try_clone()?);
    let status = command.stdin(Stdio::null()).status()?;
    let text =
        |file| String::from_utf8_lossy(&fs::read(path(&file)).unwrap_or_default()).into_owned();
    let [told, out, error] = [told, out, error].map(text);
    let missing = || format!("{command:?} did not come to its check: {status}\n{out}{error}");
    Verdict::decode(&told[done.len()..], &error).ok_or_else(|| io::Error::other(missing()))
}

// ==== the server ====

/// A simulated process that runs, or has run.
struct Batch {
    process: libc::pid_t,
    /// Becomes readable when the process ends, and is closed then.
    end: RawFd,
    seeds: Range<u64>,
    sheet: &'static Sheet,
    /// When it was last seen to get on: its points, its CPU time, and how many looks ago that was.
    seen: (u64, Duration, u32),
    /// It does not get on, and was asked where it is.
    is_stuck: bool,
    /// As `waitpid` tells.
    status: i32,
}

/// What is the same for all batches.
struct Server<'a> {
    builder: &'a Builder,
    body: &'a Body,
    /// The points of the first run.
    steps: u64,
    is_warm: bool,
}

/// Does the check, in this process's children.
fn serve(builder: &Builder, body: &Body) -> io::Result<Verdict> {
    // SAFETY: a plain call. The process ends with the one that has started it.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let wrong = |text: &str| Err(io::Error::other(text));
    if !Backend::all().is_empty() {
        return wrong("sim: a runtime was started before the check");
    }
    if variable::read("GREENTHREAD_UNMODIFIED").is_some_and(|asked| asked == "off") {
        return wrong("sim: GREENTHREAD_UNMODIFIED=off: calls of libc must park threads");
    }
    RuntimeOptions::prepare()?;
    // The first unwinding in a process takes a lock.
    let _ = catch_unwind(|| resume_unwind(Box::new(())));
    let mut server = Server {
        is_warm: false,
        builder,
        body,
        steps: builder.steps,
    };
    let seeds = builder.seeds.clone();
    if seeds.is_empty() {
        return Ok(Verdict::default());
    }
    if builder.isolation != Isolation::EachSeed || builder.steps == 0 {
        let probe = server.run(Sheet::share()?, 0..0, Kind::Probe)?;
        let hash = |place: usize| probe.sheet.runs[place].get().hash;
        let is_alike = builder.isolation == Isolation::Batch || hash(1) == hash(2);
        let may_be_warm = builder.isolation != Isolation::EachSeed;
        server.is_warm = may_be_warm && probe.sheet.done.get() == 3 && is_alike;
        if builder.steps == 0 {
            server.steps = probe.sheet.run.get().points;
        }
    }
    let size = if server.is_warm { MOST_SEEDS as u64 } else { 1 };
    let count = seeds.end - seeds.start;
    let processes = thread::available_parallelism().map_or(1, |count| count.get());
    let slots = processes.min(count.div_ceil(size) as usize);
    let (mut left, mut running, mut failed) = (vec![seeds], Vec::new(), None);
    let mut free: Vec<&'static Sheet> = Vec::new();
    let mut verdict = Verdict {
        steps: server.steps,
        ..Verdict::default()
    };
    loop {
        while running.len() < slots
            && let Some(mut seeds) = left.pop()
        {
            let end = seeds.end.min(seeds.start.saturating_add(size));
            if end < seeds.end {
                left.push(end..seeds.end);
            }
            seeds.end = end;
            let sheet = free.pop().map_or_else(Sheet::share, Ok)?;
            running.push(server.fork(&running, sheet, seeds, Kind::Seeds)?);
        }
        if running.is_empty() {
            if let Some(failed) = failed {
                return server.report(&failed).map(Verdict::from);
            }
            verdict.hashes.sort_unstable();
            if builder.require_atomics && verdict.summary.atomics == 0 {
                return wrong(WITHOUT_ATOMICS);
            }
            return Ok(verdict);
        }
        let batch = next_ended(&mut running)?;
        if batch.failure().is_some() {
            // The lowest seed that fails is told of, whichever process is the first to end.
            let seed = batch.seed();
            left.retain(|seeds| seeds.start < seed);
            running.retain_mut(|other| other.seeds.start < seed || other.drop_process());
            failed = failed
                .filter(|other: &Batch| other.seed() < seed)
                .or(Some(batch));
            continue;
        }
        verdict.add(batch.seeds.start, batch.sheet);
        let next = batch.seeds.start + batch.sheet.done.get() as u64;
        if next < batch.seeds.end {
            left.push(next..batch.seeds.end);
        }
        free.push(batch.sheet);
    }
}

const WITHOUT_ATOMICS: &str = "sim: no atomic operation has a schedule point: build with RUSTFLAGS=\"--cfg greenthread_points \
    -C passes=tsan -C llvm-args=-tsan-instrument-func-entry-exit=0\", and with --target\n";

/// Waits until one of the processes has ended. Ends those that do not get on.
fn next_ended(running: &mut Vec<Batch>) -> io::Result<Batch> {
    loop {
        let end = |batch: &Batch| sys::pollfd(batch.end, libc::POLLIN);
        let mut ends: Vec<_> = running.iter().map(end).collect();
        // SAFETY: valid entries, and their number.
        unsafe { libc::poll(ends.as_mut_ptr(), ends.len() as libc::nfds_t, LOOK) };
        if let Some(place) = ends.iter().position(|end| end.revents != 0) {
            let mut batch = running.swap_remove(place);
            // SAFETY: a valid place; the child is this process's.
            let ended = answer(unsafe { libc::waitpid(batch.process, &mut batch.status, 0) });
            sys::close(batch.end);
            return ended.map(|_| batch);
        }
        running.iter_mut().for_each(Batch::look_after);
    }
}

impl Batch {
    /// The seed that runs, or the last one that ran; the first one, if that is still to come.
    fn seed(&self) -> u64 {
        self.sheet.seed.get().max(self.seeds.start)
    }

    /// Whether the process's last run has failed: how, and what is said of it.
    fn failure(&self) -> Option<(FailureKind, String)> {
        let (signal, code) = (libc::WTERMSIG(self.status), libc::WEXITSTATUS(self.status));
        match self.sheet.end.get() {
            End::Passed => None,
            End::Failed => Some((self.sheet.kind.get(), self.sheet.text())),
            // It has not answered.
            End::Not if self.is_stuck => Some((FailureKind::Stuck, String::new())),
            End::Not if signal != 0 => Some((FailureKind::Signal, signal.to_string())),
            End::Not => Some((FailureKind::Exit, code.to_string())),
        }
    }

    /// Ends the process for good. False: it is not to be waited for.
    fn drop_process(&mut self) -> bool {
        self.kill(libc::SIGKILL);
        // SAFETY: a valid place; the child is this process's.
        unsafe { libc::waitpid(self.process, &mut self.status, 0) };
        sys::close(self.end);
        false
    }

    fn kill(&self, signal: i32) {
        // SAFETY: a child that nobody has waited for yet.
        unsafe { libc::kill(self.process, signal) };
    }

    /// Ends the process if it does not get on. It is asked first, so that it can say where it is.
    fn look_after(&mut self) {
        let points = self.sheet.run.get().points ^ (self.sheet.done.get() as u64) << 40;
        let clock = sys::kernel_thread::process_clock(self.process);
        let used = Duration::from_nanos(sys::clock::cpu_time(clock));
        let (seen, cpu, looks) = self.seen;
        if points != seen && !self.is_stuck {
            self.seen = (points, used, 0);
            return;
        }
        // It is asked, and then ended. Looks are counted, and not seconds, since all may be stopped together.
        self.seen.2 += 1;
        let (more, signal) = match self.is_stuck {
            false => (0, libc::SIGQUIT),
            true => (1, libc::SIGKILL),
        };
        let has_burnt = used.saturating_sub(cpu) > PATIENCE * (more + 1);
        if has_burnt || looks > BLOCKED + BLOCKED / 12 * more {
            self.is_stuck = true;
            self.kill(signal);
        }
    }
}

/// What a process is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It runs the warm-up three times.
    Probe,
    Seeds,
    /// It tells of the switches.
    Traced,
}

impl Server<'_> {
    /// Forks a process that runs these seeds.
    fn fork(
        &self,
        others: &[Batch],
        sheet: &'static Sheet,
        seeds: Range<u64>,
        kind: Kind,
    ) -> io::Result<Batch> {
        sheet.begin();
        // SAFETY: the child has this thread alone; the others of this process hold no lock that it takes: they wait.
        let process = answer(unsafe { libc::fork() })? as libc::pid_t;
        if process == 0 {
            // Descriptors have the same numbers, whatever else runs.
            others.iter().for_each(|other| sys::close(other.end));
            self.live(sheet, seeds, kind);
        }
        Ok(Batch {
            process,
            end: pidfd(process as u32, 0)?.into_raw_fd(),
            seeds,
            sheet,
            seen: (0, Duration::ZERO, 0),
            is_stuck: false,
            status: 0,
        })
    }

    /// Runs a process that runs these seeds, to its end.
    fn run(&self, sheet: &'static Sheet, seeds: Range<u64>, kind: Kind) -> io::Result<Batch> {
        next_ended(&mut vec![self.fork(&[], sheet, seeds, kind)?])
    }

    /// Runs the seed at which `batch` has failed again, traced, and tells of it.
    fn report(&self, batch: &Batch) -> io::Result<Failure> {
        let (seed, first) = (batch.seed(), batch.seeds.start);
        let again = |first| self.run(Sheet::share()?, first..seed + 1, Kind::Traced);
        let (mut shown, mut needed) = (again(seed)?, seed);
        if shown.failure().is_none() && first != seed {
            (shown, needed) = (again(first)?, first);
        }
        let name = self.builder.strategy.name(self.steps, needed, seed);
        let Some(failure) = shown.failure() else {
            let text = format!("sim: seed {name} has failed once, and then no more\n");
            let run = Summary::default();
            return Ok(Failure::new(FailureKind::Different, &name, run, text));
        };
        Ok(Failure::of(failure, &name, needed == seed, shown.sheet))
    }

    // ==== a simulated process ====

    /// The life of a simulated process.
    fn live(&self, sheet: &'static Sheet, seeds: Range<u64>, kind: Kind) -> ! {
        // By `libc::signal` it would be a handler of the program's, for which each switch has to do more.
        let _ = sys::signal::handle(libc::SIGQUIT, schedule::stand_still);
        // SAFETY: plain calls.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            if kind != Kind::Traced {
                let nothing = libc::open(c"/dev/null".as_ptr(), libc::O_WRONLY);
                (1..=2).for_each(|stream| _ = libc::dup2(nothing, stream));
                libc::close(nothing);
            }
        }
        sheet.is_traced.set(kind == Kind::Traced);
        schedule::begin(self.builder.rules, sheet);
        let warm_ups = match kind {
            Kind::Probe => 3,
            _ => usize::from(self.is_warm),
        };
        let mut runs = Runs {
            name: thread::current().name().unwrap_or("main").to_owned(),
            body: self.body.clone(),
            sheet,
            steps: self.steps,
            until: u64::MAX,
            all_threads_end: false,
            free: i32::MAX,
        };
        let (strategy, all_threads_end) = (self.builder.strategy, self.builder.all_threads_end);
        let until = self.builder.until;
        let main = move || {
            (0..warm_ups).for_each(|_| runs.run(0, WARM_UP));
            if kind != Kind::Probe {
                sheet.done.set(0);
            }
            (runs.all_threads_end, runs.until) = (all_threads_end, until);
            runs.free = sys::duplicate(libc::STDERR_FILENO, 0).unwrap_or(i32::MAX);
            sys::close(runs.free);
            seeds.for_each(|seed| runs.run(seed, strategy.of(seed)));
            sheet.end(End::Passed)
        };
        let error = RuntimeOptions::simulate(Box::new(Schedule), main);
        sheet.say(&format!("no simulated process can be had: {error}"));
        sheet.fail(FailureKind::Impossible)
    }
}

/// What the runs of a process have in common.
struct Runs {
    /// The test's, for the first thread of each run.
    name: String,
    body: Body,
    sheet: &'static Sheet,
    steps: u64,
    until: u64,
    all_threads_end: bool,
    /// The lowest number that is no descriptor's: a descriptor that a run leaves behind has it.
    free: i32,
}

impl Runs {
    /// Runs one seed, on the thread that runs seed after seed. Ends the process if the run has failed, or has left something
    /// behind.
    fn run(&self, seed: u64, strategy: Strategy) {
        let body = self.body.clone();
        schedule::begin_seed(seed, strategy, self.steps, self.until);
        let first = crate::thread::Builder::new().name(self.name.clone());
        let first = first.spawn(move || body());
        if let Err(payload) = first.expect("the first thread of a run").join() {
            self.sheet.say(text_of(&*payload));
            self.sheet.fail(FailureKind::Panic);
        }
        self.sheet.end_seed();
        // If the others end the process from now on, that is no failure of the run.
        self.sheet.end.set(End::Passed);
        while schedule::drain() {
            crate::thread::yield_now();
        }
        let cluster = Backend::global().ok().and_then(Backend::green);
        if cluster.is_none_or(|cluster| cluster.live() != 1) {
            match self.all_threads_end {
                true => self.sheet.fail(FailureKind::Threads),
                false => self.sheet.end(End::Passed),
            }
        }
        // SAFETY: a plain call.
        if unsafe { libc::fcntl(self.free, libc::F_GETFD) } != -1 {
            self.sheet.end(End::Passed);
        }
    }
}
