//! Futexes by hand and by name: the calls that the tests of unmodified code make.

#![allow(dead_code)] // every test file uses its own part of this

use super::wait_until;
use std::arch::asm;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// The result, or `errno`.
pub type Answer = Result<usize, i32>;
/// Address, operation, value, time or a second value, second address, third value.
pub type Call = fn([usize; 6]) -> Answer;

pub const PRIVATE: i32 = libc::FUTEX_PRIVATE_FLAG;
pub const WAIT: i32 = libc::FUTEX_WAIT | PRIVATE;
pub const WAKE: i32 = libc::FUTEX_WAKE | PRIVATE;
pub const WAIT_BITSET: i32 = libc::FUTEX_WAIT_BITSET | PRIVATE;
pub const WAKE_BITSET: i32 = libc::FUTEX_WAKE_BITSET | PRIVATE;
pub const REQUEUE: i32 = libc::FUTEX_REQUEUE | PRIVATE;
pub const CMP_REQUEUE: i32 = libc::FUTEX_CMP_REQUEUE | PRIVATE;
pub const WAKE_OP: i32 = libc::FUTEX_WAKE_OP | PRIVATE;
pub const REALTIME: i32 = libc::FUTEX_CLOCK_REALTIME;
pub const ALL: usize = i32::MAX as usize;

/// The kernel's own answer.
pub fn by_hand(arguments: [usize; 6]) -> Answer {
    call_by_hand(libc::SYS_futex, arguments)
}

/// The same, of any call on futexes.
pub fn call_by_hand(number: i64, [a, b, c, d, e, f]: [usize; 6]) -> Answer {
    let result: isize;
    // SAFETY: a futex call reads and writes the words that it is given, which are the test's, or fails.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!("svc 0", in("x8") number, inlateout("x0") a as isize => result,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f, options(nostack));
    }
    // SAFETY: as above.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    usize::try_from(result).map_err(|_| -result as i32)
}

/// As the program does it.
pub fn by_name(arguments: [usize; 6]) -> Answer {
    call_by_name(libc::SYS_futex, arguments)
}

/// The same, of any call on futexes.
pub fn call_by_name(number: i64, [a, b, c, d, e, f]: [usize; 6]) -> Answer {
    // SAFETY: as above.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    let errno = || std::io::Error::last_os_error().raw_os_error().unwrap();
    usize::try_from(result).map_err(|_| errno())
}

pub fn at(word: &AtomicU32) -> usize {
    word.as_ptr() as usize
}

pub fn simple(call: Call, word: &AtomicU32, operation: i32, value: usize) -> Answer {
    call([at(word), operation as usize, value, 0, 0, 0])
}

pub fn wake(call: Call, word: &AtomicU32, most: usize) -> usize {
    simple(call, word, WAKE, most).unwrap()
}

pub fn requeue(call: Call, from: &AtomicU32, to: &AtomicU32, most: usize, moved: usize) -> usize {
    call([at(from), REQUEUE as usize, most, moved, at(to), 0]).unwrap()
}

/// Moves threads until so many have come.
pub fn gather(call: Call, from: &AtomicU32, to: &AtomicU32, count: usize) {
    let mut moved = 0;
    wait_until(|| {
        moved += requeue(call, from, to, 0, ALL);
        moved >= count
    });
    assert_eq!(moved, count);
}

pub fn read(clock: libc::clockid_t) -> Duration {
    let mut now = time(0, 0);
    // SAFETY: a valid place.
    assert_eq!(unsafe { libc::clock_gettime(clock, &mut now) }, 0);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

pub fn time(tv_sec: i64, tv_nsec: i64) -> libc::timespec {
    libc::timespec { tv_sec, tv_nsec }
}

pub fn timespec(duration: Duration) -> libc::timespec {
    time(duration.as_secs() as i64, duration.subsec_nanos().into())
}

/// Starts a thread: a green one, or, if the number is odd, a kernel thread. Returns what joins it.
pub fn spawn(number: usize, body: impl FnOnce() + Send + 'static) -> Box<dyn FnOnce()> {
    match number % 2 {
        0 => {
            let handle = greenthread::spawn(body);
            Box::new(move || handle.join().unwrap())
        }
        _ => {
            let handle = std::thread::spawn(body);
            Box::new(move || handle.join().unwrap())
        }
    }
}
