//! How many processors and kernel threads there may be, with green threads and without.

use std::io;

/// The most workers that there can be, of all clusters together, and the most kernel threads that a builder accepts.
pub(crate) const MOST_WORKERS: usize = 1 << 16;
/// More processors than any computer has.
pub(crate) const MOST_PROCESSORS: usize = 4096;

/// The number of processors of a cluster whose builder names none: the CPUs that the process may
/// use, by affinity and cgroup quota. It allocates and reads files: only ordinary threads ask.
pub(crate) fn default_size() -> usize {
    std::thread::available_parallelism().map_or(1, |count| count.get().min(MOST_PROCESSORS))
}

/// Refuses an impossible number of processors; `max_kernel_threads` bounds the kernel threads.
pub(crate) fn check_size(processors: usize, max_kernel_threads: Option<usize>) -> io::Result<()> {
    let most = max_kernel_threads.map_or(MOST_PROCESSORS, |max| MOST_PROCESSORS.min(max - 1));
    if (1..=most).contains(&processors) {
        return Ok(());
    }
    let limit = match most {
        MOST_PROCESSORS => String::new(),
        _ => format!(" (there may be {} kernel threads)", most + 1),
    };
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("{processors} processors: accepted are 1 to {most}{limit}"),
    ))
}
