//! The bridge between threads and `async` code.
//!
//! - [`block_on`](fn@block_on) runs a future on the current thread and parks only that thread. With
//!   it a green thread can use any `async` library. If the library needs a runtime of its own,
//!   enter that runtime first.
//! - A [`JoinHandle`](crate::JoinHandle) can be awaited like a future, by tasks of any runtime. The
//!   future is a [`JoinFuture`].
//!
//! # Examples
//!
//! ```
//! use greenthread::future::block_on;
//!
//! let thread = greenthread::spawn(|| block_on(async { 6 * 7 }));
//! assert_eq!(block_on(async { thread.await.unwrap() }), 42);
//! ```

mod block_on;
mod join;

pub use self::block_on::block_on;
pub use self::join::JoinFuture;
