//! A thread in each kind of wait: a dump shows its state, what it waits for and where, its birthplace and its backtrace;
//! as text, and as JSON by its schema.
//!
//! The idea: each row of a table is a thread that waits (`support/rows.rs`). One dump shows all of them. The functions
//! that wait have names of their own, which must be in the backtraces, with debug information and without.

#![cfg(all(
    target_os = "linux",
    any(
        target_arch = "x86_64",
        all(target_arch = "aarch64", target_env = "gnu")
    )
))]

#[path = "../support/written.rs"]
mod written;

use crate::common::alone;
use crate::common::watchdog;
use crate::rows::{IS_OVER, Kept, Table, spawn};
use greenthread::channel::{self, Receiver, Sender};
use greenthread::coroutine::Coroutine;
use greenthread::observe::State;
use greenthread::sync::{
    Barrier, Condvar, Mutex, Once, RwLock, Semaphore, WaitGroup, mpsc as std_channel,
};
use greenthread::{JoinHandle, thread};
use std::hint::black_box;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};
use written::{check_json, check_text};

const HOUR: Duration = Duration::from_secs(3600);

/// Functions that wait: of each the frame must be there, so none is inlined, and none ends with the call.
macro_rules! waits {
    ($($name:ident($($argument:ident: $type:ty),*) $body:block)*) => {$(
        #[inline(never)]
        fn $name($($argument: $type),*) {
            let _kept: Option<_> = Some($body);
            black_box(());
        }
    )*};
}

waits! {
    on_mutex(lock: &Mutex<()>) { lock.lock().unwrap() }
    on_read_lock(lock: &RwLock<()>) { lock.read().unwrap() }
    on_write_lock(lock: &RwLock<()>) { lock.write().unwrap() }
    on_condvar(lock: &Mutex<bool>, condvar: &Condvar) {
        condvar.wait_while(lock.lock().unwrap(), |stop| !*stop).unwrap()
    }
    on_once(once: &Once) { once.call_once(|| ()) }
    on_barrier(barrier: &Barrier) { barrier.wait() }
    on_semaphore(semaphore: &Semaphore) { semaphore.acquire() }
    on_wait_group(group: WaitGroup) { group.wait() }
    // The next one may be the same function: so their rows ask for "receive" only.
    on_receive(from: &Receiver<u64>) { black_box(from.recv()) }
    on_receive_for_an_hour(from: &Receiver<u64>) { black_box(from.recv_timeout(HOUR)) }
    on_send(to: &Sender<u64>) { black_box(to.send(0)) }
    on_std_receive(from: &std_channel::Receiver<u64>) { black_box(from.recv()) }
    on_select(one: &Receiver<u64>, other: &Receiver<u64>) {
        black_box(channel::select! { recv(one) -> _ => 1, recv(other) -> _ => 2 })
    }
    on_timer(timer: &Receiver<Instant>) { black_box(timer.recv()) }
    on_join(thread: JoinHandle<()>) { thread.join() }
    on_scope(stop: &Receiver<u64>) { thread::scope(|s| { s.spawn(|| black_box(stop.recv())); }) }
    on_park() { while !IS_OVER.load(Relaxed) { thread::park() } }
    on_park_for_an_hour() { while !IS_OVER.load(Relaxed) { thread::park_timeout(HOUR) } }
    on_sleep() { thread::sleep(HOUR) }
    on_std_sleep() { std::thread::sleep(HOUR) }
    on_coroutine(coroutine: &mut Coroutine<(), (), ()>) { coroutine.resume(()) }
    on_future() { greenthread::block_on(std::future::pending::<u64>()) }
    on_std_mutex(lock: &std::sync::Mutex<()>) { lock.lock().unwrap() }
    on_std_channel(from: &std::sync::mpsc::Receiver<u64>) { black_box(from.recv()) }
    on_std_read(from: &mut dyn Read) { black_box(from.read(&mut [0; 8])) }
    on_poll(fd: i32) {
        let mut seen = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor, which outlives the call.
        black_box(unsafe { libc::poll(&mut seen, 1, -1) })
    }
    on_child(child: &mut std::process::Child) { black_box(child.wait()) }
    on_file_lock(fd: i32) {
        // SAFETY: plain call.
        black_box(unsafe { libc::flock(fd, libc::LOCK_EX) })
    }
    on_blocking_read(fd: i32) {
        // SAFETY: the place is valid.
        greenthread::unhooked(|| black_box(unsafe { libc::read(fd, [0; 8].as_mut_ptr().cast(), 8) }))
    }
}

/// A thread of that name that runs `body` until the sender is dropped.
fn holder(
    name: &str,
    kept: &mut Kept,
    body: impl FnOnce(&Sender<()>, &Receiver<u64>) + Send + 'static,
) {
    let (stop, stopped) = channel::bounded::<u64>(0);
    let (is_there, there) = channel::bounded(1);
    kept.keep(spawn(name, move || body(&is_there, &stopped)));
    there.recv().unwrap();
    kept.things.push(Box::new(stop));
}

fn locks(table: &mut Table, kept: &mut Kept) {
    let mutex = Arc::new(Mutex::new(()));
    let locked = mutex.clone();
    holder("holds mutex", kept, move |there, stopped| {
        let _guard = locked.lock().unwrap();
        there.send(()).unwrap();
        let _ = stopped.recv();
    });
    kept.keep(spawn("w mutex", move || on_mutex(&mutex)));
    let row = table.add(
        "w mutex",
        "mutex 0x*, held by * \"holds mutex\"",
        "on_mutex",
    );
    row.whom = Some("holds mutex");

    let lock = Arc::new(RwLock::new(()));
    let locked = lock.clone();
    holder("holds rwlock", kept, move |there, stopped| {
        let _guard = locked.write().unwrap();
        there.send(()).unwrap();
        let _ = stopped.recv();
    });
    let other = lock.clone();
    kept.keep(spawn("w read", move || on_read_lock(&lock)));
    let row = table.add(
        "w read",
        "read lock 0x*, held by * \"holds rwlock\"",
        "on_read_lock",
    );
    row.whom = Some("holds rwlock");
    kept.keep(spawn("w write", move || on_write_lock(&other)));
    let row = table.add(
        "w write",
        "write lock 0x*, held by * \"holds rwlock\"",
        "on_write_lock",
    );
    row.whom = Some("holds rwlock");

    // Readers hold it: nobody knows which.
    let lock = Arc::new(RwLock::new(()));
    let locked = lock.clone();
    holder("reads rwlock", kept, move |there, stopped| {
        let _guard = locked.read().unwrap();
        there.send(()).unwrap();
        let _ = stopped.recv();
    });
    kept.keep(spawn("w readers", move || on_write_lock(&lock)));
    table.add("w readers", "write lock 0x*(readers 1)", "on_write_lock");

    let once = Arc::new(Once::new());
    let begun = once.clone();
    holder("runs once", kept, move |there, stopped| {
        begun.call_once(|| {
            there.send(()).unwrap();
            let _ = stopped.recv();
        });
    });
    kept.keep(spawn("w once", move || on_once(&once)));
    let row = table.add("w once", "once 0x*, held by * \"runs once\"", "on_once");
    row.whom = Some("runs once");
}

fn meetings(table: &mut Table, kept: &mut Kept) {
    struct Last(Arc<Barrier>);
    impl Drop for Last {
        fn drop(&mut self) {
            self.0.wait();
        }
    }
    let barrier = Arc::new(Barrier::new(2));
    kept.things.push(Box::new(Last(barrier.clone())));
    kept.keep(spawn("w barrier", move || on_barrier(&barrier)));
    table.add("w barrier", "barrier 0x* (arrived 1, of 2)", "on_barrier");

    struct Stop(Arc<(Mutex<bool>, Condvar)>);
    impl Drop for Stop {
        fn drop(&mut self) {
            *self.0.0.lock().unwrap() = true;
            self.0.1.notify_all();
        }
    }
    let pair = Arc::new((Mutex::new(false), Condvar::new()));
    kept.things.push(Box::new(Stop(pair.clone())));
    kept.keep(spawn("w condvar", move || on_condvar(&pair.0, &pair.1)));
    table.add("w condvar", "condition variable 0x*", "on_condvar");

    struct Permit(Arc<Semaphore>);
    impl Drop for Permit {
        fn drop(&mut self) {
            self.0.add_permits(1);
        }
    }
    let semaphore = Arc::new(Semaphore::new(0));
    kept.things.push(Box::new(Permit(semaphore.clone())));
    kept.keep(spawn("w semaphore", move || on_semaphore(&semaphore)));
    table.add("w semaphore", "semaphore 0x* (permits 0)", "on_semaphore");

    let group = WaitGroup::new();
    kept.things.push(Box::new(group.clone()));
    kept.keep(spawn("w group", move || on_wait_group(group)));
    table.add("w group", "wait group 0x* (handles 1)", "on_wait_group");
}

fn channels(table: &mut Table, kept: &mut Kept) {
    let (to, from) = channel::unbounded::<u64>();
    kept.things.push(Box::new((to.clone(), to)));
    kept.keep(spawn("w empty", move || on_receive(&from)));
    let pattern = "message from channel 0x* (length 0, senders 2, receivers 1)";
    table.add("w empty", pattern, "receive");

    let (to, from) = channel::bounded(1);
    to.send(0).unwrap();
    kept.things.push(Box::new(from));
    kept.keep(spawn("w full", move || on_send(&to)));
    let pattern = "room in channel 0x* (length 1, capacity 1, senders 1, receivers 1)";
    table.add("w full", pattern, "on_send");

    let (to, from) = channel::bounded(0);
    kept.things.push(Box::new((from.clone(), from)));
    kept.keep(spawn("w zero", move || on_send(&to)));
    let pattern = "room in channel 0x* (length 0, capacity 0, senders 1, receivers 2)";
    table.add("w zero", pattern, "on_send");

    let (to, from) = channel::bounded(1);
    kept.things.push(Box::new(to));
    kept.keep(spawn("w hour", move || on_receive_for_an_hour(&from)));
    let pattern = "message from channel 0x*senders 1, receivers 1), for 59 min * s at most";
    table.add("w hour", pattern, "on_receive_for_an_hour");

    let (to, from) = std_channel::channel();
    kept.things.push(Box::new(to));
    kept.keep(spawn("w std", move || on_std_receive(&from)));
    table.add("w std", "message from channel 0x*", "receive");

    let (first, second) = (channel::bounded(1), channel::bounded(1));
    kept.things.push(Box::new((first.0, second.0)));
    let (one, other) = (first.1, second.1);
    kept.keep(spawn("w select", move || on_select(&one, &other)));
    table.add("w select", "select*", "on_select");

    let timer = channel::after(HOUR);
    drop(spawn("w timer", move || on_timer(&timer)));
    table.add("w timer", "time*, for 59 min * s at most", "on_timer");
}

fn threads(table: &mut Table, kept: &mut Kept) {
    holder("is joined", kept, |there, stopped| {
        there.send(()).unwrap();
        let _ = stopped.recv();
    });
    let joined = kept.handles.pop().unwrap();
    kept.keep(spawn("w join", move || on_join(joined)));
    let row = table.add("w join", "the end of * \"is joined\"", "on_join");
    row.whom = Some("is joined");

    let (to, from) = channel::bounded(1);
    kept.things.push(Box::new(to));
    kept.keep(spawn("w scope", move || on_scope(&from)));
    table.add("w scope", "end of a scope 0x* (threads 1)", "on_scope");

    kept.keep(spawn("w park", on_park));
    table.add("w park", "unpark*", "on_park");
    kept.keep(spawn("w park hour", on_park_for_an_hour));
    table.add(
        "w park hour",
        "unpark*, for 59 min * s at most",
        "on_park_for_an_hour",
    );
    drop(spawn("w sleep", on_sleep));
    table.add(
        "w sleep",
        "end of sleep, for 59 min * s at most",
        "on_sleep",
    );

    let (to, from) = channel::bounded(1);
    kept.things.push(Box::new(to));
    let mut coroutine = Coroutine::new(move |_, ()| on_receive(&from));
    kept.keep(spawn("w coroutine", move || on_coroutine(&mut coroutine)));
    table.add("w coroutine", "turn of a coroutine*", "on_coroutine");

    drop(spawn("w future", on_future));
    table.add("w future", "future*", "on_future");
}

/// Calls of libc, by code that knows nothing of green threads.
fn unmodified(table: &mut Table, kept: &mut Kept) {
    let lock = Arc::new(std::sync::Mutex::new(()));
    let locked = lock.clone();
    holder("holds std mutex", kept, move |there, stopped| {
        let _guard = locked.lock().unwrap();
        there.send(()).unwrap();
        let _ = stopped.recv();
    });
    kept.keep(spawn("w std mutex", move || on_std_mutex(&lock)));
    table.add_unmodified("w std mutex", "futex 0x* (word *)", "on_std_mutex");

    let (to, from) = std::sync::mpsc::channel();
    kept.things.push(Box::new(to));
    kept.keep(spawn("w std mpsc", move || on_std_channel(&from)));
    table.add_unmodified("w std mpsc", "futex 0x* (word *)", "on_std_channel");

    let (mut from, to) = std::io::pipe().unwrap();
    kept.things.push(Box::new(to));
    kept.keep(spawn("w pipe", move || on_std_read(&mut from)));
    table.add_unmodified(
        "w pipe",
        "descriptor 0x* (descriptor *, pipe:*)",
        "on_std_read",
    );

    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let peer = format!(
        "descriptor 0x* (descriptor {}, peer {})",
        stream.as_raw_fd(),
        stream.peer_addr().unwrap()
    );
    kept.things.push(Box::new(listener.accept().unwrap()));
    kept.keep(spawn("w std net", move || on_std_read(&mut stream)));
    table.add_unmodified("w std net", &peer, "on_std_read");

    let (from, to) = std::io::pipe().unwrap();
    kept.things.push(Box::new(to));
    kept.keep(spawn("w poll", move || on_poll(from.as_raw_fd())));
    table.add_unmodified("w poll", "descriptors*", "on_poll");

    let (input, to) = std::io::pipe().unwrap();
    let mut child = std::process::Command::new("cat")
        .stdin(input)
        .spawn()
        .unwrap();
    kept.things.push(Box::new(to));
    kept.keep(spawn("w child", move || on_child(&mut child)));
    table.add_unmodified("w child", "operation of io_uring 0x*", "on_child");

    drop(spawn("w std sleep", on_std_sleep));
    table.add_unmodified(
        "w std sleep",
        "end of sleep, for 59 min * s at most",
        "on_std_sleep",
    );
}

/// Calls that block a kernel thread in any mode.
fn blocked(table: &mut Table, kept: &mut Kept) {
    let (from, to) = std::io::pipe().unwrap();
    kept.things.push(Box::new(to));
    kept.keep(spawn("w C", move || on_blocking_read(from.as_raw_fd())));
    let row = table.add("w C", "", "on_blocking_read");
    (row.state, row.waits_for) = (State::Blocked, None);

    let open = || std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
    let (held, wanted) = (open(), open());
    on_file_lock(held.as_raw_fd());
    kept.things.push(Box::new(held));
    kept.keep(spawn("w flock", move || on_file_lock(wanted.as_raw_fd())));
    let row = table.add("w flock", "", "on_file_lock");
    (row.state, row.waits_for) = (State::Blocked, None);
}

#[cfg(feature = "net")]
fn sockets(table: &mut Table, kept: &mut Kept) {
    use greenthread::net::{TcpListener, TcpStream, UdpSocket};
    waits! {
        on_net_read(from: &mut TcpStream) { black_box(from.read(&mut [0; 8])) }
        on_accept(listener: &TcpListener) { black_box(listener.accept()) }
        on_datagram(from: &UdpSocket) { black_box(from.recv(&mut [0; 8])) }
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    kept.things.push(Box::new(listener.accept().unwrap()));
    let fd = stream.as_raw_fd();
    kept.keep(spawn("w net", move || on_net_read(&mut stream)));
    table.add_unmodified(
        "w net",
        &format!("descriptor to read 0x* (descriptor {fd}, peer {address})"),
        "on_net_read",
    );

    /// Connects, to end the wait.
    struct Guest(std::net::SocketAddr);
    impl Drop for Guest {
        fn drop(&mut self) {
            std::net::TcpStream::connect(self.0).unwrap();
        }
    }
    kept.things.push(Box::new(Guest(address)));
    kept.keep(spawn("w accept", move || on_accept(&listener)));
    table.add_unmodified(
        "w accept",
        "descriptor to read 0x* (descriptor *, socket:*)",
        "on_accept",
    );

    struct Letter(std::net::SocketAddr);
    impl Drop for Letter {
        fn drop(&mut self) {
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.send_to(b"", self.0).unwrap();
        }
    }
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    kept.things
        .push(Box::new(Letter(socket.local_addr().unwrap())));
    kept.keep(spawn("w udp", move || on_datagram(&socket)));
    table.add_unmodified(
        "w udp",
        "descriptor to read 0x* (descriptor *, socket:*)",
        "on_datagram",
    );
}

/// A thread in each kind of wait.
#[test]
fn waits() {
    alone!();
    let _w = watchdog("waits::waits");
    let (mut table, mut kept) = (Table::default(), Kept::default());
    locks(&mut table, &mut kept);
    meetings(&mut table, &mut kept);
    channels(&mut table, &mut kept);
    threads(&mut table, &mut kept);
    unmodified(&mut table, &mut kept);
    blocked(&mut table, &mut kept);
    #[cfg(feature = "net")]
    sockets(&mut table, &mut kept);
    let dump = table.expect();
    check_json(&table, &dump);
    check_text(&table, &dump);
    kept.end();
    println!("{} threads", table.rows.len());
}
