use core::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use super::{Direction, Limit, Source};

fn pair() -> (Source, Source) {
    let (a, b) = UnixStream::pair().unwrap();
    (Source::new(OwnedFd::from(a)), Source::new(OwnedFd::from(b)))
}

fn echo(count: usize, threads: usize) {
    let handles: Vec<_> = (0..threads)
        .map(|t| {
            let (a, b) = pair();
            let server = crate::spawn(move || {
                let mut buffer = [MaybeUninit::uninit(); 64];
                loop {
                    let n = b.recv(&mut buffer, 0, Limit::Forever).unwrap();
                    if n == 0 {
                        break;
                    }
                    let bytes: Vec<u8> = buffer[..n]
                        .iter()
                        .map(|b| unsafe { b.assume_init() })
                        .collect();
                    assert_eq!(b.send(&bytes, 0, Limit::Forever).unwrap(), n);
                }
            });
            crate::spawn(move || {
                let mut buffer = [MaybeUninit::uninit(); 64];
                for i in 0..count {
                    let message = [(i + t) as u8; 32];
                    assert_eq!(a.send(&message, 0, Limit::Forever).unwrap(), 32);
                    let n = a.recv(&mut buffer, 0, Limit::Forever).unwrap();
                    assert_eq!(n, 32);
                    assert!(
                        buffer[..n]
                            .iter()
                            .all(|b| unsafe { b.assume_init() } == (i + t) as u8)
                    );
                }
                drop(a);
                server.join().unwrap();
            })
        })
        .collect();
    handles.into_iter().for_each(|h| h.join().unwrap());
}

#[test]
fn echoes() {
    for (count, threads) in [(1000, 1), (1000, 10), (200, 500)] {
        let start = std::time::Instant::now();
        echo(count, threads);
        println!(
            "{threads} x {count}: {:?} each",
            start.elapsed() / (count * threads) as u32
        );
    }
}

#[test]
fn a_deadline_and_a_close() {
    let (a, b) = pair();
    let a = Arc::new(a);
    let reader = a.clone();
    let h = crate::spawn(move || {
        let mut buffer = [MaybeUninit::uninit(); 64];
        let limit = Limit::Until(crate::sys::clock::now() + 5_000_000);
        let e = reader.recv(&mut buffer, 0, limit).unwrap_err();
        assert_eq!(e.kind(), std::io::ErrorKind::WouldBlock);
        let e = reader.recv(&mut buffer, 0, Limit::Forever).unwrap_err();
        assert_eq!(e.kind(), std::io::ErrorKind::NotConnected);
    });
    std::thread::sleep(std::time::Duration::from_millis(20));
    a.close();
    h.join().unwrap();
    drop(b);
    let _ = (a.as_raw_fd(), Direction::Read);
}
