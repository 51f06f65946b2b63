//! A name server that is silent, for `getaddrinfo`: in a process of its own, which sees another /etc/resolv.conf.
//!
//! That process has user, mount and network namespaces of its own. There the file is bound over the system's, and names the
//! loopback interface, where a socket at port 53 receives the questions and answers none.

use greenthread::time;
use std::ffi::{CStr, CString};
use std::io::{self, Write};
use std::net::ToSocketAddrs;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};
use support::stalls::{LIMIT, Left, ends};
use support::{Test, green};

const CHILD: &str = "GT_GUESTS_SILENT";

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    match result {
        ..0 => Err(io::Error::last_os_error()),
        _ => Ok(result),
    }
}

/// Makes the namespaces, between fork and exec: it allocates nothing.
fn set_up(file: &CStr, namespaces: libc::c_int) -> io::Result<()> {
    // SAFETY: system calls on strings and records that outlive them; zeroes are valid records.
    unsafe {
        check(libc::unshare(namespaces))?;
        let (null, none) = (std::ptr::null(), std::ptr::null());
        let private = libc::MS_REC | libc::MS_PRIVATE;
        check(libc::mount(null, c"/".as_ptr(), null, private, none))?;
        let over = c"/etc/resolv.conf".as_ptr();
        check(libc::mount(file.as_ptr(), over, null, libc::MS_BIND, none))?;
        let socket = check(libc::socket(libc::AF_INET, libc::SOCK_DGRAM, 0))?;
        let mut up: libc::ifreq = std::mem::zeroed();
        (up.ifr_name[0], up.ifr_name[1]) = (b'l' as _, b'o' as _);
        up.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as _;
        check(libc::ioctl(socket, libc::SIOCSIFFLAGS, &up))?;
        // It stays open over exec.
        let mut address: libc::sockaddr_in = std::mem::zeroed();
        address.sin_family = libc::AF_INET as _;
        address.sin_port = 53u16.to_be();
        address.sin_addr.s_addr = u32::from_ne_bytes([127, 0, 0, 1]);
        let length = size_of_val(&address) as _;
        check(libc::bind(socket, (&raw const address).cast(), length))?;
    }
    Ok(())
}

/// Runs this test again in a process that has the silent server.
fn in_child(test: &str) -> io::Result<ExitStatus> {
    let path = std::env::temp_dir().join(format!("greenthread-guests-{}.conf", std::process::id()));
    // A question is given up after so long, by libc: by then its caller has gone.
    std::fs::File::create(&path)?
        .write_all(b"nameserver 127.0.0.1\noptions timeout:3 attempts:1\n")?;
    let file = CString::new(path.to_str().unwrap()).unwrap();
    let spaces = libc::CLONE_NEWNS | libc::CLONE_NEWNET;
    // As anybody, or as root.
    let run = |spaces| {
        let file = file.clone();
        let mut child = Command::new(std::env::current_exe()?);
        child.args(["--exact", "--nocapture", test]).env(CHILD, "1");
        // SAFETY: system calls only.
        unsafe { child.pre_exec(move || set_up(&file, spaces)) };
        child.status()
    };
    let status = run(libc::CLONE_NEWUSER | spaces).or_else(|_| run(spaces));
    std::fs::remove_file(path)?;
    status
}

#[test]
fn silent_name_server() {
    if !green() {
        return; // libc\'s calls go on
    }
    let test = Test::new("a silent name server", 120);
    if std::env::var_os(CHILD).is_none() {
        match in_child("names::silent_name_server") {
            Ok(status) => assert!(status.success(), "{status}"),
            Err(error) => eprintln!("NO NAMESPACES: {error}; no silent name server was asked"),
        }
        return;
    }
    // Without a limit, libc waits as long as it was told: so the server is there, and silent.
    let begin = Instant::now();
    ("silent.example", 80).to_socket_addrs().unwrap_err();
    let whole = begin.elapsed();
    assert!(whole > 5 * LIMIT, "an answer, after {whole:?}");
    eprintln!("without a limit: {whole:.1?}");
    let asked = || {
        let agent = ureq::Agent::new_with_defaults();
        let threads = greenthread::spawn(move || {
            ends("std", || ("silent.example", 80).to_socket_addrs());
            ends("ureq", || agent.get("http://silent.example/").call());
            ends("minreq", || minreq::get("http://silent.example/").send());
            #[cfg(feature = "servers")]
            {
                let client = redis::Client::open("redis://silent.example/").unwrap();
                ends("redis", || client.get_connection().map(drop));
            }
        });
        threads.join().unwrap();
    };
    asked();
    let before = Left::settled(&test);
    asked();
    let threads: Vec<_> = (0..500)
        .map(|_| {
            greenthread::spawn(|| {
                let begin = Instant::now();
                let found = time::timeout(LIMIT, || ("silent.example", 80).to_socket_addrs());
                found.unwrap().unwrap_err();
                begin.elapsed() - LIMIT
            })
        })
        .collect();
    let late = threads
        .into_iter()
        .map(|t| t.join().unwrap())
        .max()
        .unwrap();
    eprintln!("500 at once: the last {late:.1?} late");
    assert!(late < whole, "{late:?}: as late as without a limit");
    let near = time::timeout(Duration::from_secs(60), || {
        ("localhost", 7).to_socket_addrs()
    });
    assert!(near.unwrap().unwrap().next().unwrap().ip().is_loopback());
    before.is_all(&test);
}
