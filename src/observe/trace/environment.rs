//! `GREENTHREAD_TRACE`: a trace from the start of the first runtime to the end of the process.
//!
//! It is written by a handler that libc calls at exit. If the process ends otherwise (a signal, `_exit`,
//! `abort`), nothing is written; a forked child writes nothing.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once, PoisonError};

use super::session::Session;
use super::timeline::Timeline;
use crate::engine::facade::is_forked_child;

/// The trace of the process, and the file that it goes to.
static UNDER_WAY: Mutex<Option<(Session, PathBuf)>> = Mutex::new(None);

/// Begins the trace, once.
pub(crate) fn begin(path: &str) -> io::Result<()> {
    static ONCE: Once = Once::new();
    let mut result = Ok(());
    ONCE.call_once(|| {
        result = Session::start().map(|session| {
            let path = path.replace("%p", &std::process::id().to_string());
            let mut under_way = UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner);
            *under_way = Some((session, path.into()));
            // SAFETY: the handler has the type that libc calls, and does not unwind.
            unsafe { at_exit(end) };
        });
    });
    result
}

unsafe extern "C" {
    #[link_name = "atexit"]
    fn at_exit(handler: extern "C" fn()) -> core::ffi::c_int;
}

extern "C" fn end() {
    if is_forked_child() {
        return;
    }
    let under_way = UNDER_WAY
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    let Some((session, path)) = under_way else {
        return;
    };
    let written = session.finish().and_then(|timeline| timeline.save(&path));
    if let Err(error) = written {
        // This is not `eprintln!`, which panics if nobody reads it.
        let _ = writeln!(io::stderr(), "greenthread: {}: {error}", path.display());
    }
}

/// Whether the name of the file says what to write.
pub(crate) fn is_accepted(path: &str) -> bool {
    kind(Path::new(path)).is_some()
}

/// What the name of a file asks for: true for a page, false for JSON.
fn kind(path: &Path) -> Option<bool> {
    match path.extension()?.to_str()? {
        "html" => Some(true),
        "json" => Some(false),
        _ => None,
    }
}

impl Timeline {
    /// Writes a file: a page if its name ends in `.html`, JSON if it ends in `.json`.
    pub(super) fn save(&self, path: &Path) -> io::Result<()> {
        let Some(is_page) = kind(path) else {
            let message = format!(
                "{}: accepted is a path that ends in .html or .json",
                path.display()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        };
        let mut file = BufWriter::with_capacity(1 << 16, File::create(path)?);
        match is_page {
            true => self.write_html(&mut file)?,
            false => self.write_json(&mut file)?,
        }
        file.flush()
    }
}
