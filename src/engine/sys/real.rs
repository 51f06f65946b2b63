//! The functions of libc behind those that are interposed.
//!
//! `dlsym(RTLD_NEXT)` finds them. Where ours are not found before libc's ([`names`](super::names)), and in a static
//! program, which has no `dlsym`, there are no green threads. Beside a sanitizer that learns from calls of libc's functions, it is
//! the sanitizer's that are called.

use core::ffi::CStr;

use super::sanitizer;
use crate::engine::atomic::{AtomicUsize, Ordering};

/// A function of libc, found at its first use.
pub(crate) struct Real {
    name: &'static CStr,
    version: Option<&'static CStr>,
    /// Not the sanitizer's.
    is_libcs: bool,
    address: AtomicUsize,
}

impl Real {
    pub(crate) const fn new(name: &'static CStr) -> Real {
        Real {
            name,
            version: None,
            is_libcs: false,
            address: AtomicUsize::new(0),
        }
    }

    /// The function of that version, where libc has versions; else the only one.
    pub(crate) const fn versioned(name: &'static CStr, version: &'static CStr) -> Real {
        Real {
            name,
            version: Some(version),
            is_libcs: false,
            address: AtomicUsize::new(0),
        }
    }

    /// libc's function, of which no sanitizer learns.
    pub(crate) const fn of_libc(name: &'static CStr) -> Real {
        Real {
            is_libcs: true,
            ..Real::new(name)
        }
    }

    #[inline]
    pub(crate) fn address(&self) -> usize {
        match self.address.load(Ordering::Relaxed) {
            0 => self.find(),
            known => known,
        }
    }

    /// The same, or 0 while nobody has asked for it.
    #[inline(always)]
    pub(crate) fn found(&self) -> usize {
        self.address.load(Ordering::Relaxed)
    }

    #[cold]
    fn find(&self) -> usize {
        let sanitizers = sanitizer::interceptor(self.name).filter(|_| !self.is_libcs);
        // SAFETY: dlsym and dlvsym with valid names.
        let found = sanitizers.unwrap_or_else(|| unsafe {
            let versioned = self.version.map(|version| {
                libc::dlvsym(libc::RTLD_NEXT, self.name.as_ptr(), version.as_ptr()) as usize
            });
            match versioned {
                None | Some(0) => libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) as usize,
                Some(found) => found,
            }
        });
        if found == 0 {
            super::die("libc has no function of the name that it is asked for");
        }
        self.address.store(found, Ordering::Relaxed);
        found
    }
}
