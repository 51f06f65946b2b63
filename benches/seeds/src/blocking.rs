//! Runtimes whose threads block: greenthread, may, and the kernel's threads. They differ in names.

use std::pin::Pin;
use std::task::{Context, Poll};

use greenthread::runtime::{Mode, Runtime as Green};

use crate::report::Report;
use crate::runtime::{Parker, Runtime, Spawner, at_once};

/// A join handle as a future: polling it joins.
pub struct Join<H>(Option<H>);

/// A runtime whose `threads` module is like std's.
macro_rules! runtime {
    ($Name:ident, $threads:path, $Thread:ident, spawn: $spawn:expr, run: $run:expr) => {
        pub struct $Name;

        const _: () = {
            use $threads as threads;

            impl Parker for threads::$Thread {
                fn mine() -> Self {
                    threads::current()
                }

                #[inline]
                async fn park(&self) {
                    threads::park();
                }

                #[inline]
                fn unpark(&self) {
                    threads::$Thread::unpark(self);
                }
            }

            impl Spawner for $Name {
                type Parker = threads::$Thread;

                fn run(
                    workers: usize,
                    main: impl Future<Output = Report> + Send + 'static,
                ) -> Report {
                    $run(workers, move || at_once(main))
                }

                fn start(f: impl Future<Output = ()> + Send + 'static) {
                    drop(Self::spawn(f));
                }
            }

            impl Runtime for $Name {
                type Join<T: Send + 'static> = Join<threads::JoinHandle<T>>;

                fn spawn<T: Send + 'static>(
                    f: impl Future<Output = T> + Send + 'static,
                ) -> Self::Join<T> {
                    Join(Some($spawn(|| at_once(f))))
                }

                #[inline]
                async fn yield_now() {
                    threads::yield_now();
                }
            }

            impl<T> Future for Join<threads::JoinHandle<T>> {
                type Output = T;

                fn poll(mut self: Pin<&mut Self>, _: &mut Context) -> Poll<T> {
                    let handle = self.0.take().expect("it is joined once");
                    Poll::Ready(handle.join().expect("a thread panicked"))
                }
            }

            impl<T> Unpin for Join<threads::JoinHandle<T>> {}
        };
    };
}

runtime!(OnGreenthread, greenthread, Thread,
    spawn: greenthread::spawn,
    run: |workers, main| {
        let runtime = Green::builder().processors(workers).build().expect("a runtime");
        assert_eq!(runtime.mode(), Mode::Green, "these would be kernel threads");
        runtime.spawn(main).join().expect("the work panicked")
    }
);

runtime!(OnMay, may::coroutine, Coroutine,
    // SAFETY: the work uses no thread-local, and little stack.
    spawn: (|f| unsafe { may::coroutine::spawn(f) }),
    run: |workers, main| {
        may::config().set_workers(workers);
        // SAFETY: as above.
        let main = unsafe { may::coroutine::spawn(main) };
        main.join().expect("the work panicked")
    }
);

runtime!(OnStd, std::thread, Thread,
    spawn: std::thread::spawn,
    run: |_, main| std::thread::spawn(main).join().expect("the work panicked")
);
