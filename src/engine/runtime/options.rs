//! The options of a runtime: what its builder sets, or else a variable, `GREENTHREAD_*`.
//!
//! [`options`] is the table of those that have a variable. A value that is not accepted is an error, whoever gave it; it
//! is never ignored.

use std::io;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::OnceLock;
use std::time::Duration;

use super::choice::Choice;
use super::{Driver, Mode, OnDeadlock, green};
use crate::engine::sched::{machine, resize};
use crate::engine::stack;
use crate::engine::sys::variable;

pub(super) const DEFAULT_TIME_SLICE: Duration = Duration::from_millis(10);
const TIME_SLICES: RangeInclusive<Duration> = Duration::from_micros(20)..=Duration::from_secs(3600);
const DEFAULT_KERNEL_THREADS: usize = 10_000;

/// Declares [`Knobs`]. Of an option the table says its type, its variable, the values that a message offers, how the
/// variable's text is read, and which values are accepted.
macro_rules! options {
    ($($option:ident: $type:ty = $variable:literal, $accepted:expr, $parse:expr, $check:expr;)*) => {
        /// The options that a builder has set. A variable, and then a default, decides the others.
        #[derive(Clone, Debug, Default)]
        pub(crate) struct Knobs {
            $(pub(crate) $option: Option<$type>,)*
            pub(crate) time_slice: Option<Duration>,
            pub(crate) max_kernel_threads: Option<usize>,
            pub(crate) policy: Option<Choice>,
            pub(crate) policy_text: Option<String>,
            pub(crate) spinning: Option<bool>,
            pub(crate) hand_off: Option<bool>,
            pub(crate) preemption: Option<bool>,
            pub(crate) on_deadlock: Option<OnDeadlock>,
        }

        impl Knobs {
            $(pub(super) fn $option(&self) -> io::Result<Option<$type>> {
                let (parse, check): (fn(&str) -> Option<$type>, fn($type) -> io::Result<()>) = ($parse, $check);
                match self.$option {
                    Some(knob) => check(knob).map(|()| Some(knob)),
                    None => read($variable, $accepted, |text| {
                        parse(text).filter(|&value| check(value).is_ok())
                    }),
                }
            })*
        }
    };
}

options! {
    processors: usize = "GREENTHREAD_PROCS", &format!("a number from 1 to {}", resize::MAX),
        number, |count| resize::check(count, None);
    stack_size: usize = "GREENTHREAD_STACK_SIZE", "a number of bytes up to 68719476736 (64 GiB)",
        number, check_stack_size;
    preempt_signal: i32 = "GREENTHREAD_SIGNAL", &green::accepted_signals(),
        number, green::check_signal;
    mode: Mode = "GREENTHREAD_MODE", "green or kernel",
        |text| word(text, [("green", Mode::Green), ("kernel", Mode::Kernel)]), |_| Ok(());
    driver: Driver = "GREENTHREAD_DRIVER", "epoll or io_uring",
        |text| word(text, [("epoll", Driver::Epoll), ("io_uring", Driver::IoUring)]), |_| Ok(());
}

impl Knobs {
    pub(super) fn time_slice(&self) -> io::Result<Duration> {
        let time_slice = self.time_slice.unwrap_or(DEFAULT_TIME_SLICE);
        match TIME_SLICES.contains(&time_slice) {
            true => Ok(time_slice),
            false => Err(invalid(format!(
                "a time slice of {time_slice:?}: accepted are {:?} to {:?}",
                TIME_SLICES.start(),
                TIME_SLICES.end()
            ))),
        }
    }

    pub(super) fn max_kernel_threads(&self, processors: usize) -> io::Result<usize> {
        let least = processors + 1;
        let most = self.max_kernel_threads;
        let most = most.unwrap_or(DEFAULT_KERNEL_THREADS.max(least));
        match (least..=machine::MAX).contains(&most) {
            true => Ok(most),
            false => Err(invalid(format!(
                "at most {most} kernel threads: accepted are {least} (one more than processors) to {}",
                machine::MAX
            ))),
        }
    }
}

/// Returns the value of variable `name`, converted by `parse`. An error names the variable, the value,
/// and the `accepted` values.
pub(crate) fn read<T>(
    name: &str,
    accepted: &str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> io::Result<Option<T>> {
    let Some(value) = variable::read(name) else {
        return Ok(None);
    };
    match value.to_str().and_then(parse) {
        Some(result) => Ok(Some(result)),
        None => Err(invalid(format!("{name}={value:?}: accepted is {accepted}"))),
    }
}

fn number<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

pub(crate) fn word<T, const COUNT: usize>(text: &str, words: [(&str, T); COUNT]) -> Option<T> {
    let mut words = words.into_iter();
    words.find_map(|(word, value)| (word == text).then_some(value))
}

pub(super) fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

/// Checks whether a stack of `size` bytes is accepted; a small size is rounded up later.
pub(crate) fn check_stack_size(size: usize) -> io::Result<()> {
    let max = stack::MAX_SIZE;
    match size <= max {
        true => Ok(()),
        false => Err(invalid(format!(
            "a stack of {size} bytes: accepted are {max} ({} GiB) at most",
            max >> 30
        ))),
    }
}

/// Returns the stack size where the program asks for none: std's, with std's variable. The variable
/// is read as std reads it: once, and a value that is not a number is ignored.
pub(super) fn default_stack_size() -> usize {
    static SIZE: OnceLock<usize> = OnceLock::new();
    *SIZE.get_or_init(|| {
        let asked = variable::read("RUST_MIN_STACK");
        let size = asked.and_then(|size| number(size.to_str()?));
        size.unwrap_or(2 << 20)
    })
}
