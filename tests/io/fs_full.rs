//! Where there is no more room: an error, and what is in the file is what was said to be written.
//!
//! The idea: the same writes by std and by ours, on a file system of one mebibyte, and below a limit
//! of the file's size; then the errors, positions and contents are compared. Each in a process of its
//! own, which mounts the file system where nobody else sees it.

use crate::common::directory::Directory;
use crate::common::*;
use greenthread::fs;
use greenthread::io::{self, BufWriter, ErrorKind, Seek, Write};
use greenthread::os::unix::fs::FileExt;
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Where there is room for this much.
static PLACE: OnceLock<PathBuf> = OnceLock::new();
const ROOM: usize = 1 << 20;

fn bytes(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i * 7 + i / 251) as u8).collect()
}

/// What became of it: the error, what was written by its own account, and what is there.
type Outcome = (Option<ErrorKind>, Option<u64>, Vec<u8>);

/// The same with `$fs`, whose files are `$name`.
macro_rules! writes {
    ($fs:ident, $name:literal) => {{
        let path = PLACE.get().unwrap().join($name);
        let data = bytes(12 << 20);
        let mut outcomes: Vec<(&str, Outcome)> = Vec::new();
        let mut note = |how, error: Option<io::Error>, position| {
            let contents = std::fs::read(&path).unwrap();
            assert!(contents == data[..contents.len()], "{how}: other contents");
            outcomes.push((how, (error.map(|error| error.kind()), position, contents)));
            std::fs::remove_file(&path).unwrap();
        };

        note("all at once", $fs::write(&path, &data).err(), None);

        let mut file = $fs::File::create(&path).unwrap();
        let mut rest = &data[..];
        let error = loop {
            match file.write(&rest[..10_007]) {
                Ok(n) => rest = &rest[n..],
                Err(error) => break error,
            }
        };
        let written = (data.len() - rest.len()) as u64;
        assert_eq!(file.stream_position().unwrap(), written);
        assert!(file.write_all(rest).is_err(), "and again");
        note("bit by bit", Some(error), Some(written));

        let mut buffered = BufWriter::with_capacity(30_000, $fs::File::create(&path).unwrap());
        let error = data
            .chunks(777)
            .find_map(|part| buffered.write_all(part).err());
        let (file, _rest) = buffered.into_parts();
        let position = (&file).stream_position().unwrap();
        note("buffered", error, Some(position));

        let file = $fs::File::create(&path).unwrap();
        let parts = data.chunks(5000).enumerate();
        let error = parts
            .map(|(i, part)| file.write_all_at(part, i as u64 * 5000))
            .find_map(Result::err);
        assert_eq!((&file).stream_position().unwrap(), 0);
        note("at offsets", error, None);

        let mut file = $fs::File::create(&path).unwrap();
        let error = io::copy(&mut &data[..], &mut file).err();
        note("copied", error, None);
        outcomes
    }};
}

fn compare() {
    let theirs = {
        use std::fs;
        writes!(fs, "theirs")
    };
    let ours = writes!(fs, "ours");
    for ((how, theirs), (_, ours)) in theirs.iter().zip(&ours) {
        let told = |outcome: &Outcome| (outcome.0, outcome.1, outcome.2.len());
        println!("{how}: std {:?}, ours {:?}", told(theirs), told(ours));
        assert!(theirs.0.is_some(), "{how}: there was room");
        assert_eq!(told(theirs), told(ours), "{how}");
    }
}

/// A file system of one mebibyte, which only this process and its children see.
fn mount(at: &Path) -> io::Result<()> {
    let done = |result| match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    };
    let at = CString::new(at.to_str().unwrap()).unwrap();
    let (nothing, size) = (std::ptr::null(), c"size=1m".as_ptr().cast());
    // SAFETY: valid strings; other threads of the process keep the namespace that they have.
    unsafe {
        done(libc::unshare(libc::CLONE_NEWNS))?;
        let private = libc::MS_REC | libc::MS_PRIVATE;
        done(libc::mount(
            nothing,
            c"/".as_ptr(),
            nothing,
            private,
            nothing.cast(),
        ))?;
        let kind = c"tmpfs".as_ptr();
        done(libc::mount(kind, at.as_ptr(), kind, 0, size))
    }
}

#[test]
fn a_full_file_system() {
    const NAME: &str = "fs_full::a_full_file_system";
    let _w = watchdog(NAME);
    if let Some(place) = child_case(NAME) {
        if let Err(error) = mount(Path::new(&place)) {
            return println!("skipped: mounting is not permitted here: {error}");
        }
        PLACE.set(place.into()).unwrap();
        // Made by this kernel thread, so it sees what this one sees.
        return everywhere(compare);
    }
    let directory = Directory::new();
    let out = child(NAME, directory.0.to_str().unwrap());
    println!("{}", said(&out));
    assert_code(&out, 0);
}

#[test]
fn a_limit_of_the_size() {
    const NAME: &str = "fs_full::a_limit_of_the_size";
    let _w = watchdog(NAME);
    if let Some(place) = child_case(NAME) {
        // SAFETY: nobody handles it.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
        set_limit(libc::RLIMIT_FSIZE, ROOM as u64 + 17);
        PLACE.set(place.into()).unwrap();
        return everywhere(compare);
    }
    let directory = Directory::new();
    let out = child(NAME, directory.0.to_str().unwrap());
    assert_code(&out, 0);
}
