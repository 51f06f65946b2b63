//! What the system knows of a thread: pthreads, `errno`, signals; and the process, files and sockets, seen from threads.

use super::*;
use std::collections::HashSet;
use std::ffi::CStr;
use std::io::{Read, Seek, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::os::unix::thread::JoinHandleExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex};
use std::thread::{Builder, scope};
use std::time::Instant;

/// Of the calling thread.
fn this() -> libc::pthread_t {
    // SAFETY: a plain call.
    unsafe { libc::pthread_self() }
}

/// The name of a live thread.
fn name_of(thread: libc::pthread_t) -> String {
    let mut name = [0; 16];
    // SAFETY: the thread lives; a place of this size.
    unsafe {
        let result = libc::pthread_getname_np(thread, name.as_mut_ptr(), name.len());
        assert_eq!(result, 0);
        CStr::from_ptr(name.as_ptr()).to_str().unwrap().into()
    }
}

pub fn pthread_self_is_the_handles() {
    for _ in 0..20 {
        let (answer, answered) = channel();
        let (go, gone) = channel::<()>();
        let handle = thread::spawn(move || {
            answer.send(this()).unwrap();
            let _ = gone.recv();
        });
        assert_eq!(answered.recv(), Ok(handle.as_pthread_t()));
        drop(go);
        handle.join().unwrap();
    }
}

pub fn pthread_self_is_each_ones_own() {
    const COUNT: usize = 100;
    let meet = Barrier::new(COUNT);
    let all = Mutex::new(HashSet::from([this()]));
    scope(|threads| {
        for _ in 0..COUNT {
            threads.spawn(|| {
                assert!(all.lock().unwrap().insert(this()));
                meet.wait();
            });
        }
    });
    assert_eq!(all.into_inner().unwrap().len(), COUNT + 1);
}

pub fn pthread_self_stays() {
    scope(|threads| {
        for _ in 0..30 {
            threads.spawn(|| {
                let first = this();
                for _ in 0..100 {
                    thread::yield_now();
                    assert_eq!(this(), first);
                }
            });
        }
    });
}

pub fn pthread_join_of_a_handle() {
    let done = Arc::new(AtomicBool::new(false));
    let does = done.clone();
    let thread = thread::spawn(move || does.store(true, Relaxed)).into_pthread_t();
    // SAFETY: nobody else joins it.
    let joined = unsafe { libc::pthread_join(thread, std::ptr::null_mut()) };
    assert_eq!(joined, 0);
    assert!(done.load(Relaxed));
}

pub fn pthread_detach_of_a_handle() {
    let (answer, answered) = channel();
    let (go, gone) = channel::<()>();
    let handle = thread::spawn(move || {
        let _ = gone.recv();
        answer.send(5).unwrap();
    });
    // SAFETY: nobody joins it.
    assert_eq!(unsafe { libc::pthread_detach(handle.into_pthread_t()) }, 0);
    drop(go);
    assert_eq!(answered.recv(), Ok(5));
}

fn named<T: Send + 'static>(name: &str, body: fn() -> T) -> T {
    let handle = Builder::new().name(name.into()).spawn(body);
    handle.unwrap().join().unwrap()
}

pub fn a_name_is_pthreads() {
    for name in ["a", "worker", "fifteen letters"] {
        assert_eq!(named(name, || name_of(this())), name);
    }
}

pub fn a_name_is_seen_from_outside() {
    let (begun, begins) = channel();
    let (go, gone) = channel::<()>();
    let body = move || {
        begun.send(()).unwrap();
        let _ = gone.recv();
    };
    let handle = Builder::new().name("outside".into()).spawn(body).unwrap();
    begins.recv().unwrap();
    assert_eq!(name_of(handle.as_pthread_t()), "outside");
    drop(go);
    handle.join().unwrap();
}

/// After 15 bytes. std keeps all of it.
pub fn a_long_name_is_cut() {
    let both = || {
        (
            name_of(this()),
            thread::current().name().unwrap().to_string(),
        )
    };
    let (short, long) = named("a name that is much too long", both);
    assert_eq!(short, "a name that is ");
    assert_eq!(long, "a name that is much too long");
}

/// std's name stays.
pub fn a_pthread_can_be_named() {
    let both = || {
        // SAFETY: this thread lives; a valid string.
        let named = unsafe { libc::pthread_setname_np(this(), c"other".as_ptr()) };
        assert_eq!(named, 0);
        thread::yield_now();
        (name_of(this()), thread::current().name() == Some("first"))
    };
    assert_eq!(named("first", both), ("other".to_string(), true));
    assert_eq!(named("second", || name_of(this())), "second");
}

/// Yielding fails never, and does not change it.
pub fn errno_is_each_ones_own() {
    scope(|threads| {
        for number in 1..=50 {
            threads.spawn(move || {
                for _ in 0..50 {
                    // SAFETY: a valid place.
                    unsafe { *libc::__errno_location() = number };
                    thread::yield_now();
                    let error = std::io::Error::last_os_error();
                    assert_eq!(error.raw_os_error(), Some(number));
                }
            });
        }
        // A call that fails in one thread says so there.
        for (path, errno) in [
            ("/nowhere/at/all", libc::ENOENT),
            ("/dev/null/x", libc::ENOTDIR),
        ] {
            threads.spawn(move || {
                for _ in 0..50 {
                    let error = std::fs::File::open(path).unwrap_err();
                    thread::yield_now();
                    assert_eq!(error.raw_os_error(), Some(errno));
                }
            });
        }
    });
}

/// The signals that the calling thread blocks.
fn blocked() -> Vec<i32> {
    // SAFETY: a valid place; an empty set is one of zeros.
    let mut set = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let asked = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), &mut set) };
    assert_eq!(asked, 0);
    let is_blocked = |signal: &i32| {
        // SAFETY: a set that the call above filled.
        unsafe { libc::sigismember(&set, *signal) == 1 }
    };
    (1..=64).filter(is_blocked).collect()
}

pub fn the_signal_mask_is_inherited() {
    let here = blocked();
    let nested = || (blocked(), thread::spawn(blocked).join().unwrap());
    let (there, nested) = thread::spawn(nested).join().unwrap();
    assert_eq!((&there, &nested), (&here, &here));
}

pub fn the_signal_mask_stays() {
    let before = blocked();
    let handles: Vec<_> = (0..10)
        .map(|_| {
            thread::spawn(|| {
                let before = blocked();
                for _ in 0..20 {
                    thread::yield_now();
                    assert_eq!(blocked(), before);
                }
            })
        })
        .collect();
    for handle in handles {
        handle.join().unwrap();
    }
    assert_eq!(blocked(), before);
}

/// The registers for them are a thread's own.
pub fn numbers_stay() {
    fn sum(from: u32, pause: bool) -> (f64, f32) {
        let (mut wide, mut narrow) = (0.0f64, 1.0f32);
        for i in from..from + 500 {
            wide += (black_box(i) as f64).sqrt() / 3.0;
            narrow = (narrow * 1.000_1 + i as f32).sin();
            if pause && i % 10 == 0 {
                thread::yield_now();
            }
        }
        (wide, narrow)
    }
    scope(|threads| {
        for i in 0..30 {
            threads.spawn(move || assert_eq!(sum(i, true), sum(i, false)));
        }
    });
}

/// To the nearest, and small numbers are not zero.
pub fn rounding_is_usual() {
    let body = || {
        let tiny = black_box(f64::MIN_POSITIVE) / 2.0;
        assert!(tiny > 0.0 && tiny * 2.0 == f64::MIN_POSITIVE);
        let (one, half) = (black_box(1.0f64), f64::EPSILON / 2.0);
        assert_eq!(one + half, 1.0);
        assert_eq!(-one - half, -1.0);
        assert_eq!(one + f64::EPSILON + half, 1.0 + 2.0 * f64::EPSILON);
        assert!((black_box(0.0f64) / 0.0).is_nan());
    };
    body();
    thread::spawn(body).join().unwrap();
}

pub fn variables_are_the_same() {
    let here: Vec<_> = std::env::vars_os().collect();
    let there = thread::spawn(|| std::env::vars_os().collect::<Vec<_>>());
    assert_eq!(there.join().unwrap(), here);
    let arguments = thread::spawn(|| std::env::args_os().collect::<Vec<_>>());
    assert!(
        arguments
            .join()
            .unwrap()
            .into_iter()
            .eq(std::env::args_os())
    );
}

pub fn the_directory_is_the_same() {
    let here = std::env::current_dir().unwrap();
    let there = thread::spawn(|| std::env::current_dir().unwrap());
    assert_eq!(there.join().unwrap(), here);
}

pub fn the_process_is_the_same() {
    let there = thread::spawn(|| thread::spawn(std::process::id).join().unwrap());
    assert_eq!(there.join().unwrap(), std::process::id());
}

pub fn printing_from_threads() {
    scope(|threads| {
        for i in 0..10 {
            threads.spawn(move || {
                print!("thread {i}: ");
                println!("says something");
                eprintln!("thread {i}: says something else");
            });
        }
    });
}

/// Who has it may take it again, whoever waits for it meanwhile.
pub fn stdout_locks_again() {
    let holders = AtomicUsize::new(0);
    scope(|threads| {
        for _ in 0..20 {
            threads.spawn(|| {
                let stdout = std::io::stdout().lock();
                assert_eq!(holders.fetch_add(1, Relaxed), 0);
                thread::yield_now();
                let again = std::io::stdout().lock();
                thread::yield_now();
                drop(again);
                assert_eq!(holders.fetch_sub(1, Relaxed), 1);
                drop(stdout);
            });
        }
    });
}

pub fn a_child_process_is_waited_for() {
    scope(|threads| {
        for code in 3..6 {
            threads.spawn(move || {
                let script = format!("echo {code}; exit {code}");
                let out = Command::new("sh").args(["-c", &script]).output().unwrap();
                assert_eq!(out.status.code(), Some(code));
                assert_eq!(out.stdout, format!("{code}\n").as_bytes());
            });
        }
    });
}

pub fn a_pipe_waits() {
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    let handle = thread::spawn(move || {
        let mut read = Vec::new();
        reader.read_to_end(&mut read).map(|_| read)
    });
    // More than a pipe holds.
    let block: Vec<u8> = (0..200_000u32).map(|i| i as u8).collect();
    writer.write_all(&block).unwrap();
    drop(writer);
    assert!(handle.join().unwrap().unwrap() == block);
}

pub fn a_socket_waits() {
    let (mut here, mut there) = UnixStream::pair().unwrap();
    let handle = thread::spawn(move || {
        let mut byte = [0];
        for _ in 0..100 {
            there.read_exact(&mut byte).unwrap();
            byte[0] += 1;
            there.write_all(&byte).unwrap();
        }
    });
    let mut byte = [0];
    for i in 0..100 {
        here.write_all(&[i]).unwrap();
        here.read_exact(&mut byte).unwrap();
        assert_eq!(byte, [i + 1]);
    }
    handle.join().unwrap();
}

pub fn a_stream_waits() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    scope(|threads| {
        threads.spawn(|| {
            for _ in 0..10 {
                let (mut stream, _) = listener.accept().unwrap();
                threads.spawn(move || {
                    let mut text = String::new();
                    stream.read_to_string(&mut text).unwrap();
                    stream.write_all(text.to_uppercase().as_bytes()).unwrap();
                });
            }
        });
        for i in 0..10 {
            threads.spawn(move || {
                let mut stream = TcpStream::connect(address).unwrap();
                write!(stream, "client {i}").unwrap();
                stream.shutdown(std::net::Shutdown::Write).unwrap();
                let mut text = String::new();
                stream.read_to_string(&mut text).unwrap();
                assert_eq!(text, format!("CLIENT {i}"));
            });
        }
    });
}

/// Nothing that was written with one call is torn: the file is opened to append.
pub fn a_file_from_many_threads() {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Relaxed);
    let name = format!("greenthread-adopt-{}-{number}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let mut options = std::fs::OpenOptions::new();
    options.read(true).append(true).create(true);
    let mut file = options.open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    scope(|threads| {
        for i in 0..20 {
            let mut file = &file;
            threads.spawn(move || {
                for turn in 0..20 {
                    file.write_all(format!("{i} {turn}\n").as_bytes()).unwrap();
                }
            });
        }
    });
    let mut text = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut text).unwrap();
    let mut next = [0; 20];
    for line in text.lines() {
        let (i, turn) = line.split_once(' ').unwrap();
        let i: usize = i.parse().unwrap();
        assert_eq!(turn.parse(), Ok(next[i]));
        next[i] += 1;
    }
    assert_eq!(next, [20; 20]);
}

pub fn instants_go_on() {
    let mut last = Instant::now();
    for _ in 0..200 {
        let next = thread::spawn(Instant::now).join().unwrap();
        assert!(next >= last);
        last = next;
    }
}
