//! What a program learns of the world comes from the seed, or is the same for all.

use std::collections::HashMap;
use std::ffi::CStr;
use std::hash::{BuildHasher, RandomState};
use std::io::{Read, Write, pipe};
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;
use std::thread::available_parallelism;

use greenthread::sim::{self, Builder, FailureKind, Isolation, Strategy};
use greenthread::{scope, spawn};

use crate::support::{POINTS, fails};

/// A failure's text up to the seed: what the body panics with.
fn told(seed: u64, body: impl Fn() -> String + Send + Sync + 'static) -> String {
    let builder = Builder::new()
        .first_seed(seed)
        .seeds(1)
        .isolation(Isolation::EachSeed);
    let failure = fails(builder.strategy(Strategy::Random), move || {
        panic!("<{}>", body())
    });
    let text = failure.to_string();
    let (_, text) = text.split_once('<').unwrap_or_else(|| panic!("{text}"));
    text.split_once('>').unwrap().0.to_owned()
}

/// The same for one seed, in two processes, and another for another seed.
#[track_caller]
fn follows_from_the_seed(body: fn() -> String) {
    let (once, again, another) = (told(1, body), told(1, body), told(2, body));
    assert_eq!(once, again);
    assert_ne!(once, another);
}

/// The same for all seeds.
#[track_caller]
fn is_constant(body: fn() -> String) -> String {
    let (one, another) = (told(1, body), told(2, body));
    assert_eq!(one, another);
    one
}

fn bytes() -> [u8; 13] {
    let mut bytes = [0; 13];
    // SAFETY: a valid buffer of that length.
    let count = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    assert_eq!(count, 13);
    bytes
}

#[test]
fn random_bytes() {
    follows_from_the_seed(|| format!("{:?}", bytes()));
    follows_from_the_seed(|| {
        let mut bytes = [0_u8; 16];
        // SAFETY: a valid buffer of that length.
        let ended = unsafe { libc::getentropy(bytes.as_mut_ptr().cast(), 16) };
        assert_eq!(ended, 0);
        format!("{bytes:?}")
    });
    follows_from_the_seed(|| {
        let mut bytes = [0_u8; 16];
        let mut file = std::fs::File::open("/dev/urandom").unwrap();
        file.read_exact(&mut bytes).unwrap();
        format!("{bytes:?}")
    });
    follows_from_the_seed(|| sim::random().to_string());
    follows_from_the_seed(|| rand::random::<u64>().to_string());
}

/// What a thread draws does not depend on what the others do meanwhile.
#[test]
fn each_thread_has_chance_of_its_own() {
    let alone = told(3, || spawn(|| format!("{:?}", bytes())).join().unwrap());
    let beside = told(3, || {
        let one = spawn(|| format!("{:?}", bytes()));
        let other = spawn(|| (0..100).for_each(|_| _ = bytes()));
        bytes();
        other.join().unwrap();
        one.join().unwrap()
    });
    assert_eq!(alone, beside);
}

#[test]
fn orders_of_hash_maps() {
    follows_from_the_seed(|| {
        let map: HashMap<u32, ()> = (0..20).map(|number| (number, ())).collect();
        format!("{:?}", map.keys().collect::<Vec<_>>())
    });
    follows_from_the_seed(|| RandomState::new().hash_one(17).to_string());
}

/// Whatever the test's own thread has asked for before.
#[test]
fn keys_of_a_thread_that_has_had_some() {
    let before = RandomState::new().hash_one(17);
    let inside = told(1, || RandomState::new().hash_one(17).to_string());
    assert_ne!(inside, before.to_string());
    assert_eq!(
        inside,
        told(1, || RandomState::new().hash_one(17).to_string())
    );
}

#[test]
fn names_and_numbers() {
    is_constant(|| {
        // SAFETY: plain calls.
        let numbers = unsafe { (libc::getpid(), libc::getppid(), libc::gettid()) };
        let own = std::thread::current();
        let threads = [(); 3].map(|()| {
            // SAFETY: a plain call.
            let number = || (unsafe { libc::gettid() }, std::thread::current().id());
            spawn(number).join().unwrap()
        });
        assert!(threads[0].0 != threads[1].0 && threads[1].0 != threads[2].0);
        format!(
            "{numbers:?} {:?} {:?} {threads:?} {}",
            own.id(),
            own.name(),
            std::process::id()
        )
    });
    let host = is_constant(|| {
        let mut name = [0; 65];
        // SAFETY: a valid buffer; the last byte stays 0.
        let name = unsafe {
            assert_eq!(libc::gethostname(name.as_mut_ptr(), 64), 0);
            CStr::from_ptr(name.as_ptr())
        };
        name.to_str().unwrap().to_owned()
    });
    assert_eq!(
        host,
        is_constant(|| {
            let mut name = std::mem::MaybeUninit::<libc::utsname>::uninit();
            // SAFETY: the call fills the place.
            let name = unsafe {
                assert_eq!(libc::uname(name.as_mut_ptr()), 0);
                name.assume_init()
            };
            // SAFETY: it ends with a 0.
            unsafe { CStr::from_ptr(name.nodename.as_ptr()) }
                .to_str()
                .unwrap()
                .to_owned()
        })
    );
}

#[test]
fn the_number_of_cpus_is_the_builders() {
    for cpus in [1, 4, 100] {
        let ended = Builder::new().seeds(2).cpus(cpus).run(move || {
            assert_eq!(available_parallelism().unwrap().get(), cpus);
            // SAFETY: plain calls.
            let (online, own) = unsafe {
                (
                    libc::sysconf(libc::_SC_NPROCESSORS_ONLN),
                    libc::sched_getcpu(),
                )
            };
            assert_eq!(online as usize, cpus);
            assert!((own as usize) < cpus);
        });
        ended.unwrap_or_else(|failure| panic!("{failure}"));
    }
}

#[test]
fn addresses_are_the_same_if_they_are_asked_for() {
    let ended = Builder::new().seeds(20).same_addresses().repeats(|| {
        let place = Box::new(1_u8);
        let bits = (&raw const *place).addr() >> 4;
        (0..bits % 17).for_each(|_| std::thread::yield_now());
    });
    ended.unwrap_or_else(|failure| panic!("{failure}"));
}

/// A run that depends on an address is found.
#[test]
fn addresses_are_others_otherwise() {
    let ended = Builder::new().seeds(50).repeats(|| {
        let place = 1_u8;
        let bits = (&raw const place).addr() >> 12 ^ (&raw const BEGIN).addr() >> 12;
        (0..bits % 1009).for_each(|_| std::thread::yield_now());
    });
    static BEGIN: u8 = 0;
    match ended {
        Err(failure) => {
            println!("{failure}");
            assert_eq!(failure.kind(), FailureKind::Different);
            assert!(failure.to_string().contains("world.rs"), "{failure}");
        }
        // As when `personality` is refused, and there is no layout by chance either.
        Ok(summary) => println!("skipped: this system has the same addresses always: {summary}"),
    }
}

#[test]
fn pipes_and_pairs() {
    let ended = Builder::new().seeds(200).repeats(|| {
        let ((mut from, mut to), (mut left, mut right)) =
            (pipe().unwrap(), UnixStream::pair().unwrap());
        scope(|scope| {
            scope.spawn(move || {
                for byte in 0..4 {
                    to.write_all(&[byte]).unwrap();
                }
            });
            scope.spawn(move || {
                let mut byte = [0];
                while from.read(&mut byte).unwrap() == 1 {
                    left.write_all(&byte).unwrap();
                    left.read_exact(&mut byte).unwrap();
                    assert_eq!(byte, [17]);
                }
            });
            let mut seen = Vec::new();
            let mut byte = [0];
            while right.read(&mut byte).unwrap() == 1 {
                seen.push(byte[0]);
                right.write_all(&[17]).unwrap();
            }
            assert_eq!(seen, [0, 1, 2, 3]);
        });
    });
    let summary = ended.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(summary.is_repeatable);
}

/// A reader whose writer is in the same process, and never writes, is part of a deadlock.
#[test]
fn a_deadlock_over_a_pipe() {
    let failure = fails(Builder::new().seeds(5), || {
        let (mut from, _to) = pipe().unwrap();
        let _ = from.read(&mut [0]);
    });
    assert_eq!(failure.kind(), FailureKind::Deadlock, "{failure}");
}

#[test]
fn buggify_is_chance() {
    assert!(!sim::buggify(1), "this is no simulated process");
    let always = Builder::new()
        .seeds(50)
        .run(|| assert!(sim::buggify(1) && !sim::buggify(0)));
    always.unwrap_or_else(|failure| panic!("{failure}"));
    for is_true in [true, false] {
        fails(Builder::new().seeds(100), move || {
            assert_ne!(sim::buggify(2), is_true)
        });
    }
    follows_from_the_seed(|| format!("{:?}", [(); 100].map(|()| sim::buggify(2))));
}

#[test]
fn ten_operations_are_ten_points() {
    let count = |operations: u32| {
        let builder = Builder::new().seeds(1).strategy(Strategy::RoundRobin);
        let ended = builder.run(move || {
            let word = AtomicU32::new(0);
            for _ in 0..operations {
                word.fetch_add(1, SeqCst);
            }
            assert_eq!(word.into_inner(), operations);
        });
        ended.unwrap_or_else(|failure| panic!("{failure}"))
    };
    let (none, ten) = (count(0), count(10));
    let expected = if POINTS { 10 } else { 0 };
    assert_eq!(ten.atomics - none.atomics, expected);
    assert_eq!(ten.points - none.points, expected);
}

#[test]
fn atomics_can_be_required() {
    let ended = Builder::new()
        .seeds(5)
        .require_atomics()
        .run(|| _ = AtomicU32::new(0).fetch_add(1, SeqCst));
    match ended {
        Ok(summary) => assert!(summary.atomics > 0),
        Err(failure) if POINTS => panic!("{failure}"),
        Err(failure) => assert!(failure.to_string().contains("RUSTFLAGS"), "{failure}"),
    }
}

/// Outside of a simulated process nothing is changed.
#[test]
fn nothing_is_simulated_here() {
    assert!(!sim::is_simulated());
    assert_ne!(sim::random(), sim::random());
    assert_ne!(bytes(), bytes());
    // SAFETY: a plain call.
    assert_eq!(unsafe { libc::getpid() } as u32, std::process::id());
    assert_eq!(
        std::fs::read_link("/proc/self").unwrap().to_str().unwrap(),
        std::process::id().to_string()
    );
}
