//! A batch of operations that do not wait.

use super::*;
use crate::engine::driver::sends::{Batch, SIZE};

fn entry(fd: BorrowedFd<'_>, bytes: &[u8]) -> squeue::Entry {
    let entry = opcode::Send::new(
        types::Fd(fd.as_raw_fd()),
        bytes.as_ptr(),
        bytes.len() as u32,
    );
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    entry.flags(flags).build()
}

/// Pushes a send of bytes that the caller keeps until it is performed.
fn push(batch: &mut Batch, fd: BorrowedFd<'_>, bytes: &[u8], name: u64) {
    // SAFETY: the caller keeps the bytes, see above.
    unsafe { batch.push(&entry(fd, bytes), name) };
}

/// The results, and whether the kernel has taken all.
fn results(batch: &mut Batch) -> (Vec<(u64, i32)>, bool) {
    let mut results = Vec::new();
    let is_done = batch.perform(|name, result| results.push((name, result)));
    (results, is_done)
}

/// Performs batches time and again, from one kernel thread after another; the first has ended by
/// then.
#[test]
fn all_is_done_when_it_returns() {
    let Ok(mut batch) = std::thread::spawn(Batch::new).join().unwrap() else {
        return;
    };
    for round in 0..20 {
        batch = std::thread::spawn(move || {
            let pairs: Vec<_> = (0..SIZE).map(|_| UnixStream::pair().unwrap()).collect();
            let mut bytes = [[round; 100]; SIZE];
            for (i, (here, _)) in pairs.iter().enumerate() {
                push(&mut batch, here.as_fd(), &bytes[i], i as u64);
            }
            let expected: Vec<_> = (0..SIZE as u64).map(|i| (i, 100)).collect();
            assert_eq!(results(&mut batch), (expected, true));
            bytes.as_flattened_mut().fill(255);
            std::hint::black_box(&mut bytes);
            for (_, there) in &pairs {
                let mut received = [0; 200];
                assert_eq!((&*there).read(&mut received).unwrap(), 100);
                assert_eq!(received[..100], [round; 100]);
            }
            batch
        })
        .join()
        .unwrap();
    }
}

/// A full socket, a socket whose peer is gone, and a descriptor that is no socket: each has its own
/// answer at once.
#[test]
fn each_has_its_own_error() {
    let Ok(mut batch) = Batch::new() else {
        return;
    };
    let (full, _keep) = UnixStream::pair().unwrap();
    full.set_nonblocking(true).unwrap();
    while (&full).write(&[0; 4096]).is_ok() {}
    let (broken, _) = UnixStream::pair().unwrap();
    let (good, _also) = UnixStream::pair().unwrap();
    let (_path, file) = temporary_file(1, 0);
    let descriptors = [full.as_fd(), broken.as_fd(), file.as_fd(), good.as_fd()];
    for (i, fd) in descriptors.into_iter().enumerate() {
        push(&mut batch, fd, b"hello", i as u64);
    }
    let (mut results, is_done) = results(&mut batch);
    assert!(is_done);
    results.sort();
    let errors = [libc::EAGAIN, libc::EPIPE, libc::ENOTSOCK];
    let expected = errors.map(|error| -error).into_iter().chain([5]);
    assert!(results.iter().map(|&(_, result)| result).eq(expected));
}

/// Another file has taken the ring's descriptor: no operation is done, none is reported as done,
/// and no later call does one.
#[test]
fn what_is_refused_is_never_done() {
    let Ok(mut batch) = Batch::new() else {
        return;
    };
    let (here, there) = UnixStream::pair().unwrap();
    let (other, _peer) = UnixStream::pair().unwrap();
    // SAFETY: the ring's descriptor stays open, as another file.
    assert!(unsafe { libc::dup2(other.as_raw_fd(), batch.descriptor()) } >= 0);
    push(&mut batch, here.as_fd(), b"hello", 1);
    assert_eq!(results(&mut batch), (vec![], false));
    drop(batch);
    there.set_nonblocking(true).unwrap();
    let nothing = (&there).read(&mut [0]).unwrap_err();
    assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
}
