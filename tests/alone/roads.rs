//! The four roads: each event, several times over, in a program that is compiled to count what runs
//! (`.ci/house --roads`). Between [`begin`] and [`end`] lies one event and nothing else, so the files with a count
//! are those that a reader opens to follow it; a file that is there by chance, such as the monitor's, is not there
//! every time. Compiled as usual, these tests see to it that the events happen.

#![cfg(all(target_os = "linux", target_arch = "x86_64", feature = "net"))]

use self::counters::{begin, end};
use crate::common::alone;
use greenthread::net::{TcpListener, TcpStream};
use greenthread::runtime::{Mode, Runtime};
use greenthread::{channel, thread};
use std::ffi::c_int;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

/// The first ones make what later ones find made.
const WARM_UP: usize = 10;
const TIMES: usize = 20;

/// The counters of the program, by what the compiler adds to it (compiler-rt's InstrProfiling.h).
#[cfg(counts)]
mod counters {
    use std::sync::OnceLock;

    unsafe extern "C" {
        safe fn __llvm_profile_reset_counters();
        safe fn __llvm_profile_get_size_for_buffer() -> u64;
        fn __llvm_profile_write_buffer(buffer: *mut u8) -> i32;
    }

    /// Where those of the last event are. `begin` makes it.
    static COPY: OnceLock<(usize, usize)> = OnceLock::new();

    pub fn begin() {
        COPY.get_or_init(|| {
            let size = __llvm_profile_get_size_for_buffer() as usize;
            let copy = Box::leak(vec![0_u8; size].into_boxed_slice());
            (copy.as_mut_ptr().expose_provenance(), size)
        });
        __llvm_profile_reset_counters();
    }

    pub fn end() {
        let (copy, _) = COPY.get().expect("an event has begun");
        // SAFETY: it has the size that was asked for; the last copy's reader has gone on.
        let status =
            unsafe { __llvm_profile_write_buffer(std::ptr::with_exposed_provenance_mut(*copy)) };
        assert_eq!(status, 0);
    }

    /// Call it after `end`: on the same thread, or on one that has had an answer from it.
    pub fn bytes() -> Option<&'static [u8]> {
        let (copy, size) = COPY.get()?;
        // SAFETY: it is never freed, and not written before the next event's end.
        Some(unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(*copy), *size) })
    }
}

#[cfg(not(counts))]
mod counters {
    pub fn begin() {}
    pub fn end() {}
    pub fn bytes() -> Option<&'static [u8]> {
        None
    }
}

/// Writes what the last event has run to `GT_ROADS/<name>-<i>.profraw`.
fn save(name: &str, i: usize) {
    let (Some(bytes), Some(folder)) = (counters::bytes(), std::env::var_os("GT_ROADS")) else {
        return;
    };
    let Some(i) = i.checked_sub(WARM_UP) else {
        return;
    };
    let path = std::path::Path::new(&folder).join(format!("{name}-{i}.profraw"));
    std::fs::write(path, bytes).unwrap();
}

fn kernel() -> bool {
    Runtime::global().mode() == Mode::Kernel
}

/// Waits until no kernel thread of the runtime has anything to do.
fn until_asleep() {
    loop {
        let metrics = Runtime::global().metrics();
        if metrics.parked_kernel_threads == metrics.kernel_threads {
            return;
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_closure() {
    alone!(GREENTHREAD_PROCS = "1");
    let body = || {
        for i in 0..WARM_UP + TIMES {
            begin();
            thread::spawn(|| ()).join().unwrap();
            end();
            save("closure", i);
        }
    };
    thread::spawn(body).join().unwrap();
}

#[test]
fn a_message() {
    alone!(GREENTHREAD_PROCS = "1");
    static RECEIVED: AtomicUsize = AtomicUsize::new(0);
    let (sender, receiver) = channel::unbounded::<usize>();
    let receiver = thread::spawn(move || {
        for i in receiver {
            end();
            RECEIVED.store(i + 1, SeqCst);
        }
    });
    for i in 0..WARM_UP + TIMES {
        if !kernel() {
            until_asleep();
        }
        begin();
        sender.send(i).unwrap();
        while RECEIVED.load(SeqCst) <= i {
            std::hint::spin_loop();
        }
        save("message", i);
    }
    drop(sender);
    receiver.join().unwrap();
}

/// By the kernel itself: a call of libc's would be one of greenthread's.
fn write_byte(descriptor: c_int) {
    let byte = 1_u8;
    let written: isize;
    // SAFETY: write(2) reads one byte that is there.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") libc::SYS_write => written,
            in("rdi") descriptor as usize,
            in("rsi") &raw const byte,
            in("rdx") 1_usize,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack)
        );
    }
    assert_eq!(written, 1);
}

#[test]
fn a_socket_event() {
    alone!(GREENTHREAD_PROCS = "1");
    static READ: AtomicUsize = AtomicUsize::new(0);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    let reader = thread::spawn(move || {
        for i in 0..WARM_UP + TIMES {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            end();
            READ.store(i + 1, SeqCst);
        }
    });
    for i in 0..WARM_UP + TIMES {
        if !kernel() {
            until_asleep();
        }
        begin();
        write_byte(peer.as_raw_fd());
        while READ.load(SeqCst) <= i {
            std::hint::spin_loop();
        }
        save("socket", i);
    }
    reader.join().unwrap();
}

/// A thread computes until another one has run, on one processor.
#[test]
fn a_preemption() {
    alone!(GREENTHREAD_PROCS = "1");
    static COMPUTES: AtomicBool = AtomicBool::new(false);
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    let other = thread::spawn(|| {
        while !IS_OVER.load(SeqCst) {
            if COMPUTES.load(SeqCst) {
                end();
                COMPUTES.store(false, SeqCst);
            }
            thread::yield_now();
        }
    });
    let computes = thread::spawn(|| {
        for i in 0..WARM_UP + TIMES {
            // The other one has begun, and is in the queue.
            thread::yield_now();
            begin();
            COMPUTES.store(true, SeqCst);
            while COMPUTES.load(SeqCst) {
                std::hint::spin_loop();
            }
            save("preemption", i);
        }
        IS_OVER.store(true, SeqCst);
    });
    computes.join().unwrap();
    other.join().unwrap();
}
