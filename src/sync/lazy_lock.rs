//! [`LazyLock`]: a [`Once`], and a closure that is replaced by the value that it returns.
//!
//! | the `Once` | the stage |
//! |---|---|
//! | no thread has asked yet | `Closure` |
//! | the closure runs | belongs to the thread that runs it |
//! | completed | `Value`, and shared by all |
//! | poisoned | `Nothing`: the closure has been used up |

use core::fmt;
use core::mem;
use core::ops::{Deref, DerefMut};
use core::panic::{RefUnwindSafe, UnwindSafe};

use super::once_lock::{OnceCell, Stage};

/// A value that is computed when it is first used.
///
/// The closure runs once, in the thread that first asks for the value. Threads that ask meanwhile
/// wait for it. It works as [`std::sync::LazyLock`] does and blocks only the green thread.
///
/// # Poisoning
///
/// If the closure panics, the panic goes on in the thread that asked first. The closure is gone
/// then, so every later attempt to use the value panics too.
///
/// # Examples
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
pub struct LazyLock<T, F = fn() -> T> {
    cell: OnceCell<T, F>,
}

impl<T: RefUnwindSafe + UnwindSafe, F: UnwindSafe> RefUnwindSafe for LazyLock<T, F> {}
impl<T: UnwindSafe, F: UnwindSafe> UnwindSafe for LazyLock<T, F> {}

impl<T, F: FnOnce() -> T> LazyLock<T, F> {
    /// Creates a lazy value that `f` computes on first use.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::LazyLock;
    ///
    /// let hello = "Hello, World!".to_string();
    /// let lazy = LazyLock::new(|| hello.to_uppercase());
    /// assert_eq!(&*lazy, "HELLO, WORLD!");
    /// ```
    #[inline]
    pub const fn new(f: F) -> LazyLock<T, F> {
        LazyLock {
            cell: OnceCell::new(Stage::Closure(f)),
        }
    }

    /// Computes the value if that has not happened yet, and returns a reference to it.
    ///
    /// Dereferencing the `LazyLock` does the same. The call blocks while another thread computes
    /// the value. If the closure itself asks for the value, it waits for ever.
    ///
    /// # Panics
    ///
    /// Panics if the closure panics, now or in an earlier call.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::LazyLock;
    ///
    /// let lazy = LazyLock::new(|| 92);
    /// assert_eq!(LazyLock::force(&lazy), &92);
    /// assert_eq!(&*lazy, &92);
    /// ```
    #[inline]
    #[track_caller]
    pub fn force(this: &LazyLock<T, F>) -> &T {
        if let Some(value) = LazyLock::get(this) {
            return value;
        }
        this.make();
        LazyLock::get(this).expect("a value once completed")
    }

    /// Computes the value if that has not happened yet, and returns a mutable reference to it.
    ///
    /// # Panics
    ///
    /// Panics if the closure panics, now or in an earlier call.
    ///
    /// # Examples
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
    /// Returns a reference to the value, or `None` if it has not been computed yet.
    ///
    /// This method never blocks.
    ///
    /// # Examples
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

    /// Returns a mutable reference to the value, or `None` if it has not been computed yet.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::LazyLock;
    ///
    /// let mut lazy = LazyLock::new(|| 92);
    /// assert_eq!(LazyLock::get_mut(&mut lazy), None);
    /// assert_eq!(*lazy, 92);
    /// *LazyLock::get_mut(&mut lazy).unwrap() = 44;
    /// assert_eq!(*lazy, 44);
    /// ```
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
