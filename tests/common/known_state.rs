//! The state in which every test process begins, whoever has started it: a shell that runs a script in the background
//! lets its children ignore SIGINT and SIGQUIT, `nohup` SIGHUP, and others block signals.
//!
//! This runs before `main`, in the first process only: children have what their test means them to have.

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    // SAFETY: there is one thread yet; valid strings and places.
    unsafe {
        let mark = c"GT_STATE_IS_KNOWN".as_ptr();
        if !libc::getenv(mark).is_null() {
            return;
        }
        libc::setenv(mark, c"1".as_ptr(), 1);
        for signal in 1..=libc::SIGRTMAX() {
            let mut action: libc::sigaction = std::mem::zeroed();
            let asked = libc::sigaction(signal, std::ptr::null(), &mut action) == 0;
            if asked && action.sa_sigaction == libc::SIG_IGN {
                libc::signal(signal, libc::SIG_DFL);
            }
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
        libc::umask(0o022);
    }
}
