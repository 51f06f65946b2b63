//! Where the threads of std become green ones.

pub fn adopted<T>(f: impl FnOnce() -> T) -> T {
    greenthread::thread::adopt(f).expect("adopted threads")
}

/// How a case's threads run: what follows the last space of its name.
pub fn as_named<T>(case: &str, f: impl FnOnce() -> T) -> T {
    match case.rsplit(' ').next() {
        Some("adopted") => adopted(f),
        _ => f(),
    }
}
