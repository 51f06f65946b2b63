//! Declaring functions of libc's, and ours of the same names.

/// Declares functions of libc: for each a module of its name, with `real`, which calls it.
///
/// One that has versions is written `fn name["GLIBC_2.3.2"](…)`. All may unwind: libc's do when a kernel thread is
/// cancelled in them. A kernel thread comes there from [`hooked`] or [`around`], which know libc's function by its
/// address, `target`: `real` is a frame of Rust's.
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

            /// The address of libc's function.
            #[allow(dead_code, reason = "one of the two ways is enough")]
            #[inline]
            pub(super) fn target() -> *const () {
                REAL.address() as *const ()
            }

            /// libc's function.
            ///
            /// # Safety
            /// That of libc's function.
            #[allow(dead_code, reason = "one of the two ways is enough")]
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
pub(super) use libc_functions;

/// Declares functions that have the names of libc's, and libc's behind them.
///
/// The body is the hooked call; it runs on a green thread that may be parked. Any other thread goes on in libc's function,
/// with no frame of ours below it.
macro_rules! hooked {
    ($(
        fn $name:ident $([$version:literal])? ($($argument:ident: $Type:ty),* $(,)?) -> $Result:ty $body:block
    )*) => {
        $crate::unmodified::macros::libc_functions! {
            $(fn $name $([$version])? ($($argument: $Type),*) -> $Result;)*
        }
        $(
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub(super) unsafe extern "C-unwind" fn $name($($argument: $Type),*) -> $Result {
                unsafe extern "C-unwind" fn parking($($argument: $Type),*) -> $Result $body
                extern "C" fn way() -> *const () {
                    match $crate::unmodified::is_hooked() {
                        true => parking as *const (),
                        false => $name::target(),
                    }
                }
                $crate::engine::door::unwinding::jump_where!(way)
            }
        )*
    };
}
pub(super) use hooked;

/// Declares functions that have the names of libc's, and call another function: `before` gets the arguments, and says
/// which (`unwinding`). Any thread may be cancelled there, or unwind.
macro_rules! around {
    ($(
        fn $name:ident ($($argument:ident: $Type:ty),* $(,)?) -> $Result:ty {
            before $before:block
            after $after:path,
            unwound $unwound:path,
        }
    )*) => {$(
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub(super) unsafe extern "C-unwind" fn $name($($argument: $Type),*) -> $Result {
            #[allow(unused_variables, reason = "whoever is called gets them")]
            unsafe extern "C" fn before(
                $($argument: $Type),*
            ) -> $crate::engine::door::unwinding::Next $before
            $crate::engine::door::unwinding::call_around!(before, $after, $unwound)
        }
    )*};
}
pub(super) use around;

/// [`hooked`], but every thread runs the body. It must not be cancelled there.
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
