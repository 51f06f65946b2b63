//! Tests that concern the whole process: each runs in a process of its own.

use super::*;

/// Refuses `io_uring_setup` to the calling kernel thread and to the kernel threads that it makes.
fn forbid(errno: u32) {
    let statement = |code: u32, jump_false: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: jump_false,
        k,
    };
    let mut filter = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        statement(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            1,
            libc::SYS_io_uring_setup as u32,
        ),
        statement(
            libc::BPF_RET | libc::BPF_K,
            0,
            libc::SECCOMP_RET_ERRNO | errno,
        ),
        statement(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the program is valid.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &program), 0);
    }
}

#[test]
fn a_kernel_that_forbids_it_is_no_error() {
    for errno in [libc::ENOSYS, libc::EPERM, libc::EINVAL] {
        let Some(errno) = alone("a_kernel_that_forbids_it_is_no_error", &errno.to_string()) else {
            continue;
        };
        forbid(errno.parse().unwrap());
        assert!(Keeper::get().is_none() && Keeper::get().is_none());
        let (here, _there) = UnixStream::pair().unwrap();
        let error = recv_into(&here, &mut [0], Limit::Forever).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOSYS));
        return;
    }
}

#[test]
fn a_forked_child_has_none() {
    let _watchdog = watchdog("a_forked_child_has_none");
    if !ring() || alone("a_forked_child_has_none", "").is_none() {
        return;
    }
    // SAFETY: the child only looks, and ends.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::_exit(i32::from(Keeper::get().is_some()));
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        assert_eq!(status, 0);
    }
    assert!(Keeper::get().is_some());
}

/// The number of times that the keeper has gone to sleep.
fn sleeps_of_the_keeper() -> u64 {
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let path = task.unwrap().path();
        if std::fs::read_to_string(path.join("comm")).unwrap() != "gt-ring\n" {
            continue;
        }
        let status = std::fs::read_to_string(path.join("status")).unwrap();
        let switches = status
            .lines()
            .filter(|line| line.contains("ctxt_switches"))
            .map(|line| line.split('\t').nth(1).unwrap().parse::<u64>().unwrap());
        return switches.sum();
    }
    panic!("there is no keeper");
}

#[test]
fn an_idle_process_does_not_wake() {
    let _watchdog = watchdog("an_idle_process_does_not_wake");
    if !ring() || alone("an_idle_process_does_not_wake", "").is_none() {
        return;
    }
    let (here, _there) = UnixStream::pair().unwrap();
    let mine = here.try_clone().unwrap();
    // One operation is in flight, one has been cancelled.
    crate::spawn(move || recv_into(&mine, &mut [0], Limit::Forever));
    assert!(expired(&recv_into(&here, &mut [0], soon(1000))));
    std::thread::sleep(Duration::from_millis(50));
    let before = sleeps_of_the_keeper();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(sleeps_of_the_keeper(), before);
}

/// 128 green threads read 4 KiB at random offsets, past the page cache: through the ring, and by
/// announced blocking calls. `GT_CASE` picks one of the two, for `strace -f -c`.
#[test]
#[ignore = "a measurement"]
fn measure_random_reads() {
    const THREADS: usize = 128;
    const LENGTH: usize = 256 << 20;
    const READS: usize = 300;
    #[repr(align(4096))]
    struct Page([u8; 4096]);
    type Way = fn(BorrowedFd<'_>, &mut [u8], u64) -> io::Result<usize>;
    let ring: Way = |fd, buffer, at| read_at(fd, buffer, at as i64);
    let blocking: Way = |fd, buffer, at| {
        let file = std::fs::File::from(fd.try_clone_to_owned().unwrap());
        crate::blocking(|| std::os::unix::fs::FileExt::read_at(&file, buffer, at))
    };
    let only = std::env::var("GT_CASE").ok();
    let ways = [("ring", ring), ("blocking", blocking)];
    let ways = ways.map(|way| only.iter().all(|only| only == way.0).then_some(way));
    let (path, file) = temporary_file(LENGTH, libc::O_DIRECT);
    file.sync_all().unwrap();
    let file = Arc::new(file);
    for (name, way) in ways.into_iter().cycle().take(6).flatten() {
        let mut random = Random(fastrand::Rng::with_seed(1));
        let (start, cpu) = (
            Instant::now(),
            clock::cpu_time(libc::CLOCK_PROCESS_CPUTIME_ID),
        );
        let all: Vec<_> = (0..THREADS)
            .map(|_| {
                let (file, mut random) = (file.clone(), random.fork());
                crate::spawn(move || {
                    let mut page = Box::new(Page([0; 4096]));
                    for _ in 0..READS {
                        let at = random.below((LENGTH / 4096) as u64) * 4096;
                        assert_eq!(way(file.as_fd(), &mut page.0, at).unwrap(), 4096);
                        assert_eq!(page.0[5], byte_at(at as usize + 5));
                    }
                })
            })
            .collect();
        all.into_iter().for_each(|thread| thread.join().unwrap());
        let cpu = clock::cpu_time(libc::CLOCK_PROCESS_CPUTIME_ID) - cpu;
        let count = (THREADS * READS) as f64;
        println!(
            "{name}: {:.1} thousand reads a second, {:.1} us of CPU each",
            count / start.elapsed().as_secs_f64() / 1000.0,
            cpu as f64 / 1000.0 / count
        );
    }
    std::fs::remove_file(path).unwrap();
}
