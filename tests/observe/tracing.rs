//! The feature `tracing`: spans stay with green threads, and events tell what happens to these.
//!
//! The subscriber keeps the current span in a thread-local, as all do. It knows nothing of green threads.
#![cfg(feature = "tracing")]

use crate::common::*;
use greenthread::runtime::Runtime;
use greenthread::{Builder, observe};
use std::cell::RefCell;
use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::Duration;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// What one event says, and the spans in which it was made.
#[derive(Clone, Debug, Default)]
struct Told {
    fields: HashMap<&'static str, String>,
    spans: Vec<u64>,
}

static TOLD: Mutex<Vec<Told>> = Mutex::new(Vec::new());
static TURN: Mutex<()> = Mutex::new(());

thread_local! {
    static ENTERED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

struct Keeper;

impl Subscriber for Keeper {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Id::from_u64(NEXT.fetch_add(1, Relaxed))
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut told = Told {
            spans: ENTERED.with_borrow(Vec::clone),
            ..Told::default()
        };
        event.record(&mut told);
        let target = event.metadata().target();
        told.fields.insert("target", target.into());
        TOLD.lock().unwrap().push(told);
    }

    fn enter(&self, span: &Id) {
        ENTERED.with_borrow_mut(|entered| entered.push(span.into_u64()));
    }

    fn exit(&self, span: &Id) {
        let last = ENTERED.with_borrow_mut(Vec::pop);
        assert_eq!(last, Some(span.into_u64()), "spans are left in order");
    }
}

impl Visit for Told {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.into());
    }
}

fn subscribe() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| tracing::subscriber::set_global_default(Keeper).unwrap());
}

fn told(is_wanted: impl Fn(&Told) -> bool) -> Vec<Told> {
    let told = TOLD.lock().unwrap();
    told.iter()
        .filter(|told| is_wanted(told))
        .cloned()
        .collect()
}

/// Events of the crate with this message.
fn with(message: &str) -> Vec<Told> {
    told(|told| {
        told.fields["target"] == "greenthread"
            && told.fields.get("message").is_some_and(|m| m == message)
    })
}

#[test]
fn a_span_stays_with_its_thread() {
    alone!();
    let _dog = watchdog("tracing::a_span_stays_with_its_thread");
    let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    subscribe();
    let runtime = Runtime::builder().processors(2).build().unwrap();
    let body = |number: u64| {
        move || {
            let outer = tracing::info_span!("outer", number);
            let _outer = outer.clone().entered();
            for round in 0..20 {
                let inner = tracing::info_span!("inner", round);
                let _inner = inner.clone().entered();
                greenthread::yield_now();
                if round % 5 == 0 {
                    greenthread::sleep(Duration::from_micros(100));
                }
                let own = [&outer, &inner].map(|span| span.id().unwrap().into_u64());
                tracing::info!(number, own = ?own, "here");
            }
        }
    };
    let threads: Vec<_> = (0..50).map(|number| runtime.spawn(body(number))).collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    let all = told(|told| told.fields.contains_key("own"));
    assert_eq!(all.len(), 50 * 20);
    for told in all {
        assert_eq!(told.fields["own"], format!("{:?}", told.spans));
    }
    assert!(ENTERED.with_borrow(Vec::is_empty));
}

#[test]
fn events_tell_what_happens_to_threads() {
    alone!();
    let _dog = watchdog("tracing::events_tell_what_happens_to_threads");
    let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    subscribe();
    observe::publish_events().unwrap();
    observe::publish_events().unwrap();
    let runtime = Runtime::builder()
        .processors(1)
        .time_slice(Duration::from_millis(1));
    let runtime = runtime.build().unwrap();
    let body = || {
        let builder = Builder::new().name("täglich-".repeat(9));
        let line = line!() + 1;
        let thread = builder.spawn(|| ()).unwrap();
        thread.join().unwrap();
        line
    };
    let line = runtime.spawn(body).join().unwrap();
    let named = |told: &Told| told.fields["name"].starts_with("täglich-");
    let at = format!("{}:{line}:", file!());
    wait_until(|| {
        with("thread ended")
            .iter()
            .filter(|told| named(told))
            .count()
            == 1
    });
    let [spawned, ended] = ["thread spawned", "thread ended"].map(|message| {
        let mut all = with(message);
        all.retain(named);
        assert_eq!(all.len(), 1, "{message}");
        all.remove(0)
    });
    assert_eq!(spawned.fields["thread"], ended.fields["thread"]);
    let name = &spawned.fields["name"];
    assert!(
        "täglich-".repeat(9).starts_with(name.as_str()) && name.len() > 28,
        "{name}"
    );
    assert!(spawned.fields["spawned_at"].starts_with(&at), "{spawned:?}");
    assert!(spawned.spans.is_empty());
    if !green() {
        return;
    }
    // Two threads compute, until one has been interrupted.
    let hog = || {
        while with("time slice over").is_empty() {
            (0..100_000).for_each(|i| _ = black_box(i));
        }
    };
    let hogs = [runtime.spawn(hog), runtime.spawn(hog)];
    hogs.into_iter().for_each(|hog| hog.join().unwrap());
    #[cfg(target_os = "linux")]
    {
        let nap = libc::timespec {
            tv_sec: 0,
            tv_nsec: 50_000_000,
        };
        let block = move || {
            let none = std::ptr::null_mut::<libc::timespec>();
            // SAFETY: a plain system call, with a time that outlives it.
            unsafe { libc::syscall(libc::SYS_nanosleep, &raw const nap, none) };
        };
        let line = std::cell::Cell::new(0);
        let is_ours = |told: &Told| {
            let at = format!("{}:{}:", file!(), line.get());
            told.fields["call"] == "nanosleep" && told.fields["spawned_at"].starts_with(&at)
        };
        // The monitor may come too late.
        while !with("kernel thread blocked").iter().any(is_ours) {
            line.set(line!() + 1);
            runtime.spawn(block).join().unwrap();
        }
    }
}
