//! The errors of [`Select`](crate::channel::Select). Each of its methods fails for one reason only,
//! so the errors have no variants.

use super::display;

/// The error returned by [`Select::try_select`](crate::channel::Select::try_select): every
/// operation would block.
///
/// # Examples
///
/// ```
/// use greenthread::channel::{Select, TrySelectError, unbounded};
///
/// let (_s, r) = unbounded::<u8>();
/// let mut select = Select::new();
/// select.recv(&r);
/// assert_eq!(select.try_select().unwrap_err(), TrySelectError);
/// ```
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub struct TrySelectError;

/// The error returned by [`Select::select_timeout`](crate::channel::Select::select_timeout) and
/// [`Select::select_deadline`](crate::channel::Select::select_deadline): no operation could go on
/// in time.
///
/// # Examples
///
/// ```
/// use greenthread::channel::{Select, SelectTimeoutError, unbounded};
/// use std::time::Duration;
///
/// let (_s, r) = unbounded::<u8>();
/// let mut select = Select::new();
/// select.recv(&r);
/// let error = select.select_timeout(Duration::from_millis(1)).unwrap_err();
/// assert_eq!(error, SelectTimeoutError);
/// ```
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub struct SelectTimeoutError;

/// The error returned by [`Select::try_ready`](crate::channel::Select::try_ready): no operation is
/// ready.
///
/// # Examples
///
/// ```
/// use greenthread::channel::{Select, TryReadyError, unbounded};
///
/// let (_s, r) = unbounded::<u8>();
/// let mut select = Select::new();
/// select.recv(&r);
/// assert_eq!(select.try_ready(), Err(TryReadyError));
/// ```
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub struct TryReadyError;

/// The error returned by [`Select::ready_timeout`](crate::channel::Select::ready_timeout) and
/// [`Select::ready_deadline`](crate::channel::Select::ready_deadline): no operation became ready in
/// time.
///
/// # Examples
///
/// ```
/// use greenthread::channel::{ReadyTimeoutError, Select, unbounded};
/// use std::time::Duration;
///
/// let (_s, r) = unbounded::<u8>();
/// let mut select = Select::new();
/// select.recv(&r);
/// assert_eq!(select.ready_timeout(Duration::from_millis(1)), Err(ReadyTimeoutError));
/// ```
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub struct ReadyTimeoutError;

display! {
    TrySelectError {
        TrySelectError => "all operations in select would block",
    }
    SelectTimeoutError {
        SelectTimeoutError => "timed out waiting on select",
    }
    TryReadyError {
        TryReadyError => "no operation in select is ready",
    }
    ReadyTimeoutError {
        ReadyTimeoutError => "timed out waiting for an operation to be ready",
    }
}
