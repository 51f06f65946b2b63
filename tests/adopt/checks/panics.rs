//! Panics in threads.

use super::*;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::{panic_any, resume_unwind, set_hook, take_hook};
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::thread::Builder;

pub fn a_literal_is_the_payload() {
    let payload = thread::spawn(|| panic!("a literal")).join().unwrap_err();
    assert_eq!(payload.downcast_ref::<&'static str>(), Some(&"a literal"));
}

pub fn a_formatted_text_is_the_payload() {
    let number = black_box(5);
    let payload = thread::spawn(move || panic!("number {number}"));
    let payload = payload.join().unwrap_err();
    assert_eq!(payload.downcast_ref::<String>().unwrap(), "number 5");
}

pub fn any_value_is_the_payload() {
    #[derive(Debug, PartialEq)]
    struct Reason(u64, &'static str);
    let thread = thread::spawn(|| panic_any(Reason(3, "because")));
    let payload = thread.join().unwrap_err();
    let reason = payload.downcast_ref::<Reason>();
    assert_eq!(reason, Some(&Reason(3, "because")));
    let payload = thread::spawn(|| panic_any(42u8)).join().unwrap_err();
    assert!(payload.is::<u8>() && !payload.is::<i32>());
}

pub fn an_assertion_is_a_panic() {
    let said = died(thread::spawn(|| assert_eq!(1, black_box(2), "told")).join());
    assert!(
        said.contains("told") && said.contains("left") && said.contains("right"),
        "{said}"
    );
    let said = died(thread::spawn(|| black_box(None::<u8>).expect("something")).join());
    assert_eq!(said, "something");
    let said = died(thread::spawn(|| [1, 2, 3][black_box(7)]).join());
    assert!(said.contains("index out of bounds"), "{said}");
}

pub fn a_payload_goes_through_threads() {
    fn pass(left: usize) {
        match left {
            0 => panic_any(77i64),
            _ => thread::spawn(move || pass(left - 1))
                .join()
                .unwrap_or_else(|payload| resume_unwind(payload)),
        }
    }
    let payload = thread::spawn(|| pass(10)).join().unwrap_err();
    assert_eq!(payload.downcast_ref::<i64>(), Some(&77));
}

struct Counts(Arc<AtomicUsize>);

impl Drop for Counts {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

fn counter() -> (Arc<AtomicUsize>, Counts) {
    let count = Arc::new(AtomicUsize::new(0));
    (count.clone(), Counts(count))
}

pub fn a_payload_is_dropped_once() {
    let (count, counts) = counter();
    let joined = thread::spawn(move || panic_any(counts)).join();
    assert_eq!(count.load(SeqCst), 0);
    drop(joined);
    assert_eq!(count.load(SeqCst), 1);
}

/// What a hook saw on threads of this name; `None` is any thread.
fn hooked<T: Send + 'static>(
    name: Option<&str>,
    look: fn(&std::panic::PanicHookInfo) -> T,
    body: fn(),
) -> (Vec<T>, thread::ThreadId) {
    // There is one hook in a process.
    static HOOK: Mutex<()> = Mutex::new(());
    let _one = HOOK.lock().unwrap_or_else(PoisonError::into_inner);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sees = seen.clone();
    let usual = take_hook();
    let builder = Builder::new();
    let builder = match name {
        Some(name) => builder.name(name.into()),
        None => builder,
    };
    let meet = Arc::new(Barrier::new(2));
    let met = meet.clone();
    let handle = builder.spawn(move || {
        met.wait();
        body()
    });
    let handle = handle.unwrap();
    let id = handle.thread().id();
    set_hook(Box::new(move |info| {
        if thread::current().id() == id {
            sees.lock().unwrap().push(look(info));
        }
    }));
    meet.wait();
    assert!(handle.join().is_err());
    set_hook(usual);
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    (seen, id)
}

pub fn a_resumed_panic_calls_no_hook() {
    let (seen, _) = hooked(None, |_| (), || resume_unwind(Box::new(1)));
    assert!(seen.is_empty());
}

pub fn the_hook_runs_on_the_thread() {
    let look = |_: &std::panic::PanicHookInfo| {
        let this = thread::current();
        (this.name().map(String::from), this.id())
    };
    let (seen, id) = hooked(Some("panics"), look, || panic!("on purpose"));
    assert_eq!(seen, [(Some("panics".to_string()), id)]);
}

pub fn the_hook_sees_no_name() {
    let look = |_: &std::panic::PanicHookInfo| thread::current().name().is_none();
    let (seen, _) = hooked(None, look, || panic!("on purpose"));
    assert_eq!(seen, [true]);
}

pub fn the_hook_sees_the_place() {
    let look = |info: &std::panic::PanicHookInfo| {
        let place = info.location().unwrap();
        let said = info
            .payload()
            .downcast_ref::<&str>()
            .map(|said| said.to_string());
        (place.file().to_string(), place.line(), said)
    };
    let line = line!() + 1;
    let (seen, _) = hooked(None, look, || panic!("here"));
    assert_eq!(
        seen,
        [(file!().to_string(), line, Some("here".to_string()))]
    );
}

struct Sends<F: FnMut()>(F);

impl<F: FnMut()> Drop for Sends<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

pub fn panicking_is_of_the_thread() {
    let (asks, asked) = channel();
    let (answers, answered) = channel();
    let handle = thread::spawn(move || {
        assert!(!thread::panicking());
        let _sends = Sends(move || {
            asks.send(thread::panicking()).unwrap();
            answered.recv().unwrap()
        });
        panic!("on purpose");
    });
    assert_eq!(asked.recv(), Ok(true));
    // It waits in the middle of its panic.
    assert!(!thread::panicking());
    assert!(!thread::spawn(thread::panicking).join().unwrap());
    answers.send(()).unwrap();
    assert_eq!(died(handle.join()), "on purpose");
}

pub fn panicking_ends_when_caught() {
    let body = || {
        for _ in 0..20 {
            assert!(caught(|| panic!("on purpose")).is_err());
            assert!(!thread::panicking());
        }
    };
    thread::spawn(body).join().unwrap();
}

pub fn a_panic_drops_in_reverse() {
    let (sender, dropped) = channel();
    let handle = thread::spawn(move || {
        let send = |number: u32| {
            let sender = sender.clone();
            Sends(move || sender.send(number).unwrap())
        };
        let _one = send(1);
        let _two = send(2);
        let _three = send(3);
        panic!("on purpose");
    });
    assert!(handle.join().is_err());
    assert_eq!(dropped.iter().collect::<Vec<_>>(), [3, 2, 1]);
}

pub fn a_panic_drops_what_was_captured() {
    let (count, counts) = counter();
    let handle = thread::spawn(move || {
        let _counts = &counts;
        panic!("on purpose");
    });
    assert!(handle.join().is_err());
    assert_eq!(count.load(SeqCst), 1);
}

pub fn a_deep_panic_drops_all() {
    fn deep(left: usize, count: &Arc<AtomicUsize>) {
        let _counts = Counts(count.clone());
        match left {
            1 => panic!("deep"),
            _ => deep(left - 1, count),
        }
        black_box(left);
    }
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let handle = thread::spawn(move || deep(1_000, &counted));
    assert_eq!(died(handle.join()), "deep");
    assert_eq!(count.load(SeqCst), 1_000);
}

pub fn a_caught_panic_is_over() {
    let handle = thread::spawn(|| {
        let payload = caught(|| panic_any(5)).err().unwrap();
        payload.downcast_ref::<i32>().unwrap() + 1
    });
    assert_eq!(handle.join().unwrap(), 6);
}

pub fn a_panic_in_a_destructor() {
    let (sender, dropped) = channel();
    let handle = thread::spawn(move || {
        let _first = Sends(move || sender.send(()).unwrap());
        let _second = Sends(|| panic!("in a destructor"));
    });
    assert_eq!(died(handle.join()), "in a destructor");
    assert_eq!(dropped.iter().count(), 1);
}

pub fn a_detached_panic_hurts_nobody() {
    let (count, counts) = counter();
    drop(thread::spawn(move || panic_any(counts)));
    wait_until(|| count.load(SeqCst) == 1);
    assert_eq!(thread::spawn(|| 1).join().unwrap(), 1);
}

pub fn a_hundred_panic_at_once() {
    let meet = Arc::new(Barrier::new(100));
    let handles: Vec<_> = (0..100usize)
        .map(|i| {
            let meet = meet.clone();
            thread::spawn(move || {
                meet.wait();
                // No message: the hook would take its time for each.
                resume_unwind(Box::new(i));
            })
        })
        .collect();
    for (i, handle) in handles.into_iter().enumerate() {
        let payload = handle.join().unwrap_err();
        assert_eq!(payload.downcast_ref::<usize>(), Some(&i));
    }
}

/// Others panic and are caught meanwhile, on the same processors.
fn while_panicking(wait: impl Fn() + Send + Clone + 'static) {
    let handles: Vec<_> = (0..20usize)
        .map(|i| {
            let wait = wait.clone();
            thread::spawn(move || {
                let _sends = Sends(move || {
                    assert!(thread::panicking());
                    wait();
                    assert!(thread::panicking());
                    // A panic within a panic, which ends in the destructor, is allowed.
                    assert!(caught(|| resume_unwind(Box::new(()))).is_err());
                });
                resume_unwind(Box::new(i));
            })
        })
        .collect();
    for (i, handle) in handles.into_iter().enumerate() {
        let payload = handle.join().unwrap_err();
        assert_eq!(payload.downcast_ref::<usize>(), Some(&i));
        assert!(!thread::panicking());
    }
}

pub fn a_destructor_waits_while_panicking() {
    let meet = Arc::new(Barrier::new(20));
    while_panicking(move || {
        meet.wait();
        meet.wait();
    });
}

pub fn a_destructor_yields_while_panicking() {
    while_panicking(|| (0..50).for_each(|_| thread::yield_now()));
}

pub fn a_thread_started_while_panicking() {
    while_panicking(|| assert!(!thread::spawn(thread::panicking).join().unwrap()));
}

pub fn a_backtrace_shows_the_caller() {
    #[inline(never)]
    fn function_in_the_backtrace() -> Backtrace {
        black_box(Backtrace::force_capture())
    }
    let backtrace = thread::spawn(function_in_the_backtrace).join().unwrap();
    assert_eq!(backtrace.status(), BacktraceStatus::Captured);
    let shown = backtrace.to_string();
    assert!(shown.contains("function_in_the_backtrace"), "{shown}");
}
