//! [`OnceLock`]: a [`Once`] and the value that its closure made. [`LazyLock`]: a `OnceLock`, and the closure that makes its
//! value.
//!
//! | the `Once` | the value | the closure of a `LazyLock` |
//! |---|---|---|
//! | no thread has asked yet | `None`, owned by no thread | `Some` |
//! | a closure runs | belongs to the thread that runs it | belongs to the same thread |
//! | completed | `Some`, and shared by all | `None` |
//! | poisoned: the closure has panicked | `None`, owned by no thread | `None`: it has been used up |

use core::cell::{Cell, UnsafeCell};
use core::fmt;
use core::ops::{Deref, DerefMut};
use core::panic::{RefUnwindSafe, UnwindSafe};

use super::Once;

/// A cell that is written once and then read by any number of threads.
///
/// It works as [`std::sync::OnceLock`] does and blocks only the green thread.
///
/// # Examples
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
    once: Once,
    // It is no `MaybeUninit`: an `Option` drops itself, so that no `Drop` has to be written, and the cell may hold a reference
    // to a value that is dropped before it, as std's cell may.
    value: UnsafeCell<Option<T>>,
}

// SAFETY: one thread may make the value and another drop it, hence `T: Send`; all get shared references to it, hence `T: Sync`.
unsafe impl<T: Send + Sync> Sync for OnceLock<T> {}
impl<T: RefUnwindSafe + UnwindSafe> RefUnwindSafe for OnceLock<T> {}
impl<T: UnwindSafe> UnwindSafe for OnceLock<T> {}

impl<T> OnceLock<T> {
    /// Creates an empty cell.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::OnceLock;
    ///
    /// static NAME: OnceLock<String> = OnceLock::new();
    /// assert!(NAME.get().is_none());
    /// ```
    #[inline]
    #[must_use]
    pub const fn new() -> OnceLock<T> {
        OnceLock {
            once: Once::new(),
            value: UnsafeCell::new(None),
        }
    }

    /// Returns a reference to the value, or `None` if the cell is empty.
    ///
    /// This method never blocks. It returns `None` while another thread is making the value.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::OnceLock;
    ///
    /// let cell = OnceLock::new();
    /// assert_eq!(cell.get(), None);
    /// cell.set(92).unwrap();
    /// assert_eq!(cell.get(), Some(&92));
    /// ```
    #[inline]
    pub fn get(&self) -> Option<&T> {
        if !self.once.is_completed() {
            return None;
        }
        // SAFETY: the value is complete, so no thread writes to it while `self` is shared.
        unsafe { &*self.value.get() }.as_ref()
    }

    /// Returns a mutable reference to the value, or `None` if the cell is empty.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::OnceLock;
    ///
    /// let mut cell = OnceLock::from("one".to_string());
    /// cell.get_mut().unwrap().push_str(" and two");
    /// assert_eq!(cell.get().unwrap(), "one and two");
    /// ```
    #[inline]
    pub fn get_mut(&mut self) -> Option<&mut T> {
        self.value.get_mut().as_mut()
    }

    /// Blocks the current thread until the cell has a value, and returns a reference to it.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::OnceLock;
    ///
    /// let sum = OnceLock::new();
    /// greenthread::scope(|scope| {
    ///     scope.spawn(|| sum.set(1 + 1));
    ///     assert_eq!(sum.wait(), &2);
    /// });
    /// ```
    pub fn wait(&self) -> &T {
        self.once.wait_force();
        self.completed()
    }

    /// [`OnceLock::wait`], but frames end the wait.
    pub(crate) fn wait_for_value(&self) -> &T {
        self.once.wait_for_value();
        self.completed()
    }

    /// Sets the value of the cell if it is empty.
    ///
    /// The call blocks while another thread is making the value. When it returns, the cell has a
    /// value.
    ///
    /// # Errors
    ///
    /// Returns `value` as the error if the cell has a value already.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::OnceLock;
    ///
    /// let cell = OnceLock::new();
    /// assert_eq!(cell.set(1), Ok(()));
    /// assert_eq!(cell.set(2), Err(2));
    /// assert_eq!(cell.get(), Some(&1));
    /// ```
    pub fn set(&self, value: T) -> Result<(), T> {
        let mut value = Some(value);
        self.make(|| value.take());
        value.map_or(Ok(()), Err)
    }

    /// Returns a reference to the value, after initializing the cell with `f` if it is empty.
    ///
    /// If several threads call this at once, one closure runs and the other threads block until it
    /// has returned. If `f` asks for the value of the same cell, it waits for ever.
    ///
    /// # Panics
    ///
    /// Panics if `f` panics. The cell stays empty then, and the closure of the next caller runs.
    ///
    /// # Examples
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

    /// Runs `f` and writes the value that it makes, unless there is one already. If `f` panics, the next caller may try.
    #[cold]
    fn make(&self, f: impl FnOnce() -> Option<T>) {
        self.once.call_once_force(|_| {
            let value = f();
            // SAFETY: this is the closure of a `Once` that has not completed: no other thread looks.
            unsafe { *self.value.get() = value };
        });
    }

    /// Returns the value, for a caller that knows that there is one.
    fn completed(&self) -> &T {
        self.get().expect("a value once completed")
    }

    /// Consumes the cell and returns its value, or `None` if it is empty.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::OnceLock;
    ///
    /// let cell = OnceLock::new();
    /// cell.set("hello").unwrap();
    /// assert_eq!(cell.into_inner(), Some("hello"));
    /// ```
    #[inline]
    pub fn into_inner(self) -> Option<T> {
        self.value.into_inner()
    }

    /// Takes the value out and leaves the cell empty.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::OnceLock;
    ///
    /// let mut cell = OnceLock::from(1);
    /// assert_eq!(cell.take(), Some(1));
    /// assert_eq!(cell.take(), None);
    /// assert_eq!(cell.set(2), Ok(()));
    /// ```
    #[inline]
    pub fn take(&mut self) -> Option<T> {
        core::mem::take(self).into_inner()
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
        show(f, "OnceLock", self.get())
    }
}

fn show(f: &mut fmt::Formatter<'_>, name: &str, value: Option<&impl fmt::Debug>) -> fmt::Result {
    let mut d = f.debug_tuple(name);
    match value {
        Some(value) => d.field(value),
        None => d.field(&format_args!("<uninit>")),
    };
    d.finish()
}

// ==== a value that is computed when it is first used ====

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
    cell: OnceLock<T>,
    closure: Cell<Option<F>>,
}

// SAFETY: only the thread that makes the value reaches the closure; any thread may do so, and any may drop it: hence `F: Send`.
unsafe impl<T, F: Send> Sync for LazyLock<T, F> where OnceLock<T>: Sync {}

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
            cell: OnceLock::new(),
            closure: Cell::new(Some(f)),
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
    pub fn force(this: &LazyLock<T, F>) -> &T {
        this.cell.get_or_init(|| match this.closure.take() {
            Some(f) => f(),
            None => panic!("LazyLock instance has previously been poisoned"),
        })
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
    pub fn force_mut(this: &mut LazyLock<T, F>) -> &mut T {
        LazyLock::force(this);
        LazyLock::get_mut(this).expect("a value once completed")
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
    fn deref(&self) -> &T {
        LazyLock::force(self)
    }
}

impl<T, F: FnOnce() -> T> DerefMut for LazyLock<T, F> {
    #[inline]
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
        show(f, "LazyLock", LazyLock::get(self))
    }
}
