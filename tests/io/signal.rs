//! Signals through channels.
//!
//! The idea: a signal that is sent and received in turn is counted exactly; one that is sent many
//! times before it is received waits once. A test that counts has signals of its own.

#![cfg(green)]

use crate::common::*;
use greenthread::channel::{TryRecvError, bounded, select};
use greenthread::signal::{
    SIGHUP, SIGINT, SIGTERM, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2, SIGWINCH, Signals, ctrl_c,
};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::sync::atomic::{AtomicUsize, Ordering::*};

fn kill(signal: i32) {
    // SAFETY: a system call.
    assert_eq!(unsafe { libc::kill(libc::getpid(), signal) }, 0);
}

#[test]
fn every_signal_is_counted() {
    let _w = watchdog("signal::every_signal_is_counted");
    both(|| {
        let signals = Signals::new([SIGUSR1, SIGUSR2]).unwrap();
        assert_eq!(signals.try_recv(), Err(TryRecvError::Empty));
        for i in 0..500 {
            let signal = [SIGUSR1, SIGUSR2][i % 2];
            kill(signal);
            assert_eq!(signals.recv(), Ok(signal));
        }
        assert_eq!(signals.try_recv(), Err(TryRecvError::Empty));
    });
}

#[test]
fn one_that_waits_is_not_counted_again() {
    let _w = watchdog("signal::one_that_waits_is_not_counted_again");
    both(|| {
        let signals = Signals::new([SIGTTIN, SIGTTOU]).unwrap();
        for i in 0..500 {
            kill([SIGTTIN, SIGTTOU][i % 2]);
        }
        wait_until(|| signals.len() == 2);
        let mut both = [signals.recv().unwrap(), signals.recv().unwrap()];
        both.sort();
        assert_eq!(both, [SIGTTIN, SIGTTOU]);
    });
}

#[test]
fn all_who_watch_get_it_and_select_takes_it() {
    let _w = watchdog("signal::all_who_watch_get_it_and_select_takes_it");
    both(|| {
        let (ends, end) = bounded::<()>(0);
        let (got, results) = bounded(0);
        let watchers: Vec<_> = (0..10)
            .map(|_| {
                let signals = Signals::new([&SIGHUP, &SIGWINCH]).unwrap();
                let (end, got) = (end.clone(), got.clone());
                greenthread::spawn(move || {
                    let mut count = 0;
                    loop {
                        select! {
                            recv(signals) -> signal => {
                                assert_eq!(signal, Ok(SIGHUP));
                                count += 1;
                                got.send(()).unwrap();
                            }
                            recv(end) -> _ => return count,
                        }
                    }
                })
            })
            .collect();
        for _ in 0..50 {
            kill(SIGHUP);
            (0..10).for_each(|_| results.recv().unwrap());
        }
        drop(ends);
        for watcher in watchers {
            assert_eq!(watcher.join().unwrap(), 50);
        }
    });
}

#[test]
fn what_cannot_be_watched_is_refused() {
    green(); // starts the runtime, which then has a signal to preempt with
    both(|| {
        let preempting = (libc::SIGRTMIN()..=64).find(|s| Signals::new([*s]).is_err());
        assert_eq!(preempting.is_some(), green());
        let forbidden = [0, -1, 65, i32::MAX, 9, 19, 11, 7, 4, 8, 32, 33];
        for signal in forbidden.into_iter().chain(preempting) {
            let error = Signals::new([SIGWINCH, signal]).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
            let message = error.to_string();
            assert!(
                message.contains(&format!("signal {signal},")),
                "names the value: {message}"
            );
            assert!(
                message.contains("accepted"),
                "and what is accepted: {message}"
            );
        }
        assert!(Signals::new([0i32; 0]).is_err());
    });
}

#[test]
fn ctrl_c_never_ends_the_program_again() {
    let _w = watchdog("signal::ctrl_c_never_ends_the_program_again");
    both(|| {
        for _ in 0..100 {
            let (stop, other) = (ctrl_c().unwrap(), Signals::new([SIGINT, SIGTERM]).unwrap());
            kill(SIGINT);
            assert_eq!(stop.recv(), Ok(()));
            assert_eq!(other.recv(), Ok(SIGINT));
            drop(stop);
            kill(SIGINT);
            assert_eq!(other.recv(), Ok(SIGINT));
            drop(other);
            kill(SIGINT);
        }
    });
}

static FORMER: AtomicUsize = AtomicUsize::new(0);

extern "C" fn former(_: i32) {
    FORMER.fetch_add(1, SeqCst);
}

#[test]
fn a_former_handler_goes_on() {
    let _w = watchdog("signal::a_former_handler_goes_on");
    const SIGNAL: i32 = libc::SIGURG;
    // SAFETY: the handler only counts.
    unsafe { libc::signal(SIGNAL, former as *const () as usize) };
    for _ in 0..10 {
        let signals = Signals::new([SIGNAL]).unwrap();
        let before = FORMER.load(SeqCst);
        kill(SIGNAL);
        assert_eq!(signals.recv(), Ok(SIGNAL));
        wait_until(|| FORMER.load(SeqCst) > before);
        drop(signals);
        let before = FORMER.load(SeqCst);
        kill(SIGNAL);
        wait_until(|| FORMER.load(SeqCst) > before);
    }
}

#[test]
fn a_signal_that_all_threads_block_is_seen() {
    const NAME: &str = "signal::a_signal_that_all_threads_block_is_seen";
    let _w = watchdog(NAME);
    if child_case(NAME).is_some() {
        let signals = Signals::new([SIGUSR1]).unwrap();
        kill(SIGUSR1);
        return assert_eq!(signals.recv(), Ok(SIGUSR1));
    }
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", NAME]).env("GT_CHILD", NAME);
    // SAFETY: blocks a signal, which is inherited by all threads of the new program.
    unsafe {
        command.pre_exec(|| {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, SIGUSR1);
            libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            Ok(())
        })
    };
    let status = command.status().unwrap();
    assert!(status.success(), "{status} {:?}", status.signal());
}

#[test]
fn watching_does_not_keep_a_runtime() {
    let _w = watchdog("signal::watching_does_not_keep_a_runtime");
    let runtime = greenthread::runtime::Runtime::new().unwrap();
    let signals = runtime
        .spawn(|| Signals::new([SIGWINCH]).unwrap())
        .join()
        .unwrap();
    runtime.shutdown();
    kill(SIGWINCH);
    assert_eq!(signals.into_iter().next(), Some(SIGWINCH));
}
