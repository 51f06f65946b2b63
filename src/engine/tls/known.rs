//! Which glibc this is, and what follows.
//!
//! Much of what the runtime relies on is found out and tried when it starts (`probe`, `selftest`). Some of it
//! cannot be tried without danger, so it is known only of the versions that the crate was tested on:
//!
//! | glibc | what is done |
//! |---|---|
//! | before [`OLDEST`] | kernel threads |
//! | from [`OLDEST`] to [`NEWEST`] | green threads |
//! | after [`NEWEST`] | green threads, if every trial succeeds, in a child process first, without the tricks that no trial proves |
//!
//! Those tricks are malloc's cache, which then stays in the rooms (it costs memory), and the loader's way
//! to wait for threads that resolve symbols: a library that is closed then stays loaded.

use std::ffi::CStr;
use std::sync::OnceLock;

type Version = (u32, u32);

const OLDEST: Version = (2, 34);
const NEWEST: Version = (2, 43);

/// Whether this glibc has the insides that the crate was tested with. An error: it is too old.
pub(super) fn check() -> Result<(), String> {
    let version = judge(&name())?;
    VERSION.get_or_init(|| version);
    Ok(())
}

/// There is one once [`check`] has succeeded.
static VERSION: OnceLock<Version> = OnceLock::new();

/// Whether the crate was tested with this glibc.
pub(crate) fn is_known() -> bool {
    VERSION.get().is_some_and(|version| *version <= NEWEST)
}

/// libc's name for itself, as `glibc 2.36`; empty if it has none.
fn name() -> String {
    let mut text = [0_u8; 64];
    // SAFETY: the place has so many bytes. libc writes a text with a NUL at its end, or nothing.
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
