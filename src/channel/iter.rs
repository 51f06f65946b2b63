//! Iterators over the messages of a channel.
//!
//! | iterator | waits | owns the receiver | ends |
//! |---|---|---|---|
//! | [`Iter`] | yes | no | when the channel is empty and disconnected |
//! | [`IntoIter`] | yes | yes | as `Iter` |
//! | [`TryIter`] | no | no | when the channel is empty; it may go on later |

use super::Receiver;

/// An iterator over messages that blocks for each of them, made by [`Receiver::iter`].
///
/// # Examples
///
/// ```
/// let (s, r) = greenthread::channel::unbounded();
/// greenthread::spawn(move || (0..3).for_each(|i| s.send(i).unwrap()));
/// assert_eq!(r.iter().collect::<Vec<_>>(), [0, 1, 2]);
/// ```
pub struct Iter<'a, T> {
    pub(super) receiver: &'a Receiver<T>,
}

/// An iterator over the messages that are there already, made by [`Receiver::try_iter`].
///
/// # Examples
///
/// ```
/// let (s, r) = greenthread::channel::unbounded();
/// s.send(1).unwrap();
/// assert_eq!(r.try_iter().collect::<Vec<_>>(), [1]);
/// ```
pub struct TryIter<'a, T> {
    pub(super) receiver: &'a Receiver<T>,
}

/// An iterator over messages that blocks for each of them and owns the receiver.
///
/// It is made by [`Receiver::into_iter`].
///
/// # Examples
///
/// ```
/// let (s, r) = greenthread::channel::unbounded();
/// s.send("hello").unwrap();
/// drop(s);
/// for message in r {
///     assert_eq!(message, "hello");
/// }
/// ```
pub struct IntoIter<T> {
    receiver: Receiver<T>,
}

/// Implements `Iter`, `TryIter` and `IntoIter` for a `Receiver`: this module's, and that of
/// `sync::mpsc`.
macro_rules! iterate {
    () => {
        impl<T> Iterator for Iter<'_, T> {
            type Item = T;

            fn next(&mut self) -> Option<T> {
                self.receiver.recv().ok()
            }
        }

        impl<T> Iterator for TryIter<'_, T> {
            type Item = T;

            fn next(&mut self) -> Option<T> {
                self.receiver.try_recv().ok()
            }
        }

        impl<T> Iterator for IntoIter<T> {
            type Item = T;

            fn next(&mut self) -> Option<T> {
                self.receiver.recv().ok()
            }
        }

        impl<T> core::iter::FusedIterator for Iter<'_, T> {}
        impl<T> core::iter::FusedIterator for IntoIter<T> {}

        impl<'a, T> IntoIterator for &'a Receiver<T> {
            type Item = T;
            type IntoIter = Iter<'a, T>;

            fn into_iter(self) -> Iter<'a, T> {
                self.iter()
            }
        }

        impl<T> IntoIterator for Receiver<T> {
            type Item = T;
            type IntoIter = IntoIter<T>;

            fn into_iter(self) -> IntoIter<T> {
                IntoIter { receiver: self }
            }
        }
    };
}

iterate!();
pub(crate) use iterate;
