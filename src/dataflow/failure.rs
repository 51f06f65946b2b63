//! [`Failure`]: a panic that is handed on from node to node.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use crate::engine::facade::text_of;
use crate::sync::{Mutex, PoisonError};

/// The reason why a [`Value`](super::Value) has no value: a function panicked.
///
/// The function is that of the node itself or of a node that it depends on. All nodes that depend
/// on the node that panicked share one failure.
///
/// # Examples
///
/// ```
/// use greenthread::dataflow::{call, value};
///
/// let broken = call((), |()| -> u32 { panic!("no such file") });
/// let sum = call((&broken, value(1)), |(a, b)| a + b);
/// let failure = sum.get().unwrap_err();
/// assert_eq!(failure.message(), "no such file");
/// assert_eq!(failure.origin().file(), file!());
/// assert!(failure.to_string().contains("no such file"));
/// ```
#[derive(Clone)]
pub struct Failure(Arc<Panic>);

struct Panic {
    message: Box<str>,
    origin: &'static Location<'static>,
    payload: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Failure {
    pub(super) fn new(payload: Box<dyn Any + Send>, origin: &'static Location<'static>) -> Failure {
        Failure(Arc::new(Panic {
            message: text_of(&*payload).into(),
            origin,
            payload: Mutex::new(Some(payload)),
        }))
    }

    /// Returns the message of the panic, or `"Box<dyn Any>"` if its payload is not a string.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::dataflow::call;
    ///
    /// let broken = call((), |()| panic!("no such file"));
    /// assert_eq!(broken.get().unwrap_err().message(), "no such file");
    /// ```
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns the place of the [`call`](super::call) whose function panicked.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::dataflow::call;
    ///
    /// let line = line!() + 1;
    /// let broken = call((), |()| panic!("no such file"));
    /// assert_eq!(broken.get().unwrap_err().origin().line(), line);
    /// ```
    pub fn origin(&self) -> &'static Location<'static> {
        self.0.origin
    }

    /// Takes the payload of the panic, for example for
    /// [`resume_unwind`](std::panic::resume_unwind).
    ///
    /// A panic has one payload, however many nodes share the failure. The first call gets it, and
    /// later calls return `None`.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::dataflow::call;
    /// use std::panic::panic_any;
    ///
    /// let broken = call((), |()| panic_any(42));
    /// let failure = broken.get().unwrap_err();
    /// assert_eq!(failure.take_payload().unwrap().downcast_ref(), Some(&42));
    /// assert!(failure.take_payload().is_none());
    /// ```
    pub fn take_payload(&self) -> Option<Box<dyn Any + Send>> {
        (self.0.payload.lock())
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Panic {
            message, origin, ..
        } = &*self.0;
        write!(f, "the node called at {origin} panicked: {message}")
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failure")
            .field("message", &self.message())
            .field("origin", &format_args!("{}", self.origin()))
            .finish_non_exhaustive()
    }
}

impl Error for Failure {}

/// Two failures are equal if they come from the same panic.
impl PartialEq for Failure {
    fn eq(&self, other: &Failure) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Failure {}
