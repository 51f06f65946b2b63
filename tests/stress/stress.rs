//! Preemption every 100 µs over everything a program does: allocation, collections, thread-locals
//! with destructors, formatting, unwinding, vector registers, floating point, locks, pipes,
//! processes, name resolution, kernel threads. Every piece of work checks its own result; a hang
//! is found by the watchdog. Each worker is a chain of short-lived threads, so that birth, death
//! and recycling happen under fire as well.
//!
//! `GT_STRESS_SECS` seconds (1 unless given) on one processor, and as many on two.

use crate::support::*;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::hint::black_box;
use std::io::{BufRead, Write};
use std::net::ToSocketAddrs;
use std::panic::catch_unwind;
use std::process::Command;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, Once};
use std::time::{Duration, Instant};

const SLICE: Duration = Duration::from_micros(100);
const WORKERS: u64 = 32;
/// So many pieces of work, then a fresh thread.
const LIFE: usize = 100;

/// What the threads of one run share.
struct Shared {
    stop: AtomicBool,
    done: [AtomicU64; KINDS.len()],
    pipe: std::io::PipeWriter,
    lines: AtomicU64,
    std: Mutex<(u64, u64)>,
    parking_lot: parking_lot::Mutex<(u64, u64)>,
}

type Work = fn(&mut Rng, &Arc<Shared>);

/// Each kind of work, and how often it is chosen.
const KINDS: [(&str, u64, Work); 15] = [
    ("malloc", 10, malloc),
    ("collections", 10, collections),
    ("formatting", 10, formatting),
    ("thread-locals", 10, thread_locals),
    ("destructors", 5, destructors),
    ("unwinding", 10, unwinding),
    ("vectors", 20, vectors),
    ("floating point", 10, floating_point),
    ("memcpy", 10, memcpy),
    ("errno", 10, errno),
    ("locks", 10, locks),
    ("pipe", 10, pipe),
    ("command", 1, command),
    ("dns", 1, dns),
    ("kernel threads", 2, kernel_threads),
];

fn malloc(rng: &mut Rng, _: &Arc<Shared>) {
    let mut blocks: Vec<Vec<u8>> = Vec::new();
    for i in 0..200u8 {
        blocks.push(vec![i; rng.below(3_000) as usize]);
        if i % 3 == 0 {
            blocks.swap_remove(rng.below(blocks.len() as u64) as usize);
        }
    }
    for block in &blocks {
        assert!(
            block.iter().all(|&byte| byte == block[0]),
            "a block was overwritten"
        );
    }
}

fn collections(rng: &mut Rng, _: &Arc<Shared>) {
    let (mut hashed, mut sorted) = (HashMap::new(), BTreeMap::new());
    for i in 0..rng.below(300) {
        let key = format!("key {}", rng.below(1_000));
        hashed.insert(key.clone(), i);
        sorted.insert(key, i);
    }
    assert_eq!(hashed.len(), sorted.len());
    assert!(sorted.iter().all(|(key, value)| hashed[key] == *value));
}

fn formatting(rng: &mut Rng, _: &Arc<Shared>) {
    let (number, real) = (rng.next(), rng.next() as f64 / 1e6);
    let text = format!("{number:>30}|{number:x}|{real:e}|{:?}", Some(number));
    let parts: Vec<&str> = text.split('|').collect();
    assert_eq!(parts[0].trim().parse(), Ok(number));
    assert_eq!(u64::from_str_radix(parts[1], 16), Ok(number));
    assert_eq!(parts[2].parse(), Ok(real));
    let letters: String = (0..rng.below(500))
        .map(|i| char::from(b'a' + (i % 26) as u8))
        .collect();
    assert_eq!(letters.to_uppercase().to_lowercase(), letters);
}

fn thread_locals(_: &mut Rng, _: &Arc<Shared>) {
    thread_local! {
        static NUMBER: Cell<u64> = const { Cell::new(0) };
        static LIST: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
        static COUNTED: Rc<()> = Rc::new(());
    }
    let place = NUMBER.with(|number| number as *const _ as usize);
    for i in 0..3_000 {
        NUMBER.set(NUMBER.get() + i);
    }
    assert_eq!(NUMBER.replace(0), 3_000 * 2_999 / 2);
    assert_eq!(NUMBER.with(|number| number as *const _ as usize), place);
    LIST.with_borrow_mut(|list| {
        list.clear();
        list.extend(0..100);
        assert_eq!(list.iter().sum::<u64>(), 4_950);
    });
    COUNTED.with(|counted| {
        let clones: Vec<Rc<()>> = (0..200).map(|_| counted.clone()).collect();
        assert_eq!(Rc::strong_count(counted), clones.len() + 1);
    });
    assert_eq!(Rc::strong_count(&COUNTED.with(Rc::clone)), 2);
}

/// A thread-local dies once, with its thread, and before `join` returns.
fn destructors(rng: &mut Rng, shared: &Arc<Shared>) {
    struct Tombstone(Rc<u64>, Arc<AtomicUsize>);
    impl Drop for Tombstone {
        fn drop(&mut self) {
            assert_eq!(Rc::strong_count(&self.0), 1);
            self.1.fetch_add(1, Relaxed);
        }
    }
    thread_local!(static GRAVE: RefCell<Option<Tombstone>> = const { RefCell::new(None) });
    let (number, dead) = (rng.next(), Arc::new(AtomicUsize::new(0)));
    let child = greenthread::spawn({
        let (dead, shared) = (dead.clone(), shared.clone());
        move || {
            GRAVE.with_borrow_mut(|grave| *grave = Some(Tombstone(Rc::new(number), dead)));
            malloc(&mut Rng::new(number), &shared);
            GRAVE.with_borrow(|grave| *grave.as_ref().unwrap().0)
        }
    });
    assert_eq!(child.join().unwrap(), number);
    assert_eq!(dead.load(Relaxed), 1);
}

/// A panic payload that the hook below keeps quiet about.
struct Expected(u64);

fn unwinding(rng: &mut Rng, _: &Arc<Shared>) {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !info.payload().is::<Expected>() {
                loud(info);
            }
        }));
    });
    let (number, depth) = (rng.next(), rng.below(50));
    let caught = catch_unwind(|| dig(depth, number)).unwrap_err();
    assert_eq!(caught.downcast::<Expected>().unwrap().0, number);
    assert!(!std::thread::panicking() && !greenthread::panicking());
    let joined = greenthread::spawn(move || dig(10, number))
        .join()
        .unwrap_err();
    assert_eq!(joined.downcast::<Expected>().unwrap().0, number);
}

/// Panics so many frames down, with something to drop in each.
fn dig(depth: u64, number: u64) {
    let dropped = black_box(vec![depth; 10]);
    if depth == 0 {
        std::panic::panic_any(Expected(number));
    }
    dig(depth - 1, number);
    drop(dropped);
}

/// Every vector register holds a number that a long loop without calls adds to.
fn vectors(rng: &mut Rng, _: &Arc<Shared>) {
    #[cfg(target_arch = "x86_64")]
    {
        let rounds = 10_000 + rng.below(100_000);
        if is_x86_feature_detected!("avx2") {
            let mut lanes: [u64; 64] = std::array::from_fn(|_| rng.next());
            let before = lanes;
            // SAFETY: AVX2 is there, and the registers are loaded from and stored to 16 × 32 bytes.
            unsafe {
                std::arch::asm!(
                    ".irp i,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
                    "vmovdqu ymm\\i, [{lanes} + 32*\\i]",
                    ".endr",
                    "2:",
                    ".irp i,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14",
                    "vpaddq ymm\\i, ymm\\i, ymm15",
                    ".endr",
                    "dec rcx",
                    "jnz 2b",
                    ".irp i,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
                    "vmovdqu [{lanes} + 32*\\i], ymm\\i",
                    ".endr",
                    "vzeroupper",
                    lanes = in(reg) lanes.as_mut_ptr(),
                    inout("rcx") rounds => _,
                    clobber_abi("C"),
                );
            }
            for (i, (&now, &then)) in lanes.iter().zip(&before).enumerate() {
                let grown = if i < 60 {
                    before[60 + i % 4].wrapping_mul(rounds)
                } else {
                    0
                };
                assert_eq!(now, then.wrapping_add(grown), "AVX2 lane {i}");
            }
        }
        if is_x86_feature_detected!("avx512f") {
            let mut lanes: [u64; 256] = std::array::from_fn(|_| rng.next());
            let (before, mask) = (lanes, rng.below(256));
            // SAFETY: AVX-512 is there, and the registers are loaded from and stored to 32 × 64
            // bytes. Only lanes whose bit of the mask register is set are added to.
            unsafe {
                std::arch::asm!(
                    "kmovw k3, {mask:e}",
                    ".irp i,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
                    "vmovdqu64 zmm\\i, [{lanes} + 64*\\i]",
                    ".endr",
                    "2:",
                    ".irp i,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30",
                    "vpaddq zmm\\i{{k3}}, zmm\\i, zmm31",
                    ".endr",
                    "dec rcx",
                    "jnz 2b",
                    ".irp i,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
                    "vmovdqu64 [{lanes} + 64*\\i], zmm\\i",
                    ".endr",
                    "vzeroupper",
                    lanes = in(reg) lanes.as_mut_ptr(),
                    mask = in(reg) mask,
                    inout("rcx") rounds => _,
                    clobber_abi("C"),
                );
            }
            for (i, (&now, &then)) in lanes.iter().zip(&before).enumerate() {
                let adds = i < 248 && mask >> (i % 8) & 1 == 1;
                let grown = if adds {
                    before[248 + i % 8].wrapping_mul(rounds)
                } else {
                    0
                };
                assert_eq!(now, then.wrapping_add(grown), "AVX-512 lane {i}");
            }
        }
    }
}

/// The same chaotic orbit twice: one lost bit and they part.
fn floating_point(rng: &mut Rng, _: &Arc<Shared>) {
    let seed = 0.5 + rng.below(100) as f64 / 300.0;
    let orbit = || {
        let (mut x, mut sum) = (black_box(seed), 0.0);
        for i in 0..4_000 {
            x = 3.7 * x * (1.0 - x);
            sum += (x * f64::from(i)).sin().abs().sqrt();
        }
        sum
    };
    assert_eq!(orbit().to_bits(), orbit().to_bits());
}

fn memcpy(rng: &mut Rng, _: &Arc<Shared>) {
    let from: Vec<u8> = (0..rng.below(60_000)).map(|i| (i * 31) as u8).collect();
    let mut to = vec![0; from.len()];
    for _ in 0..20 {
        to.fill(0);
        to.copy_from_slice(&from);
    }
    assert_eq!(from, to);
}

fn errno(rng: &mut Rng, _: &Arc<Shared>) {
    let mine = 1 + rng.below(100) as i32;
    // SAFETY: `errno` is this thread's own, whichever kernel thread runs it.
    unsafe { *libc::__errno_location() = mine };
    for _ in 0..20_000 {
        black_box(mine);
    }
    assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(mine));
}

fn locks(_: &mut Rng, shared: &Arc<Shared>) {
    for _ in 0..50 {
        let mut pair = shared.std.lock().unwrap();
        pair.0 += 1;
        (0..20).for_each(|i| _ = black_box(i));
        pair.1 += 1;
        assert_eq!(pair.0, pair.1);
        drop(pair);
        let mut pair = shared.parking_lot.lock();
        pair.0 += 1;
        (0..20).for_each(|i| _ = black_box(i));
        pair.1 += 1;
        assert_eq!(pair.0, pair.1);
    }
}

/// Whole lines arrive, each once; the reader checks them.
fn pipe(rng: &mut Rng, shared: &Arc<Shared>) {
    let number = rng.below(1_000_000);
    (&shared.pipe)
        .write_all(format!("{number} {}\n", number * 3).as_bytes())
        .unwrap();
    shared.lines.fetch_add(1, Relaxed);
}

fn command(rng: &mut Rng, _: &Arc<Shared>) {
    let word = format!("word-{}", rng.next());
    let output = Command::new("echo").arg(&word).output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), word);
}

fn dns(_: &mut Rng, _: &Arc<Shared>) {
    let mut found = ("localhost", 80).to_socket_addrs().unwrap();
    assert!(found.all(|address| address.ip().is_loopback()));
}

fn kernel_threads(rng: &mut Rng, _: &Arc<Shared>) {
    let number = rng.next();
    let (tx, rx) = std::sync::mpsc::channel();
    let child = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_micros(300));
        tx.send(number).unwrap();
        vec![number; 100].into_iter().fold(0, u64::wrapping_add)
    });
    assert_eq!(rx.recv(), Ok(number));
    assert_eq!(child.join().unwrap(), number.wrapping_mul(100));
}

/// Runs one thread after the other until told to stop.
fn worker(mut rng: Rng, shared: Arc<Shared>) {
    let weights: u64 = KINDS.iter().map(|kind| kind.1).sum();
    while !shared.stop.load(Relaxed) {
        let mut rng = Rng::new(rng.next());
        let shared = shared.clone();
        let life = greenthread::spawn(move || {
            for _ in 0..LIFE {
                let mut dice = rng.below(weights);
                let kind = KINDS.iter().position(|kind| {
                    let hit = dice < kind.1;
                    dice = dice.wrapping_sub(kind.1);
                    hit
                });
                let kind = kind.unwrap();
                if shared.stop.load(Relaxed) {
                    return;
                }
                KINDS[kind].2(&mut rng, &shared);
                shared.done[kind].fetch_add(1, Relaxed);
            }
        });
        life.join().unwrap();
    }
}

fn stress(processors: usize) {
    let _alone = alone();
    let seconds = crate::support::storm::seconds();
    let dog = Watchdog::new("stress");
    let mut rng = Rng::from_env();
    let runtime = greenthread::runtime::Runtime::builder()
        .processors(processors)
        .time_slice(SLICE)
        .build()
        .unwrap();
    let (reader, pipe) = std::io::pipe().unwrap();
    let reader = std::thread::spawn(move || {
        let lines = std::io::BufReader::new(reader).lines();
        let checked = lines.inspect(|line| {
            let (a, b) = line.as_ref().unwrap().split_once(' ').unwrap();
            assert_eq!(a.parse::<u64>().unwrap() * 3, b.parse().unwrap());
        });
        checked.count() as u64
    });
    let shared = Arc::new(Shared {
        stop: AtomicBool::new(false),
        done: [const { AtomicU64::new(0) }; KINDS.len()],
        pipe,
        lines: AtomicU64::new(0),
        std: Mutex::default(),
        parking_lot: parking_lot::Mutex::default(),
    });
    let workers: Vec<_> = (0..WORKERS)
        .map(|_| {
            let (rng, shared) = (Rng::new(rng.next()), shared.clone());
            runtime.spawn(move || worker(rng, shared))
        })
        .collect();

    let green = runtime.mode() == greenthread::runtime::Mode::Green;
    let preempts = || !green || runtime.metrics().preemptions > 100 * seconds;
    let (start, mut last) = (Instant::now(), 0);
    while start.elapsed() < Duration::from_secs(seconds) || !preempts() {
        std::thread::sleep(Duration::from_millis(20));
        let done = shared.done.iter().map(|done| done.load(Relaxed)).sum();
        if done > last {
            dog.progress();
        }
        last = done;
        assert!(
            start.elapsed() < Duration::from_secs(seconds + 60),
            "too little preemption to call it stress"
        );
    }
    shared.stop.store(true, Relaxed);
    workers
        .into_iter()
        .for_each(|worker| worker.join().unwrap());

    let metrics = runtime.metrics();
    runtime.shutdown();
    for (kind, done) in KINDS.iter().zip(&shared.done) {
        eprint!("{} {}, ", kind.0, done.load(Relaxed));
    }
    eprintln!(
        "{} preemptions, {} hand-offs",
        metrics.preemptions, metrics.hand_offs
    );
    let lines = shared.lines.load(Relaxed);
    drop(Arc::into_inner(shared).expect("a thread has outlived its join"));
    assert_eq!(reader.join().unwrap(), lines);
}

#[test]
fn on_one_processor() {
    stress(1);
}

#[test]
fn on_two_processors() {
    stress(2);
}
