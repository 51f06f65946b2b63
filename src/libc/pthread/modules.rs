//! Libraries whose pthreads stay kernel threads when all of the process's are green: they send their threads signals by the
//! kernel's ids, stop them all, look at their stacks, or give the kernel their memory.
//!
//! The address to which a call of `pthread_create` returns tells which library calls. `GREENTHREAD_PTHREADS_KERNEL` names more,
//! and the program itself by its file's name: a comma between two; each is the beginning of a file's name.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::sys::{libraries, variable};

/// Virtual machines, collectors and OpenMP; sanitizers; CUDA.
const KNOWN: &[u8] =
    b"libjvm,libjli,libcoreclr,libmono,libgc.so,libgomp,libomp,libiomp,libtsan,libasan,libcuda";

/// Whether the threads that the library makes which has this address are to stay kernel threads.
pub(super) fn stay_kernel_threads(caller: usize) -> bool {
    /// The last answer: the address, with the answer above it.
    static LAST: AtomicUsize = AtomicUsize::new(0);
    const YES: usize = 1 << 63;
    match LAST.load(Relaxed) {
        last if last & !YES == caller => last & YES != 0,
        _ => {
            let answer = libraries::find(|library| {
                let is_it = library.contains(caller);
                is_it.then(|| is_listed(library.name.to_bytes()))
            });
            let answer = answer == Some(true);
            LAST.store(if answer { caller | YES } else { caller }, Relaxed);
            answer
        }
    }
}

fn is_listed(path: &[u8]) -> bool {
    let name = match path {
        b"" => libraries::program(), // the loader lists the program without a name
        path => path.rsplit(|&byte| byte == b'/').next().unwrap_or(path),
    };
    let has = |list: &[u8]| {
        let mut all = list.split(|&byte| byte == b',');
        all.any(|listed| !listed.is_empty() && name.starts_with(listed))
    };
    has(KNOWN) || variable::peek(c"GREENTHREAD_PTHREADS_KERNEL", has) == Some(true)
}
