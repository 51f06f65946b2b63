//! Many operations run at once, and some are cancelled: every byte arrives once, and no byte
//! arrives where it should not.

use super::*;

/// A stream of numbered bytes is read with time-outs that are over just when bytes arrive: every
/// byte is received once. After a read has timed out, nothing in or around its buffer changes.
#[test]
fn time_outs_race_with_data() {
    let _watchdog = watchdog("time_outs_race_with_data");
    if !ring() {
        return;
    }
    const BYTES: usize = 6_000;
    let mut random = Random::new("time_outs_race_with_data");
    for green in [true, false] {
        let (timed_out, received) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut bodies: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
        for _ in 0..4 {
            let (here, there) = UnixStream::pair().unwrap();
            let (mut own, mut others) = (random.fork(), random.fork());
            let (timed_out, received) = (timed_out.clone(), received.clone());
            bodies.push(Box::new(move || {
                const CANARY: u8 = 0xa5;
                let mut rooms = [[CANARY; 96]; 8];
                let (mut next, mut round) = (0, 0);
                while next < BYTES {
                    round += 1;
                    let room = &mut rooms[round % 8];
                    // None of the last eight reads wrote to it after it returned.
                    assert!(room.iter().all(|&byte| byte == CANARY));
                    let limit = soon(own.below(120));
                    let answer = recv_into(&here, &mut room[32..64], limit);
                    let length = match answer {
                        Err(error) if error.kind() == ErrorKind::WouldBlock => {
                            timed_out.fetch_add(1, Relaxed);
                            0
                        }
                        answer => answer.unwrap(),
                    };
                    for &byte in &room[32..32 + length] {
                        assert_eq!(byte, (next % 251) as u8, "lost or doubled");
                        next += 1;
                    }
                    received.fetch_add(usize::from(length > 0), Relaxed);
                    room[32..32 + length].fill(CANARY);
                }
                assert_eq!(next, BYTES);
                assert_eq!(recv_into(&here, &mut [0], Limit::Forever).unwrap(), 0);
            }));
            bodies.push(Box::new(move || {
                let mut next = 0;
                while next < BYTES {
                    let count = (1 + others.below(3) as usize).min(BYTES - next);
                    let part: Vec<u8> = (next..next + count).map(|i| (i % 251) as u8).collect();
                    let sent = send(there.as_fd(), &part, 0, Limit::Forever).unwrap();
                    next += sent;
                    let until = clock::now() + others.below(120_000);
                    while clock::now() < until {
                        crate::yield_now();
                    }
                }
            }));
        }
        run(green, bodies);
        println!("green {green}: {timed_out:?} timed out, {received:?} received");
        assert!(timed_out.load(Relaxed) > 0 && received.load(Relaxed) > 0);
    }
}

/// 200 threads do all operations at once, over the process's ring and over a ring that is always
/// full.
fn storm(keeper: &'static Keeper, green: bool, rounds: usize, mut random: Random) {
    const THREADS: usize = 200;
    let (path, file) = temporary_file(1 << 20, 0);
    let file = Arc::new(file);
    let mut bodies: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
    let perform = move |entry, limit| {
        // SAFETY: the callers below lend memory that lives until this returns.
        unsafe { keeper.perform(entry, limit) }
    };
    let receive = move |socket: &UnixStream, buffer: &mut [u8], limit| {
        let (place, length) = (buffer.as_mut_ptr(), buffer.len() as u32);
        let entry = opcode::Recv::new(types::Fd(socket.as_raw_fd()), place, length);
        perform(entry.build(), limit)
    };
    for _ in 0..THREADS / 2 {
        let (left, right) = UnixStream::pair().unwrap();
        for (starts, socket) in [(true, left), (false, right)] {
            let (file, mut random) = (file.clone(), random.fork());
            bodies.push(Box::new(move || {
                let (silent, _peer) = UnixStream::pair().unwrap();
                let transmit = |from: &[u8]| {
                    let mut done = 0;
                    while done < from.len() {
                        let rest = &from[done..];
                        let (place, length) = (rest.as_ptr(), rest.len() as u32);
                        let entry = opcode::Send::new(types::Fd(socket.as_raw_fd()), place, length);
                        done += perform(entry.build(), Limit::Forever).unwrap();
                    }
                };
                let collect = |mut into: &mut [u8], random: &mut Random| {
                    while !into.is_empty() {
                        let limit = match random.below(4) {
                            0 => soon(random.below(200)),
                            _ => Limit::Forever,
                        };
                        match receive(&socket, into, limit) {
                            Ok(length) => into = &mut into[length..],
                            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                        }
                    }
                };
                for round in 0..rounds {
                    let expected: Vec<u8> = (0..64).map(|i| (i * 7 + round) as u8).collect();
                    let mut got = [0; 64];
                    if starts {
                        transmit(&expected);
                        collect(&mut got, &mut random);
                    } else {
                        collect(&mut got, &mut random);
                        transmit(&got);
                    }
                    assert_eq!(got[..], expected);
                    match random.below(4) {
                        0 => {
                            let at = random.below(1 << 20) as usize;
                            let (place, length) = (got.as_mut_ptr(), got.len() as u32);
                            let entry =
                                opcode::Read::new(types::Fd(file.as_raw_fd()), place, length);
                            let entry = entry.offset(at as u64).build();
                            let length = perform(entry, Limit::Forever).unwrap();
                            assert_eq!(length, got.len().min((1 << 20) - at));
                            assert!((0..length).all(|i| got[i] == byte_at(at + i)));
                        }
                        1 => {
                            let mut buffer = [7; 16];
                            let limit = soon(random.below(300));
                            assert!(expired(&receive(&silent, &mut buffer, limit)));
                            assert_eq!(buffer, [7; 16]);
                        }
                        _ => {}
                    }
                }
            }));
        }
    }
    run(green, bodies);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_storm() {
    let _watchdog = watchdog("a_storm");
    if !ring() {
        return;
    }
    let mut random = Random::new("a_storm");
    for green in [true, false] {
        storm(Keeper::get().unwrap(), green, 50, random.fork());
    }
}

/// A ring of two entries and sixteen completions serves 200 threads: both queues overflow.
#[test]
fn a_storm_over_a_small_ring() {
    let _watchdog = watchdog("a_storm_over_a_small_ring");
    if !ring() {
        return;
    }
    let mut random = Random::new("a_storm_over_a_small_ring");
    let small = Keeper::start(2).unwrap();
    for green in [true, false] {
        storm(small, green, 30, random.fork());
    }
    // A hundred operations complete at once.
    let (here, there) = UnixStream::pair().unwrap();
    let all: Vec<_> = (0..100)
        .map(|_| {
            let here = here.try_clone().unwrap();
            crate::spawn(move || {
                let mut byte = 0u8;
                let entry = opcode::Recv::new(types::Fd(here.as_raw_fd()), &mut byte, 1);
                // SAFETY: the byte lives until this returns.
                unsafe { small.perform(entry.build(), Limit::Forever) }.unwrap()
            })
        })
        .collect();
    std::thread::sleep(Duration::from_millis(20));
    drop(there);
    for thread in all {
        assert_eq!(thread.join().unwrap(), 0);
    }
}

/// An operation goes on, whatever happens to the kernel thread on which it began.
#[test]
fn a_blocked_worker_strands_nothing() {
    let _watchdog = watchdog("a_blocked_worker_strands_nothing");
    if !ring() {
        return;
    }
    const BLOCKED: usize = 8;
    let (mut pipe_out, mut pipe_in) = io::pipe().unwrap();
    let (here, mut there) = UnixStream::pair().unwrap();
    let under_way = Arc::new(AtomicUsize::new(0));
    let waiting: Vec<_> = (0..16)
        .map(|_| {
            let (here, under_way) = (here.try_clone().unwrap(), under_way.clone());
            crate::spawn(move || {
                under_way.fetch_add(1, Relaxed);
                recv_into(&here, &mut [0], Limit::Forever).unwrap()
            })
        })
        .collect();
    while under_way.load(Relaxed) < 16 {
        std::thread::yield_now();
    }
    // Every kernel thread that has submitted an operation blocks, without an announcement.
    let blocked: Vec<_> = (0..BLOCKED)
        .map(|_| {
            let (pipe, under_way) = (pipe_out.try_clone().unwrap(), under_way.clone());
            crate::spawn(move || {
                under_way.fetch_add(1, Relaxed);
                (&pipe).read(&mut [0]).unwrap()
            })
        })
        .collect();
    while under_way.load(Relaxed) < 16 + BLOCKED {
        std::thread::yield_now();
    }
    std::thread::sleep(Duration::from_millis(20));
    there.write_all(&[1; 16]).unwrap();
    for thread in waiting {
        assert_eq!(thread.join().unwrap(), 1);
    }
    pipe_in.write_all(&[1; BLOCKED]).unwrap();
    for thread in blocked {
        assert_eq!(thread.join().unwrap(), 1);
    }
    drop(pipe_in);
    assert_eq!(pipe_out.read(&mut [0]).unwrap(), 0);
}

#[test]
fn all_of_a_descriptor_are_cancelled() {
    let _watchdog = watchdog("all_of_a_descriptor_are_cancelled");
    if !ring() {
        return;
    }
    let (here, _there) = UnixStream::pair().unwrap();
    let (other, mut others) = UnixStream::pair().unwrap();
    let over = Arc::new(AtomicUsize::new(0));
    let spawn = |socket: &UnixStream| {
        let (socket, over) = (socket.try_clone().unwrap(), over.clone());
        crate::spawn(move || {
            let answer = recv_into(&socket, &mut [0], Limit::Forever);
            over.fetch_add(1, Relaxed);
            answer
        })
    };
    let waiting: Vec<_> = (0..5).map(|_| spawn(&here)).collect();
    let not_concerned = spawn(&other);
    let mut ended = 0;
    while ended < 5 {
        ended += cancel_all(here.as_fd()).unwrap();
        std::thread::yield_now();
    }
    for thread in waiting {
        let error = thread.join().unwrap().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ECANCELED));
    }
    assert_eq!(over.load(Relaxed), 5);
    others.write_all(b"x").unwrap();
    assert_eq!(not_concerned.join().unwrap().unwrap(), 1);
}
