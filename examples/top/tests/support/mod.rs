//! A program in a pseudo-terminal: keys go in, and what it draws is read into a model of the screen.

pub mod picture;

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZero;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A screen that does not come to show what it must within this time never will.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program that is ended with the test.
pub struct Ended(pub Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub struct Terminal {
    child: Ended,
    master: File,
    screen: Arc<Mutex<vt100::Parser>>,
    reader: Option<JoinHandle<()>>,
}

impl Terminal {
    /// Starts `command` in a terminal of this size.
    pub fn start(mut command: Command, rows: u16, columns: u16) -> Terminal {
        let (mut master, mut slave) = (-1, -1);
        let mut size = window(rows, columns);
        // SAFETY: the places are valid; the descriptors are new.
        let (master, slave) = unsafe {
            let none = std::ptr::null_mut();
            let failed = libc::openpty(&mut master, &mut slave, none, none.cast(), &raw mut size);
            assert_eq!(failed, 0, "{}", std::io::Error::last_os_error());
            (File::from_raw_fd(master), OwnedFd::from_raw_fd(slave))
        };
        let stdio = || Stdio::from(slave.try_clone().expect("a descriptor"));
        command.stdin(stdio()).stdout(stdio()).stderr(stdio());
        command.env("TERM", "xterm-256color");
        // SAFETY: plain system calls.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
                Ok(())
            });
        }
        let child = Ended(command.spawn().expect("the program starts"));
        drop(command);
        drop(slave);
        let parser = vt100::Parser::new(positive(rows), positive(columns), 0);
        let screen = Arc::new(Mutex::new(parser));
        let mut from = master.try_clone().expect("a descriptor");
        let to = screen.clone();
        let reader = thread::spawn(move || {
            let mut bytes = [0; 4096];
            // It ends when the program has closed the terminal.
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                to.lock().unwrap().process(&bytes[..count]);
            }
        });
        Terminal {
            child,
            master,
            screen,
            reader: Some(reader),
        }
    }

    pub fn keys(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).expect("a terminal");
    }

    pub fn resize(&mut self, rows: u16, columns: u16) {
        let size = window(rows, columns);
        self.screen
            .lock()
            .unwrap()
            .screen_mut()
            .set_size(positive(rows), positive(columns));
        // SAFETY: the descriptor is a terminal's, and the place is valid.
        let failed =
            unsafe { libc::ioctl(self.master.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
        assert_eq!(failed, 0);
    }

    pub fn screen(&self) -> vt100::Screen {
        self.screen.lock().unwrap().screen().clone()
    }

    pub fn text(&self) -> String {
        self.screen().contents()
    }

    /// Waits until the text of the screen is as `condition` asks.
    pub fn until(&self, what: &str, condition: impl Fn(&str) -> bool) -> String {
        self.until_screen(what, |screen| condition(&screen.contents()))
    }

    pub fn until_screen(&self, what: &str, condition: impl Fn(&vt100::Screen) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let screen = self.screen();
            let text = screen.contents();
            if condition(&screen) {
                return text;
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "the screen never shows {what}:\n{text}"
            );
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for the program's end, and for the last that it has drawn.
    pub fn end(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.0.try_wait().expect("a child") {
                self.reader.take().map(JoinHandle::join);
                return status;
            }
            assert!(begun.elapsed() < PATIENCE, "it does not end");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

fn positive(size: u16) -> NonZero<u16> {
    NonZero::new(size).expect("a terminal has rows and columns")
}

fn window(rows: u16, columns: u16) -> libc::winsize {
    libc::winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

/// A path for a socket that no other test has.
pub fn socket(name: &str) -> PathBuf {
    let file = format!("gt-top-{}-{name}", std::process::id());
    std::env::temp_dir().join(file)
}

/// Starts the demo with its socket at `path`.
pub fn demo(path: &std::path::Path, arguments: &[&str]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_demo"));
    command.args(arguments).stdout(Stdio::piped());
    command.env("GREENTHREAD_OBSERVE", format!("unix:{}", path.display()));
    command.env("GREENTHREAD_PROCS", "2");
    let mut child = command.spawn().expect("the demo starts");
    let mut ready = [0; 6];
    let mut out = child.stdout.take().expect("it was asked for");
    out.read_exact(&mut ready).expect("the demo runs");
    assert_eq!(&ready, b"ready\n");
    Ended(child)
}

/// Starts what is tested.
pub fn top(path: &std::path::Path, rows: u16, columns: u16, has_colour: bool) -> Terminal {
    let mut command = Command::new(env!("CARGO_BIN_EXE_greenthread-top"));
    command.arg(path).env_remove("NO_COLOR");
    if !has_colour {
        command.env("NO_COLOR", "1");
    }
    Terminal::start(command, rows, columns)
}
