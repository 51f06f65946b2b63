//! glibc itself: which one this is, its memory, and the functions of its own and of the loader's that this folder calls,
//! behind safe functions.
//!
//! # Which glibc this is
//! Much of what the runtime relies on is found out and tried when it starts (`probe`, `selftest`). Some of it
//! cannot be tried without danger, so it is known only of the versions that the crate was tested on:
//!
//! | glibc | what is done |
//! |---|---|
//! | before [`OLDEST`] | kernel threads |
//! | from [`OLDEST`] to [`NEWEST`] | green threads |
//! | after [`NEWEST`] | green threads, if every trial succeeds, in a child process first, without the tricks that no trial proves |
//!
//! Those tricks are malloc's cache, which then stays in the stacks (it costs memory), and the loader's way
//! to wait for threads that resolve symbols: a library that is closed then stays loaded.
//!
//! # Its memory
//! [`Words`] of a control block, a vector, a table of keys. The unsafe step is to say where such memory lies, and how
//! much of it there is. From then on each access checks that it lies inside and is aligned. That costs a comparison, in
//! places where a comparison does not matter: at the start and the end of a thread, and when a library is loaded. All
//! accesses are atomic, since libc and other threads change some of these words meanwhile.

use crate::engine::sys::mm::Mapping;
use std::ffi::{CStr, c_void};
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize};

type Version = (u32, u32);

const OLDEST: Version = (2, 34);
const NEWEST: Version = (2, 43);

/// Whether this glibc has the insides that the crate was tested with. An error: it is too old.
pub(super) fn check_version() -> Result<(), String> {
    let version = judge(&name())?;
    VERSION.get_or_init(|| version);
    Ok(())
}

/// There is one once [`check_version`] has succeeded.
static VERSION: OnceLock<Version> = OnceLock::new();

/// Whether the crate was tested with this glibc.
pub(crate) fn is_known() -> bool {
    VERSION.get().is_some_and(|version| *version <= NEWEST)
}

/// libc's name for itself, as `glibc 2.36`; empty if it has none.
fn name() -> String {
    let mut text = [0_u8; 64];
    // SAFETY: the text has the bytes that are offered. libc writes a text with a NUL at its end, or nothing.
    unsafe {
        libc::confstr(
            libc::_CS_GNU_LIBC_VERSION,
            text.as_mut_ptr().cast(),
            text.len(),
        )
    };
    let name = CStr::from_bytes_until_nul(&text).unwrap_or_default();
    name.to_string_lossy().into_owned()
}

fn judge(name: &str) -> Result<Version, String> {
    let (major, minor) = OLDEST;
    match version(name) {
        Some(version) if version >= OLDEST => Ok(version),
        Some(_) => Err(format!("{name} is older than glibc {major}.{minor}")),
        None => Err(format!("this libc is not glibc, but {name:?}")),
    }
}

/// The version in `glibc 2.36`. What is developed towards 2.44 is 2.43.9000.
fn version(name: &str) -> Option<Version> {
    const TOWARDS_THE_NEXT: u32 = 90;
    let mut numbers = name.strip_prefix("glibc ")?.split('.');
    let mut number = || numbers.next()?.parse::<u32>().ok();
    let (major, minor) = (number()?, number()?);
    let is_next = number().is_some_and(|patch| patch >= TOWARDS_THE_NEXT);
    Some((major, minor + u32::from(is_next)))
}

/// Memory whose words can be read and written, for as long as `'a`.
#[derive(Clone, Copy)]
pub(super) struct Words<'a> {
    start: *mut u8,
    length: usize,
    memory: PhantomData<&'a AtomicUsize>,
}

impl<'a> Words<'a> {
    /// # Safety
    /// During `'a` the `length` bytes at `start` are mapped, and nothing writes there at the same
    /// time except by this type. (libc, the loader and the switch write to the block of a thread
    /// that does not run, or that runs them.)
    #[inline]
    pub(super) unsafe fn new(start: *const u8, length: usize) -> Words<'a> {
        Words {
            start: start.cast_mut(),
            length,
            memory: PhantomData,
        }
    }

    #[inline]
    pub(super) fn start(self) -> *mut u8 {
        self.start
    }

    /// The part that begins at `offset`.
    #[inline]
    pub(super) fn from(self, offset: usize) -> Words<'a> {
        Words {
            start: self.start.wrapping_add(offset),
            length: self.length.saturating_sub(offset),
            ..self
        }
    }

    #[inline]
    pub(super) fn word(self, offset: usize) -> &'a AtomicUsize {
        self.at(offset)
    }

    #[inline]
    pub(super) fn half(self, offset: usize) -> &'a AtomicU32 {
        self.at(offset)
    }

    #[inline]
    pub(super) fn byte(self, offset: usize) -> &'a AtomicU8 {
        self.at(offset)
    }

    #[inline]
    fn at<T: Atomic>(self, offset: usize) -> &'a T {
        let is_inside = offset <= self.length && size_of::<T>() <= self.length - offset;
        let place = self.start.wrapping_add(offset).cast::<T>();
        assert!(
            is_inside && place.is_aligned(),
            "{offset} is no place in {} bytes",
            self.length
        );
        // SAFETY: the place is inside and aligned, any bits are a value of the type, and the rest is
        // the promise of `new`.
        unsafe { &*place }
    }
}

/// An atomic integer, which is aligned to its size.
trait Atomic {}
impl Atomic for AtomicU8 {}
impl Atomic for AtomicU32 {}
impl Atomic for AtomicUsize {}

/// The data of that name, of which glibc has `length` bytes.
pub(super) fn data(name: &CStr, length: usize) -> Result<Words<'static>, String> {
    let start = symbol(name)?;
    // SAFETY: a variable of glibc's. Its type, and so its length, has not changed for decades.
    Ok(unsafe { Words::new(start, length) })
}

/// The address of the variable or function of that name.
pub(super) fn symbol(name: &CStr) -> Result<*mut u8, String> {
    // SAFETY: a search by name in all libraries.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    match address.is_null() {
        false => Ok(address.cast()),
        true => Err(format!("this libc has no {name:?}")),
    }
}

/// The function of that name.
///
/// # Safety
/// `F` is the type of a pointer to that function.
pub(super) unsafe fn function<F: Copy>(name: &CStr) -> Result<F, String> {
    const { assert!(size_of::<F>() == size_of::<*mut u8>()) };
    // SAFETY: the address is that of a function whose type `F` points to.
    symbol(name).map(|address| unsafe { std::mem::transmute_copy(&address) })
}

/// A pthread key, deleted with its value.
pub(super) struct Key(libc::pthread_key_t);

impl Key {
    /// A new key, unless there are too many. A thread that ends passes its value to `destructor`.
    pub(super) fn new(destructor: Option<extern "C" fn(*mut c_void)>) -> Option<Key> {
        type Destructor = unsafe extern "C" fn(*mut c_void);
        let mut key = 0;
        let destructor = destructor.map(|function| function as Destructor);
        // SAFETY: the destructor takes any value.
        let failed = unsafe { libc::pthread_key_create(&mut key, destructor) };
        (failed == 0).then(|| Key(key))
    }

    /// The calling thread's value.
    pub(super) fn get(&self) -> *mut c_void {
        // SAFETY: a live key.
        unsafe { libc::pthread_getspecific(self.0) }
    }

    /// Sets the calling thread's value. False: there is no memory.
    pub(super) fn set(&self, value: usize) -> bool {
        // SAFETY: a live key, whose destructor takes any value.
        unsafe { libc::pthread_setspecific(self.0, value as *const c_void) == 0 }
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        // SAFETY: a live key, which nobody has a reference to.
        unsafe { libc::pthread_key_delete(self.0) };
    }
}

/// Forgets the thread's last error of the loader, and frees its text.
pub(super) fn forget_error() {
    // SAFETY: the text is not used.
    unsafe { while !libc::dlerror().is_null() {} }
}

/// Runs `main` to its end on a short-lived pthread, whose stack is all of `stack`; it gets the address of
/// the pthread's argument. False: no such thread can be made.
pub(super) fn run_on(stack: &mut Mapping, main: &mut (dyn FnMut(usize) + Send)) -> bool {
    extern "C" fn run(main: *mut c_void) -> *mut c_void {
        // SAFETY: the argument below, which is waited for.
        unsafe { (*main.cast::<&mut (dyn FnMut(usize) + Send)>())(main.addr()) };
        std::ptr::null_mut()
    }
    let mut main = main;
    let argument: *mut &mut (dyn FnMut(usize) + Send) = &mut main;
    let size = stack.end() - stack.start();
    let mut thread = 0;
    // SAFETY: the attributes are initialised first and destroyed last; the stack and the closure are
    // borrowed for as long as the thread lives: it is joined.
    unsafe {
        let mut attributes = std::mem::zeroed();
        libc::pthread_attr_init(&mut attributes);
        libc::pthread_attr_setstack(&mut attributes, stack.start() as *mut c_void, size);
        let failed = libc::pthread_create(&mut thread, &attributes, run, argument.cast());
        libc::pthread_attr_destroy(&mut attributes);
        failed == 0 && libc::pthread_join(thread, std::ptr::null_mut()) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn only_versions_that_were_tested_are_known() {
        for name in [
            "glibc 2.34",
            "glibc 2.36",
            "glibc 2.43",
            "glibc 2.42.9000",
            "glibc 2.43.2",
        ] {
            assert!(judge(name).is_ok_and(|version| version <= NEWEST), "{name}");
        }
        for name in ["glibc 2.44", "glibc 2.43.9000", "glibc 2.100", "glibc 3.0"] {
            assert!(judge(name).is_ok_and(|version| version > NEWEST), "{name}");
        }
        for name in [
            "glibc 2.33",
            "glibc 2.4",
            "glibc 1.99",
            "glibc",
            "musl 1.2",
            "",
        ] {
            assert!(judge(name).is_err(), "{name}");
        }
        assert!(version(&name()).is_some(), "{}", name());
    }

    #[test]
    fn only_places_inside_can_be_had() {
        let memory = [const { AtomicUsize::new(0) }; 3];
        // SAFETY: a local, of atomics.
        let words = unsafe { Words::new(memory.as_ptr().cast(), 20) };
        words.word(8).store(0x0102_0304_0506_0708, Relaxed);
        assert_eq!(memory[1].load(Relaxed), 0x0102_0304_0506_0708);
        assert_eq!(words.half(12).load(Relaxed), 0x0102_0304);
        assert_eq!(words.byte(8).load(Relaxed), 8);
        words.byte(19).store(1, Relaxed);
        assert_eq!(words.half(16).load(Relaxed), 1 << 24);
        for outside in [16, 24, 9, 4, 1 << 20, usize::MAX, usize::MAX - 7] {
            let look = AssertUnwindSafe(|| words.word(outside).load(Relaxed));
            assert!(catch_unwind(look).is_err(), "{outside}");
        }
    }
}
