//! A directory that is removed in the end.

#![allow(dead_code)] // every test file uses its own part of this

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

pub struct Directory(pub PathBuf);

impl Directory {
    pub fn new() -> Directory {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        loop {
            let number = NUMBER.fetch_add(1, Relaxed);
            let name = format!("greenthread-fs-{}-{number}", std::process::id());
            let path = std::env::temp_dir().join(name);
            match std::fs::create_dir(&path) {
                // One of the same number was killed before it could remove its own.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                made => return made.map(|()| Directory(path)).unwrap(),
            }
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn file(&self, name: &str, contents: &[u8]) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, contents).unwrap();
        path
    }

    #[cfg(unix)]
    pub fn fifo(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        let spelled = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: a valid path.
        assert_eq!(unsafe { libc::mkfifo(spelled.as_ptr(), 0o600) }, 0);
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // A child that was killed may have made the rest.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
