//! Pipes: what leaves a process's hands, or may be shared, behaves as std's; so do writes.
//!
//! The idea: a pipe's open file description is shared with clones and children, and looked at and used
//! through those. All of it once more where the kernel refuses the calls that do not wait, as old ones
//! do: in a process of its own, with a filter of system calls.

use crate::common::*;
use greenthread::io::{self, ErrorKind, IoSlice, PipeReader, PipeWriter, Read, Write};
use greenthread::process::{Command, Stdio};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

fn is_nonblocking(end: &impl AsFd) -> bool {
    // SAFETY: asks.
    let flags = unsafe { libc::fcntl(end.as_fd().as_raw_fd(), libc::F_GETFL) };
    flags & libc::O_NONBLOCK != 0
}

/// Has the kernel refuse, from this thread and those that it makes, as before Linux 6.4.
fn refuse_nowait() {
    let statement = |code: u32, jt: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt,
        jf: 0,
        k,
    };
    let is = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let refuse = libc::SECCOMP_RET_ERRNO | libc::EOPNOTSUPP as u32;
    let mut filter = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        statement(is, 2, libc::SYS_preadv2 as u32),
        statement(is, 1, libc::SYS_pwritev2 as u32),
        statement(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
        statement(libc::BPF_RET | libc::BPF_K, 0, refuse),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: a valid program.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &program), 0);
        let vector = libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        };
        assert_eq!(libc::preadv2(0, &vector, 0, -1, libc::RWF_NOWAIT), -1);
    }
}

/// Runs `body` everywhere, and again where the kernel refuses.
fn with_and_without(name: &'static str, body: fn()) {
    let _w = watchdog(name);
    if child_case(name).is_some() {
        refuse_nowait();
        return everywhere(body);
    }
    everywhere(body);
    let out = child(name, "refused");
    assert_code(&out, 0);
}

#[test]
fn the_mode_is_never_changed() {
    with_and_without("pipes::the_mode_is_never_changed", || {
        let (mut reader, mut writer) = io::pipe().unwrap();
        let check = |reader: &PipeReader, writer: &PipeWriter| {
            assert!(!is_nonblocking(reader) && !is_nonblocking(writer));
        };
        check(&reader, &writer);
        let waiting = greenthread::spawn(move || {
            let mut byte = [0];
            reader.read_exact(&mut byte).unwrap();
            (reader, byte)
        });
        greenthread::sleep(Duration::from_millis(2));
        assert!(!is_nonblocking(&writer));
        writer.write_all(b"x").unwrap();
        let (reader, byte) = waiting.join().unwrap();
        assert_eq!(&byte, b"x");
        check(&reader.try_clone().unwrap(), &writer.try_clone().unwrap());
        check(&reader, &writer);
        let reader = PipeReader::from(OwnedFd::from(reader));
        let writer = PipeWriter::from(std::io::PipeWriter::from(writer));
        check(&reader, &writer);
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        assert!(!is_nonblocking(child.stdin.as_ref().unwrap()));
        assert!(!is_nonblocking(child.stdout.as_ref().unwrap()));
        assert!(!is_nonblocking(child.stderr.as_ref().unwrap()));
        child.wait().unwrap();
    });
}

/// A child writes more than the pipe holds while we use other handles to the same end.
#[test]
fn a_child_has_a_clone_as_its_output() {
    with_and_without("pipes::a_child_has_a_clone_as_its_output", || {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "sleep 0.02; head -c 300000 /dev/zero || echo failed >&2",
        ]);
        let mut child = command
            .stdout(writer.try_clone().unwrap())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(command);
        let mut other = writer.try_clone().unwrap();
        drop(writer);
        let ours = greenthread::spawn(move || other.write(&[1; 100_000]).unwrap());
        greenthread::sleep(Duration::from_millis(50)); // the pipe is full, and the child waits
        let mut all = vec![];
        reader.read_to_end(&mut all).unwrap();
        let mut error = String::new();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut error)
            .unwrap();
        assert_eq!(error, "");
        assert!(child.wait().unwrap().success());
        assert_eq!(ours.join().unwrap(), 100_000);
        let of = |wanted| all.iter().filter(|&&byte| byte == wanted).count();
        assert_eq!((of(0), of(1), all.len()), (300_000, 100_000, 400_000));
    });
}

/// A child reads from a clone of what we read from too.
#[test]
fn a_child_has_a_clone_as_its_input() {
    with_and_without("pipes::a_child_has_a_clone_as_its_input", || {
        let (reader, mut writer) = io::pipe().unwrap();
        let mut command = Command::new("cat");
        command
            .stdin(reader.try_clone().unwrap())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        drop(command);
        let mut other = reader.try_clone().unwrap();
        drop(reader);
        let ours = greenthread::spawn(move || {
            let mut text = String::new();
            other.read_to_string(&mut text).unwrap();
            text.len()
        });
        for _ in 0..5 {
            greenthread::sleep(Duration::from_millis(5)); // both wait
            writer.write_all(b"line\n").unwrap();
        }
        drop(writer);
        let mut text = String::new();
        child
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        assert!(child.wait().unwrap().success());
        assert_eq!(ours.join().unwrap() + text.len(), 25);
    });
}

/// Somebody has asked for it, and so gets it.
#[test]
fn who_asks_for_it_is_told_that_it_would_block() {
    with_and_without("pipes::who_asks_for_it_is_told_that_it_would_block", || {
        let (mut reader, mut writer) = io::pipe().unwrap();
        for end in [reader.as_raw_fd(), writer.as_raw_fd()] {
            // SAFETY: sets a flag of descriptors of this test.
            let set = unsafe { libc::fcntl(end, libc::F_SETFL, libc::O_NONBLOCK) };
            assert_eq!(set, 0);
        }
        for _ in 0..3 {
            let error = reader.read(&mut [0; 9]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
            let mut written = 0;
            let error = loop {
                match writer.write(&[0; 100_000]) {
                    Ok(n) => written += n,
                    Err(error) => break error,
                }
            };
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
            let mut read = 0;
            while let Ok(n @ 1..) = reader.read(&mut [0; 5000]) {
                read += n;
            }
            assert_eq!(read, written);
            assert!(written > 4096);
        }
    });
}

/// A write is not over before all is written; if the reader goes, it says how much was.
#[test]
fn a_write_writes_all() {
    with_and_without("pipes::a_write_writes_all", || {
        let data: Vec<u8> = (0..1 << 20)
            .map(|i: usize| (i * 31 + i / 977) as u8)
            .collect();
        let parts: Vec<_> = data.chunks(70_001).map(IoSlice::new).collect();
        let (reader, mut writer) = io::pipe().unwrap();
        let received = greenthread::spawn(move || {
            let (mut reader, mut all) = (reader, vec![]);
            let mut block = vec![0; 3000];
            while all.len() < 2 << 20 {
                let n = reader.read(&mut block).unwrap();
                all.extend_from_slice(&block[..n]);
            }
            drop(reader);
            all
        });
        assert_eq!(writer.write(&data).unwrap(), data.len());
        assert_eq!(writer.write_vectored(&parts).unwrap(), data.len());
        let all = received.join().unwrap();
        assert!(all[..1 << 20] == data && all[1 << 20..] == data);
        let error = writer.write(&data).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);

        let (mut reader, mut writer) = io::pipe().unwrap();
        let sent = data.clone();
        let writing = greenthread::spawn(move || {
            let error = |writer: &mut PipeWriter| writer.write(&sent).unwrap_err().kind();
            (writer.write(&sent).unwrap(), error(&mut writer))
        });
        reader.read_exact(&mut [0; 10_000]).unwrap();
        drop(reader);
        let (part, error) = writing.join().unwrap();
        assert!((10_000..1 << 20).contains(&part), "{part}");
        assert_eq!(error, ErrorKind::BrokenPipe);

        let mut child = Command::new("wc")
            .arg("-c")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        assert_eq!(input.write(&data).unwrap(), data.len());
        drop(input);
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "1048576");
    });
}

/// What is not longer than 4,096 bytes is not mixed with what others write, even in parts.
#[test]
fn short_writes_stay_whole() {
    const WRITERS: usize = 8;
    const RECORDS: usize = 300;
    with_and_without("pipes::short_writes_stay_whole", || {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut rng = Rng::new("pipes::short_writes_stay_whole");
        let writers: Vec<_> = (0..WRITERS)
            .map(|name| {
                let (mut writer, mut rng) = (writer.try_clone().unwrap(), rng.fork());
                greenthread::spawn(move || {
                    for _ in 0..RECORDS {
                        // Its length, its writer, and bytes of that.
                        let length = 3 + rng.below(4094);
                        let mut record = vec![name as u8; length];
                        record[..2].copy_from_slice(&(length as u16).to_le_bytes());
                        let (a, b) = record.split_at(1 + rng.below(length - 1));
                        let parts = [IoSlice::new(a), IoSlice::new(b)];
                        assert_eq!(writer.write_vectored(&parts).unwrap(), length);
                    }
                })
            })
            .collect();
        drop(writer);
        let mut counts = [0; WRITERS];
        let mut length = [0; 2];
        while reader.read_exact(&mut length).is_ok() {
            let mut record = vec![0; usize::from(u16::from_le_bytes(length)) - 2];
            reader.read_exact(&mut record).unwrap();
            assert!(record.iter().all(|byte| *byte == record[0]), "it is mixed");
            counts[usize::from(record[0])] += 1;
        }
        writers
            .into_iter()
            .for_each(|writer| writer.join().unwrap());
        assert_eq!(counts, [RECORDS; WRITERS]);
    });
}

/// An end may be made of anything that has a descriptor.
#[test]
fn what_is_no_pipe() {
    with_and_without("pipes::what_is_no_pipe", || {
        let path = std::env::temp_dir().join(format!("greenthread-pipes-{}", std::process::id()));
        let file = std::fs::File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path);
        let file = file.unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut writer = PipeWriter::from(OwnedFd::from(file.try_clone().unwrap()));
        assert_eq!(writer.write(&[5; 10_000]).unwrap(), 10_000);
        io::Seek::rewind(&mut &file).unwrap();
        let mut reader = PipeReader::from(OwnedFd::from(file));
        let mut all = vec![];
        assert_eq!(reader.read_to_end(&mut all).unwrap(), 10_000);
        assert_eq!(all, [5; 10_000]);

        let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut reader = PipeReader::from(OwnedFd::from(here));
        let mut writer = PipeWriter::from(OwnedFd::from(there));
        let late = greenthread::spawn(move || {
            let mut text = String::new();
            reader.read_to_string(&mut text).unwrap();
            text
        });
        greenthread::sleep(Duration::from_millis(2));
        writer.write_all(b"socket").unwrap();
        drop(writer);
        assert_eq!(late.join().unwrap(), "socket");
    });
}

/// It is empty, and then full: who wants nothing need not wait.
#[test]
fn no_bytes_wait_for_nobody() {
    with_and_without("pipes::no_bytes_wait_for_nobody", || {
        let (mut reader, mut writer) = io::pipe().unwrap();
        assert_eq!(reader.read(&mut []).unwrap(), 0);
        assert_eq!(reader.read_vectored(&mut []).unwrap(), 0);
        // SAFETY: asks.
        let room = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_GETPIPE_SZ) };
        writer.write_all(&vec![5; room as usize]).unwrap();
        assert_eq!(writer.write(&[]).unwrap(), 0);
        assert_eq!(writer.write_vectored(&[IoSlice::new(&[])]).unwrap(), 0);
    });
}
