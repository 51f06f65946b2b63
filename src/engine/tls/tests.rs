//! Tests of blocks without a scheduler: every thread here runs to its end on the calling kernel
//! thread.

use super::layout::PthreadKey;
use super::selftest::TestSlot;
use super::{init, tcache_offset};
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_void};
use std::hint::black_box;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

const SIZE: usize = 256 << 10;

/// A library, loaded at least until the value is dropped.
struct Loaded(*mut c_void);

impl Loaded {
    /// Loads a library, or finds it loaded. `None`: it cannot be had, and `dlerror` says why.
    ///
    /// # Safety
    /// Its constructors and destructors may run here and now.
    unsafe fn open(name: &CStr) -> Option<Loaded> {
        // SAFETY: its constructors may run here, the caller says.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
        (!handle.is_null()).then(|| Loaded(handle))
    }

    /// The address of the variable or function of that name in the library.
    fn symbol(&self, name: &CStr) -> *mut u8 {
        // SAFETY: a search by name in a library that is loaded.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!address.is_null(), "the library has no {name:?}");
        address.cast()
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // SAFETY: opened by `open`, whose caller has made the promise for destructors as well.
        unsafe { libc::dlclose(self.0) };
    }
}

fn slot() -> TestSlot {
    init().expect("green threads work here");
    TestSlot::new(SIZE).expect("memory")
}

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(41) };
    static ON_DROP: RefCell<Option<OnDrop>> = const { RefCell::new(None) };
    static BIG: Cell<[u8; 300]> = const { Cell::new([3; 300]) };
}

struct OnDrop(Rc<Cell<u32>>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

#[test]
fn a_hundred_thousand_threads_on_one_block() {
    let mut slot = slot();
    let drops = Rc::new(Cell::new(0));
    for i in 0..100_000 {
        let body = || {
            assert_eq!(COUNT.replace(i), 41);
            assert_eq!(BIG.replace([0; 300]), [3; 300]);
            ON_DROP.set(Some(OnDrop(drops.clone())));
            black_box(vec![1u8; 1 + (i as usize * 37) % 4000]);
        };
        slot.run(body).expect("no panic");
        assert_eq!(drops.get() as u64, i + 1);
        slot.recycle();
    }
    assert_eq!(COUNT.get(), 41);
}

#[test]
fn panics_stay_inside() {
    let mut slot = slot();
    for _ in 0..100 {
        assert!(
            slot.run(|| std::panic::resume_unwind(Box::new(1)))
                .is_none()
        );
        assert!(!std::thread::panicking());
        slot.recycle();
        assert_eq!(slot.run(std::thread::panicking), Some(false));
        slot.recycle();
    }
}

#[test]
fn blocks_are_strangers_to_each_other() {
    let mut slots: Vec<TestSlot> = (0..64).map(|_| slot()).collect();
    let tid = |slot: &mut TestSlot| slot.block.tid();
    let mut tids: Vec<u32> = slots.iter_mut().map(tid).collect();
    assert!(tids.iter().all(|&tid| tid > 1 << 22 && tid < 1 << 30));
    tids.sort();
    tids.dedup();
    assert_eq!(tids.len(), slots.len());
    let ids: std::collections::HashSet<_> = slots
        .iter_mut()
        .map(|slot| slot.run(|| std::thread::current().id()).unwrap())
        .collect();
    assert_eq!(ids.len(), slots.len());
}

#[test]
fn destructors_that_make_more_work() {
    thread_local!(static LATER: RefCell<Option<OnDrop>> = const { RefCell::new(None) });
    struct Chain(Rc<Cell<u32>>);
    impl Drop for Chain {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
            LATER.set(Some(OnDrop(self.0.clone())));
        }
    }
    thread_local!(static FIRST: RefCell<Option<Chain>> = const { RefCell::new(None) });
    let mut slot = slot();
    for _ in 0..10 {
        let drops = Rc::new(Cell::new(0));
        slot.run(|| FIRST.set(Some(Chain(drops.clone()))));
        assert_eq!(drops.get(), 2);
        assert_eq!(Rc::strong_count(&drops), 1);
        slot.recycle();
    }
}

/// Keys beyond the first block of 32, a destructor that sets its key again, and one whose key is
/// deleted.
#[test]
fn pthread_keys() {
    static LAST: OnceLock<PthreadKey> = OnceLock::new();
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn again(value: *mut c_void) {
        RUNS.fetch_add(1, Relaxed);
        if value as usize > 1 {
            LAST.get().unwrap().set(value as usize - 1);
        }
    }
    let mut slot = slot();
    let new = || PthreadKey::new(Some(again)).expect("a key");
    let mut keys: Vec<PthreadKey> = (0..100).map(|_| new()).collect();
    let last = LAST.get_or_init(new);
    for (value, runs) in [(1, 1), (3, 3), (9, 4)] {
        RUNS.store(0, Relaxed);
        let life = || {
            assert!(keys.iter().chain([last]).all(|key| key.get().is_null()));
            assert!(last.set(value));
        };
        slot.run(life).expect("no panic");
        assert_eq!(RUNS.load(Relaxed), runs);
        slot.recycle();
    }
    let deleted = keys.pop();
    slot.run(|| {
        RUNS.store(0, Relaxed);
        assert!(deleted.as_ref().is_some_and(|key| key.set(1)));
        drop(deleted);
    })
    .expect("no panic");
    assert_eq!(RUNS.load(Relaxed), 0);
}

/// Runs the named test alone in a process of its own. True in that process.
fn alone(test: &str) -> bool {
    if std::env::var_os("GREENTHREAD_TEST_ALONE").is_some() {
        return true;
    }
    let name = format!(
        "{}::{test}",
        module_path!().split_once("::").expect("a crate").1
    );
    let mut child = Command::new(std::env::current_exe().expect("the test's own binary"));
    child
        .args([&name, "--exact", "--nocapture", "--include-ignored"])
        .env("GREENTHREAD_TEST_ALONE", "1");
    let child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.expect("the test's own binary starts");
    let directory = libraries(child.id());
    let output = child.wait_with_output().expect("the child ends");
    let _ = std::fs::remove_dir_all(directory);
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}"
    );
    println!("{text}");
    assert_eq!(
        text.matches("was loaded while green threads ran").count(),
        usize::from(text.contains("expect one report"))
    );
    false
}

/// Bytes in use, in malloc's own account.
fn in_use() -> usize {
    // SAFETY: no arguments.
    unsafe { libc::mallinfo2() }.uordblks
}

#[test]
fn nothing_leaks() {
    if !alone("nothing_leaks") {
        return;
    }
    let life = || {
        let mut slot = slot();
        for _ in 0..3 {
            slot.run(|| {
                ON_DROP.set(Some(OnDrop(Rc::new(Cell::new(0)))));
                // The error is to be forgotten at the end.
                assert!(Library::load(c"there-is-no-such-library").is_none());
            });
            slot.recycle();
        }
    };
    life();
    if tcache_offset().is_none() {
        println!("skipped: with an unknown cache in malloc, a destroyed block leaks it");
        return;
    }
    for _ in 0..100 {
        life();
    }
    let before = in_use();
    for _ in 0..1000 {
        life();
    }
    assert!(
        in_use() <= before + 4096,
        "{} bytes before, {} after",
        before,
        in_use()
    );
}

/// Where a process keeps the libraries it builds.
fn libraries(process: u32) -> PathBuf {
    std::env::temp_dir().join(format!("greenthread-{process}"))
}

/// A library with the thread-local `value`, initialised, and `words` words of zeros; loaded for a
/// while.
struct Library {
    _loaded: Loaded,
    get: extern "C" fn() -> i32,
    set: extern "C" fn(i32),
}

impl Library {
    fn build(name: &str, model: &str, value: i32, words: usize) -> Option<CString> {
        let directory = libraries(std::process::id());
        std::fs::create_dir_all(&directory).expect("a place for libraries");
        let (source, library) = (
            directory.join(format!("{name}.c")),
            directory.join(format!("lib{name}.so")),
        );
        let text = format!(
            "#define TLS __attribute__((tls_model(\"{model}\"))) __thread\n\
             TLS int value = {value}; TLS long zeros[{words}];\n\
             int get(void) {{ return zeros[0] || zeros[{words} - 1] ? -1 : value; }}\n\
             void set(int v) {{ value = v; zeros[0] = zeros[{words} - 1] = v; }}\n"
        );
        std::fs::write(&source, text).expect("a C file");
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-o"])
            .args([&library, &source]);
        let compiled = cc.status();
        if !compiled.as_ref().is_ok_and(|status| status.success()) {
            println!("skipped: no C compiler ({compiled:?})");
            return None;
        }
        Some(
            CString::new(library.into_os_string().into_encoded_bytes()).expect("no zero in a path"),
        )
    }

    fn load(path: &CStr) -> Option<Library> {
        // SAFETY: a library of ours, without constructors, and its functions of these names and types.
        unsafe {
            let loaded = Loaded::open(path)?;
            let (get, set) = (loaded.symbol(c"get"), loaded.symbol(c"set"));
            Some(Library {
                get: std::mem::transmute::<*mut u8, extern "C" fn() -> i32>(get),
                set: std::mem::transmute::<*mut u8, extern "C" fn(i32)>(set),
                _loaded: loaded,
            })
        }
    }

    fn get(&self) -> i32 {
        (self.get)()
    }

    fn set(&self, value: i32) {
        (self.set)(value)
    }
}

/// Lives of threads that each find `value` as the library has it, and leave another.
fn use_library(slot: &mut TestSlot, library: &Library, value: i32) {
    for i in 0..3 {
        let life = || {
            assert_eq!(library.get(), value);
            library.set(1000 + i);
        };
        slot.run(life).expect("no panic");
        slot.recycle();
    }
}

/// Thread-locals that the loader allocates when a thread first touches them.
#[test]
fn dynamic_thread_locals() {
    if !alone("dynamic_thread_locals") {
        return;
    }
    let Some(small) = Library::build("small", "global-dynamic", 77, 1) else {
        return;
    };
    let big = Library::build("big", "global-dynamic", 88, 10_000).expect("as before");
    let (mut before, mut idle) = (slot(), slot());
    for _ in 0..20 {
        let library = Library::load(&small).expect("it is there");
        let mut after = slot();
        use_library(&mut before, &library, 77);
        use_library(&mut after, &library, 77);
        // Gone while `before`'s vector points to its thread-locals; the next gets its module id,
        // and `before` is recycled without having touched it.
        drop(library);
        let library = Library::load(&big).expect("it is there");
        before.run(|| ()).expect("no panic");
        before.recycle();
        use_library(&mut after, &library, 88);
        before.recycle();
        use_library(&mut before, &library, 88);
        drop(library);
        before.recycle();
        idle.run(|| drop(Library::load(&big).expect("it is there")))
            .expect("no panic");
        idle.recycle();
    }
}

/// A module has come and gone, and the thread still has what an earlier one with its id left.
#[test]
fn a_module_that_is_gone_is_not_reset() {
    if !alone("a_module_that_is_gone_is_not_reset") {
        return;
    }
    let Some(kept) = Library::build("kept", "global-dynamic", 66, 1) else {
        return;
    };
    let small = Library::build("small", "global-dynamic", 77, 1).expect("as before");
    let big = Library::build("big", "global-dynamic", 88, 10_000).expect("as before");
    let load = |path| Library::load(path).expect("it is there");
    let kept = load(&kept);
    let (mut slot, mut other) = (slot(), slot());
    for _ in 0..20 {
        let library = load(&small);
        slot.run(|| assert_eq!(library.get(), 77))
            .expect("no panic");
        slot.recycle();
        drop(library);
        let library = load(&big);
        use_library(&mut other, &library, 88);
        drop(library);
        // This brings the vector up to date. The last snapshot has the module of `big`.
        slot.run(|| assert_eq!(kept.get(), 66)).expect("no panic");
        slot.recycle();
        // The memory behind that of `small` is as malloc has left it.
        drop((0..100).map(|i| vec![i as u8; 10 * i]).collect::<Vec<_>>());
        use_library(&mut slot, &load(&small), 77);
    }
}

/// Thread-locals that lie in every thread's static block.
#[test]
fn initial_exec_thread_locals() {
    if !alone("initial_exec_thread_locals") {
        return;
    }
    let Some(path) = Library::build("static", "initial-exec", 42, 4) else {
        return;
    };
    let (mut fresh, mut recycled, mut running) = (slot(), slot(), slot());
    recycled.run(|| ()).expect("no panic");
    recycled.recycle();
    let library = Library::load(&path).expect("it is there");
    let mut after = slot();
    for slot in [&mut fresh, &mut recycled, &mut after] {
        use_library(slot, &library, 42);
    }
    drop(library);
    // Again, now from a green thread, which cannot be helped but must be right the next time.
    let library = running
        .run(|| Library::load(&path).expect("it is there"))
        .expect("no panic");
    running.recycle();
    for slot in [&mut fresh, &mut recycled, &mut after, &mut running] {
        use_library(slot, &library, 42);
    }
    println!("expect one report for libstatic.so");
}

/// Libraries come and go while threads come and go.
#[test]
fn libraries_and_threads_at_once() {
    if !alone("libraries_and_threads_at_once") {
        return;
    }
    let Some(small) = Library::build("small", "global-dynamic", 77, 1) else {
        return;
    };
    let big = Library::build("big", "global-dynamic", 88, 10_000).expect("as before");
    let fixed = Library::build("fixed", "initial-exec", 42, 4).expect("as before");
    init().expect("green threads work here");
    std::thread::scope(|scope| {
        for (path, value) in [(small, 77), (big, 88), (fixed, 42)] {
            scope.spawn(move || {
                let mut slot = slot();
                for _ in 0..300 {
                    let library = Library::load(&path).expect("it is there");
                    use_library(&mut slot, &library, value);
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                let mut slots = [slot(), slot(), slot()];
                for i in 0..20_000 {
                    let slot = &mut slots[i % 3];
                    let life = || assert_eq!(COUNT.replace(i as u64), 41);
                    slot.run(life).expect("no panic");
                    match i % 16 {
                        0 => *slot = self::slot(),
                        _ => slot.recycle(),
                    }
                }
            });
        }
    });
    println!("expect one report for libfixed.so");
}

#[test]
#[ignore = "prints measurements"]
fn costs() {
    if !alone("costs") {
        return;
    }
    const N: u32 = 100_000;
    /// The best of twenty runs: other processes make the rest.
    fn time(what: &str, n: u32, mut f: impl FnMut()) {
        let run = |_| {
            let start = Instant::now();
            for _ in 0..n {
                f();
            }
            start.elapsed().as_nanos() as f64 / f64::from(n)
        };
        let best = (0..20).map(run).fold(f64::INFINITY, f64::min);
        println!("{what}: {best:.1} ns");
    }
    let mut slot = slot();
    let layout = super::layout::layout();
    println!(
        "static size {}, control block {}, tcache {:?}",
        layout.sizes.all(),
        layout.sizes.control,
        tcache_offset()
    );
    let before = in_use();
    let other = slot_for(before);
    println!("malloc'ed per block: {}", other);
    println!("keys used {:?}", layout.probe.keys_used);
    time("recycle", N, || slot.recycle());
    time("refresh", N, super::modules::refresh);
    slot.run(|| {
        // SAFETY: no thread-local is in use.
        unsafe {
            time("enter", N, || super::enter());
            time("exit", N, || super::exit());
        }
    });
    time("mmap, create, destroy, munmap", 2_000, || {
        drop(TestSlot::new(SIZE))
    });
    time("a thread's life with recycling", N, || {
        slot.run(|| COUNT.set(1));
        slot.recycle();
    });
}

fn slot_for(before: usize) -> usize {
    let _slot = slot();
    in_use() - before
}
