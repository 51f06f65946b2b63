//! Tells whether another kernel thread of this process is blocked, and in which call, by `/proc`.
//!
//! A CPU clock that stands still cannot tell a thread that is blocked from one that the system does not
//! run just now; two files can ([`task_file`](super::task_file)). They cannot be opened where `/proc` is
//! not mounted, or all descriptors are in use. So an observer keeps the directory, which outlives a
//! `chroot`, and the descriptors of the threads it was last asked about: a question is one system call
//! then, and needs nothing that could run out. It has one descriptor from the start, to give it up for
//! another when no other is left. If the program has closed them, they are opened again.
//!
//! # Invariants
//! 1. Between two questions an observer has [`KEPT`] descriptors and the directory's at most, and keeps
//!    none in the upper half of the numbers that the process may use: the program's never run out for it,
//!    however many kernel threads there are.
//! 2. A descriptor is closed only if it was seen to be ours just before.
//! 3. Nothing allocates.

use super::task_file::{Answer, File, Kind, are_tasks, close, open_tasks};
use super::{call, kernel_thread};

pub(crate) use super::task_file::Doing;

/// So many threads' descriptors are kept.
const KEPT: usize = 8;

/// One of the files that an observer keeps.
#[derive(Clone, Copy)]
struct Kept {
    file: File,
    /// When it was last read, in questions.
    read_at: u64,
}

/// Answers questions about kernel threads: see the file's header.
pub(crate) struct Observer {
    tasks: Option<usize>,
    kept: [Option<Kept>; KEPT],
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

    /// The doing of kernel thread `id` of this process. So many are asked about that their descriptors
    /// are not worth keeping.
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
        let is_of = |kept: &Option<Kept>| kept.is_some_and(|kept| kept.file.thread == id);
        if let Some(place) = self.kept.iter_mut().find(|kept| is_of(kept))
            && let Some(kept) = place
        {
            match kept.file.read(&understand) {
                Answer::Is(answer) => {
                    kept.read_at = self.questions;
                    return Some(answer);
                }
                Answer::Ended => close(kept.file.descriptor),
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
        let mut tasks = self.tasks.or_else(open_tasks)?;
        self.tasks = Some(tasks);
        let mut tried = File::open(tasks, id, Kind::Call);
        if let Err(libc::EBADF | libc::ENOTDIR | libc::ENOENT) = tried
            && !are_tasks(tasks)
        {
            // The program has closed it: the file that has this number now is not ours.
            self.tasks = open_tasks();
            tasks = self.tasks?;
            tried = File::open(tasks, id, Kind::Call);
        }
        match tried {
            Ok(file) => Some(file),
            // No descriptor is left, but perhaps one of ours.
            Err(libc::EMFILE) if self.make_room(1) => File::open(tasks, id, Kind::Call).ok(),
            Err(_) => File::open(tasks, id, Kind::Stat).ok(),
        }
    }

    /// Keeps the descriptor for the next question about that thread, or closes it.
    fn keep(&mut self, file: File) {
        if file.descriptor >= descriptors() / 2 {
            return close(file.descriptor);
        }
        self.make_room(KEPT);
        match self.kept.iter_mut().find(|place| place.is_none()) {
            Some(place) => {
                let read_at = self.questions;
                *place = Some(Kept { file, read_at });
            }
            None => close(file.descriptor),
        }
    }

    /// If so many are kept, gives up the one that was read the longest ago. True: it has.
    fn make_room(&mut self, many: usize) -> bool {
        if self.kept.iter().flatten().count() < many {
            return false;
        }
        let oldest = self.kept.iter_mut().filter(|place| place.is_some());
        let oldest = oldest.min_by_key(|place| place.map(|kept| kept.read_at));
        let Some(oldest) = oldest.and_then(Option::take) else {
            return false;
        };
        oldest.file.end();
        true
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.kept.iter_mut().for_each(|place| {
            if let Some(kept) = place.take() {
                kept.file.end();
            }
        });
        if let Some(tasks) = self.tasks.filter(|&tasks| are_tasks(tasks)) {
            close(tasks);
        }
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
            let tasks = observer.tasks.unwrap();
            observer.keep(File::open(tasks, subject.id, kind).unwrap());
            // It may still be on its way out of `send`.
            while observer.is_blocked(subject.id) != Some(false) {}
            assert!((0..100).all(|_| observer.is_blocked(subject.id) == Some(false)));
            subject.computes.store(false, Ordering::Relaxed);
            while observer.is_blocked(subject.id) != Some(true) {
                std::thread::yield_now();
            }
            let is_its = |place: &&Option<Kept>| place.is_some_and(|k| k.file.thread == subject.id);
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
        close(observer.tasks.unwrap());
        // Another directory has come in its place.
        let other = std::fs::File::open("/").unwrap();
        let number = other.as_raw_fd();
        observer.tasks = Some(number as usize);
        assert!(observer.is_blocked(main).is_some());
        assert_ne!(observer.tasks, Some(number as usize));
        for other in ["/proc", "/proc/self", "/proc/self/fd"] {
            let other = std::fs::File::open(other).unwrap();
            assert!(!are_tasks(other.as_raw_fd() as usize));
        }
        assert!(other.metadata().is_ok(), "it was not ours to close");
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
            .map(|kept| kept.file.descriptor)
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
        // The program closes descriptors that it does not know, and opens a file of its own there.
        let last = observer.kept.iter_mut().flatten().last().unwrap();
        close(last.file.descriptor);
        let own = empty_file();
        last.file.descriptor = own.as_raw_fd() as usize;
        for subject in &subjects {
            assert!(observer.is_blocked(subject.id).is_some());
        }
        drop(observer);
        assert!(!kept.iter().any(is_task));
        assert!(own.metadata().is_ok(), "it was not ours to close");
        for mut subject in subjects {
            subject.computes.store(false, Ordering::Relaxed);
            subject.pipe.write_all(b".").unwrap();
            subject.thread.join().unwrap();
        }
    }

    fn empty_file() -> std::fs::File {
        let name = format!("greenthread-observer-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let file = std::fs::File::create_new(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        file
    }
}
