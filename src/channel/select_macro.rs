//! `select!` and `select_biased!`.
//!
//! The idea: the macro reads its arms one by one (a "tt muncher") and gathers them into two lists,
//! operations and default; then it writes one flat `match`. For
//!
//! ```text
//! select! {
//!     recv(r) -> msg => A,
//!     send(s, m) -> res => B,
//!     default(timeout) => C,
//! }
//! ```
//!
//! that is
//!
//! ```text
//! match (&r, &s) {
//!     (r, s) => {
//!         let operations = &mut [Operation::recv(r), Operation::send(s)];
//!         let selected = select_timeout(operations, false, timeout).ok();
//!         match selected.index() {
//!             Some(0) => { let result = selected.unwrap().recv(r); match result { msg => A } }
//!             Some(1) => { let result = selected.unwrap().send(s, m); match result { res => B } }
//!             None => match drop(selected) { () => C },
//!         }
//!     }
//! }
//! ```
//!
//! | step | it reads | and does |
//! |---|---|---|
//! | `@arms` | one arm | appends it to its list; adds optional parts (`()`, a comma) that are missing |
//! | `@arms` | the end | writes the `match` |
//! | `@error` | the arm that no rule takes | says what is wrong with it |
//!
//! Invariants:
//! 1. A handle's expression is evaluated once, in the order of the arms, before anything else; then
//!    the timeout; a message only once its operation has been selected. Handles that are places are
//!    borrowed, not moved; those that are temporaries live until the body has ended.
//! 2. The operations lie in one array on the caller's stack. It does not move until the selected
//!    one is complete. It has no destructor, so a body may use, move or drop the handles.
//! 3. No body stands in a loop, a labelled block or a closure of ours: `break`, `continue`,
//!    `return` and `?` in it do what they would do outside.
//! 4. Names are hygienic. Each step names its handle `handle`, and each is another name, since each
//!    step is an expansion of its own. So nothing here limits the number of arms but the compiler's
//!    recursion limit: one step an arm, two where a comma is left out.

/// Waits for the first of several channel operations that can go on, and performs it.
///
/// An operation can go on when it would not block. That includes an operation that fails at once
/// because its channel is disconnected. If several operations can go on, the macro chooses one at
/// random; [`select_biased!`] chooses the one that is written first.
///
/// The arms, in any order:
///
/// | arm | runs its body |
/// |---|---|
/// | `recv(receiver) -> result => body` | after a receive; `result` is a `Result<T, RecvError>` |
/// | `send(sender, message) -> result => body` | after a send; `result` is a `Result<(), SendError<T>>` |
/// | `default => body`, `default() => body` | if no operation can go on at once |
/// | `default(timeout) => body` | if no operation could go on within this [`Duration`] |
///
/// There is at most one `default`. A body is an expression; a comma follows it, unless it is a
/// block or the last. `result` is an irrefutable pattern. The macro's value is that of the body.
///
/// `receiver` and `sender` are expressions for a [`Receiver`] or [`Sender`], or for anything that
/// dereferences to one. They are evaluated once, in order, and are only borrowed. `message` is
/// evaluated only after its operation has been selected. The operation has begun by then, so
/// `message` must not leave the macro (with `?`, `return`, `break` or a panic).
///
/// [`Select`] does the same for operations that are not known when the program is written. Waiting
/// allocates no memory.
///
/// The design is that of [crossbeam-channel].
///
/// [`select_biased!`]: crate::select_biased
/// [`Duration`]: std::time::Duration
/// [`Receiver`]: crate::channel::Receiver
/// [`Sender`]: crate::channel::Sender
/// [`Select`]: crate::channel::Select
/// [crossbeam-channel]: https://docs.rs/crossbeam-channel
///
/// # Examples
///
/// Send or receive, whichever can go on first:
///
/// ```
/// use greenthread::channel::{bounded, select, unbounded};
///
/// let (jobs, worker) = bounded(0);
/// let (done, results) = unbounded();
/// greenthread::spawn(move || {
///     for job in worker {
///         done.send(job * job).unwrap();
///     }
/// });
///
/// let (mut next, mut sum) = (1, 0);
/// while next <= 10 {
///     select! {
///         send(jobs, next) -> res => {
///             res.unwrap();
///             next += 1;
///         }
///         recv(results) -> square => sum += square.unwrap(),
///     }
/// }
/// drop(jobs); // the worker ends, and with it the results
/// sum += results.iter().sum::<i32>();
/// assert_eq!(sum, 385);
/// ```
///
/// Do not wait, or wait for a limited time:
///
/// ```
/// use greenthread::channel::unbounded;
/// use greenthread::select;
/// use std::time::Duration;
///
/// let (_s, r) = unbounded::<u32>();
/// let msg = select! {
///     recv(r) -> msg => msg.ok(),
///     default => None,
/// };
/// assert_eq!(msg, None);
///
/// let late = select! {
///     recv(r) -> _ => false,
///     default(Duration::from_millis(5)) => true,
/// };
/// assert!(late);
/// ```
///
/// Skip an operation: [`never`] stands in for a receiver that is not there.
///
/// ```
/// use greenthread::channel::{Receiver, RecvError, never, select, unbounded};
///
/// fn first(a: &Receiver<u32>, b: Option<&Receiver<u32>>) -> Result<u32, RecvError> {
///     select! {
///         recv(a) -> msg => msg,
///         recv(b.unwrap_or(&never())) -> msg => msg,
///     }
/// }
///
/// let (s, r) = unbounded();
/// s.send(7).unwrap();
/// assert_eq!(first(&r, None), Ok(7));
/// ```
///
/// [`never`]: crate::channel::never
#[macro_export]
macro_rules! select {
    ($($arms:tt)*) => {
        $crate::__select!(@arms false [] [] [0] $($arms)* ,)
    };
}

/// Waits as [`select!`] does, but prefers the operation that is written first.
///
/// If several operations can go on, it performs the first of them and not a random one. The syntax
/// and everything else are as with [`select!`].
///
/// [`select!`]: crate::select
///
/// # Examples
///
/// ```
/// use greenthread::channel::{select_biased, unbounded};
///
/// let (urgent, urgent_jobs) = unbounded();
/// let (usual, usual_jobs) = unbounded();
/// usual.send("tidy up").unwrap();
/// urgent.send("fire").unwrap();
///
/// let job = select_biased! {
///     recv(urgent_jobs) -> job => job,
///     recv(usual_jobs) -> job => job,
/// };
/// assert_eq!(job, Ok("fire"));
/// ```
#[macro_export]
macro_rules! select_biased {
    ($($arms:tt)*) => {
        $crate::__select!(@arms true [] [] [0] $($arms)* ,)
    };
}

/// The common part of `select!` and `select_biased!`. The state is: biased, `[operations]`,
/// `[default]`, `[index of the next operation]`. A `[default]` is how long
/// to wait, an `Until`, and the body.
#[doc(hidden)]
#[macro_export]
macro_rules! __select {
    // One arm.
    (@arms $biased:tt [$($operations:tt)*] $default:tt [$($index:tt)*]
        recv($handle:expr $(,)?) -> $result:pat => $body:expr, $($rest:tt)*
    ) => {
        $crate::__select!(@arms $biased
            [$($operations)* { recv Receiver handle ($handle) [$($index)*] () $result => $body }]
            $default [$($index)* + 1] $($rest)*)
    };
    (@arms $biased:tt [$($operations:tt)*] $default:tt [$($index:tt)*]
        send($handle:expr, $message:expr $(,)?) -> $result:pat => $body:expr, $($rest:tt)*
    ) => {
        $crate::__select!(@arms $biased
            [$($operations)*
                { send Sender handle ($handle) [$($index)*] ($message) $result => $body }]
            $default [$($index)* + 1] $($rest)*)
    };
    (@arms $biased:tt $operations:tt [] $index:tt
        default() => $body:expr, $($rest:tt)*
    ) => {
        $crate::__select!(@arms $biased $operations
            [Now => $body] $index $($rest)*)
    };
    (@arms $biased:tt $operations:tt [] $index:tt
        default($timeout:expr $(,)?) => $body:expr, $($rest:tt)*
    ) => {
        $crate::__select!(@arms $biased $operations
            [After($timeout) => $body] $index $($rest)*)
    };

    // Optional parts: the parentheses of `default`, the comma after a block.
    (@arms $biased:tt $operations:tt $default:tt $index:tt default => $($rest:tt)*) => {
        $crate::__select!(@arms $biased $operations $default $index default() => $($rest)*)
    };
    (@arms $biased:tt $operations:tt $default:tt $index:tt
        $kind:ident $arguments:tt $(-> $result:pat)? => $body:block $next:ident $($rest:tt)*
    ) => {
        $crate::__select!(@arms $biased $operations $default $index
            $kind $arguments $(-> $result)? => $body, $next $($rest)*)
    };

    // The end. The comma is ours, or the user's with ours behind it.
    (@arms $biased:tt [] [] [0] $(,)?) => {
        $crate::__select!(@error)
    };
    (@arms $biased:tt $operations:tt [] $index:tt $(,)?) => {
        $crate::__select!(@match $biased $operations [Never])
    };
    (@arms $biased:tt $operations:tt $default:tt $index:tt $(,)?) => {
        $crate::__select!(@match $biased $operations $default)
    };
    (@match $biased:tt
        [$({
            $operation:ident $type:ident $name:ident ($handle:expr) [$($index:tt)*]
            ($($message:expr)?) $result:pat => $body:expr
        })*]
        [$until:ident $(($timeout:expr))? $(=> $default:expr)?]
    ) => {
        match ($(&$handle,)*) {
            ($($name,)*) => {
                $(let $name: &$crate::channel::$type<_> = $name;)*
                let operations: &mut [$crate::channel::__private::Operation<'_>] =
                    &mut [$($crate::channel::__private::Operation::$operation($name)),*];
                let until = $crate::channel::__private::Until::$until $(($timeout))?;
                let selected = $crate::channel::__private::select(operations, $biased, until);
                match selected.as_ref().map(|selected| selected.index()) {
                    $(::core::option::Option::Some(index) if index == $($index)* => {
                        let result = selected.unwrap().$operation($name $(, $message)?);
                        match result {
                            $result => $body,
                        }
                    })*
                    $(::core::option::Option::None => match ::core::mem::drop(selected) {
                        () => $default,
                    },)?
                    _ => ::core::unreachable!(),
                }
            }
        }
    };

    // No rule takes the next arm: why?
    (@arms $biased:tt $operations:tt $default:tt $index:tt $($rest:tt)*) => {
        $crate::__select!(@error $($rest)*)
    };
    (@error) => {
        ::core::compile_error!("`select!` without arms would never end")
    };
    (@error default($($timeout:expr $(,)?)?) => $body:expr, $($rest:tt)*) => {
        ::core::compile_error!("only one `default` arm is allowed in `select!`")
    };
    (@error default $(($($arguments:tt)*))? -> $($rest:tt)*) => {
        ::core::compile_error!("expected `=>` after `default`, found `->`: it has no result")
    };
    (@error default($($arguments:tt)*) => $body:expr, $($rest:tt)*) => {
        ::core::compile_error!(::core::concat!(
            "expected `default`, `default()` or `default(timeout)`, found `default(",
            ::core::stringify!($($arguments)*), ")`"))
    };
    (@error recv($($arguments:tt)*) -> $result:pat => $body:expr, $($rest:tt)*) => {
        ::core::compile_error!(::core::concat!(
            "expected `recv(receiver)`, found `recv(", ::core::stringify!($($arguments)*), ")`"))
    };
    (@error send($($arguments:tt)*) -> $result:pat => $body:expr, $($rest:tt)*) => {
        ::core::compile_error!(::core::concat!(
            "expected `send(sender, message)`, found `send(",
            ::core::stringify!($($arguments)*), ")`"))
    };
    (@error $kind:ident($($arguments:tt)*) $(-> $result:pat)? => $body:expr; $($rest:tt)*) => {
        ::core::compile_error!(::core::concat!(
            "expected `,` after the body of `", ::core::stringify!($kind($($arguments)*)),
            "`, found `;`"))
    };
    (@error $kind:ident($($arguments:tt)*) $(-> $result:pat)? => , $($rest:tt)*) => {
        ::core::compile_error!(::core::concat!(
            "expected a body after `", ::core::stringify!($kind($($arguments)*)), " .. =>`"))
    };
    (@error default($($arguments:tt)*) => $($rest:tt)*) => {
        ::core::compile_error!(::core::concat!(
            "expected `,` after the body of `", ::core::stringify!(default($($arguments)*)), "`"))
    };
    (@error recv($($arguments:tt)*) -> $result:pat => $($rest:tt)*) => {
        ::core::compile_error!(::core::concat!(
            "expected `,` after the body of `", ::core::stringify!(recv($($arguments)*)), "`"))
    };
    (@error send($($arguments:tt)*) -> $result:pat => $($rest:tt)*) => {
        ::core::compile_error!(::core::concat!(
            "expected `,` after the body of `", ::core::stringify!(send($($arguments)*)), "`"))
    };
    (@error recv $($rest:tt)*) => {
        ::core::compile_error!("expected `recv(receiver) -> result => body`")
    };
    (@error send $($rest:tt)*) => {
        ::core::compile_error!("expected `send(sender, message) -> result => body`")
    };
    (@error default $($rest:tt)*) => {
        ::core::compile_error!("expected `default => body` or `default(timeout) => body`")
    };
    (@error $found:tt $($rest:tt)*) => {
        ::core::compile_error!(::core::concat!(
            "expected `recv`, `send` or `default`, found `", ::core::stringify!($found), "`"))
    };
}
