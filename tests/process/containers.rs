//! Containers: Docker's profile of system calls, a root that cannot be written, no `/proc`, no `/sys`, no `/dev`, users
//! without rights, process ids of one's own. Each case makes that of the real thing in a process of its own, and runs a
//! mixture of all that threads do. Nothing of this takes green threads away, nor their preemption and hand-off.

#![cfg(all(
    target_os = "linux",
    target_arch = "x86_64",
    feature = "net",
    feature = "observe"
))]

#[path = "../support/container.rs"]
mod container;

use crate::common::directory::Directory;
use crate::common::{alone, assert_code, child_case, child_command, line_with, said, watchdog};
use crate::mixture::{Extent, Mixture, ask_for_the_same_mode, asked_for_kernel_threads};
use container::*;
use greenthread::runtime::{Mode, Runtime};
use std::fs::{File, Permissions};
use std::io::{BufRead, BufReader};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// The mixture, which has run so many rounds, runs as if nothing were missing.
fn end_as_usual(mixture: Mixture, rounds: u32) {
    let more = mixture.until_preempted(0);
    let shown = mixture.end(rounds + more);
    eprintln!("usual: {shown:?}");
    if asked_for_kernel_threads() {
        return assert_eq!(shown.mode, Mode::Kernel);
    }
    assert_eq!(shown.mode, Mode::Green);
    assert!(shown.preemptions > 0 && shown.hand_offs > 0);
}

/// Runs `inside` in a child that `prepare` has made, with a directory that anybody may write.
fn run_in(
    name: &'static str,
    prepare: impl FnOnce(&mut Command),
    inside: impl FnOnce(Extent),
    judge: impl FnOnce(&Output),
) {
    if let Some(directory) = child_case(name) {
        return inside(Extent::all(directory.as_ref()));
    }
    let _w = watchdog(name);
    let directory = Directory::new();
    std::fs::set_permissions(&directory.0, Permissions::from_mode(0o777)).unwrap();
    let mut command = child_command(name, directory.0.to_str().unwrap());
    ask_for_the_same_mode(&mut command);
    prepare(&mut command);
    match command.output() {
        Ok(out) => judge(&out),
        Err(error) => eprintln!("{name}: skipped, the system does not allow it: {error}"),
    }
}

/// The mixture, twice, in a child that `prepare` has made and that was confined by itself when `confine` returns.
fn run(
    name: &'static str,
    prepare: impl FnOnce(&mut Command),
    confine: impl FnOnce(&mut Extent) -> bool,
) {
    let inside = |mut extent| {
        if !confine(&mut extent) {
            return eprintln!("skipped: the system does not allow what is usual in containers");
        }
        let mixture = Mixture::begin(extent);
        mixture.round();
        end_as_usual(mixture, 1);
    };
    run_in(name, prepare, inside, assert_quiet);
}

/// The child has ended well, and the runtime has had nothing to say.
fn assert_quiet(out: &Output) {
    assert_code(out, 0);
    eprintln!("{}", line_with(out, &["usual"]));
    assert!(!said(out).contains("greenthread: "), "{}", said(out));
}

#[test]
fn dockers_profile() {
    let prepare = |command: &mut Command| dockers_filter().impose_on(command);
    run("containers::dockers_profile", prepare, |_| true);
}

/// A filter that comes while all is at work.
fn docker_comes_later(name: &'static str, driver: &str) {
    let prepare = |command: &mut Command| {
        command.env("GREENTHREAD_DRIVER", driver);
    };
    let inside = |extent| {
        let mixture = Mixture::begin(extent);
        mixture.round();
        assert!(dockers_filter().impose(), "no filter can be had");
        end_as_usual(mixture, 1);
    };
    run_in(name, prepare, inside, assert_quiet);
}

#[test]
fn dockers_profile_imposed_later() {
    alone!();
    docker_comes_later("containers::dockers_profile_imposed_later", "epoll");
}

#[test]
fn dockers_profile_imposed_on_a_ring() {
    alone!();
    docker_comes_later("containers::dockers_profile_imposed_on_a_ring", "io_uring");
}

#[test]
fn no_proc() {
    let prepare = |command: &mut Command| confine(command, || own_mounts() && hide(c"/proc"));
    run("containers::no_proc", prepare, |_| {
        !Path::new("/proc/self").exists()
    });
}

#[test]
fn no_sys_and_no_dev() {
    let hides = || own_mounts() && hide(c"/sys") && hide(c"/dev");
    let prepare = |command: &mut Command| confine(command, hides);
    let is_done =
        |_: &mut Extent| !Path::new("/sys/devices").exists() && !Path::new("/dev/null").exists();
    run("containers::no_sys_and_no_dev", prepare, is_done);
}

/// As many processors as usual, though nothing in `/proc` and `/sys` tells of CPUs and quotas.
#[test]
fn processors_are_counted_without_proc_and_sys() {
    alone!();
    const NAME: &str = "containers::processors_are_counted_without_proc_and_sys";
    let count = || Runtime::new().unwrap().processors();
    let prepare = |command: &mut Command| {
        command.env("GT_PROCESSORS", count().to_string());
        confine(command, || own_mounts() && hide(c"/proc") && hide(c"/sys"));
    };
    let inside = |_| {
        let usual = std::env::var("GT_PROCESSORS").unwrap();
        assert_eq!(count().to_string(), usual);
        eprintln!("usual: {usual}");
    };
    run_in(NAME, prepare, inside, assert_quiet);
}

#[test]
fn no_new_privileges() {
    alone!();
    run(
        "containers::no_new_privileges",
        |_| (),
        |_| {
            // SAFETY: a plain call.
            unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 }
        },
    );
}

/// Its files in `/proc` are root's, and it is not: they cannot be opened.
#[test]
fn a_process_that_cannot_be_dumped() {
    alone!();
    run(
        "containers::a_process_that_cannot_be_dumped",
        |_| (),
        |_| {
            become_nobody()
            // SAFETY: a plain call.
            && unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) } == 0
            && File::open("/proc/self/syscall").is_err()
        },
    );
}

#[test]
fn the_first_process() {
    let prepare = |command: &mut Command| as_first_process(command, true);
    run("containers::the_first_process", prepare, |_| {
        std::process::id() == 1
    });
}

/// `/proc` is that of other process ids: a thread's number there is another thread's, or nobody's. What cannot be asked
/// there costs no descriptors.
#[test]
fn the_first_process_with_a_foreign_proc() {
    alone!();
    const NAME: &str = "containers::the_first_process_with_a_foreign_proc";
    const FEW: usize = 6;
    let prepare = |command: &mut Command| as_first_process(command, false);
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let inside = |extent| {
        assert_eq!(std::process::id(), 1);
        let mixture = Mixture::begin(extent);
        mixture.round();
        let before = descriptors();
        mixture.round();
        assert!(descriptors() <= before + FEW, "descriptors are lost");
        end_as_usual(mixture, 2);
    };
    run_in(NAME, prepare, inside, assert_quiet);
}

/// All of it: `--read-only --user nobody --security-opt no-new-privileges`, under Docker's profile.
#[test]
fn a_hardened_container() {
    let prepare = |command: &mut Command| {
        as_first_process(command, true);
        confine(command, || {
            hide(c"/sys") && make_read_only() && become_nobody()
        });
        dockers_filter().impose_on(command);
    };
    run("containers::a_hardened_container", prepare, |extent| {
        extent.files = None;
        std::fs::write("/tmp/file", "").is_err()
    });
}

/// Asks for a dump as a user does, and returns standard error as it was until one had come.
fn dump() -> String {
    let (reader, writer) = std::io::pipe().unwrap();
    let errors = std::io::stderr().as_fd().try_clone_to_owned().unwrap();
    // SAFETY: descriptors that are open; the runtime has a handler.
    unsafe {
        assert_eq!(libc::dup2(writer.as_raw_fd(), 2), 2);
        libc::kill(libc::getpid(), libc::SIGQUIT);
    }
    let mut said = String::new();
    for line in BufReader::new(reader).lines().map(Result::unwrap) {
        said = said + &line + "\n";
        if line.contains(" of process ") {
            break;
        }
    }
    // SAFETY: as above.
    unsafe { assert_eq!(libc::dup2(errors.as_raw_fd(), 2), 2) };
    said
}

/// Nothing can be written, though the environment asks for a trace, a dump and a socket: each is said, and the program
/// goes on.
#[test]
fn a_root_that_cannot_be_written() {
    alone!();
    const WRITTEN: [(&str, &str); 3] = [
        ("GREENTHREAD_TRACE", "/tmp/trace.json"),
        ("GREENTHREAD_DUMP", "/tmp/dump"),
        ("GREENTHREAD_OBSERVE", "unix:/tmp/socket"),
    ];
    let prepare = |command: &mut Command| {
        command.envs(WRITTEN);
        confine(command, || own_mounts() && make_read_only());
    };
    let inside = |extent: Extent| {
        let mixture = Mixture::begin(Extent {
            files: None,
            ..extent
        });
        mixture.round();
        eprintln!("{}", dump());
        end_as_usual(mixture, 1);
    };
    let judge = |out: &Output| {
        assert_code(out, 0);
        eprintln!("{}", line_with(out, &["usual"]));
        for (_, path) in WRITTEN {
            let path = path.trim_start_matches("unix:");
            line_with(out, &["greenthread: ", path, "Read-only file system"]);
        }
    };
    run_in(
        "containers::a_root_that_cannot_be_written",
        prepare,
        inside,
        judge,
    );
}
