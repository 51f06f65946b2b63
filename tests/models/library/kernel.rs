//! Stands in for the kernel, as those see it who wait for descriptors: files, the numbers that lead to them,
//! and one epoll instance.
//!
//! A registration belongs to a number and a file, and is armed for one event, which is there as long as the file is
//! ready. It ends when the last descriptor of the file is closed: if a duplicate is left, it outlives the
//! number.

use std::{cell::RefCell, os::fd::RawFd, rc::Rc};

use loom::{
    sync::atomic::AtomicUsize,
    thread::{self, Thread},
};

use crate::engine::atomic::Ordering::AcqRel;

/// A file's name.
pub(crate) type File = usize;

const IN: i32 = libc::EPOLLIN;
const OUT: i32 = libc::EPOLLOUT;

/// What may be taken from a file.
#[derive(Clone, Copy, Default)]
struct Content {
    items: usize,
    stack: usize,
}

struct Registration {
    fd: RawFd,
    file: File,
    events: i32,
    token: u64,
}

struct Kernel {
    files: Vec<Content>,
    descriptors: Vec<Option<File>>,
    registrations: Vec<Registration>,
    /// How often a number has got another meaning.
    changes: usize,
    duplicates: usize,
    /// Who waits for events.
    collector: Option<Thread>,
    has_ended: bool,
    /// Every call touches it, so that the checker tries them in every order. AcqRel: two calls that concern
    /// one descriptor take one of the kernel's locks.
    touched: Rc<AtomicUsize>,
}

// On a kernel thread that runs one model, all its threads included.
std::thread_local! {
    static KERNEL: RefCell<Option<Kernel>> = const { RefCell::new(None) };
}

/// The first number that a program gets: it has the standard ones.
const FIRST: usize = 3;

/// For the beginning of an execution. A program gets so many numbers.
pub(crate) fn begin(numbers: usize) {
    KERNEL.set(Some(Kernel {
        files: Vec::new(),
        descriptors: vec![None; FIRST + numbers],
        registrations: Vec::new(),
        changes: 0,
        duplicates: 0,
        collector: None,
        has_ended: false,
        touched: Rc::new(AtomicUsize::new(0)),
    }));
}

/// A look at it that is no call.
fn peek<R>(look: impl FnOnce(&mut Kernel) -> R) -> R {
    KERNEL.with_borrow_mut(|kernel| look(kernel.as_mut().expect("it has begun")))
}

/// A call.
fn call<R>(work: impl FnOnce(&mut Kernel) -> R) -> R {
    let touched = peek(|kernel| kernel.touched.clone());
    touched.fetch_add(1, AcqRel);
    let (result, collector) = peek(|kernel| {
        let result = work(kernel);
        let has_event = kernel.registrations.iter().any(|it| kernel.is_ready(it));
        let rouses = has_event || kernel.has_ended;
        (result, kernel.collector.take_if(|_| rouses))
    });
    if let Some(collector) = collector {
        collector.unpark();
    }
    result
}

impl Kernel {
    fn file(&self, fd: RawFd) -> Result<File, i32> {
        let descriptor = self.descriptors.get(fd as usize).copied().flatten();
        descriptor.ok_or(libc::EBADF)
    }

    fn events_of(&self, registration: &Registration) -> i32 {
        let content = self.files[registration.file];
        let readable = if content.items != 0 { IN } else { 0 };
        let writable = if content.stack != 0 { OUT } else { 0 };
        registration.events & (readable | writable)
    }

    fn is_ready(&self, registration: &Registration) -> bool {
        self.events_of(registration) != 0
    }

    /// A new number for `file`, from `lowest` on.
    fn number(&mut self, file: File, lowest: usize) -> Result<RawFd, i32> {
        let free = (lowest..self.descriptors.len()).find(|&at| self.descriptors[at].is_none());
        let number = free.ok_or(libc::EMFILE)?;
        self.descriptors[number] = Some(file);
        Ok(number as RawFd)
    }

    fn close(&mut self, fd: RawFd) -> Result<(), i32> {
        let file = self.file(fd)?;
        self.descriptors[fd as usize] = None;
        self.changes += 1;
        if !self.descriptors.contains(&Some(file)) {
            self.registrations.retain(|it| it.file != file);
        }
        Ok(())
    }
}

/// Opens a new file.
pub(crate) fn open() -> RawFd {
    call(|kernel| {
        kernel.files.push(Content::default());
        kernel.changes += 1;
        kernel
            .number(kernel.files.len() - 1, FIRST)
            .expect("a number")
    })
}

/// Somebody else puts so many things into a file, and makes so much stack.
pub(crate) fn put(file: File, items: usize, stack: usize) {
    call(|kernel| {
        kernel.files[file].items += items;
        kernel.files[file].stack += stack;
    });
}

/// Takes a thing from the file with this number. The number is asked for again if some number has changed
/// meanwhile: it is the caller's business that it is right when it makes the call, and no more.
pub(crate) fn read(fd: impl Fn() -> RawFd) -> Result<File, i32> {
    take(fd, |content| &mut content.items)
}

/// Takes stack in the same way.
pub(crate) fn write(fd: impl Fn() -> RawFd) -> Result<File, i32> {
    take(fd, |content| &mut content.stack)
}

fn take(fd: impl Fn() -> RawFd, what: impl Fn(&mut Content) -> &mut usize) -> Result<File, i32> {
    loop {
        let changes = call(|kernel| kernel.changes);
        let fd = fd();
        let taken = call(|kernel| {
            if kernel.changes != changes {
                return None;
            }
            Some(kernel.file(fd).and_then(|file| {
                let left = what(&mut kernel.files[file]);
                *left = left.checked_sub(1).ok_or(libc::EAGAIN)?;
                Ok(file)
            }))
        });
        if let Some(taken) = taken {
            return taken;
        }
    }
}

/// Whether the file with this number has something to be read.
pub(crate) fn poll(fd: RawFd) -> Result<bool, i32> {
    call(|kernel| Ok(kernel.files[kernel.file(fd)?].items != 0))
}

pub(crate) fn close(fd: RawFd) {
    call(|kernel| kernel.close(fd).expect("it is open"));
}

pub(crate) fn duplicate(fd: RawFd, lowest: RawFd) -> Result<RawFd, i32> {
    call(|kernel| {
        let file = kernel.file(fd)?;
        let duplicate = kernel.number(file, lowest as usize)?;
        kernel.duplicates += 1;
        Ok(duplicate)
    })
}

/// Waits until there are events to be collected. False: there will be none.
pub(crate) fn has_event() -> bool {
    loop {
        let this = thread::current();
        let answer = call(|kernel| {
            let has_event = kernel.registrations.iter().any(|it| kernel.is_ready(it));
            if !has_event && !kernel.has_ended {
                kernel.collector = Some(this);
                return None;
            }
            Some(!kernel.has_ended)
        });
        match answer {
            Some(answer) => return answer,
            None => thread::park(),
        }
    }
}

/// No more events are collected.
pub(crate) fn end() {
    call(|kernel| kernel.has_ended = true);
}

/// The numbers that are in use, and their files.
pub(crate) fn descriptors() -> Vec<(RawFd, File)> {
    peek(|kernel| {
        let numbers = kernel.descriptors.iter().enumerate();
        numbers
            .filter_map(|(fd, file)| Some((fd as RawFd, (*file)?)))
            .collect()
    })
}

/// How many duplicates were made.
pub(crate) fn duplicates() -> usize {
    peek(|kernel| kernel.duplicates)
}

pub(crate) mod epoll {
    use std::{
        io,
        os::fd::{AsRawFd, RawFd},
    };

    use super::{Registration, call};

    #[derive(Clone, Copy)]
    pub(crate) struct Event {
        pub(crate) events: u32,
        pub(crate) u64: u64,
    }

    /// The instance.
    #[derive(Debug)]
    pub(crate) struct Epoll(());

    impl Epoll {
        pub(crate) fn without_bell() -> io::Result<Epoll> {
            Ok(Epoll(()))
        }

        pub(crate) fn arm(&self, fd: RawFd, events: i32, token: u64) -> io::Result<()> {
            let armed = call(|kernel| {
                let file = kernel.file(fd)?;
                kernel
                    .registrations
                    .retain(|it| (it.fd, it.file) != (fd, file));
                kernel.registrations.push(Registration {
                    fd,
                    file,
                    events,
                    token,
                });
                Ok(())
            });
            armed.map_err(io::Error::from_raw_os_error)
        }

        pub(crate) fn remove(&self, fd: RawFd) {
            call(|kernel| {
                if let Ok(file) = kernel.file(fd) {
                    kernel
                        .registrations
                        .retain(|it| (it.fd, it.file) != (fd, file));
                }
            });
        }

        pub(crate) fn wait<'a>(&self, events: &'a mut [Event], _: Option<u64>) -> &'a [Event] {
            let count = call(|kernel| {
                let mut count = 0;
                for at in 0..kernel.registrations.len() {
                    let come = kernel.events_of(&kernel.registrations[at]);
                    if come != 0 && count < events.len() {
                        let registration = &mut kernel.registrations[at];
                        registration.events = 0; // it was armed for one event
                        events[count] = Event {
                            events: come as u32,
                            u64: registration.token,
                        };
                        count += 1;
                    }
                }
                count
            });
            &events[..count]
        }
    }

    impl AsRawFd for Epoll {
        fn as_raw_fd(&self) -> RawFd {
            -1 // nobody asks the kernel for it
        }
    }
}
