//! Files: what std does, ours does.
//!
//! The idea: each step is made with `greenthread::fs` and its effect looked at with `std::fs`, or the
//! same step is made with both on two copies and the results compared.

use crate::common::directory::Directory;
use crate::common::*;
use greenthread::fs::{self, DirBuilder, File, OpenOptions};
use greenthread::os::unix::fs::{
    DirBuilderExt, DirEntryExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt,
};
use std::collections::BTreeSet;
use std::fs as std_fs;
use std::io::{
    self, BufRead, BufReader, ErrorKind, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write,
};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

fn bytes(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i * 7 + i / 251) as u8).collect()
}

#[test]
fn reading_is_as_std_reads() {
    let _w = watchdog("fs::reading_is_as_std_reads");
    both(|| {
        let mut rng = Rng::new("fs::reading_is_as_std_reads");
        let directory = Directory::new();
        let contents = bytes(300_001);
        let path = directory.file("f", &contents);
        let (mut ours, mut theirs) = (
            File::open(&path).unwrap(),
            std_fs::File::open(&path).unwrap(),
        );
        for _ in 0..2000 {
            let (mut a, mut b) = (vec![0; rng.below(9000)], vec![]);
            b.resize(a.len(), 0);
            let offset = rng.below(310_000) as u64;
            match rng.below(5) {
                0 => assert_eq!(ours.read(&mut a).unwrap(), theirs.read(&mut b).unwrap()),
                1 => assert_eq!(
                    ours.read_at(&mut a, offset).unwrap(),
                    theirs.read_at(&mut b, offset).unwrap()
                ),
                2 => {
                    let half = a.len() / 2;
                    let ((a1, a2), (b1, b2)) = (a.split_at_mut(half), b.split_at_mut(half));
                    let (mut a, mut b) = (
                        [IoSliceMut::new(a1), IoSliceMut::new(a2)],
                        [IoSliceMut::new(b1), IoSliceMut::new(b2)],
                    );
                    assert_eq!(
                        (&ours).read_vectored(&mut a).unwrap(),
                        theirs.read_vectored(&mut b).unwrap()
                    );
                }
                3 => {
                    let to = SeekFrom::Start(offset);
                    assert_eq!(ours.seek(to).unwrap(), theirs.seek(to).unwrap());
                }
                _ => {
                    let results = (
                        ours.read_exact_at(&mut a, offset),
                        theirs.read_exact_at(&mut b, offset),
                    );
                    match results {
                        (Ok(()), Ok(())) => {}
                        (Err(ours), Err(theirs)) => assert_eq!(ours.kind(), theirs.kind()),
                        results => panic!("{results:?}"),
                    }
                }
            }
            assert_eq!(a, b);
            assert_eq!(
                ours.stream_position().unwrap(),
                theirs.stream_position().unwrap()
            );
        }
        ours.seek(SeekFrom::End(-5)).unwrap();
        let mut rest = vec![1];
        assert_eq!(ours.read_to_end(&mut rest).unwrap(), 5);
        assert_eq!(rest[1..], contents[300_001 - 5..]);
        assert_eq!(ours.read(&mut [0; 10]).unwrap(), 0);
        assert_eq!(ours.read(&mut []).unwrap(), 0);
        assert_eq!(fs::read(&path).unwrap(), contents);
        let error = fs::read_to_string(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        let error = File::open(&directory.0)
            .unwrap()
            .read(&mut [0])
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::IsADirectory);
        assert!(fs::read("/proc/self/stat").unwrap().len() > 10, "size 0");
    });
}

#[test]
fn writing_is_as_std_writes() {
    let _w = watchdog("fs::writing_is_as_std_writes");
    both(|| {
        let directory = Directory::new();
        let path = directory.0.join("f");
        let mut file = File::create(&path).unwrap();
        file.write_all(b"0123456789").unwrap();
        let vectors = [IoSlice::new(b"ab"), IoSlice::new(b""), IoSlice::new(b"c")];
        assert_eq!(file.write_vectored(&vectors).unwrap(), 3);
        file.write_all_at(b"XY", 4).unwrap();
        assert_eq!(file.stream_position().unwrap(), 13);
        file.write_at(b"!", 15).unwrap();
        assert_eq!(std_fs::read(&path).unwrap(), b"0123XY6789abc\0\0!");
        file.set_len(3).unwrap();
        file.sync_all().unwrap();
        file.sync_data().unwrap();
        file.flush().unwrap();
        assert_eq!(std_fs::read(&path).unwrap(), b"012");
        assert_eq!(
            file.read(&mut [0]).unwrap_err().raw_os_error(),
            Some(libc::EBADF)
        );

        let mut log = OpenOptions::new()
            .append(true)
            .read(true)
            .open(&path)
            .unwrap();
        let mut other = log.try_clone().unwrap();
        log.rewind().unwrap();
        log.write_all(b"3").unwrap();
        other.write_all(b"4").unwrap();
        other.rewind().unwrap();
        let mut text = String::new();
        (&log).read_to_string(&mut text).unwrap();
        assert_eq!(text, "01234");
        let error = File::open(&path).unwrap().write(b"x").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));

        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        log.set_modified(time).unwrap();
        log.set_times(fs::FileTimes::new().set_accessed(time))
            .unwrap();
        log.set_permissions(fs::Permissions::from_mode(0o640))
            .unwrap();
        let metadata = log.metadata().unwrap();
        assert_eq!(metadata.modified().unwrap(), time);
        assert_eq!((metadata.mode() & 0o777, metadata.len()), (0o640, 5));
        fs::write(&path, "new").unwrap();
        assert_eq!(std_fs::read(&path).unwrap(), b"new");
    });
}

#[test]
fn options_open_as_stds_do() {
    let _w = watchdog("fs::options_open_as_stds_do");
    both(|| {
        let directory = Directory::new();
        for bits in 0..64u32 {
            for exists in [false, true] {
                let outcome = |name: &str, open: &dyn Fn(&PathBuf) -> io::Result<OwnedFd>| {
                    let path = directory.0.join(name);
                    let _ = std_fs::remove_file(&path);
                    if exists {
                        directory.file(name, b"there");
                    }
                    let fd = open(&path).map_err(|error| error.kind());
                    // SAFETY: asks.
                    let flags =
                        fd.map(|fd| unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) } & 0xFFFF);
                    (flags, std_fs::read(&path).ok())
                };
                let on = |bit: u32| bits & 1 << bit != 0;
                macro_rules! open {
                    ($Options:ty) => {
                        |path: &PathBuf| {
                            <$Options>::new()
                                .read(on(0))
                                .write(on(1))
                                .append(on(2))
                                .truncate(on(3))
                                .create(on(4))
                                .create_new(on(5))
                                .open(path)
                                .map(OwnedFd::from)
                        }
                    };
                }
                let ours = outcome("ours", &open!(OpenOptions));
                let theirs = outcome("theirs", &open!(std_fs::OpenOptions));
                assert_eq!(ours, theirs, "options {bits:06b}, exists: {exists}");
            }
        }
        let path = directory.0.join("mode");
        let mut options = File::options();
        options.write(true).create(true).mode(0o600);
        let file = options.custom_flags(libc::O_NOATIME).open(&path).unwrap();
        assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o600);
        // SAFETY: asks.
        let flags = |request| unsafe { libc::fcntl(file.as_raw_fd(), request) };
        assert_ne!(flags(libc::F_GETFL) & libc::O_NOATIME, 0);
        assert_ne!(flags(libc::F_GETFD) & libc::FD_CLOEXEC, 0);
        let error = File::open("a\0b").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let error = File::create_new(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        assert_eq!(
            File::open("/no/such").unwrap_err().kind(),
            ErrorKind::NotFound
        );
    });
}

#[test]
fn directories_and_names() {
    let _w = watchdog("fs::directories_and_names");
    both(|| {
        let directory = Directory::new();
        let path = |name: &str| directory.0.join(name);
        fs::create_dir_all(path("a/b/c")).unwrap();
        let error = fs::create_dir(path("a")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        DirBuilder::new().mode(0o700).create(path("a/d")).unwrap();
        assert_eq!(
            fs::metadata(path("a/d")).unwrap().permissions().mode() & 0o777,
            0o700
        );
        let names: BTreeSet<_> = (0..1000).map(|i| format!("{i:04}")).collect();
        names
            .iter()
            .for_each(|name| fs::write(path("a/b/c").join(name), name).unwrap());
        let mut found = BTreeSet::new();
        for entry in fs::read_dir(path("a/b/c")).unwrap() {
            let entry = entry.unwrap();
            assert!(entry.file_type().unwrap().is_file());
            assert_eq!(entry.metadata().unwrap().ino(), entry.ino());
            assert_eq!(entry.metadata().unwrap().len(), 4);
            assert_eq!(entry.path(), path("a/b/c").join(entry.file_name()));
            assert!(found.insert(entry.file_name().into_string().unwrap()));
        }
        assert_eq!(found, names);

        let (one, two, link) = (path("one"), path("two"), path("link"));
        fs::write(&one, "contents").unwrap();
        assert_eq!(fs::copy(&one, &two).unwrap(), 8);
        fs::remove_file(&two).unwrap();
        fs::hard_link(&one, &two).unwrap();
        assert_eq!(fs::metadata(&two).unwrap().nlink(), 2);
        fs::rename(&two, path("three")).unwrap();
        assert!(!fs::exists(&two).unwrap() && fs::exists(path("three")).unwrap());
        greenthread::os::unix::fs::symlink("one", &link).unwrap();
        assert_eq!(fs::read_link(&link).unwrap(), PathBuf::from("one"));
        assert_eq!(
            fs::canonicalize(&link).unwrap(),
            std_fs::canonicalize(&one).unwrap()
        );
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(fs::metadata(&link).unwrap().is_file());
        greenthread::os::unix::fs::lchown(&link, None, None).unwrap();
        fs::set_permissions(&one, fs::Permissions::from_mode(0o400)).unwrap();
        assert_eq!(fs::metadata(&one).unwrap().mode() & 0o777, 0o400);
        fs::remove_dir(path("a/d")).unwrap();
        let error = fs::remove_dir(path("a")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DirectoryNotEmpty);
        fs::remove_dir_all(path("a")).unwrap();
        assert!(!path("a").exists());
    });
}

#[test]
fn conversions_keep_the_descriptor() {
    both(|| {
        let file = File::open("Cargo.toml").unwrap();
        let number = file.as_raw_fd();
        assert!(format!("{file:?}").contains("Cargo.toml"));
        let fd = OwnedFd::from(file);
        let file = std_fs::File::from(File::from(fd));
        let mut file = File::from(file);
        assert_eq!(file.as_fd().as_raw_fd(), number);
        let mut line = String::new();
        BufReader::new(&mut file).read_line(&mut line).unwrap();
        assert_eq!(line, "[package]\n");
    });
}

#[test]
fn a_full_disk_is_an_error() {
    both(|| {
        let mut full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let error = full.write(b"x").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        let error = fs::write("/dev/full", "text").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
    });
}

#[test]
fn without_the_page_cache() {
    #[repr(align(4096))]
    struct Block([u8; 8192]);
    both(|| {
        let directory = Directory::new();
        let path = directory.file("f", &bytes(20_000));
        let mut options = OpenOptions::new();
        let file = match options.read(true).custom_flags(libc::O_DIRECT).open(path) {
            Err(error) => return println!("skipped: no O_DIRECT here: {error}"),
            Ok(file) => file,
        };
        let mut block = Block([0; 8192]);
        if let Err(error) = file.read_at(&mut block.0, 0) {
            return println!("skipped: no O_DIRECT reads here: {error}");
        }
        for offset in [0, 4096, 12_288, 16_384, 20_480] {
            let length = file.read_at(&mut block.0, offset).unwrap();
            let offset = (offset as usize).min(20_000);
            assert_eq!(length, (20_000 - offset).min(8192));
            assert_eq!(block.0[..length], bytes(20_000)[offset..offset + length]);
        }
    });
}

#[test]
fn what_is_no_file_is_read_once_a_call() {
    let _w = watchdog("fs::what_is_no_file_is_read_once_a_call");
    both(|| {
        let (reader, mut writer) = io::pipe().unwrap();
        let mut file = File::from(OwnedFd::from(reader));
        writer.write_all(b"abc").unwrap();
        assert_eq!(file.read(&mut [0; 8]).unwrap(), 3, "and does not wait");
        assert_eq!(
            file.read_at(&mut [0], 0).unwrap_err().kind(),
            ErrorKind::NotSeekable
        );
        let late = greenthread::spawn(move || file.read(&mut [0; 8]).unwrap());
        greenthread::sleep(Duration::from_millis(2));
        writer.write_all(b"z").unwrap();
        assert_eq!(late.join().unwrap(), 1);
        assert_eq!(
            File::open("/dev/zero")
                .unwrap()
                .read(&mut [1; 100])
                .unwrap(),
            100
        );
        assert_eq!(
            File::open("/dev/null").unwrap().read(&mut [1; 9]).unwrap(),
            0
        );
    });
}

#[test]
fn many_threads_share_a_file() {
    let _w = watchdog("fs::many_threads_share_a_file");
    both(|| {
        let directory = Directory::new();
        let contents = bytes(1 << 20);
        let path = directory.file("f", &contents);
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).open(&path).unwrap();
        greenthread::scope(|s| {
            for i in 0..64 {
                let (file, contents) = (&file, &contents);
                s.spawn(move || {
                    let mut block = vec![0; 16 << 10];
                    for round in 0..20 {
                        let at = (i * 16 + round * 3) % 64 * (16 << 10);
                        file.read_exact_at(&mut block, at as u64).unwrap();
                        assert_eq!(block, contents[at..at + block.len()]);
                        file.write_all_at(&block, at as u64).unwrap();
                    }
                    file.sync_data().unwrap();
                });
            }
        });
        assert_eq!(std_fs::read(&path).unwrap(), contents);
    });
}
