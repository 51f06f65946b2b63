//! io_uring: one system call submits operations of many threads; completions become ready threads.
//!
//! Operations that do not wait need no keeper: `driver::sends` performs them within one system call.
//!
//! All of it works from green threads and kernel threads alike. If the kernel has no io_uring, or
//! forbids it, that is no error: [`Keeper::get`] says so, and the caller makes system calls instead.
//! The same holds in a forked child, where there is no keeper, and if the kernel forbids io_uring
//! later ([`is_refused`]).
//!
//! Rejected:
//! - A ring for each processor or worker. A system call of any thread may block the ring's owner.
//! - `IORING_OP_LINK_TIMEOUT` for deadlines. It costs an entry and a kernel timer for each
//!   operation; our own timers cost nothing until they fire, and then the operation is cancelled.
//!
//! # The keeper
//! It is a kernel thread that owns the ring, and runs no code but its own.
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
//! The inbox is a list under a lock, and says beside whether the keeper sleeps. So nothing comes between the keeper's last
//! look and its sleep, and of many threads that push, one rings.
//!
//! # An operation in flight
//! It is a record on the stack of the thread that waits for it.
//!
//! | state | the thread that may touch the record |
//! |---|---|
//! | made | its own thread |
//! | pushed (`Keeper::submit`) | the keeper; its own thread waits on `waiter` and looks at nothing else |
//! | completed (`InFlight::complete`) | its own thread |
//!
//! # Why the kernel never writes into freed memory
//! [`Keeper::perform`] borrows the memory that an entry points to (buffers, messages, paths) and the record itself. It does
//! not return before the keeper has seen the operation's completion, after which the kernel touches neither. Nothing else
//! takes the thread out of `perform`:
//! - a time-out does not: the thread asks the kernel to end the operation, and goes on waiting. The answer may be that the
//!   operation was done in time after all: then it *is* done, no byte is lost.
//! - a panic does not: between push and completion nothing is called that could panic.
//! - no code unwinds or drops a waiting green thread: its stack is freed when it has ended. A kernel thread could only be
//!   cancelled, which the documentation forbids.
//! - a hand-off, a blocked or retired worker, or a migration does not concern the operation: the ring belongs to the keeper,
//!   which lives as long as the process.
//! - a forked child has a copy of the memory and no ring; operations complete in the parent. When the process ends or
//!   becomes another program, the kernel ends its operations first.
//!
//! # Invariants
//! 1. Only the keeper enters the ring.
//! 2. The keeper waits in the kernel only after `Inbox::rest` said yes, and then the ring watches the bell: an operation
//!    pushed later ends the wait. The thread that pushes it rings with preemption off, since others push after it and rely
//!    on it.
//! 3. An entry of the submission queue stays there until the kernel has taken it. If a completion does not fit into the
//!    completion queue, the kernel keeps it until the next enter after there is space: the keeper learns of every
//!    completion.
//! 4. Only completions and the bell wake the keeper, and the bell rings once a sleep at most: an idle process does not wake.
//! 5. The keeper blocks all signals except those of libc.
//! 6. The kernel may refuse to be entered, because somebody forbids io_uring now (a seccomp filter). From then on the keeper
//!    never enters the ring again. Operations that the kernel has taken go on, and complete as before: the keeper need not
//!    ask for that, since the work left for it is done whenever it leaves the kernel (so not with
//!    `IORING_SETUP_DEFER_TASKRUN`). Every other operation, now and later, fails with ENOSYS, and the thread that asked for
//!    it makes the system call. One thing is lost: the keeper cannot cancel the operations that were taken, so a time-out
//!    comes with the answer.
//! 7. An operation has one completion: no multishot, no zero-copy sends, no skipped completions.
//! 8. The keeper writes `result`, then wakes the thread, and touches nothing of the record afterwards. The wake-up publishes
//!    (`sched::park`).
//! 9. A cancellation is an operation itself, pushed after the operation that it names, so the kernel sees it later. The name
//!    is the record's address, which no other record has while its thread is in `perform`.
//!
//! The bell is an eventfd that nobody reads: each ring adds to it, and a multishot poll, armed once, notices.
//!
//! The kernel credits operations to the keeper: credentials, namespaces and working directory are the process's, not those
//! that one kernel thread may have for itself.

#[cfg(test)]
mod tests;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{cell::Cell, io, iter, mem, ptr, sync::OnceLock, time::Duration};

use io_uring::{IoUring, Probe, cqueue, opcode, squeue, types};

use super::source::{Direction, Limit, Source, Transfer, says_would_block};
use super::{Operation, epoll};
use crate::engine::atomic::{AtomicBool, Ordering};
use crate::engine::sched::spawner::{HELPER_STACK, spawn_helper};
use crate::engine::sched::{self, Fifo, current, fork};
use crate::engine::sys::{self, clock, perturb, shared::Lock};
use crate::engine::wait::{Outcome, WaitKind, WaitReason, Waiter, refusal};

// ==== what a cluster does by the ring ====

/// Whether an operation has failed because there is no ring, or none any more. The operation was
/// then not done, and the caller makes the system call.
pub(crate) fn is_refused(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOSYS)
}

/// Has the kernel do the operation `entry`, and waits for it. When `limit` is over the operation is
/// cancelled; if it was not done by then the error is `WouldBlock`. If [`cancel_all`] ended it the
/// error is ECANCELED, and if there is no ring ENOSYS.
///
/// # Safety
/// The memory that the entry points to stays valid, and the memory that the kernel writes to is
/// lent to nobody else, until this returns. The entry makes one completion.
pub(crate) unsafe fn perform(entry: squeue::Entry, limit: Limit) -> io::Result<usize> {
    let keeper = Keeper::get().ok_or_else(|| io::Error::from_raw_os_error(libc::ENOSYS))?;
    // SAFETY: the memory is valid and the entry makes one completion, as the caller promises here too.
    unsafe { keeper.perform(entry, limit) }
}

/// Blocks the thread until a call may find something: see `driver::source`.
pub(super) fn wait(source: &Source, direction: Direction, limit: Limit) -> io::Result<()> {
    let fd = types::Fd(source.as_raw_fd());
    let entry = opcode::PollAdd::new(fd, direction as u32).build();
    // SAFETY: the entry has no pointers.
    unsafe { perform(entry, limit) }.map(drop).or_else(|error| {
        source.registration.check_open()?;
        match is_refused(&error) {
            true => epoll::wait(source, direction, limit),
            false => Err(error),
        }
    })
}

/// Has the kernel do a transfer. Tries the system call first: bytes that are there already need not go by way of the keeper.
pub(super) fn transfer(
    source: &Source,
    transfer: &mut Transfer<'_, '_>,
    flags: i32,
    limit: Limit,
) -> io::Result<usize> {
    let fd = source.as_raw_fd();
    source.registration.check_open()?;
    let answer = Source::uninterrupted(|| transfer.try_now(fd, flags));
    if limit == Limit::DontWait || !answer.as_ref().is_err_and(says_would_block) {
        return answer;
    }
    // SAFETY: the memory that the entry points to is borrowed by the transfer until this returns.
    unsafe { perform(transfer.entry(fd, flags), limit) }.or_else(|error| {
        source.registration.check_open()?;
        match is_refused(&error) {
            true => source.transfer_when_ready(transfer, flags, limit),
            false => Err(source.why(error)),
        }
    })
}

/// Ends the waits for `source`, which is closed.
pub(super) fn end_waits(source: &Source) {
    if !current::is_forked_child() && KEEPER.get().is_some_and(Option::is_some) {
        // If there is no ring any more, the call fails, and no wait is left to end.
        let _ = cancel_all(source.as_fd());
    }
}

/// Does `operation` by the ring. If the file system cannot do it without blocking, the kernel does it on threads
/// of its own. There are no time-outs: a disk answers. `None`: there is no ring, or none any more.
pub(super) fn operate(operation: Operation<'_>) -> Option<io::Result<usize>> {
    let limit = match operation {
        Operation::Connect(..) | Operation::WaitForChild(..) => Limit::Forever,
        _ => Limit::Shielded,
    };
    let of = |fd: BorrowedFd<'_>| types::Fd(fd.as_raw_fd());
    let entry = match operation {
        Operation::Read(file, buffer, at) => {
            let read = opcode::Read::new(of(file), buffer.as_mut_ptr(), length(buffer));
            read.offset(at as u64).build()
        }
        Operation::Write(file, buffer, at) => {
            let write = opcode::Write::new(of(file), buffer.as_ptr(), length(buffer));
            write.offset(at as u64).build()
        }
        Operation::Sync { fd, data_only } => {
            let mut flags = types::FsyncFlags::empty();
            flags.set(types::FsyncFlags::DATASYNC, data_only);
            opcode::Fsync::new(of(fd)).flags(flags).build()
        }
        Operation::Connect(socket, address, length) => {
            opcode::Connect::new(of(socket), address.cast(), length).build()
        }
        // A kernel that cannot do it (before Linux 6.7) answers EINVAL.
        Operation::WaitForChild(kind, id, options) => {
            opcode::WaitId::new(kind, id, options).build()
        }
    };
    // SAFETY: buffers are borrowed until this returns; an address is only read.
    let answer = unsafe { perform(entry, limit) };
    (!answer.as_ref().is_err_and(is_refused)).then_some(answer)
}

/// The length of a transfer, at most that of one system call: the ring's lengths have 32 bits.
pub(super) fn length(buffer: &[impl Sized]) -> u32 {
    buffer.len().min(0x7fff_f000) as u32
}

/// Ends every operation in flight on the descriptor's file, with ECANCELED, and returns their
/// number. It does not end operations that begin later: a caller that closes the file must mark it
/// closed first.
pub(crate) fn cancel_all(fd: BorrowedFd<'_>) -> io::Result<usize> {
    let which = types::CancelBuilder::fd(types::Fd(fd.as_raw_fd())).all();
    // SAFETY: the entry has no pointers.
    unsafe { perform(opcode::AsyncCancel2::new(which).build(), Limit::Shielded) }
}

// ==== the keeper ====

/// The number of entries that one system call submits at most. The completion queue has space for
/// more.
const ENTRIES: u32 = 512;
const COMPLETIONS_PER_ENTRY: u32 = 8;
/// The time after which the keeper tries again when the kernel has no memory for an operation.
const NO_MEMORY: Duration = Duration::from_millis(1);
/// The bell's name in the ring: no operation has this name.
const BELL: u64 = 0;

/// The time after which a thread asks the kernel again to end an operation whose time is up. The kernel may miss an
/// operation on the way between two of its queues, and cannot end one that a disk is working on.
const ASK_AGAIN: u64 = 100_000_000;

/// For reports.
static OPERATION: WaitKind = WaitKind::outside("operation of io_uring").fails();
/// One that frames do not end.
static UNENDED: WaitKind = WaitKind::outside("operation of io_uring");

struct InFlight {
    /// The operation that was pushed after this one.
    later: Cell<*const InFlight>,
    entry: squeue::Entry,
    result: Cell<i32>,
    waiter: Waiter,
}

impl InFlight {
    /// The operation's name in the ring.
    fn name(&self) -> u64 {
        ptr::from_ref(self).expose_provenance() as u64
    }

    /// Completes the operation `name`, with which the kernel is done. A green thread that waits for
    /// it goes into `ready`.
    ///
    /// # Safety
    /// The name is that of an entry in the ring, and this is its completion.
    unsafe fn complete(name: u64, result: i32, ready: &mut Fifo) {
        let operation: *const InFlight = ptr::with_exposed_provenance(name as usize);
        // SAFETY: the operation's thread waits until it is woken, and the wake-up is the last
        // access here.
        let green = unsafe {
            (*operation).result.set(result);
            Waiter::notify_at(&raw const (*operation).waiter)
        };
        if let Some(green) = green {
            ready.push(green);
        }
    }
}

/// Operations on their way to the keeper, in the order in which they were pushed, and whether the keeper sleeps.
#[derive(Default)]
struct Inbox {
    first: *const InFlight,
    last: *const InFlight,
    sleeps: bool,
}

// SAFETY: an operation in the inbox is alive and nobody else's: see the table above.
unsafe impl Send for Inbox {}

impl Inbox {
    /// Adds an operation. True: the keeper sleeps, and the caller must ring.
    fn push(&mut self, operation: &InFlight) -> bool {
        // SAFETY: an operation in the inbox is alive: its thread waits for the completion.
        match unsafe { self.last.as_ref() } {
            Some(last) => last.later.set(operation),
            None => self.first = operation,
        }
        self.last = operation;
        mem::take(&mut self.sleeps)
    }

    /// Takes all operations, the oldest first.
    fn take(&mut self) -> impl Iterator<Item = *const InFlight> + use<> {
        let mut next = mem::take(&mut self.first);
        self.last = ptr::null();
        iter::from_fn(move || {
            let operation = next;
            // SAFETY: the operation was taken and not handed out yet, so its thread waits.
            next = unsafe { operation.as_ref() }?.later.get();
            Some(operation)
        })
    }

    /// Puts the keeper to sleep: true. False: there is something to do.
    #[must_use = "a keeper that does not sleep must not wait"]
    fn rest(&mut self) -> bool {
        self.sleeps = self.first.is_null();
        self.sleeps
    }
}

/// The keeper's data that threads see.
pub(super) struct Keeper {
    inbox: Lock<Inbox>,
    bell: OwnedFd,
    /// Whether the kernel refuses to be entered. Relaxed: a thread that sees it late is told by
    /// ENOSYS.
    is_refused: AtomicBool,
}

static KEEPER: OnceLock<Option<&'static Keeper>> = OnceLock::new();

impl Keeper {
    /// The process's keeper, started at first use. `None`: no io_uring here, or a forked child.
    pub(super) fn get() -> Option<&'static Keeper> {
        if current::is_forked_child() {
            return None;
        }
        let keeper = *KEEPER.get_or_init(|| Keeper::start(ENTRIES).ok());
        keeper.filter(|keeper| !keeper.is_refused())
    }

    /// Starts a keeper with a ring of that size.
    fn start(entries: u32) -> io::Result<&'static Keeper> {
        fork::register();
        let mut service = Service::open(entries)?;
        let keeper = service.keeper;
        let live = move || {
            // Only a panic ends the rounds: operations in flight would never be completed.
            while catch_unwind(AssertUnwindSafe(|| service.go_round())).is_ok() {}
            sys::die("gt-ring has ended")
        };
        spawn_helper("gt-ring", HELPER_STACK, Box::new(live))?;
        Ok(keeper)
    }

    fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Relaxed)
    }

    /// Has the kernel do the operation `entry`, and waits for it.
    ///
    /// # Safety
    /// The memory that the entry points to stays valid, and the memory that the kernel writes to is
    /// lent to nobody else, until this returns. The entry makes one completion.
    unsafe fn perform(&self, entry: squeue::Entry, limit: Limit) -> io::Result<usize> {
        let mut deadline = limit.deadline();
        let mut expired = false;
        loop {
            let operation = InFlight {
                later: Cell::new(ptr::null()),
                entry: entry.clone(),
                result: Cell::new(0),
                waiter: Waiter::new(),
            };
            self.submit(&operation);
            let kind = match limit {
                Limit::Shielded => &UNENDED,
                _ => &OPERATION,
            };
            let mut reason = WaitReason::new(kind, &operation);
            while operation.waiter.wait(reason, deadline) == Outcome::Expired {
                expired = true;
                reason.kind = &UNENDED;
                perturb::point("operation: cancelling");
                let cancel = opcode::AsyncCancel::new(operation.name()).build();
                // The answer does not matter: the operation has its own completion.
                // SAFETY: the entry has no pointers.
                let _ = unsafe { self.perform(cancel, Limit::Shielded) };
                deadline = Some(clock::now() + ASK_AGAIN);
            }
            return match -operation.result.get() {
                libc::ECANCELED | libc::EINTR if expired => Err(io::Error::from_raw_os_error(
                    refusal(limit.deadline()).unwrap_or(libc::EAGAIN),
                )),
                libc::EINTR => continue,
                error if error > 0 => Err(io::Error::from_raw_os_error(error)),
                done => Ok(done.unsigned_abs() as usize),
            };
        }
    }

    /// Hands an operation to the kernel, soon. The caller keeps it until it is completed.
    fn submit(&self, operation: &InFlight) {
        // If this thread were preempted before it rings, all threads that push after it would wait.
        let _off = current::preemption_off();
        let must_ring = self.inbox.lock().push(operation);
        if must_ring {
            perturb::point("keeper: ringing");
            // The call fails after 2^64 rings, or if somebody closed the descriptor.
            if sys::epoll::ring(&self.bell).is_err() {
                the_bell_is_gone();
            }
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
        let ring = IoUring::builder()
            .dontfork()
            .setup_clamp()
            .setup_submit_all()
            // The kernel works completions off when the keeper leaves it, and interrupts nothing.
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            .setup_cqsize(entries * COMPLETIONS_PER_ENTRY)
            .build(entries)?;
        let mut known = Probe::new();
        ring.submitter().register_probe(&mut known)?;
        // A kernel that knows this operation (Linux 5.19) knows all that are used here, too. It also polls more than once,
        // cancels by descriptor, and submits a whole batch although it refuses one entry.
        if !known.is_supported(opcode::Socket::CODE) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let keeper = Keeper {
            inbox: Lock::default(),
            bell: sys::epoll::bell()?,
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
        let sleeps = self.bell_is_watched && self.keeper.inbox.lock().rest();
        perturb::point("keeper: entering");
        self.enter(usize::from(sleeps));
        // The keeper looks at the inbox before it enters again, so threads that push from here on need not ring.
        self.keeper.inbox.lock().sleeps = false;
        perturb::point("keeper: roused");
        self.harvest();
    }

    fn fill(&mut self) {
        if !self.bell_is_watched {
            let bell = types::Fd(self.keeper.bell.as_raw_fd());
            let watch = opcode::PollAdd::new(bell, libc::POLLIN as u32).multi(true);
            // SAFETY: the entry has no pointers; the descriptor is never closed.
            unsafe { self.push(watch.build(), BELL) };
            self.bell_is_watched = true;
        }
        let pushed = self.keeper.inbox.lock().take();
        for operation in pushed {
            // SAFETY: the operation and the memory it points to stay valid until it is completed,
            // as `perform` demands.
            unsafe { self.push((*operation).entry.clone(), (*operation).name()) };
        }
    }

    /// # Safety
    /// The memory that the entry points to stays valid until its completion.
    unsafe fn push(&mut self, entry: squeue::Entry, name: u64) {
        let entry = entry.user_data(name);
        // SAFETY: the caller's promise.
        while !self.keeper.is_refused() && unsafe { self.ring.submission().push(&entry) }.is_err() {
            self.enter(0);
            self.harvest();
        }
        self.queued.push(name);
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
            // Any other error is that of a filter, which can return what it likes.
            _ => self.keeper.is_refused.store(true, Ordering::Relaxed),
        }
    }

    /// Wakes the threads whose operations are done, or never will be; then waits for more
    /// completions.
    fn go_round_without_entering(&mut self) {
        self.harvest();
        let mut ready = Fifo::new();
        let left = self.keeper.inbox.lock().take();
        // SAFETY: the operation stays valid until it is completed, as `perform` demands.
        let left = left.map(|operation| unsafe { (*operation).name() });
        let names = self.queued.drain(..).chain(left);
        for name in names.filter(|&name| name != BELL) {
            // SAFETY: the kernel has not taken the operation, nor ever will.
            unsafe { InFlight::complete(name, -libc::ENOSYS, &mut ready) };
        }
        sched::events::pass_on(ready);
        if self.keeper.inbox.lock().rest() {
            self.doze();
            self.keeper.inbox.lock().sleeps = false;
        }
    }

    /// Waits for a completion or the bell, without entering the ring.
    fn doze(&self) {
        let bell = self.keeper.bell.as_raw_fd();
        let mut both = [bell, self.ring.as_raw_fd()].map(|fd| sys::pollfd(fd, libc::POLLIN));
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
                (name, result) => unsafe { InFlight::complete(name, result, &mut ready) },
            }
        }
        sched::events::pass_on(ready);
    }
}
