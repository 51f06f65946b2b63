//! A bit of everything that a program does, on a runtime of its own: for tests of what the system may refuse.
//!
//! Threads that compute are at work from the beginning to the end. A round makes every other thing beside them, and
//! counts.

#![allow(dead_code)] // every test file uses its own part of this

use crate::common::{green, wait_until};
use greenthread::runtime::{Mode, Runtime};
use greenthread::{JoinHandle, channel, fs, net, observe, process, sync};
use std::cell::Cell;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::time::{Duration, Instant};

/// What a round is to have, beside what every round has.
#[derive(Clone, Default)]
pub struct Extent {
    /// Files, in that directory.
    pub files: Option<PathBuf>,
    pub sockets: bool,
    pub processes: bool,
    /// Names of functions: in the end, since they take long beside threads that compute.
    pub names: bool,
}

impl Extent {
    pub fn all(files: &Path) -> Extent {
        Extent {
            files: Some(files.into()),
            sockets: true,
            processes: true,
            names: true,
        }
    }
}

pub struct Mixture {
    runtime: Runtime,
    extent: Extent,
    stop: Arc<AtomicBool>,
    hogs: Vec<JoinHandle<u64>>,
    waits: JoinHandle<u32>,
    wakes: channel::Sender<u32>,
}

/// How a mixture has run.
#[derive(Debug)]
pub struct Shown {
    pub mode: Mode,
    pub preemptions: u64,
    pub hand_offs: u64,
}

const PROCESSORS: usize = 2;

/// How many threads compute: more than there are processors, if those are to be shared by the runtime.
fn hogs(runtime: &Runtime) -> usize {
    match runtime.mode() {
        Mode::Green => 2 * PROCESSORS,
        _ => 1,
    }
}

/// A child of a process that has kernel threads, whatever the reason, is asked to have kernel threads.
pub fn ask_for_the_same_mode(command: &mut Command) {
    if !green() {
        command.env("GREENTHREAD_MODE", "kernel");
    }
}

/// In the child.
pub fn asked_for_kernel_threads() -> bool {
    std::env::var("GREENTHREAD_MODE").is_ok_and(|mode| mode == "kernel")
}

impl Mixture {
    /// Returns once the threads that compute share the processors.
    pub fn begin(extent: Extent) -> Mixture {
        let runtime = Runtime::builder()
            .processors(PROCESSORS)
            .time_slice(Duration::from_millis(1));
        let runtime = runtime.build().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let begun = Arc::new(AtomicUsize::new(0));
        let hog = |_| {
            let (stop, begun) = (stop.clone(), begun.clone());
            runtime.spawn(move || {
                begun.fetch_add(1, Relaxed);
                let mut turns = 0;
                while !stop.load(Relaxed) {
                    turns += 1;
                }
                turns
            })
        };
        let hogs: Vec<_> = (0..hogs(&runtime)).map(hog).collect();
        let (wakes, woken) = channel::unbounded();
        let waits = runtime.spawn(move || woken.iter().sum());
        std::iter::repeat_with(|| std::thread::sleep(Duration::from_micros(200)))
            .find(|()| begun.load(Relaxed) == hogs.len());
        Mixture {
            runtime,
            extent,
            stop,
            hogs,
            waits,
            wakes,
        }
    }

    pub fn is_green(&self) -> bool {
        self.runtime.mode() == Mode::Green
    }

    pub fn preemptions(&self) -> u64 {
        self.runtime.metrics().preemptions
    }

    /// Everything once more, and again until a hog has been preempted since `before`, where threads are: a round may be over
    /// before one is. Returns how many rounds that were.
    pub fn until_preempted(&self, before: u64) -> u32 {
        let rounds = (1..).inspect(|_| self.round());
        let mut ended = rounds.filter(|_| !self.is_green() || self.preemptions() > before);
        ended.next().unwrap()
    }

    /// Everything once.
    pub fn round(&self) {
        self.messages();
        self.locks();
        self.sleeps();
        self.thread_locals();
        self.blocks_in_the_kernel();
        self.is_seen(|_| true);
        if self.extent.sockets {
            self.sockets();
            self.foreign_streams();
        }
        if let Some(directory) = &self.extent.files {
            self.files(directory);
        }
        if self.extent.processes {
            self.processes();
        }
        self.wakes.send(1).unwrap();
    }

    /// Ends all threads, after so many rounds.
    pub fn end(mut self, rounds: u32) -> Shown {
        self.stop.store(true, Relaxed);
        assert!(self.hogs.drain(..).all(|hog| hog.join().unwrap() > 0));
        if self.extent.names {
            self.is_seen(|seen| !seen.is_green() || !seen.backtrace().is_empty());
        }
        drop(self.wakes);
        assert_eq!(self.waits.join().unwrap(), rounds);
        let metrics = self.runtime.metrics();
        let shown = Shown {
            mode: self.runtime.mode(),
            preemptions: metrics.preemptions,
            hand_offs: metrics.hand_offs,
        };
        self.runtime.shutdown();
        shown
    }

    /// As many threads as `bodies`, all of which end well.
    fn all<F: FnOnce() + Send + 'static>(&self, bodies: impl Iterator<Item = F>) {
        let threads: Vec<_> = bodies.map(|body| self.runtime.spawn(body)).collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
    }

    /// A token goes around.
    fn messages(&self) {
        const THREADS: usize = 8;
        const TURNS: usize = 10;
        let (mut senders, mut receivers): (Vec<_>, Vec<_>) =
            (0..THREADS).map(|_| channel::bounded(1)).unzip();
        senders[0].send(0).unwrap();
        senders.rotate_left(1);
        let (tell, last) = channel::bounded(1);
        self.all((0..THREADS).map(|_| {
            let (to, from) = (senders.pop().unwrap(), receivers.pop().unwrap());
            let tell = tell.clone();
            move || {
                for token in from.iter().take(TURNS) {
                    match token + 1 {
                        all if all == THREADS * TURNS => tell.send(all).unwrap(),
                        next => to.send(next).unwrap(),
                    }
                }
            }
        }));
        assert_eq!(last.recv(), Ok(THREADS * TURNS));
    }

    /// Sums under a lock of ours, and one of std's.
    fn locks(&self) {
        const TURNS: usize = 50;
        let ours = Arc::new((sync::Mutex::new(0), sync::Condvar::new()));
        let theirs = Arc::new(std::sync::Mutex::new(0));
        self.all((0..8).map(|i| {
            let (ours, theirs) = (ours.clone(), theirs.clone());
            move || {
                for _ in 0..TURNS {
                    *theirs.lock().unwrap() += 1;
                }
                // Each in its turn.
                let mut sum = ours.1.wait_while(ours.0.lock().unwrap(), |sum| *sum != i);
                *sum.as_deref_mut().unwrap() += 1;
                ours.1.notify_all();
            }
        }));
        assert_eq!(*theirs.lock().unwrap(), 8 * TURNS);
        assert_eq!(*ours.0.lock().unwrap(), 8);
    }

    fn sleeps(&self) {
        const LONG: Duration = Duration::from_millis(3);
        self.all((0..8).map(|i| {
            move || {
                let begun = Instant::now();
                match i % 3 {
                    0 => greenthread::sleep(LONG),
                    1 => std::thread::sleep(LONG),
                    _ => drop(channel::after(LONG).recv()),
                }
                assert!(begun.elapsed() >= LONG);
            }
        }));
    }

    fn thread_locals(&self) {
        thread_local!(static OWN: Cell<usize> = const { Cell::new(0) });
        self.all((1..9).map(|i| {
            move || {
                for _ in 0..5 {
                    OWN.set(OWN.get() + i);
                    greenthread::yield_now();
                }
                assert_eq!(OWN.get(), 5 * i);
            }
        }));
    }

    /// More threads than processors block where nobody parks them; the others go on.
    fn blocks_in_the_kernel(&self) {
        const THREADS: usize = 2 * PROCESSORS;
        let before = self.runtime.metrics().hand_offs;
        let reads = Arc::new(AtomicUsize::new(0));
        let (readers, writers): (Vec<_>, Vec<_>) =
            (0..THREADS).map(|_| std::io::pipe().unwrap()).unzip();
        let threads: Vec<_> = readers
            .into_iter()
            .map(|reader| {
                let reads = reads.clone();
                self.runtime.spawn(move || {
                    reads.fetch_add(1, Relaxed);
                    let mut byte = 0u8;
                    let number = libc::SYS_read;
                    // SAFETY: one byte, and a descriptor that is open.
                    let read = unsafe { libc::syscall(number, reader.as_raw_fd(), &mut byte, 1) };
                    assert_eq!((read, byte), (1, 7));
                })
            })
            .collect();
        wait_until(|| reads.load(Relaxed) == THREADS);
        if self.is_green() {
            wait_until(|| self.runtime.metrics().hand_offs > before);
        }
        let write = move || {
            for mut writer in writers {
                writer.write_all(&[7]).unwrap();
            }
        };
        self.runtime.spawn(write).join().unwrap();
        threads.into_iter().for_each(|t| t.join().unwrap());
    }

    /// A dump has the threads that are there, and of one what is wished.
    fn is_seen(&self, has: impl Fn(&observe::ThreadReport) -> bool) {
        let dump = observe::dump();
        let id = self.waits.thread().id();
        let mut threads = dump.threads();
        assert!(threads.any(|thread| thread.id() == Some(id) && has(&thread)));
    }

    /// Questions to an echo, and time-outs.
    fn sockets(&self) {
        const CLIENTS: usize = 2;
        const QUESTIONS: u32 = 5;
        let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let serve = move || {
            for stream in listener.incoming().take(CLIENTS) {
                let mut stream = stream.unwrap();
                let mut word = [0; 4];
                while stream.read_exact(&mut word).is_ok() {
                    stream.write_all(&word).unwrap();
                }
            }
        };
        let server = self.runtime.spawn(serve);
        let ask = move || {
            let mut stream = net::TcpStream::connect(address).unwrap();
            for question in 0..QUESTIONS {
                let mut answer = [0; 4];
                stream.write_all(&question.to_le_bytes()).unwrap();
                stream.read_exact(&mut answer).unwrap();
                assert_eq!(u32::from_le_bytes(answer), question);
            }
            let limit = Some(Duration::from_millis(2));
            stream.set_read_timeout(limit).unwrap();
            let late = crate::common::timed(|| stream.read(&mut [0]));
            assert_eq!(late, std::io::ErrorKind::WouldBlock);
        };
        self.all((0..CLIENTS).map(|_| ask));
        server.join().unwrap();
    }

    /// Sockets and pipes of code that knows nothing of green threads.
    fn foreign_streams(&self) {
        let (mut near, mut far) = UnixStream::pair().unwrap();
        let (mut reader, writer) = std::io::pipe().unwrap();
        let mut writer = Some(writer);
        let echo = move || {
            let mut word = [0; 4];
            while far.read_exact(&mut word).is_ok() {
                far.write_all(&word).unwrap();
            }
        };
        let ask = move || {
            let mut word = [0; 4];
            for question in 0..5u32 {
                near.write_all(&question.to_le_bytes()).unwrap();
                near.read_exact(&mut word).unwrap();
                assert_eq!(u32::from_le_bytes(word), question);
            }
            writer.take().unwrap().write_all(b"end").unwrap();
        };
        let mut said = String::new();
        let threads = [self.runtime.spawn(echo), self.runtime.spawn(ask)];
        let reads = self.runtime.spawn(move || {
            reader.read_to_string(&mut said).unwrap();
            said
        });
        assert_eq!(reads.join().unwrap(), "end");
        threads.into_iter().for_each(|t| t.join().unwrap());
    }

    /// Files are written, synced, copied and read back.
    fn files(&self, directory: &Path) {
        self.all((0..2).map(|i| {
            let (path, copy) = (
                directory.join(format!("{i}")),
                directory.join(format!("{i}-copy")),
            );
            move || {
                let bytes = vec![i as u8; 10_000];
                let mut file = fs::File::create(&path).unwrap();
                file.write_all(&bytes).unwrap();
                file.sync_all().unwrap();
                drop(file);
                assert_eq!(fs::metadata(&path).unwrap().len(), 10_000);
                assert_eq!(fs::copy(&path, &copy).unwrap(), 10_000);
                assert_eq!(fs::read(&copy).unwrap(), bytes);
                fs::remove_file(&path).unwrap();
                fs::remove_file(&copy).unwrap();
            }
        }));
    }

    fn processes(&self) {
        self.all((0..2).map(|i| {
            move || {
                let mut child = process::Command::new("/bin/sh");
                let child = child.args(["-c", &format!("exit {i}")]).status();
                assert_eq!(child.unwrap().code(), Some(i));
            }
        }));
    }
}
