//! A runtime that cannot have its first kernel threads leaves none behind.

use crate::common::*;
use greenthread::runtime::Runtime;
use std::cell::Cell;

thread_local! {
    /// Of the kernel threads that this one makes, the one that is refused; 0: none.
    static REFUSED: Cell<usize> = const { Cell::new(0) };
}

/// Takes the place of libc's, as jemalloc does.
#[cfg(all(target_env = "gnu", not(greenthread_allocator = "jemalloc")))]
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    main: extern "C" fn(*mut libc::c_void) -> *mut libc::c_void,
    argument: *mut libc::c_void,
) -> libc::c_int {
    let refused = REFUSED.get();
    REFUSED.set(refused.saturating_sub(1));
    if refused == 1 {
        return libc::EAGAIN;
    }
    // SAFETY: libc's function of that name has this type; the arguments are the caller's.
    unsafe {
        let real = libc::dlsym(libc::RTLD_NEXT, c"pthread_create".as_ptr());
        type Create = unsafe extern "C" fn(
            *mut libc::pthread_t,
            *const libc::pthread_attr_t,
            extern "C" fn(*mut libc::c_void) -> *mut libc::c_void,
            *mut libc::c_void,
        ) -> libc::c_int;
        std::mem::transmute::<*mut libc::c_void, Create>(real)(thread, attributes, main, argument)
    }
}

#[test]
fn what_does_not_start_leaves_nothing_behind() {
    alone!();
    // The one that makes reports stays, once there was a runtime.
    let ends = |task: &std::io::Result<std::fs::DirEntry>| {
        let name = std::fs::read_to_string(task.as_ref().unwrap().path().join("comm"));
        !matches!(name.as_deref(), Ok("gt-reporter\n"))
    };
    let tasks = || std::fs::read_dir("/proc/self/task").unwrap();
    let kernel_threads = || tasks().filter(ends).count();
    let before = kernel_threads();
    // The first one prepares the process.
    Runtime::new().unwrap().shutdown();
    let mut refused = 0;
    loop {
        REFUSED.set(refused + 1);
        let runtime = Runtime::new();
        REFUSED.set(0);
        match runtime {
            Ok(runtime) => break runtime.shutdown(),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EAGAIN)),
        }
        refused += 1;
        // They end without anybody who waits for the last of it.
        wait_until(|| kernel_threads() <= before);
    }
    println!("each of {refused} was refused once");
    assert!(refused >= 3 || !green() || cfg!(greenthread_allocator = "jemalloc"));
}
