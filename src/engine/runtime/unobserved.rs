//! The stand-in for `observe::start` without the feature `observe`: who asks for an observer is told that there is none.
//! A value that asks for nothing is accepted.

use std::io;

use super::{Backend, OnDeadlock};
use crate::engine::sys::variable;

/// The variables that ask for an observer.
const VARIABLES: [&str; 9] = [
    "GREENTHREAD_DEADLOCK",
    "GREENTHREAD_DUMP",
    "GREENTHREAD_METRICS",
    "GREENTHREAD_OBSERVE",
    "GREENTHREAD_SCHEDTRACE",
    "GREENTHREAD_SIGQUIT",
    "GREENTHREAD_TRACE",
    "GREENTHREAD_WARN",
    "GREENTHREAD_WARN_LEAK",
];

pub(super) struct Plan;

impl Plan {
    pub(super) fn read(on_deadlock: Option<OnDeadlock>) -> io::Result<Plan> {
        let asked = |name| {
            let value = variable::read(name).filter(|value| value != "off" && value != "0")?;
            Some(format!("{name}={value:?}"))
        };
        let by_builder = on_deadlock
            .filter(|&action| action != OnDeadlock::Ignore)
            .map(|action| format!("on_deadlock({action:?})"));
        match VARIABLES.into_iter().find_map(asked).or(by_builder) {
            Some(asked) => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!("{asked}: the program was built without greenthread's feature `observe`"),
            )),
            None => Ok(Plan),
        }
    }

    pub(super) fn begin(&self) -> io::Result<()> {
        Ok(())
    }

    pub(super) fn watch(self, _: Backend) -> io::Result<()> {
        Ok(())
    }
}
