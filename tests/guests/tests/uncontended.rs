//! What primitives cost where nobody waits, on green threads with hooks, beside the same code without.
//!
//! Each operation is timed on a green thread as it is, on the same thread [`unhooked`], and on a kernel thread: in
//! turn, in many short rounds, of which the best counts. Most operations make no call of libc's that is hooked, so
//! there is nothing that could differ. Those that do are marked; beside them stands libc's own function, which
//! the linker would have taken if this crate were not there.
//!
//! ```sh
//! GT_GUESTS_RATIO=1 cargo test --release -p greenthread-guests --test uncontended -- --nocapture
//! ```

use greenthread::thread::unhooked;
use std::ffi::{CStr, c_int, c_long};
use std::hint::black_box;
use std::sync::{Arc, mpsc};
use std::time::Instant;
use support::{Test, ratios_count};

/// An operation may cost so many times what it does without hooks.
const BOUND: f64 = 1.05;
/// How often the green thread and the kernel thread take turns, and how many rounds each has then.
const TURNS: usize = 30;
const ROUNDS: usize = 20;
/// How often an operation is made in a round: for microseconds, also if it takes less than one nanosecond.
const TIMES: usize = 10_000;

/// Makes an operation so many times.
type Repeat = Arc<dyn Fn(usize) + Send + Sync>;

macro_rules! repeat {
    ($($operation:tt)*) => {
        Arc::new(move |times: usize| {
            for _ in 0..times {
                $($operation)*
            }
        }) as Repeat
    };
}

/// What is measured.
struct Kind {
    name: &'static str,
    operation: Repeat,
    /// The same with libc's own function, if the operation calls one that is hooked.
    libcs: Option<Repeat>,
    /// Whether the bound holds for it.
    is_bounded: bool,
}

impl Kind {
    fn new(name: &'static str, operation: Repeat) -> Kind {
        Kind {
            name,
            operation,
            libcs: None,
            is_bounded: true,
        }
    }

    fn beside(self, libcs: Repeat, is_bounded: bool) -> Kind {
        Kind {
            libcs: Some(libcs),
            is_bounded,
            ..self
        }
    }
}

fn locks() -> Vec<Kind> {
    let mutex = std::sync::Mutex::new(0);
    let rwlock = std::sync::RwLock::new(0);
    let theirs = parking_lot::Mutex::new(0);
    let their_rwlock = Arc::new(parking_lot::RwLock::new(0));
    let (to_read, to_write) = (Arc::new(rwlock), their_rwlock.clone());
    let rwlock = to_read.clone();
    vec![
        Kind::new("std's mutex", repeat!(*mutex.lock().unwrap() += 1;)),
        Kind::new(
            "std's rwlock, to read",
            repeat!(black_box(*to_read.read().unwrap());),
        ),
        Kind::new(
            "std's rwlock, to write",
            repeat!(*rwlock.write().unwrap() += 1;),
        ),
        Kind::new("parking_lot's mutex", repeat!(*theirs.lock() += 1;)),
        Kind::new(
            "parking_lot's rwlock, to read",
            repeat!(black_box(*their_rwlock.read());),
        ),
        Kind::new(
            "parking_lot's rwlock, to write",
            repeat!(*to_write.write() += 1;),
        ),
    ]
}

/// Nobody waits for what they announce.
fn announcements() -> Vec<Kind> {
    let condition = std::sync::Condvar::new();
    let theirs = parking_lot::Condvar::new();
    let once = std::sync::Once::new();
    once.call_once(|| ());
    let event = event_listener::Event::new();
    vec![
        // std asks the system each time.
        Kind::new("std's condition", repeat!(condition.notify_one();)).beside(libcs_wake(), true),
        Kind::new(
            "parking_lot's condition",
            repeat!(black_box(theirs.notify_one());),
        ),
        Kind::new("std's once", repeat!(black_box(&once).call_once(|| ());)),
        Kind::new(
            "std's park",
            repeat! {
                std::thread::current().unpark();
                std::thread::park();
            },
        ),
        Kind::new("event-listener", repeat!(black_box(event.notify(1));)),
    ]
}

/// The message is there when it is received.
fn channels() -> Vec<Kind> {
    macro_rules! channel {
        ($name:literal, $make:expr) => {{
            let (sender, receiver) = $make;
            let receiver = std::sync::Mutex::new(receiver);
            Kind::new(
                $name,
                // The lock is taken once in a round.
                Arc::new(move |times| {
                    let receiver = receiver.lock().unwrap();
                    for i in 0..times {
                        sender.send(i).unwrap();
                        assert_eq!(receiver.recv(), Ok(i));
                    }
                }),
            )
        }};
    }
    vec![
        channel!("std's mpsc", mpsc::channel()),
        channel!("crossbeam", crossbeam_channel::unbounded()),
        channel!("flume", flume::unbounded()),
        Kind::new(
            "oneshot",
            repeat! {
                let (sender, receiver) = oneshot::channel();
                sender.send(1).unwrap();
                assert_eq!(receiver.recv(), Ok(1));
            },
        ),
    ]
}

type Lock = unsafe extern "C" fn(*mut libc::pthread_mutex_t) -> c_int;
type Syscall = unsafe extern "C" fn(c_long, ...) -> c_long;

/// The address of libc's own function.
fn libcs(name: &CStr) -> *mut libc::c_void {
    // SAFETY: valid names. libc is there already, and stays.
    let function = unsafe {
        let libc = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
        assert!(!libc.is_null());
        libc::dlsym(libc, name.as_ptr())
    };
    assert!(!function.is_null());
    function
}

/// What std's condition does when it is notified: counts, and wakes one that waits.
fn libcs_wake() -> Repeat {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    // SAFETY: the function has this type.
    let syscall: Syscall = unsafe { std::mem::transmute(libcs(c"syscall")) };
    let word = AtomicU32::new(0);
    repeat! {
        word.fetch_add(1, Relaxed);
        let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: the word is there.
        unsafe { syscall(libc::SYS_futex, word.as_ptr(), operation, 1) };
    }
}

/// A mutex of C's.
struct Pthread(std::cell::UnsafeCell<libc::pthread_mutex_t>);
// SAFETY: it is used by its functions alone.
unsafe impl Sync for Pthread {}
// SAFETY: it is moved before it is used.
unsafe impl Send for Pthread {}

fn pthread(lock: Lock, unlock: Lock) -> Repeat {
    let mutex = Box::new(Pthread(libc::PTHREAD_MUTEX_INITIALIZER.into()));
    Arc::new(move |times| {
        let mutex = mutex.0.get();
        for _ in 0..times {
            // SAFETY: an initialised mutex, in the box; these are its functions.
            unsafe { assert_eq!((lock(mutex), unlock(mutex)), (0, 0)) };
        }
    })
}

fn c() -> Kind {
    let ours = pthread(libc::pthread_mutex_lock, libc::pthread_mutex_unlock);
    // SAFETY: the functions have this type.
    let [lock, unlock] = [c"pthread_mutex_lock", c"pthread_mutex_unlock"]
        .map(|name| unsafe { std::mem::transmute::<*mut libc::c_void, Lock>(libcs(name)) });
    // It is known to be over: three nanoseconds of fourteen are the hook's.
    Kind::new("C's mutex", ours).beside(pthread(lock, unlock), false)
}

/// Nanoseconds of one operation, the best of so many rounds of each of `what`.
fn best<const N: usize>(rounds: usize, what: [&dyn Fn(); N]) -> [f64; N] {
    let mut best = [f64::MAX; N];
    for _ in 0..rounds {
        for (what, best) in what.iter().zip(&mut best) {
            let start = Instant::now();
            what();
            *best = best.min(start.elapsed().as_nanos() as f64 / TIMES as f64);
        }
    }
    best
}

/// Nanoseconds of one operation: hooked, unhooked, on a kernel thread, with libc's function on a green thread.
fn measure(kind: &Kind, turns: usize) -> [f64; 4] {
    let mut least = [f64::MAX; 4];
    for _ in 0..turns {
        let operation = kind.operation.clone();
        let libcs = kind.libcs.clone().unwrap_or_else(|| operation.clone());
        let green = greenthread::spawn(move || {
            let hooked = || operation(TIMES);
            let without = || unhooked(|| operation(TIMES));
            best(ROUNDS, [&hooked, &without, &|| libcs(TIMES)])
        });
        let [hooked, without, libcs] = green.join().unwrap();
        let [kernel] = best(ROUNDS, [&|| (kind.operation)(TIMES)]);
        for (least, now) in least.iter_mut().zip([hooked, without, kernel, libcs]) {
            *least = least.min(now);
        }
    }
    least
}

#[test]
fn uncontended() {
    let test = Test::new("uncontended", 300);
    let turns = if ratios_count() { TURNS } else { 1 };
    for kind in locks()
        .into_iter()
        .chain(announcements())
        .chain(channels())
        .chain([c()])
    {
        let [hooked, without, kernel, libcs] = measure(&kind, turns);
        let ratio = hooked / without.min(kernel).min(libcs);
        let beside = match kind.libcs {
            Some(_) => format!("libc's own {libcs:.2}"),
            None => String::from("no hooked call"),
        };
        let name = kind.name;
        eprintln!(
            "{name}: {hooked:.2} ns, unhooked {without:.2}, on a kernel thread {kernel:.2}, {beside}; {ratio:.3}"
        );
        let is_within = ratio <= BOUND || !kind.is_bounded;
        assert!(!ratios_count() || is_within, "{name}: {ratio:.3}");
    }
    test.report();
}
