//! [`OnceLock`]: a [`Once`] and what it made.
//!
//! | the `Once` | the stage |
//! |---|---|
//! | a closure runs | belongs to the thread that runs it |
//! | completed | `Value`, and shared by all |
//! | else | `Nothing`, and nobody's: a closure that panics leaves nothing |

use core::convert::Infallible;
use core::fmt;
use core::panic::{RefUnwindSafe, UnwindSafe};

use super::cell::{OnceCell, Stage};

/// A place that is written once: [`std::sync::OnceLock`], which blocks only the green thread.
///
/// ```
/// use greenthread::sync::OnceLock;
///
/// static CONFIG: OnceLock<String> = OnceLock::new();
///
/// let reader = greenthread::spawn(|| CONFIG.wait().len());
/// assert_eq!(CONFIG.get_or_init(|| "debug".to_string()), "debug");
/// assert_eq!(CONFIG.set("release".to_string()), Err("release".to_string()));
/// assert_eq!(reader.join().unwrap(), 5);
/// ```
pub struct OnceLock<T> {
    cell: OnceCell<T, Infallible>,
}

impl<T: RefUnwindSafe + UnwindSafe> RefUnwindSafe for OnceLock<T> {}
impl<T: UnwindSafe> UnwindSafe for OnceLock<T> {}

impl<T> OnceLock<T> {
    /// Without a value.
    #[inline]
    #[must_use]
    pub const fn new() -> OnceLock<T> {
        OnceLock {
            cell: OnceCell::new(Stage::Nothing),
        }
    }

    /// The value, if it is there. Never blocks.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        self.cell.get()
    }

    /// The value, if it is there.
    #[inline]
    pub fn get_mut(&mut self) -> Option<&mut T> {
        self.cell.get_mut()
    }

    /// Blocks until the value is there.
    ///
    /// ```
    /// use greenthread::sync::OnceLock;
    ///
    /// let sum = OnceLock::new();
    /// greenthread::scope(|s| {
    ///     s.spawn(|| sum.set(1 + 1));
    ///     assert_eq!(sum.wait(), &2);
    /// });
    /// ```
    pub fn wait(&self) -> &T {
        self.cell.wait();
        self.completed()
    }

    /// Writes `value`, unless there is one already. Blocks while another thread makes one.
    ///
    /// # Errors
    /// There was a value; `value` comes back.
    pub fn set(&self, value: T) -> Result<(), T> {
        let mut value = Some(value);
        self.make(|| value.take());
        value.map_or(Ok(()), Err)
    }

    /// The value; if there is none yet, `f` makes it. Blocks while another thread makes it.
    ///
    /// If `f` asks for the value it waits for itself, for ever.
    ///
    /// # Panics
    /// If `f` does. There is no value then, and the next caller's closure runs.
    ///
    /// ```
    /// use greenthread::sync::OnceLock;
    ///
    /// let answer = OnceLock::new();
    /// assert_eq!(answer.get_or_init(|| 42), &42);
    /// assert_eq!(answer.get_or_init(|| unreachable!()), &42);
    /// ```
    #[inline]
    pub fn get_or_init<F: FnOnce() -> T>(&self, f: F) -> &T {
        if let Some(value) = self.get() {
            return value;
        }
        self.make(|| Some(f()));
        self.completed()
    }

    /// Unless there is a value, writes the one that `f` makes.
    #[cold]
    fn make(&self, f: impl FnOnce() -> Option<T>) {
        self.cell.make(|stage| {
            if let Some(value) = f() {
                *stage = Stage::Value(value);
            }
        });
    }

    /// For who knows that it has completed.
    fn completed(&self) -> &T {
        self.get().expect("a value once completed")
    }

    /// The value, without the cell.
    #[inline]
    pub fn into_inner(self) -> Option<T> {
        self.cell.into_inner()
    }

    /// Takes the value out; the cell is as new.
    ///
    /// ```
    /// use greenthread::sync::OnceLock;
    ///
    /// let mut cell = OnceLock::from(1);
    /// assert_eq!(cell.take(), Some(1));
    /// assert_eq!(cell.set(2), Ok(()));
    /// ```
    #[inline]
    pub fn take(&mut self) -> Option<T> {
        core::mem::take(self).into_inner()
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> OnceLock<T> {
        OnceLock::new()
    }
}

impl<T> From<T> for OnceLock<T> {
    fn from(value: T) -> OnceLock<T> {
        let cell = OnceLock::new();
        cell.make(|| Some(value));
        cell
    }
}

impl<T: Clone> Clone for OnceLock<T> {
    fn clone(&self) -> OnceLock<T> {
        self.get().cloned().map_or_else(OnceLock::new, From::from)
    }
}

impl<T: PartialEq> PartialEq for OnceLock<T> {
    fn eq(&self, other: &OnceLock<T>) -> bool {
        self.get() == other.get()
    }
}

impl<T: Eq> Eq for OnceLock<T> {}

impl<T: fmt::Debug> fmt::Debug for OnceLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut d = f.debug_tuple("OnceLock");
        match self.get() {
            Some(value) => d.field(value),
            None => d.field(&format_args!("<uninit>")),
        };
        d.finish()
    }
}
