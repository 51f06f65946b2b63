//! Signals: masks belong to the green thread, handlers stay where they began, and nothing but the
//! program's own signals is ever noticed.
//!
//! The idea: a thread that blocks signals, all of them even, changes nothing for the others, not
//! even their preemption; a handler runs from begin to end on one kernel thread however long it
//! takes; a blocking call is never interrupted on the runtime's behalf.

use crate::common::*;
use greenthread as thread;
use greenthread::runtime::Runtime;
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering::*};
use std::time::Duration;

/// The calling thread's mask, a bit a signal.
fn mask() -> u64 {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: with no new set this only writes the old one, which is then initialised.
    unsafe {
        assert_eq!(
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), set.as_mut_ptr()),
            0
        );
        (1..=64)
            .filter(|s| libc::sigismember(set.as_ptr(), *s) == 1)
            .fold(0, |bits, s| bits | 1 << (s - 1))
    }
}

fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

fn change_mask(how: i32, signals: u64) {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is initialised first; 1..=64 are signal numbers, libc leaves out its own.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in (1..=64).filter(|s| signals & bit(*s) != 0) {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        assert_eq!(libc::pthread_sigmask(how, set.as_ptr(), null_mut()), 0);
    }
}

/// Gives way in one of the ways a thread can.
fn give_way(i: usize) {
    match i % 5 {
        0 => thread::sleep(Duration::from_micros(50)),
        1 => thread::park_timeout(Duration::from_micros(50)),
        2 => thread::blocking(|| std::thread::sleep(Duration::from_micros(50))),
        3 => drop(thread::spawn(|| ()).join()),
        _ => thread::yield_now(),
    }
}

#[test]
fn a_mask_is_its_threads_own() {
    alone!();
    let _w = watchdog("signals::a_mask_is_its_threads_own");
    both(|| {
        let base = thread::spawn(mask).join().unwrap();
        let handles: Vec<_> = (0..16)
            .map(|i| {
                let wanted = [
                    0,
                    bit(libc::SIGUSR1),
                    bit(libc::SIGUSR2),
                    bit(libc::SIGUSR1) | bit(libc::SIGHUP),
                ][i % 4];
                thread::spawn(move || {
                    assert_eq!(mask(), base, "a fresh thread has the base mask");
                    change_mask(libc::SIG_BLOCK, wanted);
                    for n in 0..200 {
                        assert_eq!(mask(), base | wanted);
                        give_way(i + n);
                        assert_eq!(mask(), base | wanted, "after giving way ({})", (i + n) % 5);
                    }
                    if i % 8 < 4 {
                        change_mask(libc::SIG_UNBLOCK, wanted & !base);
                        give_way(i);
                        assert_eq!(mask(), base);
                    } // the others end with theirs changed
                })
            })
            .collect();
        handles.into_iter().for_each(|h| h.join().unwrap());
        for _ in 0..50 {
            assert_eq!(
                thread::spawn(mask).join().unwrap(),
                base,
                "a mask outlived its thread"
            );
        }
    });
}

unsafe extern "C" {
    fn sighold(signal: i32) -> i32;
    fn sigblock(mask: i32) -> i32;
    fn getcontext(context: *mut libc::ucontext_t) -> i32;
    fn setcontext(context: *const libc::ucontext_t) -> i32;
}

/// Other ways to block SIGUSR1 than `pthread_sigmask`.
fn block_by(way: usize) {
    extern "C" fn blocks_at_its_end(
        _: i32,
        _: *mut libc::siginfo_t,
        context: *mut libc::ucontext_t,
    ) {
        // SAFETY: the kernel's record, which it reads at the handler's end.
        unsafe { libc::sigaddset(&mut (*context).uc_sigmask, libc::SIGUSR1) };
    }
    let signals = bit(libc::SIGUSR1);
    // SAFETY: valid places, and a handler that is async-signal-safe.
    unsafe {
        match way {
            0 => assert_eq!(sighold(libc::SIGUSR1), 0),
            1 => drop(sigblock(signals as i32)),
            #[cfg(feature = "unmodified")]
            2 => {
                let set: *const u64 = &signals;
                libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, set, 0, 8);
            }
            3 => {
                let mut context = MaybeUninit::<libc::ucontext_t>::zeroed();
                let is_there = std::cell::Cell::new(false);
                assert_eq!(getcontext(context.as_mut_ptr()), 0);
                if !black_box(&is_there).replace(true) {
                    libc::sigaddset(&mut (*context.as_mut_ptr()).uc_sigmask, libc::SIGUSR1);
                    setcontext(context.as_ptr());
                }
            }
            _ => {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = blocks_at_its_end as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO;
                assert_eq!(libc::sigaction(libc::SIGUSR2, &action, null_mut()), 0);
                assert_eq!(libc::raise(libc::SIGUSR2), 0);
            }
        }
    }
}

#[test]
fn a_mask_is_its_threads_own_however_it_was_set() {
    const NAME: &str = "signals::a_mask_is_its_threads_own_however_it_was_set";
    let _w = watchdog(NAME);
    if child_case(NAME).is_none() {
        return assert_code(&child(NAME, ""), 0);
    }
    let runtime = Runtime::builder().processors(1).build().unwrap();
    let base = runtime.spawn(mask).join().unwrap();
    for way in 0..5 {
        let blocks = runtime.spawn(move || {
            block_by(way);
            for i in 0..20 {
                assert_eq!(mask(), base | bit(libc::SIGUSR1), "way {way}, {i}");
                give_way(i);
            }
        });
        let others = [(); 10].map(|()| {
            runtime.spawn(move || {
                for i in 0..20 {
                    assert_eq!(mask(), base, "beside way {way}, {i}");
                    give_way(i);
                }
            })
        });
        blocks.join().unwrap();
        others.into_iter().for_each(|other| other.join().unwrap());
    }
}

#[test]
fn blocking_all_signals_stops_no_preemption() {
    alone!();
    let _w = watchdog("signals::blocking_all_signals_stops_no_preemption");
    let base = thread::spawn(mask).join().unwrap();
    let runtime = Runtime::builder()
        .processors(2)
        .time_slice(Duration::from_millis(2))
        .build()
        .expect("a runtime");
    let (stop, started) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let hog = |blocks: bool, yields: bool| {
        let (stop, started) = (stop.clone(), started.clone());
        move || {
            if blocks {
                change_mask(libc::SIG_SETMASK, !0);
            }
            let mine = mask();
            started.fetch_add(1, SeqCst);
            while !stop.load(Relaxed) {
                if yields {
                    thread::yield_now();
                    assert_eq!(mask(), mine);
                }
                black_box(&stop);
            }
            assert_eq!(mask(), mine);
        }
    };
    let kinds = [
        (true, true),
        (true, false),
        (false, false),
        (false, false),
        (false, false),
        (true, false),
    ];
    let hogs: Vec<_> = kinds
        .into_iter()
        .map(|(blocks, yields)| runtime.spawn(hog(blocks, yields)))
        .collect();
    wait_until(|| started.load(SeqCst) == 6); // each ran although the ones before it never stop
    for _ in 0..20 {
        assert_eq!(runtime.spawn(mask).join().unwrap(), base);
    }
    stop.store(true, Relaxed);
    hogs.into_iter().for_each(|h| h.join().unwrap());
    assert_eq!(runtime.spawn(mask).join().unwrap(), base);
    runtime.shutdown();
}

static RAN: AtomicUsize = AtomicUsize::new(0);
static MOVED: AtomicUsize = AtomicUsize::new(0);
static AGAIN: AtomicBool = AtomicBool::new(false);

fn now() -> i64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a valid place; the call may be made in a handler.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// Runs for ten time slices and notes whether it ended elsewhere. Async-signal-safe throughout.
extern "C" fn handler(signal: i32) {
    let (tid, end) = (gettid(), now() + 5_000_000);
    if AGAIN.swap(false, SeqCst) {
        // SAFETY: raise may be called in a handler. Nested with SA_NODEFER, pending until its end
        // without.
        unsafe { libc::raise(signal) };
    }
    while now() < end {
        if gettid() != tid {
            MOVED.fetch_add(1, SeqCst);
            return;
        }
    }
    RAN.fetch_add(1, SeqCst);
}

/// The handler of a function that installs one for one signal only.
extern "C" fn again(signal: i32) {
    // SAFETY: it may be called in a handler.
    unsafe { sysv_signal(signal, again as *const () as usize) };
    handler(signal);
}

unsafe extern "C" {
    fn sysv_signal(signal: i32, handler: usize) -> usize;
    fn bsd_signal(signal: i32, handler: usize) -> usize;
    fn sigset(signal: i32, handler: usize) -> usize;
}

/// The kernel's record of an action: handler, flags, restorer, mask.
type Record = [usize; 4];

/// `rt_sigaction`, by this program's own instruction.
fn by_hand(signal: i32, new: Option<&Record>, old: &mut Record) {
    let new = new.map_or(std::ptr::null(), std::ptr::from_ref);
    let failed: usize;
    // SAFETY: the kernel reads one record and writes the other.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!("syscall", inlateout("rax") libc::SYS_rt_sigaction as usize => failed, in("rdi") signal,
            in("rsi") new, in("rdx") old, in("r10") 8, out("rcx") _, out("r11") _);
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!("svc #0", in("x8") libc::SYS_rt_sigaction, inlateout("x0") signal as usize => failed,
            in("x1") new, in("x2") old, in("x3") 8);
    }
    assert_eq!(failed, 0);
}

fn install(case: &str) {
    let function = handler as extern "C" fn(i32) as usize;
    // SAFETY: the handlers are async-signal-safe.
    let former = unsafe {
        match case {
            "signal" => libc::signal(libc::SIGUSR1, function),
            "bsd_signal" => bsd_signal(libc::SIGUSR1, function),
            "sigset" => sigset(libc::SIGUSR1, function),
            "sysv_signal" => sysv_signal(libc::SIGUSR1, again as *const () as usize),
            _ => libc::SIG_ERR,
        }
    };
    if former != libc::SIG_ERR {
        return;
    }
    if case.contains("by hand") {
        // libc knows the way back from a handler.
        install("nodefer");
        let mut record: Record = [0; 4];
        by_hand(libc::SIGUSR1, None, &mut record);
        record[0] = function;
        let old = &mut [0; 4];
        return by_hand(libc::SIGUSR1, Some(&record), old);
    }
    // SAFETY: all zero is a valid sigaction, then filled in; the handler is async-signal-safe.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = function;
        action.sa_flags = match case {
            "nodefer" | "nodefer before" => libc::SA_NODEFER | libc::SA_RESTART,
            "onstack" => libc::SA_ONSTACK | libc::SA_RESTART,
            _ => libc::SA_RESTART,
        };
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, null_mut()), 0);
    }
}

#[test]
fn a_handler_ends_where_it_began() {
    const NAME: &str = "signals::a_handler_ends_where_it_began";
    let _w = watchdog(NAME);
    let Some(case) = child_case(NAME) else {
        let installed = ["plain", "nodefer", "onstack", "signal"];
        let by_others = ["bsd_signal", "sigset", "sysv_signal", "by hand"];
        let before = ["before", "nodefer before", "by hand before"];
        for case in [&installed[..], &by_others, &before].concat() {
            println!("{case}");
            assert_code(&child(NAME, case), 0);
        }
        return;
    };
    if case.contains("before") {
        install(&case); // before the runtime exists
    }
    let runtime = Runtime::builder()
        .processors(2)
        .time_slice(Duration::from_micros(500))
        .build()
        .expect("a runtime");
    let stop = Arc::new(AtomicBool::new(false));
    let hog = || {
        let stop = stop.clone();
        move || {
            while !stop.load(Relaxed) {
                black_box(&stop);
            }
        }
    };
    let hogs: Vec<_> = (0..3).map(|_| runtime.spawn(hog())).collect();
    if !case.contains("before") {
        install(&case);
    }
    // From within, on the green stack.
    let raiser = |i: usize| {
        move || {
            for n in 0..6 {
                if i == 0 && n == 3 {
                    AGAIN.store(true, SeqCst);
                }
                // SAFETY: either may be called at any time.
                let result = unsafe {
                    match n % 2 {
                        0 => libc::raise(libc::SIGUSR1),
                        _ => libc::pthread_kill(libc::pthread_self(), libc::SIGUSR1),
                    }
                };
                assert_eq!(result, 0);
                thread::yield_now();
            }
        }
    };
    // A handler that is installed for one signal is not there for another thread's.
    let (raisers, outside) = match case.as_str() {
        "sysv_signal" => (1, 0),
        _ => (4, 20),
    };
    let expected = raisers * 6 + 1;
    let raisers: Vec<_> = (0..raisers).map(|i| runtime.spawn(raiser(i))).collect();
    raisers.into_iter().for_each(|r| r.join().unwrap());
    wait_until(|| RAN.load(SeqCst) + MOVED.load(SeqCst) == expected);
    // From outside, at whatever the kernel thread is doing.
    let tids: Arc<Vec<AtomicI32>> = Arc::new((0..4).map(|_| AtomicI32::new(0)).collect());
    let target = |i: usize| {
        let (stop, tids) = (stop.clone(), tids.clone());
        move || {
            let mut n = 0;
            while !stop.load(Relaxed) {
                tids[i].store(gettid(), Relaxed);
                give_way(n);
                n += 1;
            }
        }
    };
    let targets: Vec<_> = (0..4).map(|i| runtime.spawn(target(i))).collect();
    wait_until(|| tids.iter().all(|t| t.load(Relaxed) != 0));
    for n in 0..outside {
        let before = RAN.load(SeqCst) + MOVED.load(SeqCst);
        let tid = tids[n % 4].load(Relaxed);
        // SAFETY: plain system calls.
        let sent = unsafe {
            match n % 5 {
                4 => libc::kill(libc::getpid(), libc::SIGUSR1).into(),
                _ => libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, libc::SIGUSR1),
            }
        };
        // The kernel thread may have ended meanwhile.
        let gone =
            || sent != 0 || !std::path::Path::new(&format!("/proc/self/task/{tid}")).exists();
        wait_until(|| RAN.load(SeqCst) + MOVED.load(SeqCst) > before || gone());
    }
    stop.store(true, Relaxed);
    hogs.into_iter()
        .chain(targets)
        .for_each(|h| h.join().unwrap());
    runtime.shutdown();
    assert_eq!(
        MOVED.load(SeqCst),
        0,
        "handlers that ended on another kernel thread, {} did not",
        RAN.load(SeqCst)
    );
}

#[test]
fn blocking_calls_are_not_interrupted() {
    alone!();
    let _w = watchdog("signals::blocking_calls_are_not_interrupted");
    let stop = Arc::new(AtomicBool::new(false));
    let hog = || {
        let stop = stop.clone();
        move || {
            while !stop.load(Relaxed) {
                black_box(&stop);
            }
        }
    };
    let hogs: Vec<_> = (0..4).map(|_| thread::spawn(hog())).collect();
    let blocker = |i: usize| {
        move || {
            for n in 0..20 {
                thread::yield_now(); // a fresh time slice: what follows blocks before it is over
                let pause = libc::timespec {
                    tv_sec: 0,
                    tv_nsec: 12_000_000,
                };
                // SAFETY: no descriptors, no remainder, valid times.
                let result = unsafe {
                    match (i + n) % 2 {
                        0 => libc::poll(null_mut(), 0, 12),
                        _ => libc::nanosleep(&pause, null_mut()),
                    }
                };
                assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
            }
        }
    };
    let blockers: Vec<_> = (0..16).map(|i| thread::spawn(blocker(i))).collect();
    blockers.into_iter().for_each(|b| b.join().unwrap());
    stop.store(true, Relaxed);
    hogs.into_iter().for_each(|h| h.join().unwrap());
}

/// What was delivered: how many times, and on which green thread's stack.
static DELIVERED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count(_: i32) {
    DELIVERED.fetch_add(1, SeqCst);
}

/// The signals that are pending for the calling thread and are blocked.
fn pending() -> u64 {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: a valid place for a set.
    unsafe {
        assert_eq!(libc::sigpending(set.as_mut_ptr()), 0);
        (1..=64)
            .filter(|s| libc::sigismember(set.as_ptr(), *s) == 1)
            .fold(0, |bits, s| bits | bit(s))
    }
}

/// Sends `signal` to the calling thread.
fn raise(signal: i32) {
    // SAFETY: a number. The signal is blocked or has a handler.
    assert_eq!(unsafe { libc::raise(signal) }, 0);
}

#[test]
fn a_pending_signal_is_its_threads_own() {
    const NAME: &str = "signals::a_pending_signal_is_its_threads_own";
    let _w = watchdog(NAME);
    let Some(case) = child_case(NAME) else {
        // One that nobody handles would end the process.
        for case in ["default", "handled"] {
            assert_code(&child(NAME, case), 0);
        }
        return;
    };
    if case == "handled" {
        // SAFETY: the handler is async-signal-safe.
        let former = unsafe { libc::signal(libc::SIGUSR1, count as *const () as usize) };
        assert_ne!(former, libc::SIG_ERR);
    }
    let slice = Duration::from_millis(1);
    let runtime = Runtime::builder().processors(2).time_slice(slice);
    let runtime = Arc::new(runtime.build().expect("a runtime"));
    let stop = Arc::new(AtomicBool::new(false));
    let others: Vec<_> = (0..6)
        .map(|i| {
            let stop = stop.clone();
            runtime.spawn(move || {
                while !stop.load(Relaxed) {
                    assert_eq!(pending(), 0, "another thread's signal");
                    if i % 2 == 0 {
                        give_way(i);
                    }
                }
            })
        })
        .collect();
    let realtime = libc::SIGRTMIN() + 3;
    let owner = |i: usize| {
        let case = case.clone();
        move || {
            let ours = bit(libc::SIGUSR1) | bit(realtime);
            change_mask(libc::SIG_BLOCK, ours);
            raise(libc::SIGUSR1);
            for _ in 0..3 {
                raise(realtime);
            }
            for n in 0..20 {
                assert_eq!(pending(), ours);
                give_way(i + n);
            }
            // Taken without a handler, one by one.
            let mut set = MaybeUninit::<libc::sigset_t>::uninit();
            let at_once = libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            // SAFETY: the set is initialised; valid places.
            unsafe {
                libc::sigemptyset(set.as_mut_ptr());
                libc::sigaddset(set.as_mut_ptr(), realtime);
                for _ in 0..3 {
                    let took = libc::sigtimedwait(set.as_ptr(), null_mut(), &at_once);
                    assert_eq!(took, realtime);
                }
                assert_eq!(libc::sigtimedwait(set.as_ptr(), null_mut(), &at_once), -1);
            }
            give_way(i);
            assert_eq!(pending(), bit(libc::SIGUSR1));
            if case == "handled" {
                change_mask(libc::SIG_UNBLOCK, ours);
                assert_eq!(pending(), 0);
                (0..20).for_each(|n| give_way(i + n));
            } // otherwise it ends with the thread
        }
    };
    let owners: Vec<_> = (0..4).map(|i| runtime.spawn(owner(i))).collect();
    owners.into_iter().for_each(|t| t.join().unwrap());
    stop.store(true, Relaxed);
    others.into_iter().for_each(|t| t.join().unwrap());
    let delivered = if case == "handled" { 4 } else { 0 };
    assert_eq!(DELIVERED.load(SeqCst), delivered);
}
