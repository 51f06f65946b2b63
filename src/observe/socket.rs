//! The socket on which a running program answers questions about its threads: `GREENTHREAD_OBSERVE=unix:/path`.
//!
//! `docs/observe-socket.md` describes requests and answers. Nothing here runs unless it is asked for. One kernel thread
//! makes the socket and sleeps in `accept`. Each client has another one, which reads its requests, writes the answers, and
//! looks between them which threads run.
//!
//! *A summary* has counts, and the few threads that stand out. Each thread is looked at once, and forgotten again unless the
//! thread is one of the few that have waited longest: the memory does not go with the number of threads. The few are then
//! looked at anew, as a snapshot of their own, for their names and what they wait for; so one of them may have gone on
//! meanwhile, and is left out.
//!
//! *Which threads are busy* is not counted where threads switch. For green threads the client's kernel thread looks, at
//! random moments some 20 ms apart, which thread each processor runs: a thread that was seen in a quarter of the looks
//! has used a quarter of a processor. For kernel threads the system counts CPU time. That takes an entry for each thread
//! that was seen running since the last question, and one for each kernel thread that waits as green threads do. A
//! thread that has taken over an ended one's record is another thread: its identity lies elsewhere.
//!
//! Invariants:
//! 1. Only the process' own user and root get an answer. The file's rights say so: it gets the mode of the open socket,
//!    which is 0600 before it is bound. And the system is asked who the client is.
//! 2. A client costs a bounded amount of memory (a dump apart), and its kernel thread ends when it is silent for
//!    [`SILENCE`], or takes no byte of an answer for [`PATIENCE`], or not the whole of it in [`ANSWER_FOR`]. It
//!    holds no lock of the program's meanwhile. There are [`CLIENTS`] at most.
//! 3. These kernel threads take no signals, and run no code of the program's.
//! 4. A forked child has neither the threads nor the descriptors.
//! 5. A file on which nobody listens is of a process that has ended, and is replaced. No other file is: a lock on the
//!    directory keeps two processes that start at once from replacing each other's file. At exit the file goes, if it
//!    is still the one that was made here. No symlink is followed.

use core::fmt::Display;
use core::mem::{MaybeUninit, forget};
use core::ptr::from_ref;
use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{self, BufRead, BufReader, BufWriter, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once, OnceLock};
use std::time::Duration;

use super::dump::STATES;
use super::employ;
use super::json::{Object, Quoted, list};
use super::numbers::{NumberMap, insert};
use super::snapshot::{Depth, Entry, Snapshot, State};
use super::symbols::Symbols;
use super::text::{Json, thread_as_json};
use crate::engine::facade::{Backend, Running, is_forked_child};
use crate::engine::inspect::system::{OnlyHere, kernel_thread};
use crate::engine::inspect::threads::{AnyThread, Doing, ThreadSnapshot};
use crate::engine::inspect::{Activity, Cluster, Processor, all, kernel};
use crate::observe::export::{FIGURES, Value};
use crate::sys::{calls, clock};

/// The version of requests and answers.
const VERSION: u64 = 1;
/// The longest request, in bytes.
const LONGEST: usize = 4096;
/// So many threads of each kind are shown, and at most so many.
const SHOWN: u64 = 20;
const MOST_SHOWN: u64 = 500;
/// How many clients are served at once.
const CLIENTS: usize = 4;
const PATIENCE: Duration = Duration::from_secs(5);
const SECOND: u64 = 1_000_000_000;
const SILENCE: u64 = 60 * SECOND;
const ANSWER_FOR: u64 = 30 * SECOND;
/// So long after a summary the looks go on.
const LOOKS_FOR: u64 = 5 * SECOND;
/// The fewest looks that a summary has, and the time between those.
const FEWEST_LOOKS: u32 = 5;
const QUICK_PACE: u64 = 2_000_000;
/// So many threads that run are asked about at the system for one summary: does the call that they are in block?
const QUESTIONS: usize = 1000;
/// So many threads are fetched together.
const TOGETHER: usize = 32;

/// The file, the process that has made it, and by which numbers the file is known again.
static MADE: OnceLock<(PathBuf, u32, (u64, u64))> = OnceLock::new();

/// Serves the socket at `path` from now on; only the first call does something. If it cannot be served, a line on
/// standard error says why, and the program goes on.
pub(super) fn start(path: &Path) {
    static ONCE: Once = Once::new();
    if is_forked_child() {
        return;
    }
    let serve = |listener: UnixListener| {
        let only_here = OnlyHere::new(listener.as_raw_fd());
        let service = Arc::new(clock::now());
        employ("gt-observe", move || {
            accept(listener, &service);
            drop(only_here);
        })
    };
    ONCE.call_once(|| {
        if let Err(error) = listen(path).and_then(serve) {
            let path = path.display();
            let text = format!("greenthread: GREENTHREAD_OBSERVE=unix:{path}: {error}\n");
            // An error is ignored: perhaps nobody reads the line.
            let _ = io::stderr().write_all(text.as_bytes());
        }
    });
}

/// Listens at `path`.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let whole = std::path::absolute(path)?;
    let _alone = lock_directory(&whole);
    // SAFETY: a plain call; the descriptor is new, and ours.
    let socket = unsafe {
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
        UnixListener::from_raw_fd(calls::answer(libc::socket(libc::AF_UNIX, kind, 0))? as RawFd)
    };
    // SAFETY: a plain call on an open file.
    calls::answer(unsafe { libc::fchmod(socket.as_raw_fd(), 0o600) })?;
    bind(&socket, path).or_else(|error| match error.kind() {
        ErrorKind::AddrInUse => free(path).and_then(|()| bind(&socket, path)),
        _ => Err(error),
    })?;
    let (file, about) = made_at(path)?;
    if about.mode() & 0o777 != 0o600 {
        give_rights(&file);
    }
    // SAFETY: the socket is open and bound.
    calls::answer(unsafe { libc::listen(socket.as_raw_fd(), 16) })?;
    let made = (whole, std::process::id(), (about.dev(), about.ino()));
    if MADE.set(made).is_ok() {
        // SAFETY: the function is there as long as the program.
        unsafe { libc::atexit(remove) };
    }
    Ok(socket)
}

/// Waits for the right to make files in the directory, but not for long: anybody can hold it.
fn lock_directory(path: &Path) -> Option<File> {
    let directory = File::open(path.parent()?).ok()?;
    for _ in 0..50 {
        if directory.try_lock().is_ok() {
            return Some(directory);
        }
        kernel_thread::rest(10_000_000);
    }
    None
}

fn bind(socket: &UnixListener, path: &Path) -> io::Result<()> {
    // SAFETY: all zeroes are such a name.
    let mut name: libc::sockaddr_un = unsafe { MaybeUninit::zeroed().assume_init() };
    name.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (to, &from) in name.sun_path.iter_mut().zip(path.as_os_str().as_bytes()) {
        *to = from as libc::c_char;
    }
    let size = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: the name is one of a Unix socket, and its size is right.
    calls::answer(unsafe { libc::bind(socket.as_raw_fd(), (&raw const name).cast(), size) })
        .map(drop)
}

/// Removes the file at `path` if it is a socket on which nobody listens.
fn free(path: &Path) -> io::Result<()> {
    if !std::fs::symlink_metadata(path)?.file_type().is_socket() {
        let message = "there is a file that is no socket";
        return Err(io::Error::new(ErrorKind::AlreadyExists, message));
    }
    // A socket of another kind is only told whether a process listens there: it does not wait in the listener's queue.
    let answer = UnixDatagram::unbound()?.connect(path);
    let another = "another process listens there";
    match answer.map_err(|error| error.kind()) {
        Err(ErrorKind::ConnectionRefused) => std::fs::remove_file(path),
        Err(ErrorKind::NotFound) => Ok(()),
        Err(denied @ ErrorKind::PermissionDenied) => Err(denied.into()),
        _ => Err(io::Error::new(ErrorKind::AddrInUse, another)),
    }
}

/// The file that has just been made at `path`. Not the one that a symlink there leads to: whoever may write in the
/// directory can have put one in its place.
fn made_at(path: &Path) -> io::Result<(File, Metadata)> {
    let (mut options, flags) = (OpenOptions::new(), libc::O_PATH | libc::O_NOFOLLOW);
    let file = options.read(true).custom_flags(flags).open(path)?;
    let about = file.metadata()?;
    // SAFETY: a plain call.
    let is_ours = about.file_type().is_socket() && about.uid() == unsafe { libc::geteuid() };
    match is_ours {
        true => Ok((file, about)),
        false => Err(io::Error::other("another file has come in its place")),
    }
}

/// Gives the owner the rights to the file that some umask has taken. Without them the owner cannot ask, which harms
/// nobody: an error is none.
fn give_rights(file: &File) {
    // The rights are set by way of the open file, since another file may be at the path by now.
    let itself = format!("/proc/self/fd/{}", file.as_raw_fd());
    let _ = std::fs::set_permissions(itself, Permissions::from_mode(0o600));
}

/// The process exits.
extern "C" fn remove() {
    // A child that was made without the handlers of `fork` is known by its other process id.
    if let Some((path, process, file)) = MADE.get()
        && !is_forked_child()
        && std::process::id() == *process
        && std::fs::symlink_metadata(path).is_ok_and(|about| (about.dev(), about.ino()) == *file)
    {
        let _ = std::fs::remove_file(path);
    }
}

fn accept(listener: UnixListener, service: &Arc<u64>) {
    loop {
        match listener.accept() {
            Ok((stream, _)) => admit(stream, service),
            Err(error) => match error.raw_os_error() {
                // The program has closed it, and the number may be another file's by now.
                Some(libc::EBADF | libc::ENOTSOCK | libc::EINVAL) => return forget(listener),
                // There is no descriptor or no memory left: the next try comes later.
                _ => kernel_thread::rest(100_000_000),
            },
        }
    }
}

/// Serves a client, if it may be served. `service`: when the process began to serve; this thread has one reference to it, and
/// each client that is served another one.
fn admit(stream: UnixStream, service: &Arc<u64>) {
    let only_here = OnlyHere::new(stream.as_raw_fd());
    let refuse = |reason: String| drop(send(&stream, &versioned("error", reason)));
    if stream.set_write_timeout(Some(PATIENCE)).is_err() {
        return;
    }
    // SAFETY: a plain call.
    let own = unsafe { libc::geteuid() };
    if !user(&stream).is_some_and(|user| user == own || user == 0) {
        return refuse(format!("only user {own} and root may ask"));
    }
    if Arc::strong_count(service) > CLIENTS {
        return refuse(format!("{CLIENTS} clients are served already"));
    }
    let service = service.clone();
    let serve = move || {
        let mut client = Client {
            read: BufReader::new(&stream),
            looks: Looks::default(),
            started: *service,
            asked: clock::now(),
            summarized: None,
        };
        // An error ends the connection, and concerns nobody else.
        let _ = client.live();
        drop((stream, only_here, service));
    };
    // If the system refuses a kernel thread, the connection ends.
    let _ = employ("gt-client", serve);
}

/// Writes an answer to a client, but not for ever.
fn send(stream: &UnixStream, answer: &dyn Display) -> io::Result<()> {
    let until = clock::now() + ANSWER_FOR;
    let mut to = BufWriter::new(Slow { stream, until });
    writeln!(to, "{answer}")?;
    to.flush()
}

/// A client that may be slow: writing fails after a time. (Each single write has a limit of the socket's.)
struct Slow<'a> {
    stream: &'a UnixStream,
    until: u64,
}

impl Write for Slow<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match clock::now() < self.until {
            true => self.stream.write(bytes),
            false => Err(ErrorKind::TimedOut.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The user that has made the connection.
fn user(stream: &UnixStream) -> Option<libc::uid_t> {
    // SAFETY: zeroes are valid.
    let mut who: libc::ucred = unsafe { MaybeUninit::zeroed().assume_init() };
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    let place = (&raw mut who).cast();
    // SAFETY: the place is valid, and its size is right.
    let answer = unsafe { libc::getsockopt(stream.as_raw_fd(), level, option, place, &mut size) };
    (answer == 0).then_some(who.uid)
}

struct Client<'a> {
    read: BufReader<&'a UnixStream>,
    looks: Looks,
    /// When the process began to serve.
    started: u64,
    /// When it last asked for something, and for a summary.
    asked: u64,
    summarized: Option<u64>,
}

impl Client<'_> {
    fn live(&mut self) -> io::Result<()> {
        while let Some(line) = self.line()? {
            self.asked = clock::now();
            let answer = match parse(&line) {
                Ok(Ask::Summary { show }) => self.summary(show),
                Ok(Ask::Thread { id }) => thread(id),
                Ok(Ask::Deadlocks) => deadlocks(),
                Ok(Ask::Dump) => {
                    let dump = Snapshot::take(Depth::Stacks);
                    let (head, dump) = (r#"{"version":"#, Json(&dump));
                    let answer = format_args!(r#"{head}{VERSION},"answer":"dump","dump":{dump}}}"#);
                    send(self.read.get_ref(), &answer)?;
                    continue;
                }
                Err(reason) => versioned("error", reason),
            };
            send(self.read.get_ref(), &answer)?;
        }
        Ok(())
    }

    /// The next request; `None`: there will be none.
    fn line(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        loop {
            let now = clock::now();
            if now >= self.asked + SILENCE {
                return Ok(None);
            }
            let looks = self.summarized.is_some_and(|at| now < at + LOOKS_FOR);
            let pause = match looks {
                true => Duration::from_micros(fastrand::u64(15_000..25_000)),
                false => Duration::from_secs(1),
            };
            self.read.get_ref().set_read_timeout(Some(pause))?;
            let left = LONGEST + 1 - line.len();
            let mut some = self.read.by_ref().take(left as u64);
            match some.read_until(b'\n', &mut line) {
                Ok(_) if line.ends_with(b"\n") => return Ok(Some(line)),
                Ok(_) if line.len() > LONGEST => {
                    let reason = format!("a request has {LONGEST} bytes at most");
                    send(self.read.get_ref(), &versioned("error", reason))?;
                    return Ok(None);
                }
                Ok(_) => return Ok(None),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if looks {
                        self.looks.look(&Backend::all());
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn summary(&mut self, show: usize) -> Object {
        let runtimes = Backend::all();
        // The first summary has no looks yet.
        while self.looks.count < FEWEST_LOOKS {
            self.looks.look(&runtimes);
            kernel_thread::rest(QUICK_PACE);
        }
        self.summarized = Some(self.asked);
        let started = clock::now();
        let mut counts = Counts::default();
        let longest = counts.count(show);
        // These are the answers about each runtime's processors, and the threads that the processors run.
        let at_processors = |runtime| self.looks.at_processors(runtime);
        let processors: Vec<Vec<_>> = runtimes.iter().map(at_processors).collect();
        let busiest = self.looks.take(show);
        let busy = busiest.iter().map(|(_, thread)| thread);
        let running = processors.iter().flatten();
        let running = running.filter_map(|(_, thread)| thread.as_ref());
        let mut shown = busy.chain(&longest).chain(running).copied();
        let mut snapshot = Snapshot::of(&mut shown, Depth::Waits);
        snapshot.add_holders();
        let snapshot = &snapshot;
        let entry = |thread: &AnyThread| {
            let mut all = snapshot.threads.iter();
            all.find(|entry| entry.thread.record() == thread.record())
        };
        let mut longest_now = Vec::new();
        let waits = |entry: &&Entry| entry.state != State::Running;
        for entry in longest.iter().filter_map(entry).filter(waits) {
            insert(&mut longest_now, entry.since.into(), entry, show);
        }
        let took = clock::now() - started;
        let of_each = runtimes.iter().zip(processors);
        let of_each = of_each.map(|(runtime, processors)| {
            let processors = processors.into_iter().map(|(told, thread)| {
                let thread = thread.as_ref().and_then(entry);
                let name = thread.and_then(|entry| entry.name.as_deref());
                let cpu = thread.and_then(|entry| entry.cpu);
                told.maybe("thread", thread.map(|entry| entry.id))
                    .maybe("cpu_us", cpu.map(|cpu| cpu / 1_000))
                    .maybe("name", name.map(Quoted))
            });
            of_runtime(runtime).with("processors", list(processors))
        });
        let busiest = busiest.iter().filter_map(|(share, thread)| {
            Some(of_thread(snapshot, entry(thread)?).with("busy", share))
        });
        let longest = longest_now.iter();
        let longest = longest.map(|(_, entry)| of_thread(snapshot, entry));
        let waits = counts.waits.iter();
        let waits = waits.map(|&(count, what)| counted("what", what, count));
        let names = ["green", "kernel"].into_iter().chain(STATES);
        let add = |told: Object, (name, count)| told.with(name, count);
        let threads = names.zip(counts.numbers).fold(Object::default(), add);
        let threads = threads.with("waits", list(waits));
        let program = std::env::current_exe().unwrap_or_default();
        let program = program.file_name().unwrap_or_default().to_string_lossy();
        versioned("answer", "summary")
            .with("process", std::process::id())
            .with("program", Quoted(&program))
            .with("uptime_ms", (clock::now() - self.started) / 1_000_000)
            .with("took_us", took / 1000)
            .with("runtimes", list(of_each))
            .with("threads", threads)
            .with("busiest", list(busiest))
            .with("longest", list(longest))
    }
}

/// How many threads do what.
#[derive(Default)]
struct Counts {
    /// Green threads and kernel threads; then those in each state, as `STATES` names them.
    numbers: [u64; 2 + STATES.len()],
    /// What the parked ones wait for.
    waits: Vec<(u64, &'static str)>,
}

impl Counts {
    /// Counts all threads. Returns the `most` that have waited longest.
    fn count(&mut self, most: usize) -> Vec<AnyThread> {
        let mut longest = Vec::new();
        let mut questions = QUESTIONS;
        let mut all = all();
        let mut some: Vec<AnyThread> = Vec::with_capacity(TOGETHER);
        loop {
            some.extend(all.by_ref().take(TOGETHER));
            if some.is_empty() {
                break;
            }
            // Each thread's stack is far from the next one's: they are fetched while others are looked at.
            some.iter().for_each(|thread| thread.prefetch());
            for seen in some.drain(..).filter_map(|thread| thread.look()) {
                let waits = self.add(&seen, &mut questions);
                // A thread that began to wait just now may be ahead of the clock that was read.
                let is_ahead = seen.since > u32::MAX - 10_000;
                if waits && !is_ahead {
                    insert(&mut longest, seen.since.into(), seen.thread, most);
                }
            }
        }
        for (count, what) in core::mem::take(&mut self.waits) {
            insert(&mut self.waits, count, what, usize::MAX);
        }
        longest.into_iter().map(|(_, thread)| thread).collect()
    }

    /// Counts a thread. Returns whether the thread waits.
    fn add(&mut self, seen: &ThreadSnapshot, questions: &mut usize) -> bool {
        let is_kernel = matches!(seen.thread, AnyThread::Kernel(_));
        self.numbers[usize::from(is_kernel)] += 1;
        let is_in_call = match seen.doing {
            Doing::Running(id) if *questions > 0 => {
                *questions -= 1;
                is_in_call(id)
            }
            _ => false,
        };
        let state = State::of(seen.doing, is_in_call);
        self.numbers[2 + state as usize] += 1;
        if let (State::Parked, Some(waiting)) = (state, &seen.waiting) {
            let what = waiting.reason.kind.name;
            match self.waits.iter_mut().find(|(_, known)| *known == what) {
                Some((count, _)) => *count += 1,
                None => self.waits.push((1, what)),
            }
        }
        state != State::Running
    }
}

fn is_in_call(id: i32) -> bool {
    kernel_thread::call_of(id).is_some()
}

/// The processors of a runtime that are in use; kernel threads have none.
fn processors_of(runtime: &Running) -> impl Iterator<Item = &'static Processor> {
    let cluster = runtime.backend.green().into_iter();
    let all = cluster.flat_map(Cluster::processors);
    all.filter(|processor| !processor.is_retired())
}

/// Looks since the last question.
#[derive(Default)]
struct Looks {
    count: u32,
    /// In how many of them a thread ran: by where its identity lies.
    by_thread: NumberMap<(AnyThread, u32)>,
    /// In how many of them a processor ran a thread: by its address.
    by_processor: NumberMap<u32>,
    /// The CPU time of each kernel thread at the last question, and when that was.
    cpu_times: NumberMap<u64>,
    asked_at: u64,
}

impl Looks {
    /// Looks once.
    fn look(&mut self, runtimes: &[Running]) {
        self.count += 1;
        for processor in runtimes.iter().flat_map(processors_of) {
            // A thread in a blocking call uses no processor, even if its processor was not taken yet.
            if let Activity::Running(green, id) = processor.activity()
                && !is_in_call(id)
            {
                let seen = AnyThread::Green(green);
                let (identity, place) = (seen.identity().addr(), from_ref(processor).addr());
                let ran = self.by_thread.or_insert(identity as u64, (seen, 0));
                *ran = (seen, ran.1 + 1);
                *self.by_processor.or_insert(place as u64, 0) += 1;
            }
        }
    }

    /// What is told of each processor of a runtime now, but for the thread that it runs; and that thread.
    fn at_processors(&self, runtime: &Running) -> Vec<(Object, Option<AnyThread>)> {
        let of = |processor: &'static Processor| {
            let (state, thread) = match processor.activity() {
                Activity::Idle => ("idle", None),
                Activity::Scheduling => ("scheduling", None),
                Activity::Running(green, id) if is_in_call(id) => {
                    ("blocked", Some(AnyThread::Green(green)))
                }
                Activity::Running(green, _) => ("running", Some(AnyThread::Green(green))),
            };
            let ran = self.by_processor.get(from_ref(processor).addr() as u64);
            // The share is in thousandths of the looks.
            let busy = ran.copied().unwrap_or(0) * 1000 / self.count.max(1);
            let queue = processor.cluster().policy.len(Some(processor.index));
            let told = Object::default()
                .with("index", processor.index)
                .with("state", Quoted(state))
                .with("busy", busy)
                .with("queue", queue)
                .with("switches", processor.counts.switches.get());
            (told, thread)
        };
        processors_of(runtime).map(of).collect()
    }

    /// The `most` busiest threads since the last question, the busiest first, and how busy they were, in thousandths of a
    /// processor. The count of looks begins anew.
    fn take(&mut self, most: usize) -> Vec<(u64, AnyThread)> {
        let before = core::mem::take(self);
        let mut shares = Vec::new();
        for (identity, (thread, ran)) in before.by_thread.entries {
            if thread.identity().addr() as u64 == identity {
                let share = ran * 1000 / before.count.max(1);
                insert(&mut shares, share.into(), thread, most);
            }
        }
        self.asked_at = clock::now();
        let passed = self.asked_at.saturating_sub(before.asked_at).max(1);
        for thread in kernel::all().filter(|kernel| !kernel.is_helper()) {
            let cpu = clock::cpu_time(kernel_thread::cpu_clock(thread.thread()));
            let thread = AnyThread::Kernel(thread);
            let known = before.cpu_times.get(thread.record() as u64);
            let used = known.map_or(0, |&known| cpu.saturating_sub(known));
            let share = (used.saturating_mul(1000) / passed).min(1000);
            self.cpu_times.or_insert(thread.record() as u64, cpu);
            if share > 0 {
                insert(&mut shares, share, thread, most);
            }
        }
        shares
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ask {
    Summary { show: usize },
    Thread { id: u64 },
    Dump,
    Deadlocks,
}

/// What is asked for in this line: an object of numbers and strings, of which none that is known has a comma or a colon.
fn parse(line: &[u8]) -> Result<Ask, String> {
    let text = core::str::from_utf8(line).map_err(|_| "the request is not UTF-8")?;
    let inside = text.trim().strip_prefix('{');
    let inside = inside.and_then(|text| text.strip_suffix('}'));
    let inside = inside.ok_or("the request is no JSON object of numbers and strings")?;
    let (mut version, mut ask, mut id, mut show) = (None, "", None, SHOWN);
    let wrong = "not known, or its value is of another type";
    for member in inside.split(',') {
        let (name, value) = member.split_once(':').unwrap_or((member, ""));
        let (name, value) = (name.trim(), value.trim());
        let digits = value.starts_with(|c: char| c.is_ascii_digit());
        let number = value.parse().ok().filter(|_| digits);
        match (name, number) {
            (r#""version""#, Some(number)) => version = Some(number),
            (r#""ask""#, _) => ask = value,
            (r#""id""#, Some(number)) => id = Some(number),
            (r#""show""#, Some(number)) => show = MOST_SHOWN.min(number),
            _ => return Err(format!("member {name}: {wrong}")),
        }
    }
    match version {
        Some(VERSION) => {}
        Some(other) => return Err(format!("version {other}: accepted is {VERSION}")),
        None => return Err(format!("the version is missing: accepted is {VERSION}")),
    }
    let (show, known) = (show as usize, "summary, thread, dump or deadlocks");
    match (ask, id) {
        (r#""summary""#, _) => Ok(Ask::Summary { show }),
        (r#""thread""#, Some(id)) => Ok(Ask::Thread { id }),
        (r#""thread""#, None) => Err("the thread's id is missing".into()),
        (r#""dump""#, _) => Ok(Ask::Dump),
        (r#""deadlocks""#, _) => Ok(Ask::Deadlocks),
        _ => Err(format!("ask {ask}: accepted is {known}")),
    }
}

/// The beginning of an answer, or a whole one: `key` is "answer" or "error".
fn versioned(key: &str, text: impl AsRef<str>) -> Object {
    let version = Object::default().with("version", VERSION);
    version.with(key, Quoted(text.as_ref()))
}

/// How often there was something of this name.
fn counted(key: &str, name: &str, count: u64) -> Object {
    Object::default()
        .with(key, Quoted(name))
        .with("count", count)
}

fn of_runtime(runtime: &Running) -> Object {
    let (mode, policy) = match runtime.backend {
        Backend::Green(_) => ("green", Some(runtime.policy)),
        Backend::Kernel(_) => ("kernel", None),
    };
    let mut told = Object::default()
        .with("mode", Quoted(mode))
        .maybe("policy", policy.map(Quoted));
    let metrics = runtime.backend.metrics();
    for &(name, _, value) in FIGURES {
        let name = match name {
            // The answer has the list of processors instead of their number.
            "processors" => continue,
            // The protocol's first version has another name for this figure.
            "global_queue_len" => "global_queue",
            name => name,
        };
        if let Value::Counter(of) | Value::Gauge(of) = value {
            told = told.with(name, of(&metrics));
        }
    }
    let calls = metrics.blocked_calls.iter();
    let calls = calls.map(|call| counted("name", &call.name, call.count));
    told.with("blocked_calls", list(calls))
}

fn of_thread(snapshot: &Snapshot, entry: &Entry) -> Object {
    let wait = snapshot.describe_wait(entry);
    thread_as_json(entry)
        .with("turns", entry.turns)
        .maybe("waits_for", wait.as_deref().map(Quoted))
}

/// One thread, with its backtrace.
fn thread(id: u64) -> Object {
    let is_it = |thread: &AnyThread| {
        // SAFETY: it is seen in a read section (`Snapshot::of`), and so it stays.
        let identity = unsafe { thread.identity().as_ref() };
        let known = identity.and_then(|identity| identity.known_id());
        known.is_some_and(|known| known.get() == id)
    };
    let mut snapshot = Snapshot::of(&mut all().filter(is_it), Depth::Stacks);
    snapshot.add_holders();
    // If the thread has ended, another one may have its record by now.
    let Some(entry) = snapshot.threads.first().filter(|entry| entry.id == id) else {
        return versioned("error", format!("there is no thread {id}"));
    };
    let frames = snapshot.frames_as_json(entry.stack, &mut Symbols::default());
    versioned("answer", "thread").with("thread", of_thread(&snapshot, entry).with("frames", frames))
}

/// Threads that wait for each other.
fn deadlocks() -> Object {
    let snapshot = Snapshot::take(Depth::Waits);
    let thread = |&place: &u32| of_thread(&snapshot, &snapshot.threads[place as usize]);
    let cycles = snapshot.cycles();
    let cycles = cycles.iter().map(|cycle| list(cycle.iter().map(thread)));
    versioned("answer", "deadlocks").with("deadlocks", list(cycles))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// Somebody who may write in the directory puts another file in the socket's place before its mode is set.
    #[test]
    fn no_other_file_gets_the_mode() {
        let directory = std::env::temp_dir().join(format!("gt-place-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let (path, precious) = (directory.join("socket"), directory.join("precious"));
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let bound = UnixListener::bind(&precious).unwrap();
        std::fs::set_permissions(&precious, std::fs::Permissions::from_mode(0o666)).unwrap();
        symlink(&precious, &path).unwrap();
        assert!(made_at(&path).is_err(), "a symlink");
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "").unwrap();
        assert!(made_at(&path).is_err(), "a plain file");
        assert_eq!(mode(&precious), 0o666);
        // It is the open file that gets the rights, not the one that comes to its path.
        let (open, _) = made_at(&precious).unwrap();
        std::fs::rename(&precious, directory.join("moved")).unwrap();
        symlink(&path, &precious).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        give_rights(&open);
        assert_eq!(
            (mode(&directory.join("moved")), mode(&path)),
            (0o600, 0o644)
        );
        drop(bound);
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn requests_are_read() {
        let read = |text: &str| parse(text.as_bytes());
        let summary = Ok(Ask::Summary { show: 20 });
        assert_eq!(read(r#"{"version":1,"ask":"summary"}"#), summary);
        assert_eq!(
            read(" { \"ask\" : \"summary\" , \"version\" : 1 } \r"),
            summary
        );
        let all = read(r#"{"version":1,"ask":"summary","show":100000}"#);
        assert_eq!(all, Ok(Ask::Summary { show: 500 }));
        let thread = read(r#"{"version":1,"ask":"thread","id":7}"#);
        assert_eq!(thread, Ok(Ask::Thread { id: 7 }));
    }

    #[test]
    fn anything_else_is_refused() {
        for bad in [
            "",
            "{",
            "{}",
            "[]",
            "null",
            "{\"",
            "{\"ask\"",
            "{\"ask\":}",
            "{\"ask\":\"",
            "\0\0\0",
            r#"{"version":1}"#,
            r#"{"version":2,"ask":"summary"}"#,
            r#"{"version":-1,"ask":"summary"}"#,
            r#"{"version":99999999999999999999,"ask":"summary"}"#,
            r#"{"version":1,"ask":"thread"}"#,
            r#"{"version":1,"ask":"everything"}"#,
            r#"{"version":1,"ask":"summary",}"#,
            r#"{"version":1,"ask":"summary"}}"#,
            r#"{"version":1,"ask":"summ\"ary"}"#,
            r#"{"version":1,"ask":"summary","size":1}"#,
            r#"{"version":1,"ask":7}"#,
        ] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(parse(b"\xff{}").is_err());
    }
}
