//! The policy that a runtime is built with, by value or by name.
//!
//! The scheduler trusts the policies of this crate, and checks what a user's policy hands out. A policy of
//! this crate may have served a user's policy of another runtime before it is given to a builder, and hold
//! that runtime's threads. So the builder makes a new one with the same options, and leaks the given
//! one: whoever drops a ready thread ends the process.

use std::any::Any;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use super::options::{Knobs, invalid, read};
use crate::engine::policy::{
    GlobalQueue, LeastLoaded, Policy, Priorities, RelaxedFifo, WorkStealing,
};
use crate::engine::sched::Ideas;

/// A policy that can be taken once. Clones of a builder share it.
#[derive(Clone)]
pub(crate) struct Choice {
    policy: Arc<Mutex<Option<Box<dyn Policy>>>>,
    is_users: bool,
    name: &'static str,
}

/// The policy and options of `GREENTHREAD_POLICY`.
pub(super) struct Asked {
    pub(super) policy: Choice,
    pub(super) ideas: Ideas,
}

/// The accepted values, for error messages.
const ACCEPTED: &str = "a policy: work-stealing, relaxed-fifo, least-loaded, \
    priority or global-queue, and after it, each behind a comma, what is to be different: \
    no-spinning, no-hand-off, no-preemption; with work-stealing also no-stealing, no-next-slot, \
    lifo, global-interval=NUMBER; with least-loaded also batch=NUMBER";

impl Choice {
    pub(crate) fn new<P: Policy>(policy: P) -> Choice {
        let ours = anew_if_ours(&policy);
        let is_users = ours.is_none();
        let (policy, name) = match ours {
            None => (Box::new(policy) as Box<dyn Policy>, "custom"),
            Some(ours) => {
                // A policy that has not served anybody owns no memory.
                std::mem::forget(policy);
                ours
            }
        };
        Choice {
            policy: Arc::new(Mutex::new(Some(policy))),
            is_users,
            name,
        }
    }

    /// The name of a policy of this crate; `custom` for another.
    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// Takes the policy, and says whether it is a user's policy: a policy that is not this crate's.
    pub(super) fn take(self) -> io::Result<(Box<dyn Policy>, bool)> {
        let mut policy = self.policy.lock().unwrap_or_else(PoisonError::into_inner);
        match policy.take() {
            Some(policy) => Ok((policy, self.is_users)),
            None => Err(invalid(
                "a policy that another runtime has: accepted is one of its own".into(),
            )),
        }
    }
}

/// Makes a policy like this one, without its threads, if it is one of this crate's. And its name.
fn anew_if_ours(policy: &dyn Any) -> Option<(Box<dyn Policy>, &'static str)> {
    fn like<P: Policy>(
        policy: &dyn Any,
        name: &'static str,
        anew: fn(&P) -> P,
    ) -> Option<(Box<dyn Policy>, &'static str)> {
        Some((Box::new(anew(policy.downcast_ref()?)), name))
    }
    like(policy, "work-stealing", WorkStealing::anew)
        .or_else(|| like(policy, "least-loaded", LeastLoaded::anew))
        .or_else(|| like(policy, "relaxed-fifo", |_: &RelaxedFifo| RelaxedFifo::new()))
        .or_else(|| like(policy, "priority", |_: &Priorities| Priorities::new()))
        .or_else(|| like(policy, "global-queue", |_: &GlobalQueue| GlobalQueue::new()))
}

impl fmt::Debug for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Knobs {
    /// The policy that is asked for by name, and else the default.
    pub(super) fn named_policy(&self) -> io::Result<Asked> {
        let asked = match &self.policy_text {
            Some(text) => Some(
                parse(text)
                    .ok_or_else(|| invalid(format!("policy {text:?}: accepted is {ACCEPTED}")))?,
            ),
            None => read("GREENTHREAD_POLICY", ACCEPTED, parse)?,
        };
        Ok(asked.unwrap_or_else(|| Asked {
            policy: Choice::new(WorkStealing::new()),
            ideas: Ideas::ALL,
        }))
    }
}

/// Reads the value of `GREENTHREAD_POLICY`. `None` if it is not accepted.
fn parse(text: &str) -> Option<Asked> {
    let mut words = text.split(',');
    let name = words.next()?;
    let mut ideas = Ideas::ALL;
    let mut stealing = WorkStealing::new();
    let mut least_loaded = LeastLoaded::new();
    for word in words {
        match word {
            "no-spinning" => ideas.spinning = false,
            "no-hand-off" => ideas.hand_off = false,
            "no-preemption" => ideas.preemption = false,
            _ if name == "least-loaded" => {
                let batch = word.strip_prefix("batch=")?.parse().ok()?;
                least_loaded = (batch != 0).then(|| LeastLoaded::new().batch(batch))?;
            }
            _ if name != "work-stealing" => return None,
            "no-stealing" => stealing = stealing.stealing(false),
            "no-next-slot" => stealing = stealing.next_slot(false),
            "lifo" => stealing = stealing.last_in_first_out(true),
            _ => {
                let picks = word.strip_prefix("global-interval=")?;
                stealing = stealing.global_interval(picks.parse().ok()?);
            }
        }
    }
    let policy = match name {
        "work-stealing" => Choice::new(stealing),
        "least-loaded" => Choice::new(least_loaded),
        "relaxed-fifo" => Choice::new(RelaxedFifo::new()),
        "priority" => Choice::new(Priorities::new()),
        "global-queue" => Choice::new(GlobalQueue::new()),
        _ => return None,
    };
    Some(Asked { policy, ideas })
}
