//! Situations of `tests/programs/quiet.rs` that another process ends.

use super::quiet::REST;
use greenthread::thread;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, Ordering::*};

/// Waits until the descriptor can be read.
pub fn poll(fd: i32) {
    let mut seen = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one descriptor, which outlives the call.
    assert_eq!(unsafe { libc::poll(&mut seen, 1, -1) }, 1);
}

/// Zeroed memory that a forked process shares.
fn shared_page<T>() -> &'static T {
    let (access, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_SHARED | libc::MAP_ANONYMOUS,
    );
    // SAFETY: a fresh mapping, never unmapped. Zeroes are valid for what it is used for.
    unsafe { &*libc::mmap(std::ptr::null_mut(), 4096, access, flags, -1, 0).cast::<T>() }
}

/// An object of C's.
struct OfC<T>(std::cell::UnsafeCell<T>);
// SAFETY: C's functions synchronise.
unsafe impl<T> Sync for OfC<T> {}

/// A forked process holds it.
pub fn shared_mutex() {
    let lock = shared_page::<OfC<libc::pthread_mutex_t>>();
    let is_held = shared_page::<AtomicU32>();
    // SAFETY: valid objects; the child makes plain calls and leaves.
    unsafe {
        let mut attributes: libc::pthread_mutexattr_t = std::mem::zeroed();
        libc::pthread_mutexattr_init(&mut attributes);
        libc::pthread_mutexattr_setpshared(&mut attributes, libc::PTHREAD_PROCESS_SHARED);
        assert_eq!(libc::pthread_mutex_init(lock.0.get(), &attributes), 0);
        if libc::fork() == 0 {
            libc::pthread_mutex_lock(lock.0.get());
            is_held.store(1, Release);
            libc::usleep(REST.as_micros() as u32);
            libc::pthread_mutex_unlock(lock.0.get());
            libc::_exit(0);
        }
        while is_held.load(Acquire) == 0 {
            std::thread::yield_now();
        }
        thread::spawn(|| assert_eq!(libc::pthread_mutex_lock(lock.0.get()), 0))
            .join()
            .unwrap();
    }
}

/// A forked process posts it.
pub fn shared_semaphore() {
    let semaphore = shared_page::<OfC<libc::sem_t>>();
    // SAFETY: a valid object; the child makes plain calls and leaves.
    unsafe {
        assert_eq!(libc::sem_init(semaphore.0.get(), 1, 0), 0);
        if libc::fork() == 0 {
            libc::usleep(REST.as_micros() as u32);
            libc::sem_post(semaphore.0.get());
            libc::_exit(0);
        }
        thread::spawn(|| assert_eq!(libc::sem_wait(semaphore.0.get()), 0))
            .join()
            .unwrap();
    }
}

/// A forked process changes the word.
pub fn shared_futex() {
    let word = shared_page::<AtomicU32>();
    // SAFETY: the child makes plain system calls and leaves.
    unsafe {
        if libc::fork() == 0 {
            libc::usleep(REST.as_micros() as u32);
            word.store(1, Release);
            libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE, 1);
            libc::_exit(0);
        }
        let waits = move || {
            while word.load(Acquire) == 0 {
                libc::syscall(
                    libc::SYS_futex,
                    word,
                    libc::FUTEX_WAIT,
                    0,
                    std::ptr::null::<()>(),
                );
            }
        };
        thread::spawn(waits).join().unwrap();
    }
}

/// A forked process holds the lock.
pub fn locked_file() {
    let path = std::env::temp_dir().join(format!("greenthread-quiet-{}", std::process::id()));
    let open = || {
        std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .unwrap()
    };
    let (mut ready, mut tells) = std::io::pipe().unwrap();
    // SAFETY: the child makes plain system calls and leaves.
    unsafe {
        let held = open();
        if libc::fork() == 0 {
            libc::flock(held.as_raw_fd(), libc::LOCK_EX);
            tells.write_all(b"x").unwrap();
            libc::usleep(REST.as_micros() as u32);
            libc::_exit(0);
        }
    }
    ready.read_exact(&mut [0]).unwrap();
    let wanted = open();
    let locks = move || {
        // SAFETY: plain call.
        assert_eq!(unsafe { libc::flock(wanted.as_raw_fd(), libc::LOCK_EX) }, 0);
    };
    thread::spawn(locks).join().unwrap();
    std::fs::remove_file(&path).unwrap();
}

/// Sockets, of ours: the other side is a child.
#[cfg(feature = "net")]
pub mod sockets {
    use super::*;
    use greenthread::net::{TcpListener, TcpStream, UdpSocket};
    use greenthread::os::unix::net::UnixStream;

    /// A process that does `act` later.
    fn forked(act: impl FnOnce()) {
        // SAFETY: the child makes plain system calls and leaves.
        unsafe {
            if libc::fork() == 0 {
                libc::usleep(REST.as_micros() as u32);
                act();
                libc::_exit(0);
            }
        }
    }

    pub fn read() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut peer = listener.accept().unwrap().0;
        forked(|| peer.write_all(b"x").unwrap());
        thread::spawn(move || stream.read_exact(&mut [0]).unwrap())
            .join()
            .unwrap();
    }

    pub fn accept() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        forked(|| drop(std::net::TcpStream::connect(address).unwrap()));
        thread::spawn(move || drop(listener.accept().unwrap()))
            .join()
            .unwrap();
    }

    pub fn datagram() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        forked(|| {
            let other = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            other.send_to(b"x", address).unwrap();
        });
        thread::spawn(move || assert_eq!(socket.recv(&mut [0; 8]).unwrap(), 1))
            .join()
            .unwrap();
    }

    pub fn unix() {
        let (one, mut other) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut one = UnixStream::from(std::os::fd::OwnedFd::from(one));
        forked(|| other.write_all(b"x").unwrap());
        thread::spawn(move || one.read_exact(&mut [0]).unwrap())
            .join()
            .unwrap();
    }

    pub fn unmodified() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        forked(|| drop(std::net::TcpStream::connect(address).unwrap()));
        thread::spawn(move || drop(listener.accept().unwrap()))
            .join()
            .unwrap();
    }
}
