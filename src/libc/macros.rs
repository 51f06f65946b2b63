//! Declaring functions of libc's, and ours of the same names.
//!
//! | macro | its functions |
//! |---|---|
//! | `libc_functions!` | libc's: for each a module of its name, with `real`, which calls it |
//! | `exported!` | ours, with no use for libc's |
//! | `interposed!` | ours, on every thread, and libc's |
//! | `hooked!` | ours, on a green thread that may be parked; any other thread goes on in libc's |
//! | `around!` | ours, which leave no frame below what they call, and libc's |
//!
//! A function of `interposed!` or `hooked!` may be declared `where real(fd)`: in its body `real(fd)` calls libc's function
//! with that `fd`, and with the arguments of the caller for all others.
//!
//! `dlsym(RTLD_NEXT)` finds libc's functions: those of `interposed!` when the program is loaded, and not in a child of
//! `_Fork`, where the loader's lock may be held for ever; the others at their first use. Where ours are not found before
//! libc's (`sys::libraries`), and in a static program, which has no `dlsym`, there are no green threads. Beside a sanitizer
//! that learns from calls of libc's functions, it is the sanitizer's that are called.
//!
//! Orderings: an address is all that there is to see, so Relaxed.

use core::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::sys::{die, sanitizer};

/// A function of libc.
pub(super) struct Real {
    name: &'static CStr,
    /// Empty: the function's only one, or its newest.
    version: &'static CStr,
    /// Not the sanitizer's.
    is_libcs: bool,
    /// 0: not found yet.
    address: AtomicUsize,
}

impl Real {
    /// The function of that version, where libc has versions; else the only one. Both texts end with their only NUL.
    pub(super) const fn new(name: &'static str, version: &'static str) -> Real {
        Real {
            name: text(name),
            version: text(version),
            is_libcs: false,
            address: AtomicUsize::new(0),
        }
    }

    /// libc's function, of which no sanitizer learns.
    pub(super) const fn of_libc(name: &'static str) -> Real {
        Real {
            is_libcs: true,
            ..Real::new(name, "\0")
        }
    }

    #[inline]
    pub(super) fn address(&self) -> usize {
        match self.address.load(Relaxed) {
            0 => match self.find() {
                0 => die("libc has no function of the name that it is asked for"),
                found => found,
            },
            known => known,
        }
    }

    /// Looks for it; 0: there is none.
    #[cold]
    pub(super) fn find(&self) -> usize {
        let sanitizers = sanitizer::interceptor(self.name).filter(|_| !self.is_libcs);
        let mut found = sanitizers.unwrap_or(0);
        // SAFETY: dlvsym and dlsym get names that end with a NUL.
        unsafe {
            if found == 0 && !self.version.is_empty() {
                let version = self.version.as_ptr();
                found = libc::dlvsym(libc::RTLD_NEXT, self.name.as_ptr(), version) as usize;
            }
            if found == 0 {
                found = libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) as usize;
            }
        }
        self.address.store(found, Relaxed);
        found
    }
}

const fn text(literal: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(literal.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("one NUL, at the end"),
    }
}

/// Declares functions of libc: for each a module of its name, with `real`, which calls it.
///
/// One that has versions is written `fn name["GLIBC_2.3.2"](…)`. All may unwind: libc's do when a kernel thread is
/// cancelled in them. A kernel thread comes there from `hooked!` or `around!`, which know libc's function by its
/// address, `target`: `real` is a frame of Rust's.
macro_rules! libc_functions {
    ($(
        fn $name:ident $([$version:literal])? ($($argument:ident: $Type:ty),* $(,)?) -> $Result:ty;
    )*) => {$(
        #[allow(non_snake_case, dead_code, reason = "libc's name; one of the ways is enough")]
        mod $name {
            #[allow(unused_imports, reason = "types of arguments")]
            use super::*;
            pub(super) static REAL: $crate::libc::macros::Real = $crate::libc::macros::Real::new(
                concat!(stringify!($name), "\0"),
                concat!($($version,)? "\0"),
            );

            /// The address of libc's function.
            #[inline]
            pub(super) fn target() -> *const () {
                REAL.address() as *const ()
            }

            /// libc's function.
            ///
            /// # Safety
            /// That of libc's function.
            #[inline]
            pub(super) unsafe fn real($($argument: $Type),*) -> $Result {
                // SAFETY: libc's function of this name has this type; the arguments are the caller's.
                unsafe {
                    core::mem::transmute::<usize, unsafe extern "C-unwind" fn($($Type),*) -> $Result>(
                        REAL.address(),
                    )($($argument),*)
                }
            }
        }
    )*};
}

/// Declares `$real`, a closure for a body: it calls libc's function `$name`, with new values for the arguments in its own
/// brackets, and the caller's for the others.
macro_rules! real {
    ($name:ident($($argument:ident),*)) => {};
    ($name:ident($($argument:ident),*) $real:ident($($new:ident),*)) => {
        // SAFETY: libc's function gets what its caller has given to ours, or a part of it: a body changes flags, time-outs,
        // numbers of descriptors, and leaves out what is done already of a buffer.
        let $real = move |$($new),*| unsafe { $name::real($($argument),*) };
    };
}

/// Runs `$find` when the program, or the library that the crate is in, is loaded.
macro_rules! when_loaded {
    ($find:expr) => {
        const _: () = {
            extern "C" fn when_loaded() {
                $find;
            }
            #[used]
            // SAFETY: the section of functions that are called at the start; this one has their type.
            #[unsafe(link_section = ".init_array")]
            static WHEN_LOADED: extern "C" fn() = when_loaded;
        };
    };
}

/// Declares functions that have the names of libc's, and take their place.
macro_rules! exported {
    ($(
        fn $name:ident($($argument:ident: $Type:ty),* $(,)?) -> $Result:ty $body:block
    )*) => {$(
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C-unwind" fn $name($($argument: $Type),*) -> $Result $body
    )*};
}

/// `exported!`, with libc's functions behind them. A thread must not be cancelled in the body.
macro_rules! interposed {
    ($(
        fn $name:ident $([$version:literal])? ($($argument:ident: $Type:ty),* $(,)?) -> $Result:ty
            $(where $real:ident($($new:ident),*))? $body:block
    )*) => {
        libc_functions! {
            $(fn $name $([$version])? ($($argument: $Type),*) -> $Result;)*
        }
        exported! {
            $(fn $name($($argument: $Type),*) -> $Result {
                real!($name($($argument),*) $($real($($new),*))?);
                $body
            })*
        }
        when_loaded!(for real in [$(&$name::REAL),*] {
            real.find();
        });
    };
}

/// Declares functions that have the names of libc's, and libc's behind them.
///
/// The body is the hooked call; it runs on a green thread that may be parked. Any other thread goes on in libc's function,
/// with no frame of ours below it.
macro_rules! hooked {
    ($(
        fn $name:ident $([$version:literal])? ($($argument:ident: $Type:ty),* $(,)?) -> $Result:ty
            $(where $real:ident($($new:ident),*))? $body:block
    )*) => {
        libc_functions! {
            $(fn $name $([$version])? ($($argument: $Type),*) -> $Result;)*
        }
        $(
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub(super) unsafe extern "C-unwind" fn $name($($argument: $Type),*) -> $Result {
                extern "C-unwind" fn parking($($argument: $Type),*) -> $Result {
                    real!($name($($argument),*) $($real($($new),*))?);
                    $body
                }
                extern "C" fn way() -> *const () {
                    match $crate::libc::is_hooked() {
                        true => parking as *const (),
                        false => $name::target(),
                    }
                }
                $crate::sys::libraries::jump_where!(way)
            }
        )*
    };
}

/// Declares functions that have the names of libc's, and call another function: `before` gets the arguments, and says
/// which (`sys::libraries`). Any thread may be cancelled there, or unwind.
macro_rules! around {
    ($(
        fn $name:ident $([$version:literal])? ($($argument:ident: $Type:ty),* $(,)?) -> $Result:ty {
            before $before:block
            after $after:path,
            unwound $unwound:path,
        }
    )*) => {
        libc_functions! {
            $(fn $name $([$version])? ($($argument: $Type),*) -> $Result;)*
        }
        $(
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub(super) unsafe extern "C-unwind" fn $name($($argument: $Type),*) -> $Result {
                #[allow(unused_variables, reason = "whoever is called gets them")]
                extern "C" fn before(
                    $($argument: $Type),*
                ) -> $crate::sys::libraries::Next $before
                $crate::sys::libraries::call_around!(before, $after, $unwound)
            }
        )*
    };
}

/// Declares what fortified C calls in the place of another function of this file: it has checked nothing yet. If what it asks
/// does not hold, the program ends.
macro_rules! fortified {
    ($(
        fn $name:ident($($argument:ident: $Type:ty),* $(,)?) -> $Result:ty {
            $must:expr => $function:ident($($given:ident),*)
        }
    )*) => {
        hooked! {
            $(fn $name($($argument: $Type),*) -> $Result {
                $crate::libc::must_hold($must);
                // SAFETY: the caller's arguments, for the function that they are meant for; the places are as long as was found now.
                unsafe { self::$function($($given),*) }
            })*
        }
    };
}
