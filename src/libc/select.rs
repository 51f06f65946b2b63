//! `select`, `pselect`: as `poll`. `select` leaves in its time-out what is left of it, as Linux does.

use core::ffi::c_int;
use core::ptr::null_mut;

use super::descriptor::{is_there, value_at};
use super::poll::{after, block, for_time, until_any};
use super::{hooked, uninterrupted};
use crate::engine::hooks::watch::Interest;
use crate::sys::clock;

const BITS: usize = u64::BITS as usize;
/// The kernel accepts more descriptors than libc's type has room for. A longer set is libc's matter.
const WORDS: usize = size_of::<libc::fd_set>() / size_of::<u64>();

/// The three sets of a call: the descriptors to read, to write, with something exceptional.
#[derive(Clone, Copy)]
struct Sets {
    count: c_int,
    at: [*mut libc::fd_set; 3],
}

/// Their contents.
type Asked = [[u64; WORDS]; 3];

impl Sets {
    fn words(&self) -> usize {
        (self.count as usize).div_ceil(BITS)
    }

    /// Calls `f` with each word of the sets, and its place in `asked`.
    fn each(&self, asked: &mut Asked, f: impl Fn(*mut u64, &mut u64)) {
        for (set, asked) in self.at.iter().zip(asked).filter(|(set, _)| !set.is_null()) {
            for (word, asked) in asked.iter_mut().enumerate().take(self.words()) {
                f(set.cast::<u64>().wrapping_add(word), asked);
            }
        }
    }

    /// # Safety
    /// The sets are null or valid for `count` descriptors.
    unsafe fn load(&self) -> Asked {
        let mut asked = [[0; WORDS]; 3];
        // SAFETY: the caller's promise.
        self.each(&mut asked, |word, asked| unsafe { *asked = *word });
        asked
    }

    /// # Safety
    /// As [`Sets::load`].
    unsafe fn store(&self, mut asked: Asked) {
        // SAFETY: the caller's promise.
        self.each(&mut asked, |word, asked| unsafe { *word = *asked });
    }
}

/// The events that the kernel counts for each set.
const EVENTS: [i32; 3] = [
    libc::EPOLLIN | libc::EPOLLRDNORM | libc::EPOLLRDBAND | libc::EPOLLHUP | libc::EPOLLERR,
    libc::EPOLLOUT | libc::EPOLLWRNORM | libc::EPOLLWRBAND | libc::EPOLLERR,
    libc::EPOLLPRI,
];

fn interests_of(asked: &Asked, count: c_int) -> Vec<Interest> {
    let interest = |fd: c_int| {
        let (word, bit) = (fd as usize / BITS, fd as usize % BITS);
        let wanted = asked
            .iter()
            .zip(EVENTS)
            .filter(|(set, _)| set[word] >> bit & 1 != 0);
        let events = wanted.fold(0, |all, (_, events)| all | events);
        (events != 0).then_some(Interest { fd, events })
    };
    (0..count).filter_map(interest).collect()
}

/// Waits as `select` does. `None`: the caller is to make libc's call.
///
/// # Safety
/// The sets are null or valid.
unsafe fn wait(sets: Sets, deadline: Option<u64>) -> Option<c_int> {
    if !(0..=(WORDS * BITS) as c_int).contains(&sets.count) {
        return None;
    }
    let can_be_read = |set: &*mut libc::fd_set| {
        set.is_null() || is_there(set.cast::<u64>().cast_const(), sets.words())
    };
    if !sets.at.iter().all(can_be_read) {
        return None;
    }
    // SAFETY: the caller's promise.
    unsafe {
        let asked = sets.load();
        // The first look finds them as they are, and fails if the kernel cannot write to them.
        let mut is_first = true;
        let look = || {
            if !core::mem::replace(&mut is_first, false) {
                sets.store(asked);
            }
            let [read, write, except] = sets.at;
            uninterrupted(|| select::real(sets.count, read, write, except, &mut timeval(0)))
        };
        let answer = until_any(deadline, || interests_of(&asked, sets.count), look);
        if answer.is_none() {
            sets.store(asked);
        }
        answer
    }
}

fn timeval(nanos: u64) -> libc::timeval {
    libc::timeval {
        tv_sec: (nanos / 1_000_000_000) as libc::time_t,
        tv_usec: (nanos % 1_000_000_000 / 1_000) as libc::suseconds_t,
    }
}

hooked! {
    fn select(
        count: c_int,
        read: *mut libc::fd_set,
        write: *mut libc::fd_set,
        except: *mut libc::fd_set,
        time: *mut libc::timeval,
    ) -> c_int {
        let sets = Sets { count, at: [read, write, except] };
        // SAFETY: the caller's arguments.
        unsafe {
            let asked = value_at(time);
            let is_wrong = match asked {
                None => !time.is_null(),
                Some(asked) => asked.tv_sec < 0 || asked.tv_usec < 0,
            };
            if is_wrong {
                return select::real(count, read, write, except, time); // which refuses it
            }
            let deadline = asked.map(|asked| {
                let nanos = (asked.tv_sec as u64).saturating_mul(1_000_000_000);
                after(nanos.saturating_add((asked.tv_usec as u64).saturating_mul(1_000)))
            });
            let answer = wait(sets, deadline).unwrap_or_else(|| {
                block(deadline, |left| {
                    let mut left = left.map(timeval);
                    let time = left.as_mut().map_or(null_mut(), core::ptr::from_mut);
                    select::real(count, read, write, except, time)
                })
            });
            if let (Some(time), Some(deadline)) = (time.as_mut(), deadline) {
                *time = timeval(deadline.saturating_sub(clock::now()));
            }
            answer
        }
    }

    fn pselect(
        count: c_int,
        read: *mut libc::fd_set,
        write: *mut libc::fd_set,
        except: *mut libc::fd_set,
        time: *const libc::timespec,
        mask: *const libc::sigset_t,
    ) -> c_int {
        let sets = Sets { count, at: [read, write, except] };
        // SAFETY: the caller's arguments.
        unsafe {
            let real = |left| pselect::real(count, read, write, except, left, mask);
            for_time(time, mask, |deadline| wait(sets, deadline), real)
        }
    }
}
