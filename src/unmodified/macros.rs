//! Declaring functions of libc's, and ours of the same names.

/// Declares functions of libc: for each a module of its name, with `real`, which calls it.
macro_rules! libc_functions {
    ($(fn $name:ident($($argument:ident: $Type:ty),* $(,)?) -> $Result:ty;)*) => {$(
        #[allow(non_camel_case_types, reason = "libc's name")]
        mod $name {
            #[allow(unused_imports, reason = "types of arguments")]
            use super::*;
            static REAL: $crate::engine::door::real::Real = $crate::engine::door::real::Real::new(
                match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => panic!("a name has no NUL"),
                },
            );

            /// libc's function.
            ///
            /// # Safety
            /// That of libc's function.
            #[inline]
            pub(super) unsafe fn real($($argument: $Type),*) -> $Result {
                // SAFETY: libc's function of this name has this type; the arguments are the caller's.
                unsafe {
                    core::mem::transmute::<usize, unsafe extern "C" fn($($Type),*) -> $Result>(
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
/// The body is the hooked call; it runs on a green thread that may be parked. Any other thread calls
/// libc's.
macro_rules! hooked {
    ($(
        fn $name:ident($($argument:ident: $Type:ty),* $(,)?) -> $Result:ty $body:block
    )*) => {
        $crate::unmodified::macros::libc_functions! {
            $(fn $name($($argument: $Type),*) -> $Result;)*
        }
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($argument: $Type),*) -> $Result {
                if !$crate::unmodified::is_hooked() {
                    // SAFETY: the caller's arguments, unchanged.
                    return unsafe { $name::real($($argument),*) };
                }
                $body
            }
        )*
    };
}
pub(super) use hooked;
