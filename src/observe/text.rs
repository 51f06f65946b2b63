//! A dump for people, and the words for a thread's name, its state and its wait.
//!
//! Threads that do the same at the same place are shown together: those with the same state, the same kind of
//! wait, the same stack, and the same place of birth. Groups of few come first: they are what is unusual.

use core::fmt::{self, Write as _};
use core::mem::MaybeUninit;
use std::collections::HashMap;
use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::RawFd;
use std::time::Duration;

use super::snapshot::{Entry, Snapshot, Wait};
use super::symbols::Symbols;
use crate::engine::inspect::system::syscalls;
use crate::engine::inspect::threads::Doing;

/// So many threads of a group are named.
const NAMED: usize = 8;

/// Threads that are shown together, as places among the entries.
struct Group {
    members: Vec<u32>,
}

impl Snapshot {
    /// Writes the whole dump.
    pub(crate) fn write_text(&self, to: &mut dyn Write) -> io::Result<()> {
        self.write_summary(to)?;
        let mut symbols = Symbols::new();
        for group in self.groups() {
            writeln!(to)?;
            self.write_group(&group, &mut symbols, to)?;
        }
        Ok(())
    }

    fn write_summary(&self, to: &mut dyn Write) -> io::Result<()> {
        let green = self.threads.iter().filter(|entry| entry.is_green).count();
        let kernel = self.threads.len() - green;
        writeln!(
            to,
            "greenthread: {} and {} of process {}, at {}",
            count(green, "green thread"),
            count(kernel, "kernel thread"),
            std::process::id(),
            humantime(self.at),
        )?;
        let of = |word: &str| {
            let is = |entry: &&Entry| entry.is_green && state(entry) == word;
            self.threads.iter().filter(is).count()
        };
        let states = ["running", "blocked", "ready", "new", "parked"];
        let counted = states.map(|word| format!("{} {word}", of(word)));
        writeln!(to, "  green threads: {}", counted.join(", "))
    }

    /// The threads by what they do, the smallest groups first.
    fn groups(&self) -> Vec<Group> {
        let mut places = HashMap::new();
        let mut groups: Vec<Group> = Vec::new();
        for (index, entry) in self.threads.iter().enumerate() {
            let kind = entry.wait.as_ref().map(|wait| wait.kind.name.as_ptr());
            let spawned_at = entry.spawned_at.map(core::ptr::from_ref);
            let state = state(entry);
            let key = (state, kind, spawned_at, entry.stack, entry.is_green);
            let place = *places.entry(key).or_insert_with(|| {
                groups.push(Group {
                    members: Vec::new(),
                });
                groups.len() - 1
            });
            groups[place].members.push(index as u32);
        }
        groups.sort_by_key(|group| group.members.len());
        groups
    }

    fn write_group(
        &self,
        group: &Group,
        symbols: &mut Symbols,
        to: &mut dyn Write,
    ) -> io::Result<()> {
        let entries = || {
            group
                .members
                .iter()
                .map(|&place| &self.threads[place as usize])
        };
        let Some(first) = entries().next() else {
            return Ok(());
        };
        match group.members.len() {
            1 => writeln!(to, "{}: {}", Named(first), self.doing(first))?,
            all => self.write_members(all, entries, to)?,
        }
        if let Some(place) = first.spawned_at {
            writeln!(to, "  spawned at {place}")?;
        }
        self.write_stack(first.stack, symbols, to)
    }

    /// The head of a group of several.
    fn write_members<'a, I: Iterator<Item = &'a Entry>>(
        &self,
        all: usize,
        entries: impl Fn() -> I,
        to: &mut dyn Write,
    ) -> io::Result<()> {
        writeln!(to, "{all} threads:")?;
        for entry in entries().take(NAMED) {
            writeln!(to, "  {}: {}", Named(entry), self.doing(entry))?;
        }
        if all > NAMED {
            let times = || entries().map(|entry| u64::from(entry.since));
            writeln!(
                to,
                "  and {} more; all are {} for {} to {}",
                all - NAMED,
                entries().next().map_or("", state),
                time(times().min().unwrap_or(0)),
                time(times().max().unwrap_or(0)),
            )?;
        }
        Ok(())
    }

    /// The state of a thread, and its wait.
    pub(super) fn doing(&self, entry: &Entry) -> String {
        let since = time(u64::from(entry.since));
        let mut text = format!("{} for {since}", state(entry));
        if let Some(cpu) = entry.cpu {
            text += &format!(", with {} of CPU time", time(cpu / 1_000_000));
        }
        if let Some(call) = call(entry) {
            text += &format!(" in the system call {call}");
        }
        match &entry.wait {
            // One that was woken, or that waits on its own kernel thread.
            Some(wait) if entry.doing == Doing::Ready => {
                text += &format!(", woken from its wait for {}", wait_text(self, wait));
            }
            Some(wait) => text += &format!(", waits for {}", wait_text(self, wait)),
            None => {}
        }
        text
    }

    /// A thread's wait in words.
    pub(crate) fn describe_wait(&self, wait: &Wait) -> String {
        wait_text(self, wait)
    }

    /// The name of the system call that the thread is blocked in.
    pub(crate) fn describe_call(&self, entry: &Entry) -> Option<String> {
        call(entry)
    }

    /// A stack as text.
    pub(crate) fn backtrace(&self, number: u32) -> String {
        let mut text = Vec::new();
        // A Vec accepts everything.
        let _ = self.write_stack(number, &mut Symbols::new(), &mut text);
        String::from_utf8_lossy(&text).into_owned()
    }

    fn write_stack(
        &self,
        number: u32,
        symbols: &mut Symbols,
        to: &mut dyn Write,
    ) -> io::Result<()> {
        let frames = self.frames(number, symbols);
        for (i, frame) in frames.iter().enumerate() {
            writeln!(to, "  {i:3}: {}", frame.function)?;
            if let Some(file) = &frame.file {
                let line = frame.line.unwrap_or(0);
                writeln!(to, "             at {file}:{line}")?;
            }
        }
        Ok(())
    }
}

fn count(number: usize, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        _ => format!("{number} {what}s"),
    }
}

/// A time of day of the universal time.
fn humantime(at: std::time::SystemTime) -> String {
    let seconds = at
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days as i64);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        second / 3_600,
        second / 60 % 60,
        second % 60
    )
}

/// The date of a day after 1970-01-01, by the rules of the Gregorian calendar.
fn civil(days: i64) -> (i64, u32, u32) {
    let mut year = 1970;
    let mut left = days;
    let is_leap = |year: i64| year % 4 == 0 && year % 100 != 0 || year % 400 == 0;
    loop {
        let length = if is_leap(year) { 366 } else { 365 };
        if left < length {
            break;
        }
        left -= length;
        year += 1;
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while left >= lengths[month] {
        left -= lengths[month];
        month += 1;
    }
    (year, month as u32 + 1, left as u32 + 1)
}

/// A thread as a report calls it: its number, and its name.
pub(super) struct Named<'a>(pub(super) &'a Entry);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entry = self.0;
        match entry.is_green {
            true => write!(f, "thread {}", entry.id)?,
            false if entry.id != 0 => write!(f, "kernel thread {}", entry.id)?,
            false => write!(f, "kernel thread")?,
        }
        match &entry.name {
            Some(name) => write!(f, " {name:?}"),
            None => Ok(()),
        }
    }
}

/// The word for a state.
pub(super) fn state(entry: &Entry) -> &'static str {
    match entry.doing {
        Doing::New => "new",
        Doing::Ready => "ready",
        Doing::Running(_) if entry.call.is_some() => "blocked",
        Doing::Running(_) => "running",
        Doing::Parked => "parked",
    }
}

/// The name of the system call that the thread is blocked in.
pub(super) fn call(entry: &Entry) -> Option<String> {
    entry.call.map(syscalls::name)
}

/// A time, to two digits or so.
pub(super) fn time(millis: u64) -> String {
    let (seconds, minutes) = (millis / 1_000, millis / 60_000);
    if seconds == 0 {
        format!("{millis} ms")
    } else if minutes == 0 {
        format!("{seconds}.{} s", millis % 1_000 / 100)
    } else if minutes < 60 {
        format!("{minutes} min {} s", seconds % 60)
    } else {
        format!("{} h {} min", minutes / 60, minutes % 60)
    }
}

/// What a thread waits for: `mutex 0x7f…, held by thread 3 "b"`.
pub(super) fn wait_text(snapshot: &Snapshot, wait: &Wait) -> String {
    let mut text = wait.kind.name.to_string();
    let whom = wait
        .whom
        .map(|place| Named(&snapshot.threads[place as usize]));
    match (wait.facts.target, &whom) {
        (Some(_), Some(whom)) => text = format!("the end of {whom}"),
        _ if wait.of != 0 => {
            let _ = write!(text, " {:#x}", wait.of);
        }
        _ => {}
    }
    if wait.facts.holder.is_some() {
        match &whom {
            Some(whom) => {
                let _ = write!(text, ", held by {whom}");
            }
            None => text.push_str(", held by a thread that is not known"),
        }
    }
    let mut details: Vec<String> = wait
        .facts
        .numbers()
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    if let Some(descriptor) = wait.facts.descriptor {
        details.push(format!("descriptor {descriptor}"));
        details.extend(descriptor_text(descriptor));
    }
    if !details.is_empty() {
        let _ = write!(text, " ({})", details.join(", "));
    }
    if let Some(left) = wait.left {
        let left = Duration::from_nanos(left).as_millis() as u64;
        let _ = write!(text, ", for {} at most", time(left));
    }
    text
}

/// `peer 127.0.0.1:80`, or what `/proc` calls the file.
pub(super) fn descriptor_text(descriptor: RawFd) -> Option<String> {
    if let Some(peer) = peer(descriptor) {
        return Some(format!("peer {peer}"));
    }
    let link = std::fs::read_link(format!("/proc/self/fd/{descriptor}")).ok()?;
    Some(link.to_string_lossy().into_owned())
}

/// The address of the other end of a socket of the Internet's.
fn peer(descriptor: RawFd) -> Option<SocketAddr> {
    let mut address = MaybeUninit::<libc::sockaddr_storage>::zeroed();
    let mut length = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    // SAFETY: the place is valid, and its length is right.
    let failed = unsafe { libc::getpeername(descriptor, address.as_mut_ptr().cast(), &mut length) };
    if failed != 0 {
        return None;
    }
    // SAFETY: zeroed, and written by the kernel; a storage of the family that it names.
    unsafe {
        let storage = address.assume_init();
        match i32::from(storage.ss_family) {
            libc::AF_INET => {
                let v4 = *(&raw const storage).cast::<libc::sockaddr_in>();
                let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
                Some(SocketAddr::new(ip.into(), u16::from_be(v4.sin_port)))
            }
            libc::AF_INET6 => {
                let v6 = *(&raw const storage).cast::<libc::sockaddr_in6>();
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                Some(SocketAddr::new(ip.into(), u16::from_be(v6.sin6_port)))
            }
            _ => None,
        }
    }
}
