//! Whether other kernel threads of this process are blocked, and in what, as the kernel says in `/proc`.
//!
//! A CPU clock that stands still cannot tell a thread that is blocked from one that the system does not
//! run just now; `/proc` can:
//!
//! | `/proc/self/task/<id>/…` | says | can be opened |
//! |---|---|---|
//! | `syscall` | `running`, or which call the thread is blocked in | by whom the process belongs to, if it may be dumped |
//! | `stat` | the thread's state, among much that takes longer | by anybody: by setuid and setcap programs, too |
//!
//! Neither can where `/proc` is not mounted, or all descriptors are in use. So an observer keeps the
//! directory, which outlives a `chroot`, and the descriptors of the threads it was last asked about: a
//! question is one system call then, and asks for nothing that could run out. One it has from the start, to
//! give it up for another when there is no other. If the program has closed them, they are opened again.
//!
//! # Invariants
//! 1. Between two questions an observer has [`KEPT`] descriptors and the directory's at most, and keeps
//!    none in the upper half of the numbers that the process may use: the program's never run out for it,
//!    however many kernel threads there are.
//! 2. A descriptor is closed, and an answer believed, only if what is read tells that it is ours: the
//!    program may have closed all that it does not know, and have another file under that number. It is
//!    read by `pread`, which takes nothing out of a pipe or a socket.
//! 3. None is kept at 0, 1 or 2: who closes those means the next file to be there.
//! 4. Nothing allocates.

use super::call;
use super::kernel_thread::{self, SystemCall};

/// So many threads' descriptors are kept.
const KEPT: usize = 8;
/// As much of an answer as tells all: of `syscall`, a number and eight words; of `stat`, the id, the name,
/// and one letter.
const ANSWER: usize = 192;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Call,
    Stat,
}

/// An open file that tells a thread's state.
#[derive(Clone, Copy)]
struct File {
    thread: i32,
    kind: Kind,
    descriptor: usize,
    /// When it was last read, in questions.
    read_at: u64,
}

/// What a kernel thread does, as far as can be told.
pub(crate) enum Doing {
    Call(SystemCall),
    /// It runs, or is blocked elsewhere: in a page fault.
    Other,
    Untold,
}

/// What reading a file came to.
enum Answer<T> {
    Is(T),
    /// The thread has ended.
    Ended,
    /// It is not that file, not any more.
    Foreign,
}

/// Who asks. See the file's header.
pub(crate) struct Observer {
    tasks: Option<usize>,
    kept: [Option<File>; KEPT],
    questions: u64,
}

impl Observer {
    pub(crate) fn new() -> Observer {
        let mut observer = Observer {
            tasks: open_tasks(),
            kept: [None; KEPT],
            questions: 0,
        };
        observer.reserve();
        observer
    }

    /// Whether kernel thread `id` of this process is blocked in the kernel, rather than running or
    /// waiting for a CPU. `None`: it cannot be told.
    pub(crate) fn is_blocked(&mut self, id: i32) -> Option<bool> {
        self.ask(id, true, File::is_blocked)
    }

    /// What kernel thread `id` of this process does. So many are asked about that their descriptors are
    /// not worth keeping.
    pub(crate) fn doing(&mut self, id: i32) -> Doing {
        let doing = self.ask(id, false, File::doing);
        doing.unwrap_or(Doing::Untold)
    }

    /// Keeps one descriptor at least.
    fn reserve(&mut self) {
        if self.kept.iter().all(Option::is_none)
            && let Some(file) = self.open(kernel_thread::id())
        {
            self.keep(file);
        }
    }

    fn ask<T>(
        &mut self,
        id: i32,
        keep: bool,
        understand: impl Fn(&File, &[u8]) -> Option<T>,
    ) -> Option<T> {
        self.questions += 1;
        let is_of = |file: &Option<File>| file.is_some_and(|file| file.thread == id);
        if let Some(place) = self.kept.iter_mut().find(|file| is_of(file))
            && let Some(file) = place
        {
            match file.read(&understand) {
                Answer::Is(answer) => {
                    file.read_at = self.questions;
                    return Some(answer);
                }
                Answer::Ended => close(file.descriptor),
                Answer::Foreign => {}
            }
            // The id may be another thread's by now.
            *place = None;
        }
        let file = self.open(id)?;
        let answer = match file.read(&understand) {
            Answer::Is(answer) => Some(answer),
            Answer::Ended | Answer::Foreign => None,
        };
        match keep && answer.is_some() {
            true => self.keep(file),
            false => close(file.descriptor),
        }
        self.reserve();
        answer
    }

    fn open(&mut self, id: i32) -> Option<File> {
        let read_at = self.questions;
        let try_to = |tasks, kind| {
            open(tasks, &path(id, kind), 0).map(|descriptor| File {
                thread: id,
                kind,
                descriptor,
                read_at,
            })
        };
        let mut tasks = self.tasks.or_else(open_tasks)?;
        self.tasks = Some(tasks);
        let mut tried = try_to(tasks, Kind::Call);
        if let Err(libc::EBADF | libc::ENOTDIR | libc::ENOENT) = tried
            && !are_tasks(tasks)
        {
            // The program has closed it: what is there now is not ours.
            self.tasks = open_tasks();
            tasks = self.tasks?;
            tried = try_to(tasks, Kind::Call);
        }
        match tried {
            Ok(file) => Some(file),
            // No descriptor is left, but perhaps one of ours.
            Err(libc::EMFILE) if self.make_room(1) => try_to(tasks, Kind::Call).ok(),
            Err(_) => try_to(tasks, Kind::Stat).ok(),
        }
    }

    /// Keeps the descriptor for the next question about that thread, or closes it.
    fn keep(&mut self, file: File) {
        if file.descriptor >= descriptors() / 2 {
            return close(file.descriptor);
        }
        self.make_room(KEPT);
        match self.kept.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(file),
            None => close(file.descriptor),
        }
    }

    /// If so many are kept, gives up the one that was read the longest ago. True: it has.
    fn make_room(&mut self, many: usize) -> bool {
        if self.kept.iter().flatten().count() < many {
            return false;
        }
        let oldest = self.kept.iter_mut().filter(|place| place.is_some());
        let oldest = oldest.min_by_key(|place| place.map(|file| file.read_at));
        let Some(file) = oldest.and_then(Option::take) else {
            return false;
        };
        file.end();
        true
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.kept.iter_mut().for_each(|place| {
            if let Some(file) = place.take() {
                file.end();
            }
        });
        if let Some(tasks) = self.tasks.filter(|&tasks| are_tasks(tasks)) {
            close(tasks);
        }
    }
}

impl File {
    fn read<T>(&self, understand: impl Fn(&File, &[u8]) -> Option<T>) -> Answer<T> {
        let mut text = [0; ANSWER];
        let arguments = [
            self.descriptor,
            text.as_mut_ptr() as usize,
            text.len(),
            0, // from the beginning
        ];
        // SAFETY: the buffer is valid for its length.
        match unsafe { call(libc::SYS_pread64, &arguments) } {
            Ok(length) => understand(self, &text[..length]).map_or(Answer::Foreign, Answer::Is),
            Err(libc::ESRCH) => Answer::Ended,
            Err(_) => Answer::Foreign,
        }
    }

    fn is_blocked(&self, text: &[u8]) -> Option<bool> {
        match self.kind {
            Kind::Call => call_in(text),
            Kind::Stat => stat_in(text, self.thread),
        }
    }

    fn doing(&self, text: &[u8]) -> Option<Doing> {
        let is_blocked = self.is_blocked(text)?;
        Some(match (is_blocked, self.kind) {
            (false, _) => Doing::Other,
            (true, Kind::Call) => SystemCall::parse(text).map_or(Doing::Other, Doing::Call),
            (true, Kind::Stat) => Doing::Untold,
        })
    }

    /// Closes the descriptor, if it is ours still.
    fn end(self) {
        if !matches!(self.read(File::is_blocked), Answer::Foreign) {
            close(self.descriptor);
        }
    }
}

/// `running`; or the call's number, or -1 (blocked elsewhere: a page fault), and addresses.
fn call_in(text: &[u8]) -> Option<bool> {
    if text.starts_with(b"running\n") {
        return Some(false);
    }
    let number = text.strip_prefix(b"-").unwrap_or(text);
    let digits = number.iter().take_while(|c| c.is_ascii_digit()).count();
    (digits != 0 && number[digits..].starts_with(b" 0x")).then_some(true)
}

/// `<id> (<name>) <state> …`; a name may have parentheses, what comes after it has none.
fn stat_in(text: &[u8], id: i32) -> Option<bool> {
    let mut digits = [0; DIGITS];
    let rest = text.strip_prefix(decimal(id, &mut digits))?;
    let rest = rest.strip_prefix(b" (")?;
    let name = rest.iter().rposition(|&c| c == b')')?;
    match rest[name..].get(..3)? {
        b") R" => Some(false),
        [b')', b' ', b'A'..=b'Z' | b'a'..=b'z'] => Some(true),
        _ => None,
    }
}

/// How many descriptors the process may have.
fn descriptors() -> usize {
    let mut limit = [0u64; 2];
    let place = &raw mut limit as usize;
    let arguments = [0, libc::RLIMIT_NOFILE as usize, 0, place];
    // SAFETY: the kernel writes two words.
    let asked = unsafe { call(libc::SYS_prlimit64, &arguments) };
    asked.map_or(0, |_| usize::try_from(limit[0]).unwrap_or(usize::MAX))
}

fn open_tasks() -> Option<usize> {
    let directory = c"/proc/self/task".to_bytes_with_nul();
    open(libc::AT_FDCWD as usize, directory, libc::O_DIRECTORY).ok()
}

/// Whether that is our directory, still: `/proc` has the asking thread's entry, too, but none above it.
fn are_tasks(descriptor: usize) -> bool {
    let has = |path: &[u8]| {
        let arguments = [descriptor, path.as_ptr() as usize, libc::F_OK as usize];
        // SAFETY: the path ends with a NUL.
        unsafe { call(libc::SYS_faccessat, &arguments) }.is_ok()
    };
    has(&path(kernel_thread::id(), Kind::Stat)) && has(b"../task\0")
}

fn open(directory: usize, path: &[u8], flags: i32) -> Result<usize, i32> {
    debug_assert_eq!(path.last(), Some(&0));
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC | flags) as usize;
    let arguments = [directory, path.as_ptr() as usize, flags];
    // SAFETY: the path ends with a NUL.
    let descriptor = unsafe { call(libc::SYS_openat, &arguments) }?;
    if descriptor > libc::STDERR_FILENO as usize {
        return Ok(descriptor);
    }
    let above = libc::STDERR_FILENO as usize + 1;
    let arguments = [descriptor, libc::F_DUPFD_CLOEXEC as usize, above];
    // SAFETY: only makes a descriptor.
    let moved = unsafe { call(libc::SYS_fcntl, &arguments) };
    close(descriptor);
    moved
}

fn close(descriptor: usize) {
    // SAFETY: the caller has seen that it is ours.
    let _ = unsafe { call(libc::SYS_close, &[descriptor]) };
}

const DIGITS: usize = 10;

/// `<id>/syscall` or `<id>/stat`, and NULs.
fn path(id: i32, kind: Kind) -> [u8; DIGITS + 9] {
    let (mut path, mut digits) = ([0; DIGITS + 9], [0; DIGITS]);
    let id = decimal(id, &mut digits);
    let name: &[u8] = match kind {
        Kind::Call => b"/syscall",
        Kind::Stat => b"/stat",
    };
    path[..id.len()].copy_from_slice(id);
    path[id.len()..][..name.len()].copy_from_slice(name);
    path
}

/// `id` in decimal, without allocating.
fn decimal(id: i32, digits: &mut [u8; DIGITS]) -> &[u8] {
    let (mut rest, mut first) = (id.unsigned_abs(), DIGITS);
    while rest > 0 || first == DIGITS {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    &digits[first..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, mpsc};

    #[test]
    fn a_path_is_spelled() {
        assert!(path(1_204_560, Kind::Call).starts_with(b"1204560/syscall\0"));
        assert!(path(0, Kind::Stat).starts_with(b"0/stat\0"));
        assert!(path(i32::MAX, Kind::Call).starts_with(b"2147483647/syscall\0"));
    }

    #[test]
    fn answers_are_understood() {
        for (text, state) in [
            ("running\n", Some(false)),
            ("202 0x7f00 0x0", Some(true)),
            ("-1 0x7ffc 0x55", Some(true)),
            ("202", None),
            ("rust is fun\n", None),
            ("", None),
        ] {
            assert_eq!(call_in(text.as_bytes()), state, "{text:?}");
        }
        for (text, state) in [
            ("77 (gt-machine-1) R 1 1", Some(false)),
            ("77 (gt-machine-1) S 1 1", Some(true)),
            ("77 (a) R 0 (b) D 1 1", Some(true)),
            ("78 (gt-machine-1) R 1 1", None),
            ("77 (gt-machine", None),
            ("", None),
        ] {
            assert_eq!(stat_in(text.as_bytes(), 77), state, "{text:?}");
        }
    }

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
            send.send(kernel_thread::id()).unwrap();
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
        for kind in [Kind::Call, Kind::Stat] {
            let mut observer = Observer::new();
            let mut subject = subject();
            let path = path(subject.id, kind);
            observer.keep(File {
                thread: subject.id,
                kind,
                descriptor: open(observer.tasks.unwrap(), &path, 0).unwrap(),
                read_at: 0,
            });
            // It may still be on its way out of `send`.
            while observer.is_blocked(subject.id) != Some(false) {}
            assert!((0..100).all(|_| observer.is_blocked(subject.id) == Some(false)));
            subject.computes.store(false, Ordering::Relaxed);
            while observer.is_blocked(subject.id) != Some(true) {
                std::thread::yield_now();
            }
            let is_its = |place: &&Option<File>| place.is_some_and(|f| f.thread == subject.id);
            assert_eq!(observer.kept.iter().filter(is_its).count(), 1);
            subject.pipe.write_all(b".").unwrap();
            subject.thread.join().unwrap();
            // It may be a moment until the kernel has forgotten it.
            while observer.is_blocked(subject.id).is_some() {
                std::thread::yield_now();
            }
            assert_eq!(observer.kept.iter().filter(is_its).count(), 0);
        }
    }

    #[test]
    fn of_nobody_nothing_is_told() {
        // No directory has such a name, and none is put in its place: it is the right one.
        let mut observer = Observer::new();
        assert_eq!(observer.is_blocked(i32::MAX), None);
        assert!(matches!(observer.doing(i32::MAX), Doing::Untold));
    }

    #[test]
    fn the_directory_is_opened_again() {
        let mut observer = Observer::new();
        let main = std::process::id() as i32;
        let first = observer.tasks.unwrap();
        let other = std::fs::File::open("/").unwrap();
        // SAFETY: the observer's directory, in whose place another comes.
        let replaced = unsafe { libc::dup2(other.as_raw_fd(), first as i32) };
        assert_eq!(replaced, first as i32);
        assert!(observer.is_blocked(main).is_some());
        assert_ne!(observer.tasks, Some(first));
        for other in ["/proc", "/proc/self", "/proc/self/fd"] {
            let other = std::fs::File::open(other).unwrap();
            assert!(!are_tasks(other.as_raw_fd() as usize));
        }
        // SAFETY: only asks.
        assert_ne!(unsafe { libc::fcntl(first as i32, libc::F_GETFD) }, -1);
        close(first);
    }

    #[test]
    fn descriptors_are_few_and_end_with_the_observer() {
        let mut observer = Observer::new();
        let subjects: Vec<Subject> = (0..2 * KEPT).map(|_| subject()).collect();
        for _ in 0..3 {
            for subject in &subjects {
                assert!(observer.is_blocked(subject.id).is_some());
            }
        }
        let kept: Vec<usize> = observer
            .kept
            .iter()
            .flatten()
            .map(|f| f.descriptor)
            .collect();
        assert_eq!(kept.len(), KEPT);
        let is_task = |descriptor: &usize| {
            let to = std::fs::read_link(format!("/proc/self/fd/{descriptor}"));
            let is_at = |id| {
                to.as_ref()
                    .is_ok_and(|to| to.ends_with(format!("{id}/syscall")))
            };
            subjects.iter().any(|subject| is_at(subject.id))
        };
        assert!(kept.iter().all(is_task));
        let last = *kept.last().unwrap();
        // The program closes what it does not know, and opens a file of its own there.
        let mut own = tempfile();
        own.write_all(b"running\n").unwrap();
        // SAFETY: `last` is the observer's, which is what is to be tried.
        let replaced = unsafe { libc::dup2(own.as_raw_fd(), last as i32) };
        assert_eq!(replaced, last as i32);
        own.set_len(0).unwrap();
        for subject in &subjects {
            assert!(observer.is_blocked(subject.id).is_some());
        }
        drop(observer);
        assert!(!kept[..KEPT - 1].iter().any(is_task));
        // SAFETY: only asks.
        let flags = unsafe { libc::fcntl(last as i32, libc::F_GETFD) };
        assert_ne!(flags, -1, "it was not ours to close");
        close(last);
        for mut subject in subjects {
            subject.computes.store(false, Ordering::Relaxed);
            subject.pipe.write_all(b".").unwrap();
            subject.thread.join().unwrap();
        }
    }

    fn tempfile() -> std::fs::File {
        // SAFETY: a valid name; a new descriptor.
        unsafe {
            let descriptor = libc::memfd_create(c"observer".as_ptr(), libc::MFD_CLOEXEC);
            <std::fs::File as std::os::fd::FromRawFd>::from_raw_fd(descriptor)
        }
    }
}
