//! [`LazyLock`]: a [`Once`], and a closure that becomes what it makes.
//!
//! | the `Once` | the stage |
//! |---|---|
//! | nobody has asked | `Closure` |
//! | the closure runs | belongs to the thread that runs it |
//! | completed | `Value`, and shared by all |
//! | poisoned | `Nothing`: the closure is gone, for good |

use core::fmt;
use core::mem;
use core::ops::{Deref, DerefMut};
use core::panic::{RefUnwindSafe, UnwindSafe};

use super::cell::{OnceCell, Stage};

/// A value that is made when it is first asked for: [`std::sync::LazyLock`], which blocks only the
/// green thread.
///
/// ```
/// use greenthread::sync::LazyLock;
///
/// static PRIMES: LazyLock<Vec<u32>> = LazyLock::new(|| {
///     (2..30).filter(|n| (2..*n).all(|d| n % d != 0)).collect()
/// });
///
/// let last = greenthread::spawn(|| PRIMES.last().copied());
/// assert_eq!(PRIMES.len(), 10);
/// assert_eq!(last.join().unwrap(), Some(29));
/// ```
///
/// # Panics
/// If the closure panics, its panic goes to who asked, and everybody who asks later gets a panic
/// too. A closure that asks for its own value waits for itself, for ever.
pub struct LazyLock<T, F = fn() -> T> {
    cell: OnceCell<T, F>,
}

impl<T: RefUnwindSafe + UnwindSafe, F: UnwindSafe> RefUnwindSafe for LazyLock<T, F> {}
impl<T: UnwindSafe, F: UnwindSafe> UnwindSafe for LazyLock<T, F> {}

impl<T, F: FnOnce() -> T> LazyLock<T, F> {
    /// A value that `f` will make.
    #[inline]
    pub const fn new(f: F) -> LazyLock<T, F> {
        LazyLock {
            cell: OnceCell::new(Stage::Closure(f)),
        }
    }

    /// The value, made if it is not there yet; the same as dereferencing. Blocks while another
    /// thread makes it.
    ///
    /// # Panics
    /// If the closure panics, now or earlier.
    #[inline]
    #[track_caller]
    pub fn force(this: &LazyLock<T, F>) -> &T {
        if let Some(value) = LazyLock::get(this) {
            return value;
        }
        this.make();
        LazyLock::get(this).expect("a value once completed")
    }

    /// The value, made if it is not there yet.
    ///
    /// # Panics
    /// As [`force`](LazyLock::force).
    ///
    /// ```
    /// use greenthread::sync::LazyLock;
    ///
    /// let mut lazy = LazyLock::new(|| 92);
    /// *LazyLock::force_mut(&mut lazy) += 1;
    /// assert_eq!(*lazy, 93);
    /// ```
    #[inline]
    #[track_caller]
    pub fn force_mut(this: &mut LazyLock<T, F>) -> &mut T {
        LazyLock::force(this);
        LazyLock::get_mut(this).expect("a value once completed")
    }

    #[cold]
    #[track_caller]
    fn make(&self) {
        self.cell
            .make(|stage| match mem::replace(stage, Stage::Nothing) {
                Stage::Closure(f) => *stage = Stage::Value(f()),
                _ => panic!("LazyLock instance has previously been poisoned"),
            });
    }
}

impl<T, F> LazyLock<T, F> {
    /// The value, if it is there. Never blocks.
    ///
    /// ```
    /// use greenthread::sync::LazyLock;
    ///
    /// let lazy = LazyLock::new(|| 92);
    /// assert_eq!(LazyLock::get(&lazy), None);
    /// assert_eq!(*lazy, 92);
    /// assert_eq!(LazyLock::get(&lazy), Some(&92));
    /// ```
    #[inline]
    pub fn get(this: &LazyLock<T, F>) -> Option<&T> {
        this.cell.get()
    }

    /// The value, if it is there.
    #[inline]
    pub fn get_mut(this: &mut LazyLock<T, F>) -> Option<&mut T> {
        this.cell.get_mut()
    }
}

impl<T, F: FnOnce() -> T> Deref for LazyLock<T, F> {
    type Target = T;

    #[inline]
    #[track_caller]
    fn deref(&self) -> &T {
        LazyLock::force(self)
    }
}

impl<T, F: FnOnce() -> T> DerefMut for LazyLock<T, F> {
    #[inline]
    #[track_caller]
    fn deref_mut(&mut self) -> &mut T {
        LazyLock::force_mut(self)
    }
}

impl<T: Default> Default for LazyLock<T> {
    fn default() -> LazyLock<T> {
        LazyLock::new(T::default)
    }
}

impl<T: fmt::Debug, F> fmt::Debug for LazyLock<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut d = f.debug_tuple("LazyLock");
        match LazyLock::get(self) {
            Some(value) => d.field(value),
            None => d.field(&format_args!("<uninit>")),
        };
        d.finish()
    }
}
