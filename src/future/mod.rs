//! Between threads and `async`: a thread waits for a future, a task awaits a thread.
//!
//! - [`block_on`] runs a future on the thread that calls it, and parks only that thread. With it a
//!   green thread uses any `async` library, inside that library's own runtime where it needs one.
//! - A [`JoinHandle`](crate::JoinHandle) is awaited like a future, by tasks of any runtime.
//!
//! ```
//! use greenthread::future::block_on;
//! let thread = greenthread::spawn(|| block_on(async { 6 * 7 }));
//! assert_eq!(block_on(async { thread.await.unwrap() }), 42);
//! ```

mod block_on;
mod join;

pub use self::block_on::block_on;
pub use self::join::JoinFuture;
