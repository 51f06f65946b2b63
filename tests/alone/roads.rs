//! The four roads: each event, several times over, in a program that is compiled to count what runs
//! (`.ci/house --roads`). Between [`begin`] and [`end`] lies one event and nothing else, so the files with a count
//! are those that a reader opens to follow it; a file that is there by chance, such as the monitor's, is not there
//! every time. Compiled as usual, these tests see to it that the events happen.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use crate::common::alone;
use greenthread::net::{TcpListener, TcpStream};
use greenthread::runtime::{Mode, Runtime};
use greenthread::{channel, thread};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

/// The first ones make what later ones find made.
const WARM_UP: usize = 10;
const TIMES: usize = 20;

/// The counters of the program, by what the compiler adds to it.
struct Counters {
    reset: extern "C" fn(),
    copy: extern "C" fn(*mut c_char) -> c_int,
    /// Where the counters of the last event are.
    buffer: *mut u8,
    size: usize,
}

// SAFETY: the buffer is written by `end`, and read by `save` after it, on the same thread or on one that has had an
// answer from it.
unsafe impl Sync for Counters {}
// SAFETY: as above.
unsafe impl Send for Counters {}

fn counters() -> Option<&'static Counters> {
    static COUNTERS: OnceLock<Option<Counters>> = OnceLock::new();
    let find = |name: &CStr| {
        // SAFETY: a string that ends.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        (!found.is_null()).then_some(found)
    };
    let all = || {
        // SAFETY: these are their types (compiler-rt's InstrProfiling.h).
        unsafe {
            let size = find(c"__llvm_profile_get_size_for_buffer")?;
            let size: extern "C" fn() -> u64 = std::mem::transmute::<*mut c_void, _>(size);
            let reset = find(c"__llvm_profile_reset_counters")?;
            let copy = find(c"__llvm_profile_write_buffer")?;
            let size = size() as usize;
            Some(Counters {
                reset: std::mem::transmute::<*mut c_void, extern "C" fn()>(reset),
                copy: std::mem::transmute::<*mut c_void, extern "C" fn(*mut c_char) -> c_int>(copy),
                buffer: Box::leak(vec![0_u8; size].into_boxed_slice()).as_mut_ptr(),
                size,
            })
        }
    };
    COUNTERS.get_or_init(all).as_ref()
}

fn begin() {
    if let Some(counters) = counters() {
        (counters.reset)();
    }
}

fn end() {
    if let Some(counters) = counters() {
        assert_eq!((counters.copy)(counters.buffer.cast()), 0);
    }
}

/// Writes what the last event has run to `GT_ROADS/<name>-<i>.profraw`.
fn save(name: &str, i: usize) {
    let (Some(counters), Some(folder)) = (counters(), std::env::var_os("GT_ROADS")) else {
        return;
    };
    let Some(i) = i.checked_sub(WARM_UP) else {
        return;
    };
    // SAFETY: so long it is, and `end` is over.
    let bytes = unsafe { std::slice::from_raw_parts(counters.buffer, counters.size) };
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
            COMPUTES.store(true, SeqCst);
            begin();
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
