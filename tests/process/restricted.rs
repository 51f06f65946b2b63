//! Programs that have little: no descriptors left, another user's `/proc` or none, signals blocked.
//! Threads that compute are preempted there as anywhere, and what the runtime uses has a bound.

use crate::common::directory::Directory;
use crate::common::*;
use greenthread::runtime::{Mode, Runtime};
use std::fs::File;
use std::hint::black_box;
use std::io::ErrorKind;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Output;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::time::{Duration, Instant};

/// Threads that compute until told to stop.
struct Hogs {
    stop: Arc<AtomicBool>,
    handles: Vec<greenthread::JoinHandle<()>>,
}

impl Hogs {
    /// Returns once each has run.
    fn start(runtime: &Runtime, number: usize) -> Hogs {
        let stop = Arc::new(AtomicBool::new(false));
        let started = Arc::new(AtomicUsize::new(0));
        let hog = |_| {
            let (stop, started) = (stop.clone(), started.clone());
            runtime.spawn(move || {
                started.fetch_add(1, Relaxed);
                while !stop.load(Relaxed) {
                    black_box(&stop);
                }
            })
        };
        let handles = (0..number).map(hog).collect();
        while started.load(Relaxed) < number {
            std::thread::sleep(Duration::from_millis(1));
        }
        Hogs { stop, handles }
    }

    fn end(self) {
        self.stop.store(true, Relaxed);
        self.handles.into_iter().for_each(|hog| hog.join().unwrap());
    }
}

/// Uses up the process's descriptors, of which there are few.
fn take_all_descriptors() -> Vec<File> {
    set_limit(libc::RLIMIT_NOFILE, 64);
    let open = || File::open("/dev/null").ok();
    std::iter::from_fn(open).collect()
}

/// Becomes a user to whom this process's files in /proc do not belong. False: it may not.
fn become_nobody() -> bool {
    const NOBODY: libc::uid_t = 65_534;
    // SAFETY: plain calls; the process has a few threads of std's, which libc takes along.
    unsafe { libc::setresuid(NOBODY, NOBODY, NOBODY) == 0 }
}

/// Makes /proc an empty directory, for this process. False: it may not.
fn lose_proc() -> bool {
    // SAFETY: valid paths. The main thread shares its working directory with the others, so each gets
    // its own namespace: the threads that are made from now on are this one's children.
    unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(
                null_mut(),
                c"/".as_ptr(),
                null_mut(),
                libc::MS_REC | libc::MS_PRIVATE,
                null_mut(),
            ) == 0
            && libc::umount2(c"/proc".as_ptr(), libc::MNT_DETACH) == 0
    }
}

/// CPU time that the process has used.
fn cpu_time() -> Duration {
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: the call fills in the place, which is read then.
    let time = unsafe {
        libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, time.as_mut_ptr());
        time.assume_init()
    };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Thirty-two threads that compute share two kernel threads, though the kernel cannot be asked, or not
/// as usual, whether one is blocked.
fn hogs_share_processors(name: &'static str) {
    const HOGS: usize = 32;
    let _w = watchdog(name);
    let Some(case) = child_case(name) else {
        let out = child(name, name);
        assert_code(&out, 0);
        return eprintln!("{}", line_with(&out, &[name, ":"]));
    };
    let may = match case.as_str() {
        "restricted::hogs_share_processors_of_another_user" => become_nobody(),
        "restricted::hogs_share_processors_without_proc" => lose_proc(),
        _ => true,
    };
    if !may {
        return eprintln!("{case}: skipped, it takes root");
    }
    let runtime = Runtime::builder().processors(2).build().unwrap();
    if runtime.mode() == Mode::Kernel {
        return eprintln!("{case}: kernel-thread mode");
    }
    let taken = match case.as_str() {
        "restricted::hogs_share_processors_without_descriptors" => take_all_descriptors(),
        _ => Vec::new(),
    };
    // On a loaded machine the system's pauses may be longer than those that are excused, but not each time.
    const TRIES: usize = 5;
    let is_right = (0..TRIES).any(|_| {
        // All run, so that each but two of them has come to a processor that another one has lost.
        let (begun, used, before) = (Instant::now(), cpu_time(), runtime.metrics());
        let hogs = Hogs::start(&runtime, HOGS);
        let metrics = runtime.metrics();
        let preemptions = metrics.preemptions - before.preemptions;
        let hand_offs = metrics.hand_offs - before.hand_offs;
        // What the system gave to others, while it left a kernel thread unrun for so long that its processor
        // was taken.
        let lost = (2 * begun.elapsed()).saturating_sub(cpu_time() - used);
        let allowed = 2 + lost.as_millis() as u64 / 20;
        eprintln!(
            "{case}: {preemptions} preemptions, {hand_offs} hand-offs, of which {allowed} are excused"
        );
        assert!(preemptions + hand_offs >= HOGS as u64 - 2);
        hogs.end();
        hand_offs <= allowed
    });
    drop(taken);
    assert!(is_right, "a thread that computes counts as blocked");
    runtime.shutdown();
}

#[test]
fn hogs_share_processors_without_descriptors() {
    alone!();
    hogs_share_processors("restricted::hogs_share_processors_without_descriptors");
}

#[test]
fn hogs_share_processors_of_another_user() {
    alone!();
    hogs_share_processors("restricted::hogs_share_processors_of_another_user");
}

#[test]
fn hogs_share_processors_without_proc() {
    alone!();
    hogs_share_processors("restricted::hogs_share_processors_without_proc");
}

/// The control.
#[test]
fn hogs_share_processors_as_usual() {
    alone!();
    hogs_share_processors("restricted::hogs_share_processors_as_usual");
}

/// A thread that waits in the kernel gives its processor away, though nothing tells that it waits.
#[test]
fn blocked_threads_hand_off_without_proc() {
    const NAME: &str = "restricted::blocked_threads_hand_off_without_proc";
    let _w = watchdog(NAME);
    if child_case(NAME).is_none() {
        return assert_code(&child(NAME, ""), 0);
    }
    if !lose_proc() {
        return eprintln!("skipped, it takes root");
    }
    let runtime = Runtime::builder().processors(1).build().unwrap();
    let (send, receive) = std::sync::mpsc::channel();
    let waits = runtime.spawn(move || receive.recv().unwrap());
    // On the one processor that the other one keeps until it is taken.
    runtime.spawn(move || send.send(7).unwrap()).join().unwrap();
    assert_eq!(waits.join().unwrap(), 7);
    runtime.shutdown();
}

/// A thread that sleeps without a processor is not signalled again and again for the CPU time that the
/// handler takes: its sleep, which begins anew each time, would not end.
#[test]
fn sleepers_wake_up_without_proc() {
    const NAME: &str = "restricted::sleepers_wake_up_without_proc";
    let _w = watchdog(NAME);
    if child_case(NAME).is_none() {
        return assert_code(&child(NAME, "only"), 0);
    }
    if !lose_proc() {
        return eprintln!("skipped, it takes root");
    }
    let runtime = Runtime::builder().processors(1).build().unwrap();
    let hogs = Hogs::start(&runtime, 2);
    let sleeps = |_| {
        runtime.spawn(|| {
            // SAFETY: no preconditions.
            assert_eq!(unsafe { libc::usleep(200_000) }, 0);
        })
    };
    let sleepers: Vec<_> = (0..8).map(sleeps).collect();
    sleepers.into_iter().for_each(|s| s.join().unwrap());
    hogs.end();
    runtime.shutdown();
}

/// Eight threads, on one processor, that block unannounced ten times each.
fn block(runtime: &Runtime) {
    let sleeps = |_| {
        runtime.spawn(|| {
            // A signal may end such a sleep early.
            // SAFETY: no preconditions.
            let sleep = |_| _ = greenthread::thread::unhooked(|| unsafe { libc::usleep(10_000) });
            (0..10).for_each(sleep);
        })
    };
    let threads: Vec<_> = (0..8).map(sleeps).collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
}

/// The open descriptors by which the runtime asks in /proc.
fn descriptors_of_tasks() -> Vec<i32> {
    let all = std::fs::read_dir("/proc/self/fd").unwrap();
    let is_its = |entry: &std::fs::DirEntry| {
        std::fs::read_link(entry.path())
            .is_ok_and(|to| to.to_str().is_some_and(|to| to.contains("/task")))
    };
    all.map(Result::unwrap)
        .filter(is_its)
        .map(|entry| entry.file_name().to_str().unwrap().parse().unwrap())
        .collect()
}

/// A program may close descriptors that it does not know of: the next ones are opened.
#[test]
fn closed_descriptors_are_opened_again() {
    const NAME: &str = "restricted::closed_descriptors_are_opened_again";
    let _w = watchdog(NAME);
    if child_case(NAME).is_none() {
        let out = child(NAME, "only");
        println!("{}", said(&out));
        return assert_code(&out, 0);
    }
    let runtime = Runtime::builder().processors(1).build().unwrap();
    block(&runtime);
    if runtime.mode() == Mode::Kernel {
        return; // it asks for reports alone
    }
    let closed = descriptors_of_tasks();
    assert!(!closed.is_empty());
    // SAFETY: this process has nothing else to lose.
    closed
        .iter()
        .for_each(|&fd| assert_eq!(unsafe { libc::close(fd) }, 0));
    wait_until(|| {
        block(&runtime);
        !descriptors_of_tasks().is_empty()
    });
    runtime.shutdown();
}

/// Who closes 0 to have the next file there has it there.
#[test]
fn standard_descriptors_stay_free() {
    const NAME: &str = "restricted::standard_descriptors_stay_free";
    let _w = watchdog(NAME);
    if child_case(NAME).is_none() {
        return assert_code(&child(NAME, "only"), 0);
    }
    let runtime = Runtime::builder().processors(1).build().unwrap();
    // SAFETY: standard input, which nobody reads.
    unsafe { libc::close(0) };
    block(&runtime);
    let used = descriptors_of_tasks();
    assert!(used.iter().all(|&fd| fd > 2), "{used:?}");
    runtime.shutdown();
}

/// The system queues no more signals for this user: threads that compute share the CPUs as kernel
/// threads do, and it is said. When it does again, they are preempted.
#[test]
fn no_signal_can_be_sent_for_a_while() {
    const NAME: &str = "restricted::no_signal_can_be_sent_for_a_while";
    let _w = watchdog(NAME);
    if child_case(NAME).is_none() {
        let out = child(NAME, "only");
        assert_code(&out, 0);
        let stderr = String::from_utf8_lossy(&out.stderr);
        let expected = usize::from(green());
        assert_eq!(
            stderr.matches("RLIMIT_SIGPENDING").count(),
            expected,
            "{stderr}"
        );
        assert_eq!(
            stderr.matches("greenthread: ").count(),
            expected,
            "{stderr}"
        );
        return;
    }
    set_limit(libc::RLIMIT_SIGPENDING, 0);
    let runtime = Runtime::builder().processors(1).build().unwrap();
    let hogs = Hogs::start(&runtime, 6);
    assert_eq!(runtime.metrics().preemptions, 0);
    set_limit(libc::RLIMIT_SIGPENDING, u64::MAX);
    wait_until(|| runtime.metrics().preemptions != 0 || runtime.mode() == Mode::Kernel);
    hogs.end();
    runtime.shutdown();
}

/// The calling thread's mask becomes all signals, or what it was.
fn set_mask(mask: &libc::sigset_t) -> libc::sigset_t {
    let mut old = MaybeUninit::uninit();
    // SAFETY: both are valid sets.
    unsafe {
        assert_eq!(
            libc::pthread_sigmask(libc::SIG_SETMASK, mask, old.as_mut_ptr()),
            0
        );
        old.assume_init()
    }
}

fn all_signals() -> libc::sigset_t {
    let mut all = MaybeUninit::uninit();
    // SAFETY: the set is filled in before it is read.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        all.assume_init()
    }
}

/// Fetches the real-time signals that wait for the calling kernel thread, and says how many.
fn fetch_signals() -> usize {
    let mut set = MaybeUninit::uninit();
    // SAFETY: a set that is initialised first, and no time to wait.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in libc::SIGRTMIN()..=libc::SIGRTMAX() {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        let now: libc::timespec = std::mem::zeroed();
        (0..1_000_000)
            .take_while(|_| libc::sigtimedwait(set.as_ptr(), null_mut(), &now) > 0)
            .count()
    }
}

/// A thread that computes with all signals blocked has one signal waiting for it, however long it
/// computes; and if it fetches that itself, its kernel thread is preempted as before.
#[test]
fn one_signal_waits_at_most() {
    alone!();
    let _w = watchdog("restricted::one_signal_waits_at_most");
    let runtime = Runtime::builder().processors(2).build().unwrap();
    let hogs = Hogs::start(&runtime, 2);
    let blocker = || {
        runtime.spawn(|| {
            let mask = set_mask(&all_signals());
            let end = Instant::now() + Duration::from_millis(700);
            while Instant::now() < end {
                black_box(());
            }
            let waiting = fetch_signals();
            set_mask(&mask);
            waiting
        })
    };
    let blockers: Vec<_> = (0..4).map(|_| blocker()).collect();
    let waiting: Vec<usize> = blockers.into_iter().map(|b| b.join().unwrap()).collect();
    println!("signals that waited: {waiting:?}");
    assert!(waiting.iter().all(|&n| n <= 1), "{waiting:?}");
    assert!(waiting.contains(&1) || !green(), "none was sent");
    hogs.end();

    let before = runtime.metrics();
    let (begun, used) = (Instant::now(), cpu_time());
    let hogs = Hogs::start(&runtime, 32);
    let after = runtime.metrics();
    let lost = (2 * begun.elapsed()).saturating_sub(cpu_time() - used);
    hogs.end();
    let preemptions = after.preemptions - before.preemptions;
    let hand_offs = after.hand_offs - before.hand_offs;
    println!("afterwards: {preemptions} preemptions, {hand_offs} hand-offs");
    let excused = lost.as_millis() as u64 / 20;
    assert!(preemptions + excused > hand_offs || !green());
    runtime.shutdown();
}

/// Every variable of README's, and one of perturbed builds, with a value that is an error, or that names a file.
const BAD: [&str; 16] = [
    "PROCS",
    "STACK_SIZE",
    "MODE",
    "DRIVER",
    "POLICY",
    "UNMODIFIED",
    "TRACE",
    "SCHEDTRACE",
    "METRICS",
    "SIGNAL",
    "OBSERVE",
    "SIGQUIT",
    "DEADLOCK",
    "WARN",
    "WARN_LEAK",
    "PERTURB_SEED",
];
const FILES: [(&str, &str, &str); 3] = [
    ("GREENTHREAD_TRACE", "", "trace.json"),
    ("GREENTHREAD_DUMP", "", "dump"),
    ("GREENTHREAD_OBSERVE", "unix:", "socket"),
];

/// Runs a copy of this test's executable as nobody, which has root's rights if it is `privileged`, or as root.
fn run_copy(
    directory: &Directory,
    privileged: bool,
    case: &str,
    env: &[(String, String)],
) -> Output {
    const NOBODY: u32 = 65_534;
    let copy = directory.path(if privileged { "privileged" } else { "plain" });
    if !copy.exists() {
        std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
        let mode = if privileged { 0o4755 } else { 0o755 };
        std::fs::set_permissions(&copy, PermissionsExt::from_mode(mode)).unwrap();
    }
    let mut command = child_command_of(&copy, PRIVILEGED, case);
    command.envs(env.iter().map(|(name, value)| (name, value)));
    if privileged {
        command.uid(NOBODY).gid(NOBODY).current_dir("/");
    }
    loop {
        // Another test may start a child while the copy is being written, and that has it open for a moment.
        match command.output() {
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => {}
            out => return out.unwrap(),
        }
    }
}

const PRIVILEGED: &str = "restricted::a_privileged_program_hears_no_variable";

/// A program with rights that its caller lacks would write, with those rights, files that the caller names.
#[cfg_attr(
    not(feature = "observe"),
    ignore = "it looks for a trace, a dump and a socket"
)]
#[test]
fn a_privileged_program_hears_no_variable() {
    if let Some(case) = child_case(PRIVILEGED) {
        // SAFETY: it reads the auxiliary vector.
        eprintln!("secure: {}", unsafe { libc::getauxval(libc::AT_SECURE) });
        return starts_and_dumps(&case);
    }
    let _w = watchdog(PRIVILEGED);
    // SAFETY: a plain call.
    if unsafe { libc::geteuid() } != 0 {
        return eprintln!("skipped: it takes root");
    }
    let directory = Directory::new();
    std::fs::set_permissions(&directory.0, PermissionsExt::from_mode(0o755)).unwrap();
    let at = directory.0.to_str().unwrap();
    let bad = BAD.map(|name| (format!("GREENTHREAD_{name}"), "nonsense".into()));
    let files = FILES.map(|(name, before, file)| (name.into(), format!("{before}{at}/{file}")));
    let made = || FILES.map(|(.., file)| directory.path(file).exists());

    let out = run_copy(&directory, true, at, &[]);
    if said(&out).contains("secure: 0") {
        return eprintln!("skipped: no program is privileged here");
    }
    assert_code(&out, 0);
    let usual = line_with(&out, &["mode:"]);
    for env in [&bad[..], &files[..]] {
        let out = run_copy(&directory, true, at, env);
        assert_code(&out, 0);
        assert_eq!(line_with(&out, &["mode:"]), usual);
        assert_eq!(line_with(&out, &["made:"]), "made: [false, false, false]");
        assert_eq!(made(), [false; 3]);
    }
    // The same program without privileges.
    let out = run_copy(&directory, false, at, &bad);
    assert!(
        !out.status.success() && said(&out).contains("accepted is"),
        "{}",
        said(&out)
    );
    let out = run_copy(&directory, false, at, &files);
    assert_code(&out, 0);
    // The trace comes at the end.
    assert_eq!(line_with(&out, &["made:"]), "made: [false, true, true]");
    assert!(made()[0]);
}

/// Starts a runtime, asks for a dump as a user does, and says which of the files are there once it is written.
fn starts_and_dumps(directory: &str) {
    let runtime = Runtime::builder().build().expect("a runtime");
    eprintln!("mode: {:?}", runtime.mode());
    runtime.spawn(|| ()).join().unwrap();
    let file = |name: &str| std::path::Path::new(directory).join(name);
    let (reader, writer) = std::io::pipe().unwrap();
    let errors = std::io::stderr().as_fd().try_clone_to_owned().unwrap();
    let redirect = |to: i32| {
        // SAFETY: an open descriptor takes the place of standard error.
        assert_eq!(unsafe { libc::dup2(to, 2) }, 2);
    };
    redirect(writer.as_raw_fd());
    // SAFETY: the runtime has a handler.
    unsafe { libc::kill(libc::getpid(), libc::SIGQUIT) };
    let mut descriptor = libc::pollfd {
        fd: reader.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one descriptor.
    let mut has_come = || unsafe { libc::poll(&mut descriptor, 1, 1) } == 1;
    while !has_come() && !file("dump").exists() {}
    redirect(errors.as_raw_fd());
    eprintln!("made: {:?}", FILES.map(|(.., name)| file(name).exists()));
}
