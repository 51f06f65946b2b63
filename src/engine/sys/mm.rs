//! Memory mappings: thin wrappers from system call to `io::Result`.
//!
//! Like all of [`sys`](super) they leave `errno` alone. Nothing here allocates: an `io::Error` made
//! of a raw error number is one word.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::{fs::File, io, ops::Range, os::fd::AsRawFd};

use super::{sanitizer, syscall};

pub(crate) use crate::engine::arch::page_size as page;

/// Advice: pages that fault at every access, without splitting the mapping (Linux 6.13; libc does
/// not name it everywhere).
const MADV_GUARD_INSTALL: i32 = 102;

/// Maps `length` bytes of zeroed memory, readable and writable, whose pages are found only when
/// touched.
pub(crate) fn map(length: usize) -> io::Result<usize> {
    // SAFETY: a new mapping at an address of the kernel's choice disturbs no existing memory.
    unsafe { map_at(0, length, 0) }
}

/// Puts such a mapping, which has no huge pages, in the place of one that was there: its memory and
/// its page tables are the kernel's again, and its guards are gone. On failure nothing may be mapped
/// there.
///
/// # Safety
/// The caller's mapping is at these whole pages, and nobody uses that memory.
pub(crate) unsafe fn map_again(address: usize, length: usize) -> io::Result<()> {
    // SAFETY: the mapping that goes is the caller's, and nobody uses its memory.
    unsafe {
        map_at(address, length, libc::MAP_FIXED)?;
        // Kernels without huge pages refuse the advice, which does no harm.
        let _ = advise(address, length, libc::MADV_NOHUGEPAGE);
    }
    Ok(())
}

/// # Safety
/// The flags disturb no memory that anybody uses.
unsafe fn map_at(address: usize, length: usize, flags: i32) -> io::Result<usize> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
    let (number, flags, anonymous) = (libc::SYS_mmap, kind | flags, -1);
    // SAFETY: without MAP_FIXED the mapping is new; with it, it takes the place of memory that nobody uses.
    let mapped = unsafe { syscall!(number, address, length, protection, flags, anonymous, 0) };
    mapped.map_err(io::Error::from_raw_os_error)
}

/// Unmaps whole pages.
///
/// # Safety
/// Nobody uses that memory any more.
pub(crate) unsafe fn unmap(address: usize, length: usize) -> io::Result<()> {
    sanitizer::forget(address, length);
    // SAFETY: nobody uses the memory any more.
    done(unsafe { syscall!(libc::SYS_munmap, address, length) })
}

/// `madvise`: `advice` for whole pages.
///
/// # Safety
/// For advice that changes contents or access, nobody relies on either.
pub(crate) unsafe fn advise(address: usize, length: usize, advice: i32) -> io::Result<()> {
    // SAFETY: the advice changes nothing, or nothing that anybody relies on.
    done(unsafe { syscall!(libc::SYS_madvise, address, length, advice) })
}

/// Set when the kernel does not know guard markers (before Linux 6.13; gVisor), or refuses them (locked
/// memory; a seccomp filter, which answers with an error of its choice).
pub(crate) static SPLIT: AtomicBool = AtomicBool::new(false);

/// Makes whole pages fault at every access.
///
/// Where the kernel has no guard markers, this costs two mappings for each guard: then about 32,000
/// threads are possible, not millions.
///
/// # Safety
/// Nobody uses that memory.
pub(crate) unsafe fn guard(address: usize, length: usize) -> io::Result<()> {
    let pages = |number, last: i32| {
        // SAFETY: nobody uses the memory, so nobody finds that accesses fault.
        unsafe { syscall!(number, address, length, last) }
    };
    if !SPLIT.load(Relaxed) {
        match pages(libc::SYS_madvise, MADV_GUARD_INSTALL) {
            Ok(_) => return Ok(()),
            // The kernel has the markers, and lacks memory for one now.
            Err(error @ (libc::ENOMEM | libc::EAGAIN)) => return done(Err(error)),
            Err(_) => SPLIT.store(true, Relaxed),
        }
    }
    done(pages(libc::SYS_mprotect, libc::PROT_NONE))
}

/// A mapping of one owner, the bytes from one address to another: it is unmapped with its value.
pub(crate) struct Mapping(pub(crate) Range<usize>);

impl Mapping {
    /// As [`map`] does.
    pub(crate) fn new(length: usize) -> io::Result<Mapping> {
        map(length).map(|start| Mapping(start..start + length))
    }

    /// The contents of a file, to be read.
    pub(crate) fn of_file(file: &File) -> io::Result<Mapping> {
        let length = file.metadata()?.len() as usize;
        let (protection, flags, fd) = (libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd());
        // SAFETY: a new mapping at an address of the kernel's choice disturbs no existing memory.
        let start = unsafe { syscall!(libc::SYS_mmap, 0, length, protection, flags, fd, 0) };
        let start = start.map_err(io::Error::from_raw_os_error)?;
        Ok(Mapping(start..start + length))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is the value's alone, and the value goes.
        let _ = unsafe { unmap(self.0.start, self.0.len()) };
    }
}

fn done(result: Result<usize, i32>) -> io::Result<()> {
    result.map(drop).map_err(io::Error::from_raw_os_error)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io;

    /// For each page from `address` on, whether it is in memory.
    pub(crate) fn resident(address: usize, pages: &mut [bool]) -> io::Result<()> {
        use std::os::unix::fs::FileExt;
        const PRESENT: u64 = 1 << 63;
        // A word for each page of the process.
        let map = std::fs::File::open("/proc/self/pagemap")?;
        let mut words = vec![0; pages.len() * size_of::<u64>()];
        map.read_exact_at(
            &mut words,
            (address / super::page() * size_of::<u64>()) as u64,
        )?;
        for (page, word) in pages.iter_mut().zip(words.chunks_exact(size_of::<u64>())) {
            let word = word.try_into().map_err(io::Error::other)?;
            *page = u64::from_ne_bytes(word) & PRESENT != 0;
        }
        Ok(())
    }
}
