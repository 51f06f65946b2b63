//! What a kernel thread has beside its stack: how it computes with floating-point numbers is the green
//! thread's own; what a locked thread has made of its kernel thread ends with the two; what cannot be
//! had is refused.

use crate::common::*;
use greenthread as thread;
use greenthread::runtime::{Mode, Runtime};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::time::Duration;

#[cfg(target_arch = "x86_64")]
mod control {
    use std::arch::asm;

    /// MXCSR's control bits, and the x87 control word.
    pub type Floats = (u32, u16);

    pub const DEFAULT: Floats = (0x1f80, 0x37f);
    /// Up, down and towards zero; and what is tiny is zero, which the x87 cannot.
    pub const KINDS: [Floats; 4] = [
        (0x5f80, 0xb7f),
        (0x3f80, 0x77f),
        (0x7f80, 0xf7f),
        (0x9fc0, 0x37f),
    ];

    pub fn floats() -> Floats {
        let (mut sse, mut x87) = (0_u32, 0_u16);
        // SAFETY: each writes one register to a place of its size.
        unsafe {
            asm!("stmxcsr [{}]", "fnstcw [{}]", in(reg) &raw mut sse, in(reg) &raw mut x87);
        }
        (sse & 0xffc0, x87)
    }

    pub fn set_floats((sse, x87): Floats) {
        // SAFETY: control words that mask every exception.
        unsafe {
            asm!("ldmxcsr [{}]", "fldcw [{}]", in(reg) &raw const sse, in(reg) &raw const x87);
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod control {
    use std::arch::asm;

    /// FPCR's control bits.
    pub type Floats = u64;

    pub const DEFAULT: Floats = 0;
    /// Up, down and towards zero; and what is tiny is zero.
    pub const KINDS: [Floats; 4] = [1 << 22, 2 << 22, 3 << 22, 1 << 24];

    pub fn floats() -> Floats {
        let register;
        // SAFETY: reads a register.
        unsafe { asm!("mrs {}, fpcr", out(reg) register) };
        register
    }

    pub fn set_floats(register: Floats) {
        // SAFETY: no exception traps.
        unsafe { asm!("msr fpcr, {}", in(reg) register) };
    }
}

use control::*;

/// What rounding and flushing do to a quotient and a tiny product.
fn computed() -> (u64, u64) {
    let (one, three) = (black_box(1.0_f64), black_box(3.0_f64));
    let tiny = black_box(f64::MIN_POSITIVE) * black_box(0.3);
    ((one / three).to_bits(), tiny.to_bits())
}

/// Where threads that compute take each other's place often.
fn preempting() -> Runtime {
    let builder = Runtime::builder().processors(1);
    let builder = builder.time_slice(Duration::from_millis(1));
    builder.build().unwrap()
}

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
fn rounding_is_its_threads_own() {
    alone!();
    let _w = watchdog("kernel_state::rounding_is_its_threads_own");
    let body = |i: usize, kind: Option<Floats>| {
        move || {
            assert_eq!(floats(), DEFAULT, "a thread whose spawner has the default");
            let own = kind.unwrap_or(DEFAULT);
            set_floats(own);
            let result = computed();
            for n in 0..200 {
                give_way(i + n);
                assert_eq!(floats(), own, "after giving way ({})", (i + n) % 5);
                assert_eq!(computed(), result);
            }
            result
        } // and ends with it changed
    };
    let threads: Vec<_> = (0..16)
        .map(|i| thread::spawn(body(i, KINDS.get(i % 8).copied())))
        .collect();
    let results: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
    let different: std::collections::HashSet<_> = results.iter().collect();
    assert!(
        different.len() >= 4,
        "the kinds make no difference: {results:x?}"
    );
    for _ in 0..20 {
        assert_eq!(
            thread::spawn(floats).join().unwrap(),
            DEFAULT,
            "it outlived its thread"
        );
    }
}

#[test]
fn rounding_is_inherited() {
    alone!();
    let _w = watchdog("kernel_state::rounding_is_inherited");
    let body = || {
        for kind in KINDS {
            set_floats(kind);
            let child = thread::spawn(|| {
                thread::yield_now();
                (floats(), thread::spawn(floats).join().unwrap())
            });
            set_floats(DEFAULT);
            assert_eq!(child.join().unwrap(), (kind, kind));
            assert_eq!(thread::spawn(floats).join().unwrap(), DEFAULT);
        }
    };
    std::thread::spawn(body).join().unwrap();
    thread::spawn(body).join().unwrap();
}

/// Who starts a runtime has nothing to do with how its threads compute.
#[test]
fn a_runtime_inherits_no_rounding() {
    alone!();
    let _w = watchdog("kernel_state::a_runtime_inherits_no_rounding");
    let start = || {
        set_floats(KINDS[3]);
        Runtime::builder().processors(2).build().unwrap()
    };
    let runtime = std::thread::spawn(start).join().unwrap();
    for _ in 0..10 {
        assert_eq!(runtime.spawn(floats).join().unwrap(), DEFAULT);
    }
    runtime.shutdown();
}

#[test]
fn rounding_survives_preemption() {
    alone!();
    let _w = watchdog("kernel_state::rounding_survives_preemption");
    let runtime = preempting();
    let stop = Arc::new(AtomicBool::new(false));
    let wrong = Arc::new(AtomicUsize::new(0));
    let hog = |i: usize| {
        let (stop, wrong) = (stop.clone(), wrong.clone());
        move || {
            let own = KINDS.get(i).copied().unwrap_or(DEFAULT);
            set_floats(own);
            let result = computed();
            while !stop.load(Relaxed) {
                if computed() != result || floats() != own {
                    wrong.fetch_add(1, Relaxed);
                }
            }
        }
    };
    let hogs: Vec<_> = (0..6).map(|i| runtime.spawn(hog(i))).collect();
    let green = runtime.mode() == Mode::Green;
    wait_until(|| runtime.metrics().preemptions >= 60 || !green);
    stop.store(true, Relaxed);
    hogs.into_iter().for_each(|hog| hog.join().unwrap());
    assert_eq!(wrong.load(Relaxed), 0);
    runtime.shutdown();
}

/// Who is preempted with numbers on the x87's stack of eight leaves it empty for others, and finds its
/// own again.
#[cfg(target_arch = "x86_64")]
#[test]
fn the_x87_stack_is_its_threads_own() {
    alone!();
    use std::arch::asm;
    let _w = watchdog("kernel_state::the_x87_stack_is_its_threads_own");
    let runtime = preempting();
    let stop = Arc::new(AtomicBool::new(false));
    let hog = {
        let stop = stop.clone();
        move || {
            let mut sum = 0_f64;
            // SAFETY: puts six numbers on the empty stack, and takes them off once it may stop.
            unsafe {
                asm!(
                    "fld1", "fld1", "fld1", "fld1", "fld1", "fld1",
                    "2:", "pause", "cmp byte ptr [{stop}], 0", "je 2b",
                    "faddp", "faddp", "faddp", "faddp", "faddp", "fstp qword ptr [{sum}]",
                    stop = in(reg) stop.as_ptr(), sum = in(reg) &raw mut sum,
                );
            }
            sum
        }
    };
    let adder = {
        let stop = stop.clone();
        move || {
            let mut wrong = 0;
            while !stop.load(Relaxed) {
                let mut sum = 0_f64;
                // SAFETY: leaves the stack as empty as it was.
                unsafe {
                    asm!(
                        "fld1", "fld1", "fld1", "fld1",
                        "faddp", "faddp", "faddp", "fstp qword ptr [{sum}]",
                        sum = in(reg) &raw mut sum,
                    );
                }
                wrong += usize::from(sum != 4.0);
                thread::yield_now();
            }
            wrong
        }
    };
    let (hog, adder) = (runtime.spawn(hog), runtime.spawn(adder));
    let green = runtime.mode() == Mode::Green;
    wait_until(|| runtime.metrics().preemptions >= 20 || !green);
    stop.store(true, Relaxed);
    assert_eq!((hog.join().unwrap(), adder.join().unwrap()), (6.0, 0));
    runtime.shutdown();
}

const NAME: &std::ffi::CStr = c"tainted";

/// The calling kernel thread's name, and how many CPUs it may use.
fn state() -> ([u8; 16], i32) {
    let mut name = [0; 16];
    // SAFETY: places of the sizes that the calls fill in.
    unsafe {
        libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr());
        let mut cpus: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&cpus), &mut cpus);
        (name, libc::CPU_COUNT(&cpus))
    }
}

/// Changes both, and makes the caller the only one in its UTS namespace, if it may.
fn taint() {
    // SAFETY: a valid set of CPUs; the calls concern the calling kernel thread.
    unsafe {
        // `prctl` would name the green thread.
        std::fs::write("/proc/thread-self/comm", NAME.to_bytes()).unwrap();
        let (mut all, mut one): (libc::cpu_set_t, libc::cpu_set_t) = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&all), &mut all);
        let cpu = (0..libc::CPU_SETSIZE as usize).find(|&cpu| libc::CPU_ISSET(cpu, &all));
        libc::CPU_SET(cpu.unwrap(), &mut one);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&one), &one), 0);
        libc::unshare(libc::CLONE_NEWUTS);
    }
}

fn namespace() -> std::path::PathBuf {
    std::fs::read_link("/proc/thread-self/ns/uts").unwrap()
}

#[test]
fn a_thread_that_ends_locked_takes_its_kernel_thread_along() {
    alone!();
    let _w = watchdog("kernel_state::a_thread_that_ends_locked_takes_its_kernel_thread_along");
    let runtime = Runtime::builder().processors(1).build().unwrap();
    let (_, cpus) = state();
    let (space, mut ended) = (namespace(), Vec::new());
    for round in 0..30 {
        let tainter = runtime.spawn(move || {
            std::mem::forget(thread::lock_kernel_thread());
            taint();
            give_way(round);
            assert!(state().0.starts_with(NAME.to_bytes()));
            gettid()
        });
        ended.push(tainter.join().unwrap());
        for i in 0..10 {
            let body = move || {
                give_way(i);
                (state(), namespace())
            };
            let ((name, number), own_space) = runtime.spawn(body).join().unwrap();
            assert!(!name.starts_with(NAME.to_bytes()), "a name was left behind");
            assert_eq!(number, cpus, "an affinity was left behind");
            assert_eq!(own_space, space, "a namespace was left behind");
        }
    }
    let is_there = |id: &i32| {
        let name = std::fs::read(format!("/proc/self/task/{id}/comm"));
        name.is_ok_and(|name| name.starts_with(NAME.to_bytes()))
    };
    wait_until(|| !ended.iter().any(is_there));
    runtime.shutdown();
}

/// All at once, while others are at work: everybody ends, and somebody is left to work.
#[test]
fn many_end_locked() {
    alone!();
    let _w = watchdog("kernel_state::many_end_locked");
    let runtime = Runtime::builder().processors(2).build().unwrap();
    let threads: Vec<_> = (0..200)
        .map(|i| {
            runtime.spawn(move || {
                if i % 2 == 0 {
                    std::mem::forget(thread::lock_kernel_thread());
                }
                give_way(i);
                i
            })
        })
        .collect();
    let sum: usize = threads.into_iter().map(|t| t.join().unwrap()).sum();
    assert_eq!(sum, 199 * 200 / 2);
    assert_eq!(runtime.spawn(|| 1).join().unwrap(), 1);
    runtime.shutdown();
}

/// The kernel threads that have gone are not made up for by more than there may be.
#[test]
fn who_ends_locked_leaves_the_limit_alone() {
    alone!();
    let _w = watchdog("kernel_state::who_ends_locked_leaves_the_limit_alone");
    const LIMIT: usize = 4;
    let builder = Runtime::builder().processors(2);
    let runtime = builder.max_kernel_threads(LIMIT).build().unwrap();
    for _ in 0..20 {
        let ends_locked = || std::mem::forget(thread::lock_kernel_thread());
        runtime.spawn(ends_locked).join().unwrap();
    }
    let barrier = Arc::new(std::sync::Barrier::new(30));
    let waiters: Vec<_> = (0..30)
        .map(|_| {
            let barrier = barrier.clone();
            runtime.spawn(move || barrier.wait().is_leader())
        })
        .collect();
    let mut most = 0;
    wait_until(|| {
        most = most.max(runtime.metrics().kernel_threads);
        waiters.iter().all(|waiter| waiter.is_finished())
    });
    let leaders = waiters.into_iter().map(|t| t.join().unwrap());
    assert_eq!(leaders.filter(|&leads| leads).count(), 1);
    if runtime.mode() == Mode::Green {
        // The last to end may be on its way out.
        assert!(most <= LIMIT + 1, "{most} kernel threads");
    }
    runtime.shutdown();
}

#[test]
fn lending_priorities_is_refused() {
    alone!();
    let _w = watchdog("kernel_state::lending_priorities_is_refused");
    let ask = |protocol| {
        // SAFETY: attributes that are initialised first and destroyed last.
        unsafe {
            let mut attributes: libc::pthread_mutexattr_t = std::mem::zeroed();
            libc::pthread_mutexattr_init(&mut attributes);
            let answer = libc::pthread_mutexattr_setprotocol(&mut attributes, protocol);
            libc::pthread_mutexattr_destroy(&mut attributes);
            answer
        }
    };
    let refused = [libc::PTHREAD_PRIO_INHERIT, libc::PTHREAD_PRIO_PROTECT];
    assert_eq!(refused.map(ask), [0; 2]);
    let expected = if green() { libc::ENOTSUP } else { 0 };
    for locked in [false, true] {
        let in_green_thread = thread::spawn(move || {
            let _lock = locked.then(thread::lock_kernel_thread);
            (refused.map(ask), ask(libc::PTHREAD_PRIO_NONE))
        });
        assert_eq!(in_green_thread.join().unwrap(), ([expected; 2], 0));
    }
}

/// `prctl`, where libc's `syscall` is hooked by its number.
unsafe fn prctl_by_number(option: i32, text: *const libc::c_char) -> i32 {
    // SAFETY: the caller's promise.
    unsafe {
        match cfg!(feature = "unmodified") {
            true => libc::syscall(libc::SYS_prctl, option, text) as i32,
            false => libc::prctl(option, text),
        }
    }
}

/// A thread's name by `pthread_getname_np`, by `prctl`, and by a system call.
fn system_names() -> [String; 3] {
    let mut names = [[0_u8; 16]; 3];
    let [first, second, third] = names.each_mut().map(|name| name.as_mut_ptr());
    // SAFETY: places for sixteen bytes each.
    unsafe {
        assert_eq!(
            libc::pthread_getname_np(libc::pthread_self(), first.cast(), 16),
            0
        );
        assert_eq!(libc::prctl(libc::PR_GET_NAME, second), 0);
        assert_eq!(prctl_by_number(libc::PR_GET_NAME, third.cast()), 0);
    }
    let text = |name: [u8; 16]| {
        std::ffi::CStr::from_bytes_until_nul(&name)
            .unwrap()
            .to_str()
            .unwrap()
            .to_string()
    };
    names.map(text)
}

/// A thread that names itself, in any of the ways, has that name, wherever it runs; and nobody else has.
#[test]
fn a_thread_names_itself() {
    alone!();
    const NAMES: [&std::ffi::CStr; 4] = [
        c"",
        c"short",
        c"a name of fifte",
        c"longer than the system keeps",
    ];
    let hogs: Vec<_> = (0..20)
        .map(|number: usize| {
            let hog = move || {
                for round in 0..NAMES.len() * 3 {
                    let (name, way) = (NAMES[(round + number) % NAMES.len()], (round + number) % 3);
                    let before = system_names();
                    // SAFETY: texts that end.
                    let answer = unsafe {
                        match way {
                            0 => libc::pthread_setname_np(libc::pthread_self(), name.as_ptr()),
                            1 => libc::prctl(libc::PR_SET_NAME, name.as_ptr()),
                            _ => prctl_by_number(libc::PR_SET_NAME, name.as_ptr()),
                        }
                    };
                    let is_too_long = way == 0 && name.count_bytes() > 15;
                    assert_eq!(answer, if is_too_long { libc::ERANGE } else { 0 });
                    for _ in 0..20 {
                        thread::yield_now();
                        match is_too_long {
                            true => assert_eq!(system_names(), before),
                            false => {
                                let name = name.to_str().unwrap();
                                let kept = &name[..name.len().min(15)];
                                assert_eq!(system_names(), [kept; 3]);
                            }
                        }
                    }
                }
            };
            thread::Builder::new()
                .name(format!("hog {number}"))
                .spawn(hog)
                .unwrap()
        })
        .collect();
    hogs.into_iter().for_each(|hog| hog.join().unwrap());
    // Others have the names that they were spawned with, or none of those.
    for _ in 0..20 {
        let own = thread::Builder::new()
            .name("own".into())
            .spawn(system_names)
            .unwrap();
        assert_eq!(own.join().unwrap(), ["own"; 3]);
        let other = thread::spawn(system_names).join().unwrap();
        assert!(other.iter().all(|other| {
            NAMES
                .iter()
                .all(|name| name.to_str() != Ok(other) || name.is_empty())
        }));
    }
    let own = thread::Builder::new().name("own".into());
    let own = own.spawn(|| {
        // SAFETY: a text that ends.
        unsafe { libc::pthread_setname_np(libc::pthread_self(), c"another".as_ptr()) };
        thread::current().name().map(String::from)
    });
    assert_eq!(
        own.unwrap().join().unwrap().as_deref(),
        Some("own"),
        "std's names are std's"
    );
}
