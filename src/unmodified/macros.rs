//! Declaring functions of libc's, and ours of the same names.

/// Declares functions of libc: for each a module of its name, with `real`, which calls it.
///
/// One that has versions is written `fn name["GLIBC_2.3.2"](…)`. All may unwind: libc's do when a kernel thread is
/// cancelled in them.
macro_rules! libc_functions {
    ($(
        fn $name:ident $([$version:literal])? ($($argument:ident: $Type:ty),* $(,)?) -> $Result:ty;
    )*) => {$(
        #[allow(non_camel_case_types, reason = "libc's name")]
        mod $name {
            #[allow(unused_imports, reason = "types of arguments")]
            use super::*;
            static REAL: $crate::engine::door::real::Real =
                $crate::unmodified::macros::real_of!($name $($version)?);

            /// libc's function.
            ///
            /// # Safety
            /// That of libc's function.
            #[cfg(not(target_arch = "aarch64"))]
            #[inline]
            pub(super) unsafe fn real($($argument: $Type),*) -> $Result {
                // SAFETY: libc's function of this name has this type; the arguments are the caller's.
                unsafe {
                    core::mem::transmute::<usize, unsafe extern "C-unwind" fn($($Type),*) -> $Result>(
                        REAL.address(),
                    )($($argument),*)
                }
            }

            /// libc's function; its first argument is kept for the handler of a signal.
            ///
            /// # Safety
            /// That of libc's function.
            #[cfg(target_arch = "aarch64")]
            #[inline]
            pub(super) unsafe fn real($($argument: $Type),*) -> $Result {
                /// # Safety
                /// That of libc's function, whose address was found.
                #[unsafe(naked)]
                unsafe extern "C-unwind" fn keeper($($argument: $Type),*) -> $Result {
                    $crate::engine::door::real::keeper!(
                        REAL,
                        $crate::engine::door::real::Real::ADDRESS
                    )
                }
                REAL.address();
                // SAFETY: libc's function of this name has this type; the arguments are the caller's.
                unsafe { keeper($($argument),*) }
            }
        }
    )*};
}
pub(super) use libc_functions;

/// Declares functions that have the names of libc's, and libc's behind them.
///
/// The body is the hooked call; it runs on a green thread that may be parked. Any other thread calls
/// libc's.
macro_rules! hooked {
    ($(
        fn $name:ident $([$version:literal])? ($($argument:ident: $Type:ty),* $(,)?) -> $Result:ty $body:block
    )*) => {
        $crate::unmodified::macros::interposed! {$(
            fn $name $([$version])? ($($argument: $Type),*) -> $Result {
                if !$crate::unmodified::is_hooked() {
                    // SAFETY: the caller's arguments, unchanged.
                    return unsafe { $name::real($($argument),*) };
                }
                $body
            }
        )*}
    };
}
pub(super) use hooked;

/// [`hooked`], but every thread runs the body.
macro_rules! interposed {
    ($(
        fn $name:ident $([$version:literal])? ($($argument:ident: $Type:ty),* $(,)?) -> $Result:ty $body:block
    )*) => {
        $crate::unmodified::macros::libc_functions! {
            $(fn $name $([$version])? ($($argument: $Type),*) -> $Result;)*
        }
        $(
            #[unsafe(no_mangle)]
            pub(super) unsafe extern "C-unwind" fn $name($($argument: $Type),*) -> $Result $body
        )*
    };
}
pub(super) use interposed;

/// A function of libc's by its name, and by its version.
macro_rules! real_of {
    ($name:ident) => {
        $crate::engine::door::real::Real::new($crate::unmodified::macros::c_str(
            concat!(stringify!($name), "\0").as_bytes(),
        ))
    };
    ($name:ident $version:literal) => {
        $crate::engine::door::real::Real::versioned(
            $crate::unmodified::macros::c_str(concat!(stringify!($name), "\0").as_bytes()),
            $crate::unmodified::macros::c_str(concat!($version, "\0").as_bytes()),
        )
    };
}
pub(super) use real_of;

/// A literal that ends in its only NUL.
pub(super) const fn c_str(literal: &'static [u8]) -> &'static core::ffi::CStr {
    match core::ffi::CStr::from_bytes_with_nul(literal) {
        Ok(text) => text,
        Err(_) => panic!("one NUL, at the end"),
    }
}
