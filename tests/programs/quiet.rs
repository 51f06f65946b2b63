//! Situations that are not deadlocks: every thread waits, and yet something can wake one. Nothing may be said.
//!
//! The idea: each row of the table is a program of its own, which rests for longer than the runtime takes to look for a
//! deadlock, twice over, and then goes on. All rows run at the same time, in both modes, beside rows that *are*
//! deadlocks: those must be reported in the same time, so the runtime did look.

use super::outside::*;
use super::programs::{Named, Running, start};
use greenthread::channel::{self, Sender, select};
use greenthread::coroutine::Coroutine;
use greenthread::runtime::{Mode, Runtime};
use greenthread::signal::{Signals, ctrl_c};
use greenthread::sync::{Arc, Condvar, Mutex, Semaphore};
use greenthread::thread::{self, JoinHandle};
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::{Duration, Instant};

/// How long each situation lasts: the runtime looks half a second after it has become quiet.
pub const REST: Duration = Duration::from_millis(1500);

/// A thread that waits for a message.
fn waiter() -> (Sender<u8>, JoinHandle<()>) {
    let (to, from) = channel::bounded::<u8>(0);
    (
        to,
        thread::spawn(move || assert_eq!(from.recv().unwrap(), 1)),
    )
}

/// `helper` runs beside a thread that waits for a message, with the right to send it; the main thread waits for the
/// thread's end.
fn helped_by(helper: impl FnOnce(Sender<u8>)) {
    let (to, waits) = waiter();
    helper(to);
    waits.join().unwrap();
}

fn by_kernel_thread(help: impl FnOnce() + Send + 'static) {
    helped_by(|to| {
        std::thread::spawn(move || {
            help();
            to.send(1).unwrap();
        });
    });
}

fn by_green_thread(help: impl FnOnce() + Send + 'static) {
    helped_by(|to| {
        thread::spawn(move || {
            help();
            to.send(1).unwrap();
        });
    });
}

/// A shell that rests as long, and does `what`; its output is a pipe.
fn shell(what: &str) -> std::process::Child {
    let script = format!("sleep 1.5; {what}");
    let mut shell = Command::new("sh");
    shell
        .args(["-c", &script])
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    shell.spawn().unwrap()
}

/// Another process sends this one a signal, later.
fn signal_later(signal: &str) -> std::process::Child {
    shell(&format!("kill -{signal} {}", std::process::id()))
}

macro_rules! rows {
    ($($name:literal: $body:expr,)*) => {
        /// What is not a deadlock.
        const ROWS: &[Named] = &[$(($name, || $body)),*];
    };
}

rows! {
    "the main thread computes, then sends": helped_by(|to| {
        let start = Instant::now();
        while start.elapsed() < REST {
            std::hint::black_box(start);
        }
        to.send(1).unwrap();
    }),
    "the main thread sleeps by std": helped_by(|to| {
        std::thread::sleep(REST);
        to.send(1).unwrap();
    }),
    "a kernel thread sleeps": by_kernel_thread(|| std::thread::sleep(REST)),
    "a kernel thread computes": by_kernel_thread(|| {
        let start = Instant::now();
        while start.elapsed() < REST {}
    }),
    "a kernel thread parks for a while": by_kernel_thread(|| std::thread::park_timeout(REST)),
    "a kernel thread holds a mutex": {
        let lock = Arc::new(Mutex::new(()));
        let (locked, is_held) = (lock.clone(), Arc::new(AtomicBool::new(false)));
        let holds = is_held.clone();
        let holder = std::thread::spawn(move || {
            let _guard = locked.lock().unwrap();
            holds.store(true, Relaxed);
            std::thread::sleep(REST);
        });
        while !is_held.load(Relaxed) {
            std::thread::yield_now();
        }
        thread::spawn(move || drop(lock.lock().unwrap())).join().unwrap();
        holder.join().unwrap();
    },
    "a thread of tokio's has the sender": {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
        let (to, from) = tokio::sync::oneshot::channel();
        runtime.spawn(async {
            tokio::time::sleep(REST).await;
            to.send(1).unwrap();
        });
        thread::spawn(|| greenthread::block_on(from).unwrap()).join().unwrap();
    },
    "a green thread sleeps": by_green_thread(|| thread::sleep(REST)),
    "a green thread sleeps by std": by_green_thread(|| std::thread::sleep(REST)),
    "a green thread computes": by_green_thread(|| {
        let start = Instant::now();
        while start.elapsed() < REST {}
    }),
    "a timer channel": by_green_thread(|| assert!(channel::after(REST).recv().is_ok())),
    "a select with a timer": {
        let (to, from) = channel::bounded::<u8>(0);
        thread::spawn(move || {
            let timer = channel::after(REST);
            select! { recv(from) -> _ => unreachable!(), recv(timer) -> _ => () }
        }).join().unwrap();
        drop(to);
    },
    "a ticker": {
        let ticks = channel::tick(REST);
        thread::spawn(move || assert!(ticks.recv().is_ok())).join().unwrap();
    },
    "a receive with a deadline": {
        let (to, from) = channel::bounded::<u8>(0);
        thread::spawn(move || from.recv_timeout(REST).unwrap_err()).join().unwrap();
        drop(to);
    },
    "a wait for a condition with a deadline": {
        let pair = Arc::new((Mutex::new(()), Condvar::new()));
        thread::spawn(move || {
            let guard = pair.0.lock().unwrap();
            let (_guard, ended) = pair.1.wait_timeout(guard, REST).unwrap();
            assert!(ended.timed_out());
        }).join().unwrap();
    },
    "a join with a deadline": {
        let thread = thread::spawn(thread::park);
        let other = thread.thread().clone();
        let thread = thread.join_timeout(REST).unwrap_err();
        other.unpark();
        thread.join().unwrap();
    },
    "a permit with a deadline": {
        let none = Arc::new(Semaphore::new(0));
        thread::spawn(move || assert!(none.acquire_timeout(REST).is_none())).join().unwrap();
    },
    "a pipe from another process": {
        let mut child = shell("echo x");
        let mut output = child.stdout.take().unwrap();
        thread::spawn(move || assert_eq!(output.read(&mut [0; 8]).unwrap(), 2)).join().unwrap();
        child.wait().unwrap();
    },
    "the end of a child": {
        let mut child = shell("exit 3");
        thread::spawn(move || assert_eq!(child.wait().unwrap().code(), Some(3))).join().unwrap();
    },
    "the end of a child, by our own": {
        let mut sleep = greenthread::process::Command::new("sleep");
        let mut child = sleep.arg("1.5").spawn().unwrap();
        thread::spawn(move || assert!(child.wait().unwrap().success())).join().unwrap();
    },
    "standard input": {
        thread::spawn(|| assert_eq!(std::io::stdin().read(&mut [0; 8]).unwrap(), 0)).join().unwrap();
    },
    "standard input, by our own": {
        thread::spawn(|| assert_eq!(greenthread::io::stdin().read(&mut [0; 8]).unwrap(), 0)).join().unwrap();
    },
    "signals": {
        let signals = Signals::new([libc::SIGUSR1]).unwrap();
        let mut child = signal_later("USR1");
        thread::spawn(move || assert!(signals.into_iter().next().is_some())).join().unwrap();
        child.wait().unwrap();
    },
    "ctrl_c": {
        let interrupted = ctrl_c().unwrap();
        let mut child = signal_later("INT");
        thread::spawn(move || interrupted.recv().unwrap()).join().unwrap();
        child.wait().unwrap();
    },
    "a signal's handler wakes a thread": {
        static WAITS: OnceLock<thread::Thread> = OnceLock::new();
        static CAME: AtomicBool = AtomicBool::new(false);
        extern "C" fn on_signal(_: i32) {
            CAME.store(true, Relaxed);
            WAITS.get().unwrap().unpark();
        }
        let waits = thread::spawn(|| while !CAME.load(Relaxed) { thread::park() });
        WAITS.set(waits.thread().clone()).unwrap();
        // SAFETY: a handler of the right type; unparking may be done in one.
        unsafe { libc::signal(libc::SIGUSR2, on_signal as *const () as libc::sighandler_t) };
        // The child is not waited for: the signal alone ends the wait.
        std::mem::forget(signal_later("USR2"));
        waits.join().unwrap();
    },
    "a timer's descriptor": {
        thread::spawn(|| {
            // SAFETY: plain calls on places that outlive them.
            unsafe {
                let fd = libc::timerfd_create(libc::CLOCK_MONOTONIC, 0);
                let mut time: libc::itimerspec = std::mem::zeroed();
                (time.it_value.tv_sec, time.it_value.tv_nsec) = (1, 500_000_000);
                assert_eq!(libc::timerfd_settime(fd, 0, &time, std::ptr::null_mut()), 0);
                poll(fd);
            }
        }).join().unwrap();
    },
    "a process's end, by its descriptor": {
        let mut child = shell("exit");
        let id = child.id();
        thread::spawn(move || {
            // SAFETY: plain call.
            let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, id, 0) };
            assert!(fd >= 0);
            poll(fd as i32);
        }).join().unwrap();
        child.wait().unwrap();
    },
    "a futex in shared memory": shared_futex(),
    "a file that another process has locked": locked_file(),
    "a mutex of C's, shared with another process": shared_mutex(),
    "a semaphore of C's, shared with another process": shared_semaphore(),
    "a second runtime": {
        let other = Runtime::builder().processors(1).build().unwrap();
        let (to, from) = channel::bounded::<u8>(0);
        other.spawn(move || {
            thread::sleep(REST);
            to.send(1).unwrap();
        });
        thread::spawn(move || from.recv().unwrap()).join().unwrap();
    },
    "a second runtime, of kernel threads": {
        let other = Runtime::builder().mode(Mode::Kernel).build().unwrap();
        let (to, from) = channel::bounded::<u8>(0);
        other.spawn(move || {
            std::thread::sleep(REST);
            to.send(1).unwrap();
        });
        thread::spawn(move || from.recv().unwrap()).join().unwrap();
    },
    "a call of C blocks": by_green_thread(|| {
        let mut child = shell("echo x");
        let mut output = child.stdout.take().unwrap();
        thread::unhooked(|| output.read(&mut [0; 8]).unwrap());
        thread::unhooked(|| child.wait().unwrap());
    }),
    "a coroutine in turn": {
        let mut naps = Coroutine::new(|yielder, ()| {
            thread::sleep(REST / 2);
            yielder.suspend(());
            thread::sleep(REST / 2);
        });
        thread::spawn(move || {
            naps.resume(());
            naps.resume(());
        }).join().unwrap();
    },
    "a suspended coroutine beside a sleeper": {
        let mut once = Coroutine::<(), (), ()>::new(|yielder, ()| yielder.suspend(()));
        once.resume(());
        by_green_thread(|| thread::sleep(REST));
        once.resume(());
    },
    "a runtime's shutdown": {
        let runtime = Runtime::builder().processors(1).build().unwrap();
        runtime.spawn(|| thread::sleep(REST));
        runtime.shutdown();
    },
    "a scope with a sleeper": thread::scope(|scope| {
        scope.spawn(|| thread::sleep(REST));
    }),
    "everything has ended": {
        thread::spawn(|| ()).join().unwrap();
        std::thread::sleep(REST);
    },
    "a message queue of the system's": {
        // SAFETY: plain calls on places that outlive them.
        thread::spawn(|| unsafe {
            let name = std::ffi::CString::new(format!("/greenthread-quiet-{}", std::process::id())).unwrap();
            let none = std::ptr::null::<libc::mq_attr>();
            let queue = libc::mq_open(name.as_ptr(), libc::O_CREAT | libc::O_RDONLY, 0o600, none);
            libc::mq_unlink(name.as_ptr());
            let mut until: libc::timespec = std::mem::zeroed();
            libc::clock_gettime(libc::CLOCK_REALTIME, &mut until);
            until.tv_sec += 2;
            let mut bytes = [0_u8; 8192];
            assert_eq!(libc::mq_timedreceive(queue, bytes.as_mut_ptr().cast(), 8192, std::ptr::null_mut(), &until), -1);
        }).join().unwrap();
    },
}

#[cfg(feature = "net")]
const SOCKETS: &[Named] = &[
    ("a socket to read", sockets::read),
    ("a listener", sockets::accept),
    ("a datagram socket", sockets::datagram),
    ("a Unix socket", sockets::unix),
    ("a listener of std's", sockets::unmodified),
];
#[cfg(not(feature = "net"))]
const SOCKETS: &[Named] = &[];

/// What is a deadlock. These tell that the runtime looks.
const CONTROLS: &[Named] = &[
    ("control: a mutex", || {
        let lock = Arc::new(Mutex::new(()));
        let _guard = lock.lock().unwrap();
        let other = lock.clone();
        thread::spawn(move || drop(other.lock().unwrap()))
            .join()
            .unwrap();
    }),
    ("control: a message", || {
        let (to, waits) = waiter();
        waits.join().unwrap();
        drop(to);
    }),
    ("control: an unpark", || {
        thread::spawn(thread::park).join().unwrap()
    }),
    ("control: a mutex of std's", || {
        let lock = Arc::new(std::sync::Mutex::new(()));
        let _guard = lock.lock().unwrap();
        let other = lock.clone();
        thread::spawn(move || drop(other.lock().unwrap()))
            .join()
            .unwrap();
    }),
];

const ALL: usize = ROWS.len() + SOCKETS.len() + CONTROLS.len();
const TABLE: [Named; ALL] = {
    let mut all = [ROWS[0]; ALL];
    let mut i = 0;
    while i < ALL {
        all[i] = if i < ROWS.len() {
            ROWS[i]
        } else if i < ROWS.len() + SOCKETS.len() {
            SOCKETS[i - ROWS.len()]
        } else {
            CONTROLS[i - ROWS.len() - SOCKETS.len()]
        };
        i += 1;
    }
    all
};

pub const PROGRAMS: &[Named] = &TABLE;
pub const TESTS: &[Named] = &[("quiet", quiet)];

const ENVIRONMENTS: [&[(&str, &str)]; 4] = [
    &[("GREENTHREAD_MODE", "green")],
    &[("GREENTHREAD_MODE", "kernel")],
    &[
        ("GREENTHREAD_MODE", "green"),
        ("GREENTHREAD_DRIVER", "io_uring"),
    ],
    &[
        ("GREENTHREAD_MODE", "green"),
        ("GREENTHREAD_UNMODIFIED", "off"),
    ],
];

/// The whole table.
fn quiet() {
    assert!(ROWS.len() + SOCKETS.len() >= 20);
    let mut all: Vec<(&str, usize, Running)> = Vec::new();
    for (i, env) in ENVIRONMENTS.iter().enumerate() {
        // Only sockets and pipes go another way.
        let rows = if i == 2 { SOCKETS } else { PROGRAMS };
        all.extend(rows.iter().map(|row| (row.0, i, start(row.0, env, false))));
    }
    let begun = Instant::now();
    for (name, i, program) in &mut all {
        let env = ENVIRONMENTS[*i];
        if name.starts_with("control") {
            // A lock of std's is the kernel's in these.
            if !(name.contains("std") && env != ENVIRONMENTS[0]) {
                program.until_said("report", |text| text.contains("greenthread: deadlock: "));
            }
            continue;
        }
        if name.starts_with("standard input") {
            std::thread::sleep(REST.saturating_sub(begun.elapsed()));
            program.close_input();
        }
        program.ends_well();
        assert_eq!(program.said(), "", "{name}, {env:?}");
    }
    println!("{} programs", all.len());
}
