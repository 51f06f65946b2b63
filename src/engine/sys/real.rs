//! The functions of libc behind those that are interposed.
//!
//! `dlsym(RTLD_NEXT)` finds them. Where ours are not found before libc's ([`names`](super::names)), and in a static
//! program, which has no `dlsym`, there are no green threads.

use core::ffi::CStr;

use crate::engine::atomic::{AtomicUsize, Ordering};

/// A function of libc, found at its first use.
pub(crate) struct Real {
    name: &'static CStr,
    version: Option<&'static CStr>,
    address: AtomicUsize,
}

#[cfg(target_arch = "aarch64")]
pub(crate) use crate::engine::arch::kept::{MARK, keeper};

impl Real {
    /// Where a value has the function's address, once that was asked for.
    #[cfg(target_arch = "aarch64")]
    pub(crate) const ADDRESS: usize = core::mem::offset_of!(Real, address);

    pub(crate) const fn new(name: &'static CStr) -> Real {
        Real {
            name,
            version: None,
            address: AtomicUsize::new(0),
        }
    }

    /// The function of that version, where libc has versions; else the only one.
    pub(crate) const fn versioned(name: &'static CStr, version: &'static CStr) -> Real {
        Real {
            name,
            version: Some(version),
            address: AtomicUsize::new(0),
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
        // SAFETY: dlsym and dlvsym with valid names.
        let found = unsafe {
            let versioned = self.version.map(|version| {
                libc::dlvsym(libc::RTLD_NEXT, self.name.as_ptr(), version.as_ptr()) as usize
            });
            match versioned {
                None | Some(0) => libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) as usize,
                Some(found) => found,
            }
        };
        if found == 0 {
            super::die("libc has no function of the name that it is asked for");
        }
        self.address.store(found, Ordering::Relaxed);
        found
    }
}
