//! [`Failure`]: a panic that is handed on from node to node.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use crate::engine::door::handle::text_of;
use crate::sync::{Mutex, PoisonError};

/// Why there is no value: the function of a node panicked, of this one or of one that it depends
/// on.
///
/// All nodes that depend on the one that panicked share one failure, which names that one.
///
/// ```
/// use greenthread::dataflow;
///
/// let broken = dataflow::call((), |()| -> u32 { panic!("no such file") });
/// let sum = dataflow::call((&broken, dataflow::value(1)), |(a, b)| a + b);
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

    /// What the panic said; `"Box<dyn Any>"` if it was no text.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Where the node whose function panicked was made: the place of its
    /// [`call`](super::call).
    pub fn origin(&self) -> &'static Location<'static> {
        self.0.origin
    }

    /// What the function panicked with, for [`resume_unwind`](std::panic::resume_unwind). It is
    /// there once, however many share the failure: the first who asks has it.
    ///
    /// ```
    /// use greenthread::dataflow;
    /// use std::panic::panic_any;
    ///
    /// let broken = dataflow::call((), |()| panic_any(42));
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

/// Equal are those of the same panic.
impl PartialEq for Failure {
    fn eq(&self, other: &Failure) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Failure {}
