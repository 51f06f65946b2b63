//! Kernel threads: how one is started, its id, its name, its clocks, how it gives way or rests, barriers between kernel
//! threads, and whether one is blocked ([`is_blocked`]).
//!
//! # What `/proc` says
//! Two files tell whether a kernel thread is blocked, and in which system call ([`call_of`]).
//!
//! | `/proc/self/task/<id>/…` | says | can be opened |
//! |---|---|---|
//! | `syscall` | `running`, or which call the thread is blocked in | by the user that the process belongs to, if the process may be dumped |
//! | `stat` | the thread's state, among much that takes longer | by anybody: by setuid and setcap programs, too |
//!
//! A CPU clock that stands still cannot tell a blocked thread from one that the system does not run just now; these
//! files can. They cannot be opened where `/proc` is not mounted, or where all descriptors are in use. The process keeps
//! the directory, which outlives a `chroot`, and opens a file for one question.
//!
//! ## Invariants
//! 1. Between two questions there is one descriptor, that of the directory, however many kernel threads
//!    there are.
//! 2. An answer is believed, and a descriptor is closed, only if the text is that of such a file: the program may close
//!    all descriptors that it does not know, and may have another file under that number. The file is read by
//!    `pread`, which takes nothing out of a pipe or a socket. A directory that the program has closed is opened again.
//! 3. No descriptor that stays is 0, 1 or 2: a program that closes those means the next file to be there.
//! 4. Nothing allocates.

use core::ffi::{c_int, c_void};
use core::{cell::Cell, fmt::Arguments, mem};
use std::io::{Cursor, Write};
use std::os::fd::RawFd;

use super::mm::page;
use super::{clock, close, duplicate, syscall};
use crate::engine::atomic::{AtomicBool, AtomicI32, Ordering};

thread_local! {
    /// The thread makes a kernel thread.
    static IS_MAKING: Cell<bool> = const { Cell::new(false) };
}

/// Whether the thread makes a kernel thread of the crate's, which must not become a green one (`libc::pthread::create`).
#[cfg(hooks)]
pub(crate) fn is_making() -> bool {
    IS_MAKING.get()
}

/// Calls `make`, in which a kernel thread is made. (`.ci/house` looks that the crate makes none but here.)
pub(crate) fn making<T>(make: impl FnOnce() -> T) -> T {
    IS_MAKING.set(true);
    let made = make();
    IS_MAKING.set(false);
    made
}

/// Starts a kernel thread that calls `main(argument)`, with libc's means alone. `detach_state` is libc's constant.
///
/// # Safety
/// `main` may be called so, on a thread of its own, and does not unwind.
pub(crate) unsafe fn start(
    stack_size: usize,
    detach_state: c_int,
    main: extern "C" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
) -> Result<libc::pthread_t, i32> {
    let mut thread = 0;
    // SAFETY: the attributes are initialised first and destroyed last; `main` may be called so.
    unsafe {
        let mut attributes = mem::zeroed();
        libc::pthread_attr_init(&mut attributes);
        libc::pthread_attr_setdetachstate(&mut attributes, detach_state);
        // libc refuses an absurd size; then the default remains.
        libc::pthread_attr_setstacksize(&mut attributes, stack_size.next_multiple_of(page()));
        let error = making(|| libc::pthread_create(&mut thread, &attributes, main, argument));
        libc::pthread_attr_destroy(&mut attributes);
        match error {
            0 => Ok(thread),
            error => Err(error),
        }
    }
}

/// Names the calling kernel thread. The system keeps 15 bytes of the name.
pub(crate) fn set_name(text: Arguments<'_>) {
    let name = spell(text).into_inner();
    // SAFETY: the kernel reads 16 bytes of the name at most, which has 32.
    let _ = unsafe { syscall!(libc::SYS_prctl, libc::PR_SET_NAME, name.as_ptr()) };
}

/// The bytes that [`own_name`] needs.
pub(crate) const NAME: usize = 16;

/// The name of the calling kernel thread, as far as the system keeps it; as std has it, that of the first
/// one is `main`.
pub(crate) fn own_name(buffer: &mut [u8; NAME]) -> &str {
    if id() == process() {
        return "main";
    }
    // SAFETY: the kernel writes 16 bytes, the buffer's.
    let _ = unsafe { syscall!(libc::SYS_prctl, libc::PR_GET_NAME, buffer.as_mut_ptr()) };
    let end = buffer.iter().position(|&byte| byte == 0).unwrap_or(NAME);
    core::str::from_utf8(&buffer[..end]).unwrap_or("")
}

/// The calling kernel thread's id.
pub(crate) fn id() -> i32 {
    own(libc::SYS_gettid)
}

/// This process's id. (The names of libc's calls tell others in a simulated process.)
pub(crate) fn process() -> i32 {
    own(libc::SYS_getpid)
}

fn own(number: libc::c_long) -> i32 {
    // SAFETY: the caller's call touches no memory, and cannot fail.
    unsafe { syscall!(number) }.unwrap_or(0) as i32
}

/// The calling kernel thread rests for `nanos`, or until a signal comes.
pub(crate) fn rest(nanos: u64) {
    let time = clock::timespec(nanos);
    // SAFETY: the kernel reads a valid time, and is given no place to write to.
    let _ = unsafe { syscall!(libc::SYS_nanosleep, &raw const time, 0) };
}

/// Whether this process has a kernel thread `id`.
pub(crate) fn exists(id: i32) -> bool {
    // There is no signal 0: the kernel looks for the thread only.
    send(id, 0) != Err(libc::ESRCH)
}

/// Whether this process has a kernel thread, beside its first one, that is not `known`; also if that cannot be told.
#[cfg(hooks)]
pub(crate) fn has_others(known: impl Fn(i32) -> bool) -> bool {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else {
        return true;
    };
    let ids = tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok());
    ids.filter(|&id| id != process()).any(|id| !known(id))
}

/// Sends `signal` to kernel thread `id`.
pub(crate) fn send(id: i32, signal: i32) -> Result<usize, i32> {
    // SAFETY: the call touches no memory.
    unsafe { syscall!(libc::SYS_tgkill, process(), id, signal) }
}

/// Whether the calling kernel thread has made a process that lives, or that nobody has waited for, however it did so.
/// Such a process may have asked for a signal when this kernel thread ends (PR_SET_PDEATHSIG).
pub(crate) fn has_children() -> bool {
    // These flags look at children of this thread alone, but of all kinds, and leave them waitable.
    const LOOK: i32 =
        libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WNOTHREAD | libc::__WALL;
    // SAFETY: the kernel is given no place to write to. (Where it refuses, nobody waits for a process here.)
    unsafe { syscall!(libc::SYS_waitid, libc::P_ALL, 0, 0, LOOK, 0) }.is_ok()
}

/// The clock of the CPU time used by a process, in the kernel's encoding.
pub(crate) fn process_clock(id: i32) -> libc::clockid_t {
    const SCHEDULER: i32 = 2;
    (!id << 3) | SCHEDULER
}

/// The clock of the CPU time used by kernel thread `id`, in the kernel's encoding. The number before that is the clock of
/// the part that was used in user mode.
pub(crate) fn cpu_clock(id: i32) -> libc::clockid_t {
    const PER_THREAD: i32 = 4;
    process_clock(id) | PER_THREAD
}

/// The fewest system interruptions: timers of this thread fire when due, not up to 50 µs later.
pub(crate) fn set_precise_timers() {
    // SAFETY: the kernel takes numbers.
    let _ = unsafe { syscall!(libc::SYS_prctl, libc::PR_SET_TIMERSLACK, 1) };
}

/// Lets other kernel threads have the CPU.
pub(crate) fn give_way() {
    // SAFETY: the call touches no memory. (It cannot fail. The crate has a function in libc's place.)
    let _ = unsafe { syscall!(libc::SYS_sched_yield) };
}

/// The kernel has promised [`barrier`] to this process, and to those that it forks.
static HAS_BARRIER: AtomicBool = AtomicBool::new(false);

/// Asks that [`barrier`] be available. The answer is yes from the first yes on: other threads rely on it by then, and
/// must not hear a no because a filter has come meanwhile.
pub(crate) fn register_barrier() -> bool {
    const REGISTER_PRIVATE_EXPEDITED: usize = 1 << 4;
    if !HAS_BARRIER.load(Ordering::Relaxed) {
        let asked = membarrier(REGISTER_PRIVATE_EXPEDITED);
        HAS_BARRIER.fetch_or(asked.is_ok(), Ordering::Relaxed);
    }
    HAS_BARRIER.load(Ordering::Relaxed)
}

/// A full memory barrier on every running thread of the process: the heavy half of an asymmetric
/// fence.
///
/// If the system refuses it although it was registered, the process ends: the other threads make the cheap half, and
/// nothing else interrupts each of them without their noticing.
pub(crate) fn barrier() {
    const PRIVATE_EXPEDITED: usize = 1 << 3;
    if membarrier(PRIVATE_EXPEDITED).is_err() {
        super::print(
            b"greenthread: the system refuses membarrier, which it has allowed before (a seccomp filter?). Green \
              threads cannot go on without: allow it, or set GREENTHREAD_MODE=kernel\n",
        );
        std::process::abort()
    }
}

fn membarrier(command: usize) -> Result<usize, i32> {
    // SAFETY: the call touches no memory.
    unsafe { syscall!(libc::SYS_membarrier, command, 0, 0) }
}

// ==== what `/proc` says ====

/// As much of a file as tells all: of `syscall`, a number and eight words; of `stat`, the id, the name, and one letter.
const ENOUGH: usize = 192;

/// A system call that a kernel thread is blocked in.
pub(crate) struct SystemCall {
    pub(crate) number: i64,
    pub(crate) arguments: [u64; 6],
    pub(crate) stack_pointer: usize,
    pub(crate) program_counter: usize,
}

impl SystemCall {
    /// From the text of `syscall`: the number, six arguments, the stack pointer and the program counter, all but the
    /// first in hexadecimal. `None` for `running`, and for `-1` with the latter two.
    fn parse(text: &[u8]) -> Option<SystemCall> {
        let mut words = core::str::from_utf8(text).ok()?.split_ascii_whitespace();
        let number = words.next()?.parse().ok().filter(|number| *number >= 0)?;
        let mut values = [0; 8];
        for value in &mut values {
            *value = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
        }
        let [arguments @ .., stack_pointer, program_counter] = values;
        Some(SystemCall {
            number,
            arguments,
            stack_pointer: stack_pointer as usize,
            program_counter: program_counter as usize,
        })
    }
}

/// Whether the system call waits for as long as it takes, on a futex, for a lock on a file, for the other end of a FIFO or
/// for a child, and begins anew if a signal interrupts it: nothing has come of the call then. (A call that
/// transfers data begins anew, too; but so would the time-out of its descriptor.)
pub(crate) fn begins_anew(number: i64, arguments: &[u64; 6]) -> bool {
    let [_, operation, _, timeout, ..] = *arguments;
    match number {
        libc::SYS_futex => {
            let operation = operation as i32 & libc::FUTEX_CMD_MASK;
            matches!(operation, libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET) && timeout == 0
        }
        libc::SYS_fcntl => matches!(operation as i32, libc::F_SETLKW | libc::F_OFD_SETLKW),
        libc::SYS_flock | libc::SYS_openat | libc::SYS_wait4 | libc::SYS_waitid => true,
        _ => false,
    }
}

/// Whether a signal may make the system call fail with EINTR, or begin anew: then nothing has come of it.
pub(crate) fn may_be_cut(number: i64, arguments: &[u64; 6]) -> bool {
    match number {
        libc::SYS_read | libc::SYS_readv | libc::SYS_preadv | libc::SYS_preadv2 => true,
        libc::SYS_write | libc::SYS_writev | libc::SYS_pwritev | libc::SYS_pwritev2 => true,
        libc::SYS_recvfrom | libc::SYS_recvmsg | libc::SYS_recvmmsg => true,
        libc::SYS_sendto | libc::SYS_sendmsg | libc::SYS_sendmmsg => true,
        libc::SYS_accept | libc::SYS_accept4 | libc::SYS_connect => true,
        libc::SYS_sendfile | libc::SYS_splice => true,
        libc::SYS_mq_timedsend | libc::SYS_mq_timedreceive => true,
        libc::SYS_ioctl => arguments[1] == libc::TCSBRK,
        _ => begins_anew(number, arguments),
    }
}

/// From the text of `syscall`: whether the thread is blocked, and in which call. `running`; or the call's number, or -1
/// (blocked elsewhere: in a page fault), and addresses. `None`: the text is not that of such a file.
fn call_in(text: &[u8]) -> Option<(bool, Option<SystemCall>)> {
    let begins = |start: &[u8]| text.starts_with(start);
    match text {
        [b'r', ..] => begins(b"running\n").then_some((false, None)),
        [b'-', ..] => begins(b"-1 0x").then_some((true, None)),
        _ => SystemCall::parse(text).map(|call| (true, Some(call))),
    }
}

/// From the text of `stat` of thread `id`: whether the thread is blocked. `<id> (<name>) <state> …`; a name may have
/// parentheses, the text after the name has none.
fn stat_in(text: &[u8], id: i32) -> Option<bool> {
    let start = spell(format_args!("{id} ("));
    let rest = text.strip_prefix(&start.get_ref()[..start.position() as usize])?;
    let name = rest.iter().rposition(|&c| c == b')')?;
    match rest[name..].get(..3)? {
        b") R" => Some(false),
        [b')', b' ', b'A'..=b'Z' | b'a'..=b'z'] => Some(true),
        _ => None,
    }
}

/// The directory of this process's threads in `/proc`; [`NONE`] before the first question.
static TASKS: AtomicI32 = AtomicI32::new(NONE);
const NONE: RawFd = -1;

/// Whether kernel thread `id` of this process is blocked in the kernel, rather than running or waiting for a CPU.
/// `None`: that cannot be told.
pub(crate) fn is_blocked(id: i32) -> Option<bool> {
    ask(id).map(|(is_blocked, _)| is_blocked)
}

/// The system call that kernel thread `id` of this process is blocked in. `None`: it runs, or is blocked elsewhere (in a page
/// fault), or that cannot be told.
pub(crate) fn call_of(id: i32) -> Option<SystemCall> {
    ask(id)?.1
}

/// [`is_blocked`] and [`call_of`] at one moment.
pub(crate) fn ask(id: i32) -> Option<(bool, Option<SystemCall>)> {
    let (file, tells_call) = open_file_of(id)?;
    let mut text = [0; ENOUGH];
    // SAFETY: the kernel writes at most `ENOUGH` bytes, which the text has.
    let length = unsafe { syscall!(libc::SYS_pread64, file, text.as_mut_ptr(), ENOUGH, 0) };
    let answer = length.map(|length| match tells_call {
        true => call_in(&text[..length]),
        false => stat_in(&text[..length], id).map(|is_blocked| (is_blocked, None)),
    });
    if matches!(answer, Ok(Some(_)) | Err(libc::ESRCH)) {
        close(file); // it was such a file, even if the thread has ended meanwhile
    }
    answer.ok().flatten()
}

/// Opens the thread's `syscall`, or else its `stat`. Returns the descriptor, and whether the file tells the call.
fn open_file_of(id: i32) -> Option<(RawFd, bool)> {
    let open_in = |tasks: RawFd| {
        let syscall = open(tasks, format_args!("{id}/syscall"), 0).map(|file| (file, true));
        syscall.or_else(|_| open(tasks, format_args!("{id}/stat"), 0).map(|file| (file, false)))
    };
    let known = TASKS.load(Ordering::Relaxed);
    open_in(known).ok().or_else(|| {
        // Either the thread has ended, or the program has closed the directory; then the number may be another
        // file's by now, which is not ours to close.
        let tasks = open_tasks()?;
        let found = open_in(tasks).ok();
        let set =
            |tasks| TASKS.compare_exchange(known, tasks, Ordering::Relaxed, Ordering::Relaxed);
        if found.is_none() || set(tasks).is_err() {
            close(tasks);
        }
        found
    })
}

/// Opens the directory of this process's threads, if this process has the same id in `/proc` as here: a process can be in a
/// namespace of process ids that is not that of its `/proc`, and there a thread's id is another thread's, or nobody's.
fn open_tasks() -> Option<RawFd> {
    let id = spell(format_args!("{}", process()));
    let mut target = [0; 32];
    let (link, place, size) = (c"/proc/self".as_ptr(), target.as_mut_ptr(), target.len());
    // SAFETY: the path is a string, and the kernel writes to the target, which has the bytes that are offered.
    let found = unsafe { syscall!(libc::SYS_readlinkat, libc::AT_FDCWD, link, place, size) };
    // The path begins at the root, so no directory is named.
    let opened = || open(NONE, format_args!("/proc/self/task"), libc::O_DIRECTORY);
    let is_there = found.is_ok() && target == id.into_inner();
    is_there.then(opened)?.ok()
}

fn open(directory: RawFd, path: Arguments<'_>, flags: i32) -> Result<RawFd, i32> {
    let path = spell(path).into_inner();
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | flags;
    // SAFETY: the kernel reads the path, which ends with a zero: all of them are shorter than their place.
    let opened = unsafe { syscall!(libc::SYS_openat, directory, path.as_ptr(), flags) };
    let descriptor = opened? as RawFd;
    if descriptor > libc::STDERR_FILENO {
        return Ok(descriptor);
    }
    let moved = duplicate(descriptor, libc::STDERR_FILENO + 1);
    close(descriptor);
    moved
}

/// Writes a short text without allocating; zeroes follow it.
fn spell(text: Arguments<'_>) -> Cursor<[u8; 32]> {
    let mut spelled = Cursor::new([0; 32]);
    let _ = spelled.write_fmt(text);
    spelled
}

// ==== names of system calls ====

/// Pairs of the number and the constant's name.
macro_rules! calls {
    ($($name:ident)*) => { &[$((libc::$name, stringify!($name))),*] };
}

const NAMED: &[(libc::c_long, &str)] = calls! {
    SYS_futex SYS_read SYS_write SYS_readv SYS_writev SYS_pread64 SYS_pwrite64 SYS_recvfrom SYS_sendto SYS_recvmsg
    SYS_sendmsg SYS_accept SYS_accept4 SYS_connect SYS_sendfile SYS_splice SYS_openat SYS_fcntl SYS_flock SYS_ppoll
    SYS_pselect6 SYS_epoll_pwait SYS_epoll_pwait2 SYS_nanosleep SYS_clock_nanosleep SYS_wait4 SYS_waitid SYS_fsync
    SYS_fdatasync SYS_newfstatat SYS_getdents64 SYS_ioctl SYS_rt_sigtimedwait SYS_mmap SYS_munmap SYS_madvise
    SYS_sched_yield SYS_io_uring_enter
};

/// Calls that newer ones have superseded: younger architectures have only those.
#[cfg(target_arch = "x86_64")]
const SUPERSEDED: &[(libc::c_long, &str)] = calls! { SYS_poll SYS_select SYS_epoll_wait SYS_open };
#[cfg(not(target_arch = "x86_64"))]
const SUPERSEDED: &[(libc::c_long, &str)] = &[];

/// The name of system call `number`, as strace has it; of a call in which no thread is found blocked, the number.
pub(crate) fn call_name(number: i64) -> String {
    let mut all = NAMED.iter().chain(SUPERSEDED);
    match all.find(|(known, _)| *known == number) {
        Some((_, constant)) => constant.trim_start_matches("SYS_").into(),
        None => format!("syscall {number}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, mpsc};

    /// A thread that computes, then blocks in a pipe, then ends.
    struct Subject {
        id: i32,
        computes: Arc<AtomicBool>,
        pipe: std::io::PipeWriter,
        thread: std::thread::JoinHandle<()>,
    }

    fn subject() -> Subject {
        let (send, receive) = mpsc::channel();
        let (mut reader, pipe) = std::io::pipe().unwrap();
        let computes = Arc::new(AtomicBool::new(true));
        let go_on = computes.clone();
        let thread = std::thread::spawn(move || {
            send.send(id()).unwrap();
            while go_on.load(Ordering::Relaxed) {
                core::hint::spin_loop();
            }
            reader.read_exact(&mut [0]).unwrap();
        });
        Subject {
            id: receive.recv().unwrap(),
            computes,
            pipe,
            thread,
        }
    }

    #[test]
    fn who_computes_is_not_blocked_and_who_reads_is() {
        // By `syscall`; by `stat`, as where that cannot be opened.
        for tells_call in [true, false] {
            let mut subject = subject();
            let id = subject.id;
            let is_blocked = || match tells_call {
                true => is_blocked(id),
                false => {
                    let text = std::fs::read(format!("/proc/self/task/{id}/stat"));
                    stat_in(&text.ok()?, id)
                }
            };
            // It may still be on its way out of `send`.
            while is_blocked() != Some(false) {}
            assert!((0..100).all(|_| is_blocked() == Some(false)));
            subject.computes.store(false, Ordering::Relaxed);
            while is_blocked() != Some(true) {
                std::thread::yield_now();
            }
            subject.pipe.write_all(b".").unwrap();
            subject.thread.join().unwrap();
            // It may be a moment until the kernel has forgotten it.
            while is_blocked().is_some() {
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn of_nobody_nothing_is_told() {
        // No directory has such a name, and none is put in its place: it is the right one.
        assert_eq!(is_blocked(i32::MAX), None);
        assert!(call_of(i32::MAX).is_none());
    }

    #[test]
    fn the_directory_is_opened_again() {
        let main = std::process::id() as i32;
        assert!(is_blocked(main).is_some());
        // Another directory has come in its place.
        let other = std::fs::File::open("/").unwrap();
        let number = other.as_raw_fd();
        close(TASKS.swap(number, Ordering::Relaxed));
        assert!(is_blocked(main).is_some());
        assert_ne!(TASKS.load(Ordering::Relaxed), number);
        assert!(other.metadata().is_ok(), "it was not ours to close");
    }

    #[test]
    fn answers_are_understood() {
        for (text, state) in [
            ("running\n", Some(false)),
            ("202 0x1 0x2 0x3 0x4 0x5 0x6 0x7f00 0x55\n", Some(true)),
            ("-1 0x7ffc 0x55", Some(true)),
            ("202", None),
            ("202 0x7f00 0x0", None),
            ("rust is fun\n", None),
            ("", None),
        ] {
            let found = call_in(text.as_bytes());
            assert_eq!(found.map(|(is_blocked, _)| is_blocked), state, "{text:?}");
        }
        for (text, state) in [
            ("77 (gt-worker-1) R 1 1", Some(false)),
            ("77 (gt-worker-1) S 1 1", Some(true)),
            ("77 (a) R 0 (b) D 1 1", Some(true)),
            ("78 (gt-worker-1) R 1 1", None),
            ("77 (gt-worker", None),
            ("", None),
        ] {
            assert_eq!(stat_in(text.as_bytes(), 77), state, "{text:?}");
        }
    }

    fn parse(text: &str) -> Option<SystemCall> {
        SystemCall::parse(text.as_bytes())
    }

    #[test]
    fn a_system_call_is_read() {
        let number = |number: i64| format!("{number} ");
        let futex = &number(libc::SYS_futex);
        let (read, flock) = (&number(libc::SYS_read), &number(libc::SYS_flock));
        let fcntl = &number(libc::SYS_fcntl);
        let wait = format!("{futex}0x7f01 0x80 0x2 0x0 0x5 0x6 0x7ffe 0x55\n");
        let call = parse(&wait).unwrap();
        assert!(begins_anew(call.number, &call.arguments) && call.number == libc::SYS_futex);
        for (other, waits) in [
            (wait.replace("0x80 ", "0x189 "), true), // FUTEX_WAIT_BITSET by the real clock
            (wait.replace("0x80 ", "0x81 "), false), // FUTEX_WAKE
            (wait.replace("0x80 ", "0x86 "), false), // FUTEX_LOCK_PI
            (wait.replace("0x0 ", "0x7ffd "), false), // until then
            (wait.replace(futex, read), false),
            (wait.replace(futex, flock), true),
            (wait.replace(futex, fcntl), false), // but not this one
            (wait.replace(futex, fcntl).replace("0x80 ", "0x7 "), true), // F_SETLKW
        ] {
            let call = parse(&other).unwrap();
            assert_eq!(begins_anew(call.number, &call.arguments), waits, "{other}");
        }
        for nothing in ["running\n", "-1 0x7ffe 0x55\n", "202 0x1 0x80\n", ""] {
            assert!(parse(nothing).is_none(), "{nothing}");
        }
    }

    #[test]
    fn calls_have_names_or_numbers() {
        assert_eq!(call_name(libc::SYS_clock_nanosleep), "clock_nanosleep");
        assert_eq!(
            call_name(libc::SYS_kcmp),
            format!("syscall {}", libc::SYS_kcmp)
        );
    }
}
