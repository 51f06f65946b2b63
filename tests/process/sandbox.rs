//! A program that forbids itself io_uring by a seccomp filter, after the runtime has begun to use it, or
//! before: what was under way is completed, what comes later is done by plain calls.

#![cfg(all(feature = "net", feature = "observe"))]

use crate::common::*;
use crate::filter::{Filter, fails};
use greenthread as thread;
use greenthread::net::{TcpListener, TcpStream};
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::time::Duration;

/// From now on io_uring's three calls fail with `errno`, in every thread. False: that cannot be had.
fn forbid_rings(errno: i32) -> bool {
    const RINGS: [libc::c_long; 3] = [
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
    ];
    Filter::new().refuse_all(&RINGS, errno).impose()
        && fails(libc::SYS_io_uring_enter, [-1, 0, 0], errno)
}

/// One round of what a ring would do: a file that is written, synced at times, and read back. (Beside others a disk
/// takes up to a second to sync.)
fn use_a_file(directory: &std::path::Path, who: usize, round: usize) {
    let path = directory.join(format!("{who}"));
    let bytes = vec![(who + round) as u8; 10_000 + round];
    let mut file = thread::fs::File::create(&path).unwrap();
    file.write_all(&bytes).unwrap();
    if round.is_multiple_of(4) {
        file.sync_all().unwrap();
    }
    drop(file);
    assert_eq!(
        thread::fs::metadata(&path).unwrap().len(),
        bytes.len() as u64
    );
    assert_eq!(thread::fs::read(&path).unwrap(), bytes);
}

fn echo(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept() {
        thread::spawn(move || {
            let mut buffer = [0; 1024];
            while let Ok(n @ 1..) = stream.read(&mut buffer) {
                stream.write_all(&buffer[..n]).unwrap();
            }
        });
    }
}

/// Two write files, the others ask the echo. (On a worker with much to do each step of an answer waits its turn.)
const WORKERS: usize = 6;

/// One question to the echo, and its answer.
fn ask(stream: &mut TcpStream, number: u64) {
    stream.write_all(&number.to_le_bytes()).unwrap();
    let mut answer = [0; 8];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(u64::from_le_bytes(answer), number);
}

#[test]
fn who_forbids_rings_gets_plain_calls() {
    const NAME: &str = "sandbox::who_forbids_rings_gets_plain_calls";
    let _w = watchdog(NAME);
    let Some(case) = child_case(NAME) else {
        let cases = [
            ("", "after EPERM"),
            ("io_uring", "after ENOSYS"),
            ("io_uring", "after EPERM"),
            ("epoll", "after EACCES"),
            ("", "before EACCES"),
            ("io_uring", "before ENOSYS"),
        ];
        for (driver, case) in cases {
            let env = [("GREENTHREAD_DRIVER", driver)];
            let out = match driver {
                "" => child(NAME, case),
                _ => child_with(NAME, case, &env),
            };
            assert_code(&out, 0);
            eprintln!("{driver}: {}", line_with(&out, &[case]));
        }
        return;
    };
    let (when, errno) = case.split_once(' ').unwrap();
    let errno = match errno {
        "EPERM" => libc::EPERM,
        "ENOSYS" => libc::ENOSYS,
        _ => libc::EACCES,
    };
    let forbid = || forbid_rings(errno);
    if when == "before" && !forbid() {
        return eprintln!("{case}: skipped, no filter can be had");
    }
    let directory = std::env::temp_dir().join(format!("gt-sandbox-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let listener = thread::spawn(|| TcpListener::bind("127.0.0.1:0").unwrap());
    let listener = listener.join().unwrap();
    let address = listener.local_addr().unwrap();
    let _accepts = thread::spawn(move || echo(listener));

    // What waits while the filter comes, and goes on afterwards.
    let waiting: Vec<_> = (0..4)
        .map(|i| {
            let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
            let mut theirs =
                greenthread::os::unix::net::UnixStream::from(std::os::fd::OwnedFd::from(theirs));
            let waits = thread::spawn(move || {
                let mut all = String::new();
                theirs.read_to_string(&mut all).unwrap();
                all
            });
            let goes_on = move || {
                ours.write_all(format!("after {i}").as_bytes()).unwrap();
                drop(ours);
                assert_eq!(waits.join().unwrap(), format!("after {i}"));
            };
            Box::new(goes_on) as Box<dyn FnOnce()>
        })
        .collect();

    // What is at work all the time.
    let stop = Arc::new(AtomicBool::new(false));
    let rounds: Arc<Vec<AtomicUsize>> =
        Arc::new((0..WORKERS).map(|_| AtomicUsize::new(0)).collect());
    let workers: Vec<_> = (0..WORKERS)
        .map(|who| {
            let (stop, rounds, directory) = (stop.clone(), rounds.clone(), directory.clone());
            thread::spawn(move || {
                let mut stream = TcpStream::connect(address).unwrap();
                while !stop.load(Relaxed) {
                    let round = rounds[who].fetch_add(1, Relaxed);
                    match who % 3 {
                        0 => use_a_file(&directory, who, round),
                        _ => ask(&mut stream, (who << 32 | round) as u64),
                    }
                }
            })
        })
        .collect();
    let more = || {
        let before: Vec<usize> = rounds.iter().map(|r| r.load(Relaxed)).collect();
        let all = || {
            rounds
                .iter()
                .zip(&before)
                .all(|(now, b)| now.load(Relaxed) > b + 3)
        };
        wait_until(all);
    };
    more();
    if when == "after" && !forbid() {
        return eprintln!("{case}: skipped, no filter can be had");
    }
    more();
    more();
    waiting.into_iter().for_each(|goes_on| goes_on());
    stop.store(true, Relaxed);
    workers
        .into_iter()
        .for_each(|worker| worker.join().unwrap());

    // A time-out still ends a wait.
    let timed_out = thread::spawn(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_millis(20)))
            .unwrap();
        timed(|| stream.read(&mut [0; 8]))
    });
    assert_eq!(timed_out.join().unwrap(), std::io::ErrorKind::WouldBlock);
    std::fs::remove_dir_all(&directory).unwrap();
    let total: usize = rounds.iter().map(|r| r.load(Relaxed)).sum();
    eprintln!("{case}: {total} rounds");
}
