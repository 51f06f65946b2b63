//! Threads that have left their stack by a switch.

use super::*;
use crate::observe::symbols::Symbol;

#[inline(never)]
fn outer(yielder: &Yield) {
    middle(yielder, 1);
    core::hint::black_box(());
}

#[inline(never)]
fn middle(yielder: &Yield, depth: u32) {
    // A frame with a pointer to it, and one whose size is not known: rbp is needed.
    let text = [core::hint::black_box(depth); 100];
    inner(yielder);
    core::hint::black_box(text);
}

#[inline(never)]
fn inner(yielder: &Yield) {
    inlined(yielder);
    core::hint::black_box(());
}

#[inline(always)]
fn inlined(yielder: &Yield) {
    core::hint::black_box(2);
    yielder.suspend();
    core::hint::black_box(3);
}

#[test]
fn a_parked_thread_has_its_functions() {
    let mut thread = Thread::new(|yielder, _| outer(yielder));
    assert!(thread.run());
    let (frames, end) = thread.frames();
    let names = names(&frames);
    assert_eq!(end, End::Bottom, "{names:#?}");
    assert_in_order(&names, &["inner", "middle", "outer", "call_at_bottom"]);
    assert_eq!(names.last().unwrap(), "call_at_bottom");
    assert!(!thread.run());
}

#[test]
fn an_inlined_function_is_named_with_its_line() {
    let mut thread = Thread::new(|yielder, _| outer(yielder));
    assert!(thread.run());
    let (frames, _) = thread.frames();
    let modules = Modules::load();
    let symbols = Symbols::default().stack(&frames, true, &modules);
    let position = |name: &str| {
        let found = symbols
            .iter()
            .position(|symbol| symbol.function.ends_with(name));
        found.unwrap_or_else(|| panic!("no {name}: {symbols:#?}"))
    };
    let inner = &symbols[position("inner")];
    if inner.file.is_none() {
        return eprintln!("built without debug information: it does not tell inlined functions");
    }
    let inlined = &symbols[position("inlined")];
    assert!(position("inlined") + 1 == position("inner"));
    let file = inlined.file.as_deref().unwrap();
    assert!(
        file.ends_with("src/observe/unwind/tests/parked.rs"),
        "{file}"
    );
    let line = |symbol: &Symbol| symbol.line.unwrap() as usize;
    let source: Vec<_> = include_str!("parked.rs").lines().collect();
    assert_eq!(source[line(inlined) - 1].trim(), "yielder.suspend();");
    assert_eq!(source[line(inner) - 1].trim(), "inlined(yielder);");
    assert!(!thread.run());
}

#[inline(never)]
fn catches(yielder: &Yield) {
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        inner(yielder);
        std::panic::resume_unwind(Box::new(1));
    }));
    assert!(result.is_err());
    inner(yielder);
}

#[test]
fn a_panic_that_is_caught_below_disturbs_nothing() {
    let mut thread = Thread::new(|yielder, _| catches(yielder));
    for _ in 0..2 {
        assert!(thread.run());
        let (frames, end) = thread.frames();
        let names = names(&frames);
        assert_eq!(end, End::Bottom, "{names:#?}");
        assert_in_order(&names, &["inner", "catches", "call_at_bottom"]);
    }
    assert!(!thread.run());
}

struct Suspends<'a>(&'a Yield);

impl Drop for Suspends<'_> {
    #[inline(never)]
    fn drop(&mut self) {
        inner(self.0);
    }
}

#[inline(never)]
fn unwinds(yielder: &Yield) {
    let _suspends = Suspends(yielder);
    std::panic::resume_unwind(Box::new(2));
}

/// In the code that a panic runs on its way.
#[test]
fn a_thread_can_be_parked_while_it_unwinds() {
    let mut thread = Thread::new(|yielder, _| {
        let unwind = std::panic::AssertUnwindSafe(|| unwinds(yielder));
        assert!(std::panic::catch_unwind(unwind).is_err());
    });
    assert!(thread.run());
    let (frames, end) = thread.frames();
    let names = names(&frames);
    assert_eq!(end, End::Bottom, "{names:#?}");
    assert_in_order(&names, &["inner", "unwinds", "call_at_bottom"]);
    assert!(!thread.run());
}

#[inline(never)]
fn deep(yielder: &Yield, depth: usize) -> usize {
    if depth == 0 {
        yielder.suspend();
        return 0;
    }
    core::hint::black_box(deep(yielder, depth - 1) + 1)
}

#[test]
fn a_deep_stack_is_cut() {
    for (depth, expected) in [
        (FRAMES - 20, End::Bottom),
        (FRAMES, End::Cut),
        (1000, End::Cut),
    ] {
        let mut thread = Thread::new(move |yielder, _| {
            assert_eq!(deep(yielder, depth), depth);
        });
        assert!(thread.run());
        let (frames, end) = thread.frames();
        assert_eq!(end, expected);
        assert!(frames.len() <= FRAMES && frames.len() >= depth.min(FRAMES));
        assert!(!thread.run());
    }
}

/// Called by the last of the callers in the other file.
pub(super) unsafe extern "C" fn inner_in_c(argument: &Yield) {
    inner(argument);
    core::hint::black_box(());
}

#[test]
fn callers_of_every_kind_are_found() {
    let mut thread = Thread::new(|yielder, _| {
        // SAFETY: they hand on their argument.
        unsafe { callers::is_untold(yielder) };
        core::hint::black_box(());
    });
    assert!(thread.run());
    let (frames, end) = thread.frames();
    let names = names(&frames);
    assert_eq!(end, End::Bottom, "{names:#?}");
    assert_in_order(
        &names,
        &[
            "inner",
            "inner_in_c",
            "keeps_in_register",
            "keeps_in_memory",
            "is_untold",
            "enter",
            "call_at_bottom",
        ],
    );
    assert!(!thread.run());
}
