//! Child processes.
//!
//! The idea: the shell does what it is told, and its status and outputs are compared with what it was
//! told. While a thread waits for a child, others are counted.

use crate::common::*;
use greenthread as thread;
use greenthread::os::unix::process::CommandExt;
use greenthread::process::{Child, Command, Stdio};
use greenthread::runtime::{Builder, Mode, Runtime};
use std::ffi::OsStr;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

#[test]
fn status_and_output() {
    let _w = watchdog("process::status_and_output");
    both(|| {
        assert_eq!(shell("exit 7").status().unwrap().code(), Some(7));
        let status = shell("kill -TERM $$").status().unwrap();
        assert_eq!(status.signal(), Some(libc::SIGTERM));
        let mut command = shell("cat; echo out; echo err >&2; exit 2");
        for _ in 0..2 {
            let output = command.output().unwrap(); // `cat` has no input
            assert_eq!(output.status.code(), Some(2));
            assert_eq!(
                (&output.stdout[..], &output.stderr[..]),
                (&b"out\n"[..], &b"err\n"[..])
            );
        }
        let output = command.stderr(Stdio::null()).output().unwrap();
        assert_eq!(
            (&output.stdout[..], &output.stderr[..]),
            (&b"out\n"[..], &b""[..])
        );
        let error = Command::new("no-such-program").spawn().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    });
}

#[test]
fn what_a_command_says() {
    let _w = watchdog("process::what_a_command_says");
    both(|| {
        let mut command = shell("echo $0 $A $B $C; pwd; ps -o pgid= $$ > /dev/null; echo $1");
        command
            .args(["name", "one"])
            .env("A", "a")
            .envs([("B", "b"), ("C", "c")]);
        command.env_remove("C").current_dir("/").process_group(0);
        assert_eq!(command.get_program(), "sh");
        assert_eq!(command.get_args().count(), 4);
        assert_eq!(
            command
                .get_envs()
                .filter(|(_, value)| value.is_none())
                .count(),
            1
        );
        assert_eq!(
            command.get_current_dir().unwrap().as_os_str(),
            OsStr::new("/")
        );
        assert!(format!("{command:?}").contains("name"));
        let output = command.output().unwrap();
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "name a b\n/\none\n"
        );
        // What runs between fork and exec runs in the child.
        let mut command = shell("ulimit -n");
        let limit = libc::rlimit {
            rlim_cur: 77,
            rlim_max: 77,
        };
        // SAFETY: a system call.
        unsafe {
            command.pre_exec(move || match libc::setrlimit(libc::RLIMIT_NOFILE, &limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            })
        };
        assert_eq!(command.output().unwrap().stdout, b"77\n");
        // SAFETY: nothing but an error.
        unsafe { command.pre_exec(|| Err(ErrorKind::PermissionDenied.into())) };
        assert!(command.spawn().is_err());
    });
}

#[test]
fn pipes_of_megabytes() {
    let _w = watchdog("process::pipes_of_megabytes");
    both(|| {
        let data: Vec<u8> = (0..4 << 20)
            .map(|i: usize| (i * 13 + i / 511) as u8)
            .collect();
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut input, sent) = (child.stdin.take().unwrap(), data.clone());
        let sender = greenthread::spawn(move || input.write_all(&sent).unwrap());
        let mut received = vec![];
        child
            .stdout
            .take()
            .unwrap()
            .read_to_end(&mut received)
            .unwrap();
        sender.join().unwrap();
        assert!(received == data);
        assert!(child.wait().unwrap().success());
        // Both outputs, more than pipes hold, in turns.
        let script = "i=0; while [ $i -lt 64 ]; do head -c 20000 /dev/zero >&2; \
                      head -c 10000 /dev/zero; i=$((i+1)); done; exit 1";
        let output = shell(script).output().unwrap();
        assert_eq!(
            (output.stdout.len(), output.stderr.len()),
            (640_000, 1_280_000)
        );
        assert_eq!(output.status.code(), Some(1));
        // From one child to the next.
        let mut first = shell("seq 100000").stdout(Stdio::piped()).spawn().unwrap();
        let between = first.stdout.take().unwrap();
        let output = Command::new("wc")
            .arg("-l")
            .stdin(between)
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "100000");
        assert!(first.wait().unwrap().success());
    });
}

#[test]
fn waiting_and_killing() {
    let _w = watchdog("process::waiting_and_killing");
    both(|| {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        assert!(child.id() != 0 && child.try_wait().unwrap().is_none());
        assert!(child.wait().unwrap().success(), "its input is closed");
        assert!(child.wait().unwrap().success(), "and again");
        assert_eq!(child.try_wait().unwrap().unwrap().code(), Some(0));
        child.kill().unwrap(); // it is over: nothing happens

        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let id = child.id() as i32;
        let killer = greenthread::spawn(move || {
            greenthread::sleep(std::time::Duration::from_millis(2));
            // SAFETY: the child is not waited for before it has ended.
            unsafe { libc::kill(id, libc::SIGINT) };
        });
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGINT));
        killer.join().unwrap();
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
        // std's and ours.
        let std = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut child = greenthread::process::Child::from(std);
        let mut input = std::process::ChildStdin::from(child.stdin.take().unwrap());
        input.write_all(b"x").unwrap();
        drop(input);
        let output = OwnedFd::from(child.stdout.take().unwrap());
        assert_eq!(std::fs::File::from(output).read(&mut [0; 9]).unwrap(), 1);
        assert!(child.wait().unwrap().success());
    });
}

#[test]
fn others_go_on_while_one_waits() {
    let _w = watchdog("process::others_go_on_while_one_waits");
    let runtime = Builder::new().processors(1).build().unwrap();
    let (stop, turns) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let input = child.stdin.take().unwrap();
    let waiter = runtime.spawn(move || child.wait().unwrap());
    let others: Vec<_> = (0..100)
        .map(|_| {
            let (stop, turns) = (stop.clone(), turns.clone());
            runtime.spawn(move || {
                while !stop.load(Relaxed) {
                    turns.fetch_add(1, Relaxed);
                    greenthread::yield_now();
                }
            })
        })
        .collect();
    wait_until(|| turns.load(Relaxed) > 100_000);
    assert!(!waiter.is_finished());
    drop(input);
    assert!(waiter.join().unwrap().success());
    stop.store(true, Relaxed);
    others.into_iter().for_each(|other| other.join().unwrap());
    runtime.shutdown();
}

#[test]
fn two_hundred_at_once() {
    let _w = watchdog("process::two_hundred_at_once");
    both(|| {
        let children: Vec<_> = (0..200)
            .map(|i| {
                greenthread::spawn(move || {
                    let mut child = shell("read line; exit $line")
                        .stdin(Stdio::piped())
                        .spawn()
                        .unwrap();
                    let mut input = child.stdin.take().unwrap();
                    let waiter = greenthread::spawn(move || child.wait().unwrap().code());
                    writeln!(input, "{}", i % 100).unwrap();
                    drop(input);
                    assert_eq!(waiter.join().unwrap(), Some(i % 100));
                })
            })
            .collect();
        children.into_iter().for_each(|child| child.join().unwrap());
    });
}

/// A process that is killed when the kernel thread that has made it ends.
fn child_of_kernel_thread() -> Child {
    let mut command = Command::new("sleep");
    // SAFETY: the call is async-signal-safe.
    unsafe {
        command.arg("600").pre_exec(
            || match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            },
        );
    }
    command.spawn().unwrap()
}

fn lives(child: &mut Child) -> bool {
    child.try_wait().unwrap().is_none()
}

fn end(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Many kernel threads, of which some have children, have nothing to do any more: those that have none, or none that
/// live, end.
#[test]
fn children_outlive_idle_times() {
    let _w = watchdog("process::children_outlive_idle_times");
    const THREADS: usize = 40;
    const PARENTS: usize = 20;
    const BEREFT: usize = 15; // of these
    const KEPT: usize = 12; // what a runtime keeps without need, and a few
    let runtime = Runtime::builder().processors(2).build().unwrap();
    let together = Arc::new(std::sync::Barrier::new(THREADS));
    let (stop, stopped) = greenthread::channel::unbounded::<()>();
    let threads = (0..THREADS).map(|i| {
        let (together, stopped) = (together.clone(), stopped.clone());
        runtime.spawn(move || {
            let child = thread::unhooked(|| {
                together.wait();
                (i < PARENTS).then(child_of_kernel_thread)
            });
            let child = match child {
                Some(child) if i < BEREFT => {
                    end(child);
                    None
                }
                child => child,
            };
            let _ = stopped.recv(); // alive, and idle
            child.is_none_or(|mut child| {
                let lives = lives(&mut child);
                end(child);
                lives
            })
        })
    });
    let threads: Vec<_> = threads.collect();
    let kernel_threads = || runtime.metrics().kernel_threads;
    let is_green = runtime.mode() == Mode::Green;
    wait_until(|| !is_green || kernel_threads() >= THREADS);
    wait_until(|| !is_green || kernel_threads() <= PARENTS - BEREFT + KEPT);
    // Those with children have been idle for nearly as long.
    thread::sleep(std::time::Duration::from_secs(1));
    drop(stop);
    let live: Vec<bool> = threads.into_iter().map(|t| t.join().unwrap()).collect();
    assert!(live.iter().all(|&lives| lives), "a child was killed");
    runtime.shutdown();
}

/// A kernel thread that ends with the thread that is locked to it has made a child for another thread, which lives.
#[test]
fn children_outlive_a_thread_that_ends_locked() {
    let _w = watchdog("process::children_outlive_a_thread_that_ends_locked");
    let runtime = Runtime::builder().processors(1).build().unwrap();
    let (stop, stopped) = greenthread::channel::unbounded::<()>();
    let (made, children) = greenthread::channel::unbounded();
    let parent = runtime.spawn(move || {
        let lock = thread::lock_kernel_thread();
        made.send((gettid(), child_of_kernel_thread())).unwrap();
        drop(lock);
        let _ = stopped.recv();
    });
    let (kernel_thread, mut child) = children.recv().unwrap();
    let ends_locked = move || {
        let is_there = gettid() == kernel_thread;
        if is_there {
            std::mem::forget(thread::lock_kernel_thread());
        }
        is_there
    };
    let is_green = runtime.mode() == Mode::Green;
    wait_until(|| runtime.spawn(ends_locked).join().unwrap() || !is_green);
    for i in 0..100 {
        let other = runtime.spawn(move || {
            if i % 2 == 0 {
                thread::yield_now();
            }
            gettid()
        });
        let other = other.join().unwrap();
        assert_ne!(other, kernel_thread);
        thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(lives(&mut child), "another thread's end has killed it");
    drop(stop);
    parent.join().unwrap();
    // The kernel thread that stays for the child does not outlive the runtime.
    runtime.shutdown();
    end(child);
}

#[test]
fn children_hear_of_the_end_of_a_locked_thread() {
    let _w = watchdog("process::children_hear_of_the_end_of_a_locked_thread");
    both(|| {
        let parent = thread::spawn(|| {
            std::mem::forget(thread::lock_kernel_thread());
            child_of_kernel_thread()
        });
        let mut child = parent.join().unwrap();
        wait_until(|| !lives(&mut child));
    });
}
