//! glibc's and the loader's own functions that this folder calls, behind safe functions: symbols,
//! pthread keys, libraries, and a thread on a stack of the caller's.

use super::words::Words;
use crate::engine::sys::mm::Mapping;
use std::ffi::{CStr, c_void};

/// The data of that name, of which glibc has `length` bytes.
pub(super) fn data(name: &CStr, length: usize) -> Result<Words<'static>, String> {
    let start = symbol(name)?;
    // SAFETY: a variable of glibc's. Its type, and so its length, has not changed for decades.
    Ok(unsafe { Words::new(start, length) })
}

/// The address of the variable or function of that name.
pub(super) fn symbol(name: &CStr) -> Result<*mut u8, String> {
    symbol_in(libc::RTLD_DEFAULT, name)
}

fn symbol_in(library: *mut c_void, name: &CStr) -> Result<*mut u8, String> {
    // SAFETY: a search by name in a library that is loaded, or in all of them.
    let address = unsafe { libc::dlsym(library, name.as_ptr()) };
    match address.is_null() {
        false => Ok(address.cast()),
        true => Err(format!("this libc has no {name:?}")),
    }
}

/// A pthread key, deleted with its value.
pub(super) struct Key(libc::pthread_key_t);

impl Key {
    /// A new key, unless there are too many. A thread that ends passes its value to `destructor`.
    pub(super) fn new(destructor: Option<extern "C" fn(*mut c_void)>) -> Option<Key> {
        type Destructor = unsafe extern "C" fn(*mut c_void);
        let mut key = 0;
        let destructor = destructor.map(|function| function as Destructor);
        // SAFETY: the destructor takes any value.
        let failed = unsafe { libc::pthread_key_create(&mut key, destructor) };
        (failed == 0).then(|| Key(key))
    }

    /// The calling thread's value.
    pub(super) fn get(&self) -> *mut c_void {
        // SAFETY: a live key.
        unsafe { libc::pthread_getspecific(self.0) }
    }

    /// Sets the calling thread's value. False: there is no memory.
    pub(super) fn set(&self, value: usize) -> bool {
        // SAFETY: a live key, whose destructor takes any value.
        unsafe { libc::pthread_setspecific(self.0, value as *const c_void) == 0 }
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        // SAFETY: a live key, which nobody has a reference to.
        unsafe { libc::pthread_key_delete(self.0) };
    }
}

/// A library, loaded at least until the value is dropped.
pub(super) struct Loaded(*mut c_void);

impl Loaded {
    /// Loads a library, or finds it loaded. `None`: it cannot be had, and `dlerror` says why.
    ///
    /// # Safety
    /// Its constructors and destructors may run here and now.
    pub(super) unsafe fn open(name: &CStr) -> Option<Loaded> {
        // SAFETY: the caller's promise.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
        (!handle.is_null()).then(|| Loaded(handle))
    }

    /// The address of the variable or function of that name in the library.
    #[cfg(test)]
    pub(super) fn symbol(&self, name: &CStr) -> Result<*mut u8, String> {
        symbol_in(self.0, name)
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // SAFETY: opened by `open`, whose caller has made the promise for destructors as well.
        unsafe { libc::dlclose(self.0) };
    }
}

/// Forgets the thread's last error of the loader, and frees its text.
pub(super) fn forget_error() {
    // SAFETY: the text is not used.
    unsafe { while !libc::dlerror().is_null() {} }
}

/// Runs `main` to its end on a short-lived pthread, whose stack is all of `stack`; it gets the address of
/// the pthread's argument. False: no such thread can be made.
pub(super) fn run_on(stack: &mut Mapping, main: &mut (dyn FnMut(usize) + Send)) -> bool {
    extern "C" fn run(main: *mut c_void) -> *mut c_void {
        // SAFETY: the argument below, which is waited for.
        unsafe { (*main.cast::<&mut (dyn FnMut(usize) + Send)>())(main.addr()) };
        std::ptr::null_mut()
    }
    let mut main = main;
    let argument: *mut &mut (dyn FnMut(usize) + Send) = &mut main;
    let size = stack.end() - stack.start();
    let mut thread = 0;
    // SAFETY: the attributes are initialised first and destroyed last; the stack and the closure are
    // borrowed for as long as the thread lives: it is joined.
    unsafe {
        let mut attributes = std::mem::zeroed();
        libc::pthread_attr_init(&mut attributes);
        libc::pthread_attr_setstack(&mut attributes, stack.start() as *mut c_void, size);
        let failed = libc::pthread_create(&mut thread, &attributes, run, argument.cast());
        libc::pthread_attr_destroy(&mut attributes);
        failed == 0 && libc::pthread_join(thread, std::ptr::null_mut()) == 0
    }
}
