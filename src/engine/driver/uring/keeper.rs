//! The keeper: a kernel thread that owns the ring, and runs no code but its own.
//!
//! A ring belongs to a kernel thread: only that thread may submit, and when it ends its operations
//! end. A worker may be blocked by any thread that it runs, for ever, and its operations would be
//! stranded. So there is one ring for the process, and its owner does nothing else:
//!
//! ```text
//!   threads ──push──► inbox ──fill──► submission queue ──┐
//!      ▲ │ ring the bell if it sleeps                  enter (one system call for all)
//!      │ └──────────────► eventfd, polled by the ring ──┤
//!      └──ready── wake ◄──harvest── completion queue ◄──┘
//! ```
//!
//! # Invariants
//! 1. Only the keeper enters the ring, which it has made.
//! 2. The keeper waits in the kernel only after `Inbox::rest` said yes, and then the ring watches
//!    the bell: an operation pushed later ends the wait.
//! 3. An entry of the submission queue stays there until the kernel has taken it. If a completion
//!    does not fit into the completion queue, the kernel keeps it until the next enter after there
//!    is space: the ring's owner learns of every completion.
//! 4. Only completions and the bell wake the keeper, and the bell rings once a sleep at most: an
//!    idle process does not wake.
//! 5. The keeper blocks all signals except those of libc.
//! 6. The kernel may refuse to be entered, because somebody forbids io_uring now (a seccomp
//!    filter). From then on the keeper never enters the ring again. Operations that the kernel has
//!    taken go on, and complete as before: the keeper need not ask for that, since the work left
//!    for it is done whenever it leaves the kernel (so not with `IORING_SETUP_DEFER_TASKRUN`).
//!    Every other operation, now and later, fails with ENOSYS, and the thread that asked for it
//!    makes the system call. One thing is lost: the keeper cannot cancel the operations that were
//!    taken, so a time-out comes with the answer.
//!
//! The bell is an eventfd that nobody reads: each ring adds to it, and a multishot poll, armed
//! once, notices.
//!
//! The kernel credits operations to the keeper: credentials, namespaces and working directory are
//! the process's, not those that one kernel thread may have for itself.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{OnceLock, mpsc};
use std::time::Duration;

use io_uring::{IoUring, Probe, cqueue, opcode, squeue, types};

use super::inbox::Inbox;
use super::operation::Operation;
use crate::engine::atomic::{AtomicBool, Ordering};
use crate::engine::sched;
use crate::engine::sched::list::Fifo;
use crate::engine::sched::spawner::{HELPER_STACK, spawn_helper};
use crate::engine::sched::{current, fork};
use crate::engine::sys::{self, perturb};

/// The number of entries that one system call submits at most. The completion queue has space for
/// more.
const ENTRIES: u32 = 512;
const COMPLETIONS_PER_ENTRY: u32 = 8;
/// The time after which the keeper tries again when the kernel has no memory for an operation.
const NO_MEMORY: Duration = Duration::from_millis(1);
/// The bell's name in the ring: no operation has this name.
const BELL: u64 = 0;

/// The keeper's data that threads see.
pub(super) struct Keeper {
    inbox: Inbox<Operation>,
    bell: OwnedFd,
    /// Whether the kernel refuses to be entered. Relaxed: a thread that sees it late is told by
    /// ENOSYS.
    is_refused: AtomicBool,
}

static KEEPER: OnceLock<Option<&'static Keeper>> = OnceLock::new();

/// Whether the keeper has been started, and can be used.
pub(super) fn is_there() -> bool {
    !fork::is_child() && KEEPER.get().is_some_and(Option::is_some)
}

/// The process's keeper, started at first use. `None`: no io_uring here, or a forked child.
pub(super) fn get() -> Option<&'static Keeper> {
    if fork::is_child() {
        return None;
    }
    let keeper = *KEEPER.get_or_init(|| Keeper::start(ENTRIES).ok());
    keeper.filter(|keeper| !keeper.is_refused())
}

impl Keeper {
    /// Starts a keeper with a ring of that size.
    pub(super) fn start(entries: u32) -> io::Result<&'static Keeper> {
        fork::register();
        let (tell, told) = mpsc::sync_channel(1);
        let live = move || {
            // Only the kernel thread that makes the ring can use it.
            match Service::open(entries) {
                Ok(mut service) => {
                    let _ = tell.send(Ok(service.keeper));
                    loop {
                        service.go_round();
                    }
                }
                Err(error) => {
                    let _ = tell.send(Err(error));
                }
            }
        };
        spawn_helper("gt-ring", HELPER_STACK, Box::new(live))?;
        let answer = current::blocking(|| told.recv());
        answer.unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
    }

    fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Relaxed)
    }

    /// Hands an operation to the kernel, soon.
    ///
    /// # Safety
    /// The operation stays where it is until it is completed, and so does the memory that it points
    /// to.
    pub(super) unsafe fn submit(&self, operation: *const Operation) {
        // If a thread is preempted before it rings, all threads that push after it wait.
        let _off = current::preemption_off();
        // SAFETY: the caller's promise.
        if unsafe { self.inbox.push(operation) } {
            perturb::point("keeper: ringing");
            self.ring_the_bell();
        }
    }

    #[cold]
    fn ring_the_bell(&self) {
        let one = 1u64;
        let arguments = [
            self.bell.as_raw_fd() as usize,
            &raw const one as usize,
            size_of_val(&one),
        ];
        // SAFETY: the buffer is valid. The call fails after 2^64 rings, or if somebody closed the
        // descriptor.
        if unsafe { sys::call(libc::SYS_write, &arguments) }.is_err() {
            the_bell_is_gone();
        }
    }
}

#[cold]
fn the_bell_is_gone() -> ! {
    sys::die("the bell of gt-ring is gone: who closed its descriptor?")
}

/// The keeper's own data.
struct Service {
    ring: IoUring,
    keeper: &'static Keeper,
    bell_is_watched: bool,
    /// The names of the entries that the kernel has not taken yet.
    queued: Vec<u64>,
}

impl Service {
    fn open(entries: u32) -> io::Result<Service> {
        let build = |builder: &mut io_uring::Builder| {
            builder
                .dontfork()
                .setup_clamp()
                .setup_submit_all()
                .setup_taskrun_flag()
                .setup_cqsize(entries * COMPLETIONS_PER_ENTRY)
                .build(entries)
        };
        // The kernel works completions off when the keeper leaves it, and interrupts nothing.
        let ring = build(IoUring::builder().setup_coop_taskrun())?;
        let mut known = Probe::new();
        ring.submitter().register_probe(&mut known)?;
        if !NEEDED.iter().all(|&code| known.is_supported(code)) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        // SAFETY: the call takes no pointers; a descriptor that it returns is ours.
        let bell = unsafe {
            match libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) {
                -1 => return Err(io::Error::last_os_error()),
                descriptor => OwnedFd::from_raw_fd(descriptor),
            }
        };
        let keeper = Keeper {
            inbox: Inbox::new(),
            bell,
            is_refused: AtomicBool::new(false),
        };
        Ok(Service {
            ring,
            keeper: Box::leak(Box::new(keeper)),
            bell_is_watched: false,
            queued: Vec::with_capacity(2 * ENTRIES as usize),
        })
    }

    /// Submits all entries, waits if there is nothing else to do, and wakes the threads whose
    /// operations are done.
    fn go_round(&mut self) {
        if self.keeper.is_refused() {
            return self.go_round_without_entering();
        }
        self.fill();
        let sleeps = self.bell_is_watched && self.keeper.inbox.rest();
        perturb::point("keeper: entering");
        self.enter(usize::from(sleeps));
        // A thread that is woken from here on, and pushes another operation, need not ring.
        self.keeper.inbox.rouse();
        perturb::point("keeper: roused");
        self.harvest();
    }

    fn fill(&mut self) {
        if !self.bell_is_watched {
            let bell = types::Fd(self.keeper.bell.as_raw_fd());
            let watch = opcode::PollAdd::new(bell, libc::POLLIN as u32).multi(true);
            // SAFETY: the entry has no pointers; the descriptor is never closed.
            unsafe { self.push(watch.build().user_data(BELL)) };
            self.bell_is_watched = true;
        }
        for operation in self.keeper.inbox.take() {
            // SAFETY: the operation and the memory it points to stay valid until it is completed,
            // as `submit` demands.
            unsafe { self.push((*operation).entry()) };
        }
    }

    /// # Safety
    /// The memory that the entry points to stays valid until its completion.
    unsafe fn push(&mut self, entry: squeue::Entry) {
        // SAFETY: the caller's promise.
        while !self.keeper.is_refused() && unsafe { self.ring.submission().push(&entry) }.is_err() {
            self.enter(0);
            self.harvest();
        }
        self.queued.push(entry.get_user_data());
    }

    /// Hands the submission queue to the kernel, and waits for `want` completions.
    fn enter(&mut self, want: usize) {
        let entered = self.ring.submit_and_wait(want);
        let taken = self.queued.len() - self.ring.submission().len();
        self.queued.drain(..taken);
        let Err(error) = entered else {
            return;
        };
        match error.raw_os_error() {
            // A signal of libc's interrupted the call, or too many completions wait to be
            // harvested.
            Some(libc::EINTR | libc::EBUSY) => {}
            Some(libc::EAGAIN | libc::ENOMEM) => std::thread::sleep(NO_MEMORY),
            Some(libc::EBADF | libc::EOPNOTSUPP) => {
                sys::die("gt-ring cannot enter its ring: who closed its descriptor?")
            }
            // A filter can return any error.
            _ => self.keeper.is_refused.store(true, Ordering::Relaxed),
        }
    }

    /// Wakes the threads whose operations are done, or never will be; then waits for more
    /// completions.
    fn go_round_without_entering(&mut self) {
        self.harvest();
        let mut ready = Fifo::new();
        let left = self.keeper.inbox.take();
        // SAFETY: the operation stays valid until it is completed, as `submit` demands.
        let left = left.map(|operation| unsafe { (*operation).entry().get_user_data() });
        for name in self
            .queued
            .drain(..)
            .chain(left)
            .filter(|&name| name != BELL)
        {
            // SAFETY: the kernel has not taken the operation, nor ever will.
            unsafe { Operation::complete(name, -libc::ENOSYS, &mut ready) };
        }
        sched::io::pass_on(ready);
        if self.keeper.inbox.rest() {
            self.doze();
            self.keeper.inbox.rouse();
        }
    }

    /// Waits for a completion or the bell, without entering the ring.
    fn doze(&self) {
        let of = |fd: i32| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        let bell = self.keeper.bell.as_raw_fd();
        let mut both = [of(bell), of(self.ring.as_raw_fd())];
        let mut rings = 0_u64;
        // SAFETY: the places are valid; the bell does not block.
        unsafe {
            if libc::poll(both.as_mut_ptr(), 2, -1) < 0 {
                std::thread::sleep(NO_MEMORY);
            }
            libc::read(bell, (&raw mut rings).cast(), size_of_val(&rings));
        }
    }

    fn harvest(&mut self) {
        let mut ready = Fifo::new();
        for completion in self.ring.completion() {
            match (completion.user_data(), completion.result()) {
                (BELL, error) if error == -libc::EBADF => the_bell_is_gone(),
                (BELL, _) => self.bell_is_watched = cqueue::more(completion.flags()),
                // SAFETY: every other entry is an operation's, and has one completion.
                (name, result) => unsafe { Operation::complete(name, result, &mut ready) },
            }
        }
        sched::io::pass_on(ready);
    }
}

/// The last one is not used: a kernel that knows it (Linux 5.19) also polls more than once, cancels
/// by descriptor, and submits a whole batch although it refuses one entry.
const NEEDED: [u8; 11] = [
    opcode::PollAdd::CODE,
    opcode::AsyncCancel::CODE,
    opcode::Recv::CODE,
    opcode::Send::CODE,
    opcode::RecvMsg::CODE,
    opcode::SendMsg::CODE,
    opcode::Read::CODE,
    opcode::Write::CODE,
    opcode::Fsync::CODE,
    opcode::Connect::CODE,
    opcode::Socket::CODE,
];

impl Drop for Service {
    /// Only a panic drops this: operations in flight would never be completed.
    fn drop(&mut self) {
        sys::die("gt-ring has ended");
    }
}
