//! The drivers and their place in the scheduler: what a caller relies on that no single call shows.
//!
//! The idea: each test has a socket on which something has come, and makes the runtime look
//! elsewhere meanwhile.

#![cfg(all(green, feature = "net"))]

use crate::common::*;
use greenthread as thread;
use greenthread::fs::File;
use greenthread::net::{TcpListener, TcpStream};
use greenthread::runtime::{Driver, Runtime};
use std::io::{Read, Seek, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

const DRIVERS: [Driver; 2] = [Driver::Epoll, Driver::IoUring];

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.set_nodelay(true).unwrap();
    let (server, _) = listener.accept().unwrap();
    server.set_nodelay(true).unwrap();
    (client, server)
}

fn runtime(processors: usize, driver: Driver) -> Runtime {
    let builder = Runtime::builder().processors(processors).driver(driver);
    builder.build().unwrap()
}

/// However short its time, a call that could do what it is asked does it: nobody may have had the
/// time to tell that it can.
#[test]
fn what_is_there_is_read_in_no_time() {
    let _w = watchdog("io_driver::what_is_there_is_read_in_no_time");
    for driver in DRIVERS {
        let body = || {
            let (mut one, mut other) = pair();
            one.set_read_timeout(Some(Duration::from_nanos(1))).unwrap();
            let mut buffer = [0; 8];
            for _ in 0..200 {
                timed(|| one.read(&mut buffer));
                other.write_all(&[1]).unwrap();
                // Delivered before `write` returned.
                assert_eq!(one.read(&mut buffer).unwrap(), 1);
            }
        };
        runtime(2, driver).spawn(body).join().unwrap();
    }
}

/// Two threads read a stream that has a few bytes and ends: one finds the bytes, the other the end.
#[test]
fn the_end_is_behind_the_bytes() {
    let _w = watchdog("io_driver::the_end_is_behind_the_bytes");
    for driver in DRIVERS {
        let body = || {
            for _ in 0..500 {
                let (client, server) = pair();
                let server = Arc::new(server);
                let readers = [0, 1].map(|_| {
                    let server = server.clone();
                    thread::spawn(move || {
                        let mut bytes = [0; 64];
                        (&*server).read(&mut bytes).unwrap()
                    })
                });
                (&client).write_all(&[0; 10]).unwrap();
                drop(client);
                let read = readers.map(|reader| reader.join().unwrap());
                assert_eq!(read[0] + read[1], 10);
            }
        };
        runtime(2, driver).spawn(body).join().unwrap();
    }
}

/// Every processor is blocked, again and again, for less than the time after which one that nobody
/// misses is taken away. A request that comes meanwhile is answered meanwhile.
#[test]
fn blocked_processors_do_not_keep_events_waiting() {
    const ROUNDS: usize = 40;
    let _w = watchdog("io_driver::blocked_processors_do_not_keep_events_waiting");
    for processors in [1, 2] {
        let runtime = runtime(processors, Driver::Epoll);
        let (mut client, mut server) = pair();
        // How many have blocked, and been blocked, so far.
        let begun = Arc::new(AtomicUsize::new(0));
        let ended = Arc::new(AtomicUsize::new(0));
        let counts = (begun.clone(), ended.clone());
        let server = runtime.spawn(move || {
            let (order, orders) = greenthread::channel::unbounded();
            for _ in 0..processors {
                let (orders, (begun, ended)) = (orders.clone(), counts.clone());
                thread::spawn(move || {
                    for () in &orders {
                        greenthread::blocking(|| {
                            begun.fetch_add(1, SeqCst);
                            std::thread::sleep(Duration::from_millis(9));
                            ended.fetch_add(1, SeqCst);
                        });
                    }
                });
            }
            let mut byte = [0];
            while server.read(&mut byte).unwrap() != 0 {
                if byte[0] == 0 {
                    (0..processors).for_each(|_| order.send(()).unwrap());
                } else {
                    server.write_all(&byte).unwrap();
                }
            }
        });
        let mut before = 0;
        let mut answers_meanwhile = || {
            client.write_all(&[0]).unwrap();
            wait_until(|| begun.load(SeqCst) > before);
            client.write_all(&[1]).unwrap();
            client.read_exact(&mut [0]).unwrap();
            let meanwhile = ended.load(SeqCst) == before;
            before += processors;
            wait_until(|| ended.load(SeqCst) == before);
            meanwhile
        };
        // One undisturbed run is proof that most are.
        let most_are = (0..10).any(|_| {
            let meanwhile = (0..ROUNDS).filter(|_| answers_meanwhile()).count();
            println!("{processors} processors: {meanwhile} of {ROUNDS} answered meanwhile");
            meanwhile >= ROUNDS / 2
        });
        assert!(most_are);
        drop(client);
        server.join().unwrap();
    }
}

/// A thread that computes runs where the events were watched. Another processor, which sleeps, is
/// soon told to watch.
#[test]
fn a_sleeping_processor_takes_over_the_watch() {
    const BURST: Duration = Duration::from_millis(9);
    const ROUNDS: u32 = 40;
    let _w = watchdog("io_driver::a_sleeping_processor_takes_over_the_watch");
    let share = || {
        let runtime = runtime(2, Driver::Epoll);
        let (mut client, mut server) = pair();
        let server = runtime.spawn(move || {
            let (order, orders) = greenthread::channel::unbounded();
            thread::spawn(move || {
                for () in &orders {
                    let start = Instant::now();
                    while start.elapsed() < BURST {}
                }
            });
            let mut byte = [0];
            while server.read(&mut byte).unwrap() != 0 {
                server.write_all(&byte).unwrap();
                if byte[0] == 0 {
                    order.send(()).unwrap();
                }
            }
        });
        let mut times: Vec<_> = (0..ROUNDS)
            .map(|_| {
                client.write_all(&[0]).unwrap();
                client.read_exact(&mut [0]).unwrap();
                std::thread::sleep(Duration::from_micros(500));
                let start = Instant::now();
                client.write_all(&[1]).unwrap();
                client.read_exact(&mut [0]).unwrap();
                let time = start.elapsed();
                std::thread::sleep(BURST + Duration::from_millis(2));
                time
            })
            .collect();
        drop(client);
        server.join().unwrap();
        times.sort();
        println!("the median answer took {:?}", times[times.len() / 2]);
        times[times.len() / 2].as_secs_f64() / BURST.as_secs_f64()
    };
    // A third or more if the monitor keeps its longest tick; others may be at work on the worker.
    assert!((0..5).any(|_| share() < 0.2));
}

/// A forked child reads a file at whose position another thread of the parent's was writing: it
/// does not wait for that thread, which it does not have.
#[test]
fn a_forked_child_has_its_turn_at_a_file() {
    let _w = watchdog("io_driver::a_forked_child_has_its_turn_at_a_file");
    let path = std::env::temp_dir().join(format!("greenthread-turn-{}", std::process::id()));
    let file = Arc::new(File::create_new(&path).unwrap());
    let data = vec![0; 16 << 20];
    let stop = Arc::new(AtomicBool::new(false));
    let writer = thread::spawn({
        let (file, stop) = (file.clone(), stop.clone());
        move || {
            while !stop.load(SeqCst) {
                (&*file).write_all(&data).unwrap();
                (&*file).rewind().unwrap();
            }
        }
    });
    let forks = thread::spawn({
        let file = file.clone();
        move || {
            wait_until(|| file.metadata().unwrap().len() > 0);
            for _ in 0..5 {
                // SAFETY: the child only uses what must work after a fork, and leaves by `_exit`.
                let pid = unsafe { libc::fork() };
                assert!(pid >= 0);
                if pid == 0 {
                    // SAFETY: plain calls.
                    unsafe {
                        libc::alarm(20);
                        libc::_exit((&*file).write(&[1]).map_or(1, |_| 0))
                    }
                }
                let mut status = 0;
                // SAFETY: `status` outlives the call.
                let waited =
                    greenthread::blocking(|| unsafe { libc::waitpid(pid, &mut status, 0) });
                assert_eq!(waited, pid);
                assert_eq!(ExitStatus::from_raw(status).code(), Some(0), "{status}");
            }
        }
    });
    let forked = forks.join();
    stop.store(true, SeqCst);
    writer.join().unwrap();
    std::fs::remove_file(&path).unwrap();
    forked.unwrap();
}

/// Each of two runtimes collects the other's events, and has nothing to run then.
#[test]
fn two_runtimes_collect_for_each_other() {
    const ROUNDS: usize = 2000;
    let _w = watchdog("io_driver::two_runtimes_collect_for_each_other");
    let runtimes = [(); 2].map(|()| runtime(2, Driver::Epoll));
    let threads = runtimes.each_ref().map(|runtime| {
        let (mut one, mut other) = pair();
        let echo =
            runtime.spawn(move || std::io::copy(&mut other.try_clone().unwrap(), &mut other));
        let asks = runtime.spawn(move || {
            for _ in 0..ROUNDS {
                one.write_all(&[1]).unwrap();
                one.read_exact(&mut [0]).unwrap();
            }
        });
        (echo, asks)
    });
    for (echo, asks) in threads {
        asks.join().unwrap();
        assert_eq!(echo.join().unwrap().unwrap(), ROUNDS as u64);
    }
}

/// A processor looks for events while they come quickly, but not on a CPU that another kernel thread waits for: where
/// server and client share one CPU, a request takes about as much CPU time as if no processor looked for a while.
#[test]
#[cfg(target_os = "linux")]
fn who_looks_for_events_is_in_nobodys_way() {
    const NAME: &str = "io_driver::who_looks_for_events_is_in_nobodys_way";
    const BATCHES: usize = 8;
    if child_case(NAME).is_none() {
        return assert_code(&child(NAME, ""), 0);
    }
    share_one_cpu();
    let servers = [true, false].map(|spinning| {
        let builder = Runtime::builder().processors(1).driver(Driver::Epoll);
        let runtime = builder.spinning(spinning).build().unwrap();
        let (client, server) = pair();
        let echo = runtime.spawn(move || std::io::copy(&mut &server, &mut &server));
        (client, echo)
    });
    wake_without_preempting();
    let mut least = [Duration::MAX; 2];
    for batch in 0..BATCHES * 2 {
        let least = &mut least[batch % 2];
        *least = cpu_time_of_requests(&servers[batch % 2].0).min(*least);
    }
    let [spinning, otherwise] = least;
    println!("a request: {spinning:?} of CPU time, {otherwise:?} without looking for a while");
    for (client, echo) in servers {
        drop(client);
        echo.join().unwrap().unwrap();
    }
    assert!(spinning < otherwise * 3 / 2);
}

/// Binds this kernel thread, and those that it starts, to the CPU that it is on.
#[cfg(target_os = "linux")]
fn share_one_cpu() {
    // SAFETY: a zeroed set is empty; the kernel reads it.
    unsafe {
        let mut cpus: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu() as usize, &mut cpus);
        let result = libc::sched_setaffinity(0, size_of_val(&cpus), &cpus);
        assert_eq!(result, 0);
    }
}

/// From now on this kernel thread, when it is woken, waits until the one that runs gives the CPU up: as it happens to any
/// thread, again and again, on a busy machine.
#[cfg(target_os = "linux")]
fn wake_without_preempting() {
    let priority = libc::sched_param { sched_priority: 0 };
    // SAFETY: the kernel reads the parameter.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &priority) };
    assert_eq!(result, 0);
}

/// The CPU time that this process needs for a request, the client's included.
#[cfg(target_os = "linux")]
fn cpu_time_of_requests(mut client: &TcpStream) -> Duration {
    const REQUESTS: u32 = 500;
    let before = cpu_time();
    for _ in 0..REQUESTS {
        client.write_all(&[1]).unwrap();
        client.read_exact(&mut [0]).unwrap();
    }
    (cpu_time() - before) / REQUESTS
}

/// CPU time that this process has used.
#[cfg(target_os = "linux")]
fn cpu_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes one timespec, which is there.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    assert_eq!(result, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
