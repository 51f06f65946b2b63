//! std's traits for a [`File`]: reading, writing and seeking; its descriptor and conversions.

use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::process::Stdio;
use std::{fmt, fs};

use super::File;
use crate::engine::facade::file::{self, Nature};
use crate::engine::facade::may_block;
use crate::io::macros::{read_by_reference, write_by_reference};
use crate::sys::calls::from_raw_fd;

impl Read for &File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        may_block(|| (&self.std).read(buffer))
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        may_block(|| (&self.std).read_vectored(buffers))
    }

    fn read_to_end(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        may_block(|| (&self.std).read_to_end(buffer))
    }

    fn read_to_string(&mut self, buffer: &mut String) -> io::Result<usize> {
        may_block(|| (&self.std).read_to_string(buffer))
    }
}

impl Write for &File {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        may_block(|| {
            let done = (&self.std).write(buffer)?;
            Ok(done + rest(&self.std, &buffer[done..]))
        })
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        may_block(|| {
            let mut skip = (&self.std).write_vectored(buffers)?;
            let mut done = skip;
            for buffer in buffers {
                let left = &buffer[skip.min(buffer.len())..];
                skip -= buffer.len() - left.len();
                let more = rest(&self.std, left);
                done += more;
                if more < left.len() {
                    break;
                }
            }
            Ok(done)
        })
    }

    /// Does nothing, since nothing is buffered.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Goes on with a write that has brought some bytes, as far as it can, and returns how many more they are now. A
/// preemption signal that was under way when the call began may have cut a pipe's short, where the kernel otherwise
/// writes all or says why not.
fn rest(mut file: &fs::File, mut buffer: &[u8]) -> usize {
    let all = buffer.len();
    while !buffer.is_empty() {
        match file.write(buffer) {
            Ok(count) if count != 0 => buffer = &buffer[count..],
            _ => break,
        }
    }
    all - buffer.len()
}

impl Seek for &File {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        may_block(|| (&self.std).seek(position))
    }
}

read_by_reference!(File);
write_by_reference!(File);

impl Seek for File {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        (&*self).seek(position)
    }
}

impl FileExt for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        file::read_at(&self.std, buffer, offset, &self.nature)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<usize> {
        file::write_at(&self.std, buffer, offset, &self.nature)
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.std.fmt(f)
    }
}

impl From<fs::File> for File {
    fn from(std: fs::File) -> File {
        let nature = Nature::new();
        File { std, nature }
    }
}

impl From<File> for fs::File {
    fn from(file: File) -> fs::File {
        file.std
    }
}

impl From<OwnedFd> for File {
    fn from(fd: OwnedFd) -> File {
        fs::File::from(fd).into()
    }
}

impl From<File> for OwnedFd {
    fn from(file: File) -> OwnedFd {
        file.std.into()
    }
}

impl From<File> for Stdio {
    fn from(file: File) -> Stdio {
        file.std.into()
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.std.as_fd()
    }
}

impl AsRawFd for File {
    fn as_raw_fd(&self) -> RawFd {
        self.std.as_raw_fd()
    }
}

impl IntoRawFd for File {
    fn into_raw_fd(self) -> RawFd {
        self.std.into_raw_fd()
    }
}

from_raw_fd!(File);
