//! Whole programs as tests: the test's own executable runs again, as one of the programs that the test brings.
//!
//! The file of such a test has no harness of std's: `main` is the program's, on the main thread, and nothing runs
//! beside it. Without a name in the environment the executable is the test, and runs the functions that it is given,
//! one after the other; arguments that are no options choose among them.

#[path = "../common/known_state.rs"]
mod known_state;

use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::panic::catch_unwind;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = "GT_PROGRAM";
/// How long a program may take for what it is waited for.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub type Named<'a> = (&'a str, fn());

pub fn main(programs: &[Named], tests: &[Named]) {
    if let Ok(name) = std::env::var(PROGRAM) {
        // It dies rather than hang, if the test does not kill it before.
        // SAFETY: plain call.
        unsafe { libc::alarm(300) };
        let found = programs.iter().find(|program| program.0 == name);
        return found.expect("a program of that name").1();
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        return tests.iter().for_each(|(name, _)| println!("{name}: test"));
    }
    let wanted: Vec<_> = arguments
        .iter()
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    let is_wanted =
        |name: &str| wanted.is_empty() || wanted.iter().any(|wish| name.contains(*wish));
    let mut failed = Vec::new();
    for (name, test) in tests.iter().filter(|(name, _)| is_wanted(name)) {
        let start = Instant::now();
        let ended = catch_unwind(test);
        let word = if ended.is_ok() { "ok" } else { "FAILED" };
        println!(
            "test {name} ... {word} ({:.1} s)",
            start.elapsed().as_secs_f64()
        );
        failed.extend(ended.err().map(|_| *name));
    }
    println!("\ntest result: {} failed", failed.len());
    if !failed.is_empty() {
        println!("failures: {failed:?}");
        std::process::exit(101);
    }
}

/// A program that runs.
pub struct Running {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    said: Said,
    printed: Said,
}

/// What comes out of a pipe.
struct Said {
    text: String,
    pipe: std::fs::File,
}

impl Said {
    fn new(pipe: impl Into<OwnedFd>) -> Said {
        Said {
            text: String::new(),
            pipe: pipe.into().into(),
        }
    }

    /// Reads for a moment. Returns whether something came.
    fn read(&mut self, patience: Duration) -> bool {
        use std::os::fd::AsRawFd;
        let (fd, events) = (self.pipe.as_raw_fd(), libc::POLLIN);
        let mut ready = libc::pollfd {
            fd,
            events,
            revents: 0,
        };
        // SAFETY: one descriptor, which outlives the call.
        if unsafe { libc::poll(&mut ready, 1, patience.as_millis() as i32) } != 1 {
            return false;
        }
        let mut bytes = vec![0; 1 << 16];
        let count = self.pipe.read(&mut bytes).unwrap();
        self.text += &String::from_utf8_lossy(&bytes[..count]);
        count != 0
    }
}

/// Starts the program `name`. SIGQUIT has its default there, or is ignored from the beginning.
pub fn start(name: &str, env: &[(&str, &str)], ignores_quit: bool) -> Running {
    let mut command = Command::new(std::env::current_exe().expect("the path of this test"));
    command.env(PROGRAM, name).envs(env.iter().copied());
    for variable in ["RUST_BACKTRACE", "RUST_LIB_BACKTRACE"] {
        command.env_remove(variable);
    }
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let quit = if ignores_quit {
        libc::SIG_IGN
    } else {
        libc::SIG_DFL
    };
    known_state::of_child(&mut command);
    // SAFETY: plain calls between fork and exec.
    unsafe {
        command.pre_exec(move || {
            libc::signal(libc::SIGQUIT, quit);
            let no_core = libc::rlimit {
                rlim_cur: 0,
                rlim_max: 0,
            };
            libc::setrlimit(libc::RLIMIT_CORE, &no_core);
            Ok(())
        });
    }
    let mut child = command.spawn().expect("the test's own executable");
    Running {
        name: format!("{name} {env:?}"),
        input: child.stdin.take(),
        said: Said::new(child.stderr.take().unwrap()),
        printed: Said::new(child.stdout.take().unwrap()),
        child,
    }
}

impl Running {
    pub fn id(&self) -> i32 {
        self.child.id() as i32
    }

    /// All that it has written to standard error.
    pub fn said(&self) -> &str {
        &self.said.text
    }

    /// Waits until standard error has what is wanted.
    #[track_caller]
    pub fn until_said(&mut self, what: &str, mut is_there: impl FnMut(&str) -> bool) {
        let start = Instant::now();
        while !is_there(&self.said.text) {
            self.said.read(Duration::from_millis(100));
            let patience = start.elapsed() < PATIENCE;
            assert!(patience, "{}: no {what} in:\n{}", self.name, self.said.text);
        }
    }

    /// Waits until it has printed a line with `word`.
    #[track_caller]
    pub fn until_printed(&mut self, word: &str) {
        let start = Instant::now();
        while !self.printed.text.contains(word) {
            self.printed.read(Duration::from_millis(100));
            let patience = start.elapsed() < PATIENCE;
            assert!(
                patience,
                "{}: {word} was not printed:\n{}",
                self.name, self.said.text
            );
        }
    }

    /// Reads what it has said until now.
    pub fn listen(&mut self) {
        while self.said.read(Duration::ZERO) {}
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: plain call; the child has not been waited for.
        assert_eq!(unsafe { libc::kill(self.id(), signal) }, 0);
    }

    /// Its input ends.
    pub fn close_input(&mut self) {
        self.input = None;
    }

    /// Waits for its end, and reads the rest of what it says.
    #[track_caller]
    pub fn end(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            let status = self.child.try_wait().unwrap();
            while self
                .said
                .read(Duration::from_millis(if status.is_some() { 0 } else { 20 }))
            {}
            if let Some(status) = status {
                return status;
            }
            let patience = start.elapsed() < PATIENCE;
            assert!(patience, "{} does not end:\n{}", self.name, self.said.text);
        }
    }

    #[track_caller]
    pub fn ends_well(&mut self) {
        let status = self.end();
        assert_eq!(
            status.code(),
            Some(0),
            "{}: {status}:\n{}",
            self.name,
            self.said.text
        );
    }

    /// It must be there still.
    #[track_caller]
    pub fn is_alive(&mut self) {
        let ended = self.child.try_wait().unwrap();
        assert!(
            ended.is_none(),
            "{}: {ended:?}:\n{}",
            self.name,
            self.said.text
        );
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Prints a word for [`Running::until_printed`].
pub fn print(word: &str) {
    use std::io::Write;
    println!("{word}");
    std::io::stdout().flush().unwrap();
}

/// Waits until the input ends.
pub fn until_input_ends() {
    let mut rest = Vec::new();
    std::io::stdin().read_to_end(&mut rest).unwrap();
}
