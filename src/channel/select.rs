//! [`Select`]: the first of several operations.
//!
//! The work is in `selecting`; this file is the user's side of it.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::cell::Kind;
use super::selecting::{self, Operation, SelectedOperation};
use super::{
    ReadyTimeoutError, Receiver, SelectTimeoutError, Sender, TryReadyError, TrySelectError,
};
use crate::channel::shared::Until;

/// Why a search without a limit has found nothing.
const WITHOUT_OPERATIONS: &str = "no operations have been added to `Select`";

/// A list of channel operations. A thread waits for the first of them that does not block.
///
/// Unlike the arms of [`select!`](crate::select), the operations need not be known when the program
/// is written. [`Select::send`] and [`Select::recv`] add an operation and return its index. After
/// that there are two ways to use the list:
///
/// - [`select`](Select::select) and its variants choose an operation that does not block. The
///   [`SelectedOperation`] that they return must be completed.
/// - [`ready`](Select::ready) and its variants only return the index of an operation that would not
///   block. Another thread may be faster, so the operation may block after all.
///
/// An operation that fails because its channel is disconnected does not block. If several
/// operations do not block, a random one is chosen, unless the select is
/// [biased](Select::new_biased).
///
/// # Examples
///
/// The first message from any receiver in a list:
///
/// ```
/// use greenthread::channel::{Receiver, RecvError, Select, unbounded};
///
/// fn recv_any<T>(receivers: &[Receiver<T>]) -> Result<T, RecvError> {
///     let mut select = Select::new();
///     for receiver in receivers {
///         select.recv(receiver);
///     }
///     let operation = select.select();
///     let index = operation.index();
///     operation.recv(&receivers[index])
/// }
///
/// let (s1, r1) = unbounded();
/// let (_s2, r2) = unbounded();
/// greenthread::spawn(move || s1.send(7).unwrap());
/// assert_eq!(recv_any(&[r1, r2]), Ok(7));
/// ```
#[derive(Default)]
pub struct Select<'a> {
    /// Only cloning locks this; all other methods have the select to themselves.
    operations: Mutex<Vec<Operation<'a>>>,
    next_index: usize,
    biased: bool,
}

impl<'a> Select<'a> {
    /// Creates a select without operations.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::channel::Select;
    ///
    /// let mut select = Select::new();
    /// assert!(select.try_ready().is_err()); // there is no operation
    /// ```
    pub fn new() -> Select<'a> {
        Select::default()
    }

    /// Creates a biased select without operations.
    ///
    /// If several operations do not block, a biased select chooses the one that was added first
    /// instead of a random one.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::channel::{Select, unbounded};
    ///
    /// let ((s1, r1), (s2, r2)) = (unbounded(), unbounded());
    /// s1.send(1).unwrap();
    /// s2.send(2).unwrap();
    /// let mut select = Select::new_biased();
    /// select.recv(&r2);
    /// select.recv(&r1);
    /// assert_eq!(select.ready(), 0);
    /// ```
    pub fn new_biased() -> Select<'a> {
        Select {
            biased: true,
            ..Select::new()
        }
    }

    /// Adds a send operation and returns its index.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::channel::{Select, unbounded};
    ///
    /// let (s, r) = unbounded();
    /// let mut select = Select::new();
    /// let sending = select.send(&s);
    /// let operation = select.select();
    /// assert_eq!(operation.index(), sending);
    /// operation.send(&s, 1).unwrap();
    /// assert_eq!(r.recv(), Ok(1));
    /// ```
    pub fn send<T>(&mut self, s: &'a Sender<T>) -> usize {
        self.add(Operation::send(s))
    }

    /// Adds a receive operation and returns its index.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::channel::{Select, unbounded};
    ///
    /// let (s, r) = unbounded();
    /// s.send(1).unwrap();
    /// let mut select = Select::new();
    /// let receiving = select.recv(&r);
    /// let operation = select.select();
    /// assert_eq!(operation.index(), receiving);
    /// assert_eq!(operation.recv(&r), Ok(1));
    /// ```
    pub fn recv<T>(&mut self, r: &'a Receiver<T>) -> usize {
        self.add(Operation::recv(r))
    }

    fn operations(&mut self) -> &mut Vec<Operation<'a>> {
        let operations = self.operations.get_mut();
        operations.unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&mut self, mut operation: Operation<'a>) -> usize {
        let index = self.next_index;
        operation.index = index;
        self.operations().push(operation);
        self.next_index += 1;
        index
    }

    /// Removes the operation with this index.
    ///
    /// The other operations keep their indices, and this index is not used again.
    ///
    /// # Panics
    ///
    /// Panics if there is no operation with this index.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::channel::{Select, unbounded};
    ///
    /// let ((_s1, r1), (_s2, r2)) = (unbounded::<u8>(), unbounded::<u8>());
    /// let mut select = Select::new();
    /// let first = select.recv(&r1);
    /// select.recv(&r2);
    /// select.remove(first);
    /// assert!(select.try_select().is_err());
    /// ```
    pub fn remove(&mut self, index: usize) {
        let end = self.next_index;
        assert!(index < end, "index out of bounds; {index} >= {end}");
        let operations = self.operations();
        let position = operations.iter().position(|one| one.index == index);
        operations.remove(position.expect("no operation with this index"));
    }

    /// Selects an operation that does not block, if there is one.
    ///
    /// The selected operation must be completed.
    ///
    /// # Errors
    ///
    /// Returns an error if all operations would block.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::channel::{Select, unbounded};
    ///
    /// let (s, r) = unbounded();
    /// let mut select = Select::new();
    /// select.recv(&r);
    /// assert!(select.try_select().is_err());
    /// s.send(1).unwrap();
    /// let operation = select.try_select().unwrap();
    /// assert_eq!(operation.recv(&r), Ok(1));
    /// ```
    pub fn try_select(&mut self) -> Result<SelectedOperation<'a>, TrySelectError> {
        self.select_until(Until::Now).ok_or(TrySelectError)
    }

    /// Selects an operation that does not block, blocking the current thread until there is one.
    ///
    /// The selected operation must be completed.
    ///
    /// # Panics
    ///
    /// Panics if there are no operations.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::channel::{Select, unbounded};
    ///
    /// let (s, r) = unbounded();
    /// greenthread::spawn(move || s.send(1).unwrap());
    /// let mut select = Select::new();
    /// select.recv(&r);
    /// assert_eq!(select.select().recv(&r), Ok(1));
    /// ```
    pub fn select(&mut self) -> SelectedOperation<'a> {
        let selected = self.select_until(Until::Never);
        selected.expect(WITHOUT_OPERATIONS)
    }

    /// Selects an operation that does not block, blocking for no longer than `timeout`.
    ///
    /// The selected operation must be completed.
    ///
    /// # Errors
    ///
    /// Returns an error if the time is up.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::channel::{Select, unbounded};
    /// use std::time::Duration;
    ///
    /// let (_s, r) = unbounded::<u8>();
    /// let mut select = Select::new();
    /// select.recv(&r);
    /// assert!(select.select_timeout(Duration::from_millis(1)).is_err());
    /// ```
    pub fn select_timeout(
        &mut self,
        timeout: Duration,
    ) -> Result<SelectedOperation<'a>, SelectTimeoutError> {
        self.select_until(Until::After(timeout))
            .ok_or(SelectTimeoutError)
    }

    /// Selects an operation that does not block, blocking until `deadline` at the latest.
    ///
    /// The selected operation must be completed.
    ///
    /// # Errors
    ///
    /// Returns an error if the time is up.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::channel::{Select, unbounded};
    /// use std::time::{Duration, Instant};
    ///
    /// let (_s, r) = unbounded::<u8>();
    /// let mut select = Select::new();
    /// select.recv(&r);
    /// let deadline = Instant::now() + Duration::from_millis(1);
    /// assert!(select.select_deadline(deadline).is_err());
    /// ```
    pub fn select_deadline(
        &mut self,
        deadline: Instant,
    ) -> Result<SelectedOperation<'a>, SelectTimeoutError> {
        self.select_until(Until::At(deadline))
            .ok_or(SelectTimeoutError)
    }

    fn select_until(&mut self, until: Until) -> Option<SelectedOperation<'a>> {
        let biased = self.biased;
        selecting::select_until(self.operations(), until, biased)
    }

    /// Returns the index of an operation that would not block, if there is one.
    ///
    /// # Errors
    ///
    /// Returns an error if all operations would block.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::channel::{Select, unbounded};
    ///
    /// let (s, r) = unbounded();
    /// let mut select = Select::new();
    /// let receiving = select.recv(&r);
    /// assert!(select.try_ready().is_err());
    /// s.send(1).unwrap();
    /// assert_eq!(select.try_ready(), Ok(receiving));
    /// ```
    pub fn try_ready(&mut self) -> Result<usize, TryReadyError> {
        self.ready_until(Until::Now).ok_or(TryReadyError)
    }

    /// Blocks until an operation would not block, and returns the index of that operation.
    ///
    /// Another thread may be faster, so the operation may block after all. Perform it with
    /// [`try_send`](Sender::try_send) or [`try_recv`](Receiver::try_recv), in a loop.
    ///
    /// # Panics
    ///
    /// Panics if there are no operations.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::channel::{Select, unbounded};
    ///
    /// let (s, r) = unbounded();
    /// greenthread::spawn(move || s.send(1).unwrap());
    /// let mut select = Select::new();
    /// select.recv(&r);
    /// assert_eq!(select.ready(), 0);
    /// assert_eq!(r.try_recv(), Ok(1));
    /// ```
    pub fn ready(&mut self) -> usize {
        let index = self.ready_until(Until::Never);
        index.expect(WITHOUT_OPERATIONS)
    }

    /// Waits as [`ready`](Select::ready) does, for no longer than `timeout`.
    ///
    /// # Errors
    ///
    /// Returns an error if the time is up.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::channel::{Select, unbounded};
    /// use std::time::Duration;
    ///
    /// let (_s, r) = unbounded::<u8>();
    /// let mut select = Select::new();
    /// select.recv(&r);
    /// assert!(select.ready_timeout(Duration::from_millis(1)).is_err());
    /// ```
    pub fn ready_timeout(&mut self, timeout: Duration) -> Result<usize, ReadyTimeoutError> {
        self.ready_until(Until::After(timeout))
            .ok_or(ReadyTimeoutError)
    }

    /// Waits as [`ready`](Select::ready) does, until `deadline` at the latest.
    ///
    /// # Errors
    ///
    /// Returns an error if the time is up.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::channel::{Select, unbounded};
    /// use std::time::{Duration, Instant};
    ///
    /// let (_s, r) = unbounded::<u8>();
    /// let mut select = Select::new();
    /// select.recv(&r);
    /// let deadline = Instant::now() + Duration::from_millis(1);
    /// assert!(select.ready_deadline(deadline).is_err());
    /// ```
    pub fn ready_deadline(&mut self, deadline: Instant) -> Result<usize, ReadyTimeoutError> {
        self.ready_until(Until::At(deadline))
            .ok_or(ReadyTimeoutError)
    }

    fn ready_until(&mut self, until: Until) -> Option<usize> {
        let biased = self.biased;
        let found = selecting::search(self.operations(), until, biased, Kind::Observer);
        found.map(|(operation, _)| operation.index)
    }
}

impl<'a> Clone for Select<'a> {
    fn clone(&self) -> Select<'a> {
        let operations = self.operations.lock();
        let operations = operations.unwrap_or_else(PoisonError::into_inner);
        Select {
            operations: Mutex::new(operations.clone()),
            next_index: self.next_index,
            biased: self.biased,
        }
    }
}
