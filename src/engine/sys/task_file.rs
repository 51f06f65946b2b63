//! The files in `/proc` that tell the state of one kernel thread of this process: their names, their
//! contents, opening and reading them.
//!
//! | `/proc/self/task/<id>/…` | says | can be opened |
//! |---|---|---|
//! | `syscall` | `running`, or which call the thread is blocked in | by the user that the process belongs to, if it may be dumped |
//! | `stat` | the thread's state, among much that takes longer | by anybody: by setuid and setcap programs, too |
//!
//! # Invariants
//! 1. An answer is believed, and a descriptor called ours, only if the text is that of such a file: the
//!    program may have closed all descriptors that it does not know, and have another file under that
//!    number. It is read by `pread`, which takes nothing out of a pipe or a socket.
//! 2. No descriptor is 0, 1 or 2: a program that closes those means the next file to be there.
//! 3. Nothing allocates.

use core::ffi::CStr;
use std::os::fd::RawFd;

use super::kernel_thread::{self, SystemCall};
use super::{Plain, call, plain};

/// As much of a file as tells all: of `syscall`, a number and eight words; of `stat`, the id, the name,
/// and one letter.
const ENOUGH: usize = 192;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Call,
    Stat,
}

/// An open file that tells a thread's state.
#[derive(Clone, Copy)]
pub(super) struct File {
    pub(super) thread: i32,
    pub(super) kind: Kind,
    pub(super) descriptor: usize,
}

/// The doing of a kernel thread, as far as can be told.
pub(crate) enum Doing {
    Call(SystemCall),
    /// It runs, or is blocked elsewhere: in a page fault.
    Other,
    Untold,
}

/// The result of reading a file.
pub(super) enum Answer<T> {
    Is(T),
    /// The thread has ended.
    Ended,
    /// It is not that file, or not any more.
    Foreign,
}

impl File {
    /// Opens the file of this kind about `thread`, in the directory `tasks`.
    pub(super) fn open(tasks: usize, thread: i32, kind: Kind) -> Result<File, i32> {
        open(tasks, path(thread, kind).name(), 0).map(|descriptor| File {
            thread,
            kind,
            descriptor,
        })
    }

    pub(super) fn read<T>(&self, understand: impl Fn(&File, &[u8]) -> Option<T>) -> Answer<T> {
        let mut text = [0; ENOUGH];
        let start = 0;
        let arguments = [
            self.descriptor,
            text.as_mut_ptr() as usize,
            text.len(),
            start,
        ];
        // SAFETY: the buffer is valid for its length.
        match unsafe { call(libc::SYS_pread64, &arguments) } {
            Ok(length) => understand(self, &text[..length]).map_or(Answer::Foreign, Answer::Is),
            Err(libc::ESRCH) => Answer::Ended,
            Err(_) => Answer::Foreign,
        }
    }

    pub(super) fn is_blocked(&self, text: &[u8]) -> Option<bool> {
        match self.kind {
            Kind::Call => call_in(text),
            Kind::Stat => stat_in(text, self.thread),
        }
    }

    pub(super) fn doing(&self, text: &[u8]) -> Option<Doing> {
        let is_blocked = self.is_blocked(text)?;
        Some(match (is_blocked, self.kind) {
            (false, _) => Doing::Other,
            (true, Kind::Call) => SystemCall::parse(text).map_or(Doing::Other, Doing::Call),
            (true, Kind::Stat) => Doing::Untold,
        })
    }

    /// Closes the descriptor, if it is ours still.
    pub(super) fn end(self) {
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

/// `<id> (<name>) <state> …`; a name may have parentheses, the text after it has none.
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

/// Opens the directory of this process's threads, if it knows them by the ids that they know themselves by.
pub(super) fn open_tasks() -> Option<usize> {
    let here = libc::AT_FDCWD as usize;
    let opened = || open(here, c"/proc/self/task", libc::O_DIRECTORY).ok();
    is_of_our_namespace().then(opened).flatten()
}

/// Whether this process has the same id in `/proc` as here: a process can be in a namespace of process ids that is not
/// that of its `/proc`, and there a thread's id is another thread's, or nobody's.
fn is_of_our_namespace() -> bool {
    let (mut digits, mut target) = ([0; DIGITS], [0; DIGITS]);
    let id = decimal(std::process::id() as i32, &mut digits);
    let (here, link) = (libc::AT_FDCWD as usize, c"/proc/self".as_ptr() as usize);
    let arguments = [here, link, target.as_mut_ptr() as usize, target.len()];
    // SAFETY: the path is a string, and the buffer is valid for its length.
    unsafe { call(libc::SYS_readlinkat, &arguments) }.is_ok_and(|length| target[..length] == *id)
}

/// Whether that is our directory, still: `/proc` has the asking thread's entry, too, but none above it.
pub(super) fn are_tasks(descriptor: usize) -> bool {
    let has = |path: &CStr| {
        let arguments = [descriptor, path.as_ptr() as usize, libc::F_OK as usize];
        // SAFETY: the kernel reads the path, which is a string.
        unsafe { call(libc::SYS_faccessat, &arguments) }.is_ok()
    };
    has(path(kernel_thread::id(), Kind::Stat).name()) && has(c"../task")
}

fn open(directory: usize, path: &CStr, flags: i32) -> Result<usize, i32> {
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC | flags) as usize;
    let arguments = [directory, path.as_ptr() as usize, flags];
    // SAFETY: the kernel reads the path, which is a string.
    let descriptor = unsafe { call(libc::SYS_openat, &arguments) }?;
    if descriptor > libc::STDERR_FILENO as usize {
        return Ok(descriptor);
    }
    let moved = super::duplicate(descriptor as RawFd, libc::STDERR_FILENO + 1);
    close(descriptor);
    moved.map(|moved| moved as usize)
}

/// Closes a descriptor that the caller has seen to be ours.
pub(super) fn close(descriptor: usize) {
    let _ = plain(Plain::CLOSE, &[descriptor]);
}

const DIGITS: usize = 10;

/// A short path, without allocating.
struct Path([u8; DIGITS + 9]);

impl Path {
    fn name(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.0).unwrap_or_default()
    }
}

/// `<id>/syscall` or `<id>/stat`.
fn path(id: i32, kind: Kind) -> Path {
    let (mut path, mut digits) = ([0; DIGITS + 9], [0; DIGITS]);
    let id = decimal(id, &mut digits);
    let name: &[u8] = match kind {
        Kind::Call => b"/syscall",
        Kind::Stat => b"/stat",
    };
    path[..id.len()].copy_from_slice(id);
    path[id.len()..][..name.len()].copy_from_slice(name);
    Path(path)
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

    #[test]
    fn a_path_is_spelled() {
        assert_eq!(path(1_204_560, Kind::Call).name(), c"1204560/syscall");
        assert_eq!(path(0, Kind::Stat).name(), c"0/stat");
        assert_eq!(path(i32::MAX, Kind::Call).name(), c"2147483647/syscall");
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
}
