//! Scenes that wait for the kernel: sockets, files, processes, and calls that block.

use super::{all, dawdle, start};
use crate::support::Rng;
use greenthread::net::{TcpListener, TcpStream};
use greenthread::process::{Command, Stdio};
use greenthread::{fs, spawn};
use std::io::{Read, Seek, SeekFrom, Write};
use std::sync::Arc;

/// What is sent to a server comes back.
pub(super) fn sockets(rng: &mut Rng) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, clients) = (listener.local_addr().unwrap(), 1 + rng.below(6));
    let server = spawn(move || {
        let serve = |mut stream: TcpStream| {
            let mut buffer = [0; 2048];
            loop {
                match stream.read(&mut buffer).unwrap() {
                    0 => return,
                    n => stream.write_all(&buffer[..n]).unwrap(),
                }
            }
        };
        let served = (0..clients).map(|_| {
            let (stream, _) = listener.accept().unwrap();
            spawn(move || serve(stream))
        });
        all(served.collect());
    });
    let clients = start(clients, rng, move |_, mut rng| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        for _ in 0..1 + rng.below(60) {
            let sent: Vec<u8> = (0..1 + rng.below(3_000))
                .map(|_| rng.next() as u8)
                .collect();
            let mut back = vec![0; sent.len()];
            stream.write_all(&sent).unwrap();
            stream.read_exact(&mut back).unwrap();
            assert!(sent == back, "other bytes came back");
        }
    });
    all(clients);
    all(vec![server]);
}

/// What is written to a file is in it.
pub(super) fn files(rng: &mut Rng) {
    let count = 1 + rng.below(3);
    let writers = start(count, rng, |_, mut rng| {
        let name = format!(
            "greenthread-torture-{}-{:x}",
            std::process::id(),
            rng.next()
        );
        let path = std::env::temp_dir().join(name);
        let bytes: Vec<u8> = (0..rng.below(100_000)).map(|_| rng.next() as u8).collect();
        let mut options = fs::OpenOptions::new();
        let options = options.read(true).write(true).create_new(true);
        let mut file = options.open(&path).unwrap();
        let (first, second) = bytes.split_at(bytes.len() / 2);
        file.write_all(first).unwrap();
        dawdle(&mut rng);
        file.write_all(second).unwrap();
        assert_eq!(file.metadata().unwrap().len(), bytes.len() as u64);
        file.seek(SeekFrom::Start(0)).unwrap();
        let mut back = Vec::new();
        file.read_to_end(&mut back).unwrap();
        assert!(back == bytes && fs::read(&path).unwrap() == bytes);
        fs::remove_file(&path).unwrap();
    });
    all(writers);
}

/// Threads that the kernel blocks, announced and not, at a lock of std's among others.
pub(super) fn blocking(rng: &mut Rng) {
    let (count, each) = (1 + rng.below(8), 1 + rng.below(10));
    let sum = Arc::new(std::sync::Mutex::new(0));
    let shared = sum.clone();
    let blocked = start(count, rng, move |_, mut rng| {
        for _ in 0..each {
            let time = rng.micros_below(400);
            match rng.below(3) {
                0 => std::thread::sleep(time),
                1 => greenthread::blocking(|| std::thread::sleep(time)),
                _ => greenthread::yield_now(),
            }
            let mut sum = shared.lock().unwrap();
            std::thread::sleep(time / 4);
            *sum += 1;
        }
    });
    all(blocked);
    assert_eq!(*sum.lock().unwrap(), count * each);
}

/// Forked and executed, by our `Command` and by std's.
pub(super) fn processes(rng: &mut Rng) {
    let count = 1 + rng.below(3);
    let parents = start(count, rng, |_, mut rng| {
        let text: String = (0..1 + rng.below(2_000)).map(|n| format!("{n} ")).collect();
        if rng.below(2) == 0 {
            let mut cat = Command::new("cat");
            let mut child = cat
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut stdin = child.stdin.take().unwrap();
            let sent = text.clone();
            let writer = spawn(move || stdin.write_all(sent.as_bytes()).unwrap());
            let output = {
                let mut output = String::new();
                child
                    .stdout
                    .take()
                    .unwrap()
                    .read_to_string(&mut output)
                    .unwrap();
                output
            };
            all(vec![writer]);
            assert!(child.wait().unwrap().success() && output == text);
        } else {
            let output = std::process::Command::new("echo")
                .arg(&text)
                .output()
                .unwrap();
            assert_eq!(output.stdout, (text + "\n").into_bytes());
        }
    });
    all(parents);
}
