//! `getaddrinfo`, which waits for a name server inside libc.
//!
//! In a frame, which is to end that, another kernel thread asks, with a copy of the question: the caller may be gone before the
//! answer comes. At most [`ASKERS`] kernel threads ask at a time. One that finds no question ends.
//!
//! Invariant: whoever takes an answer out of its question owns the list in it.

use core::ffi::{CStr, c_char, c_int};
use core::ptr::{self, null, null_mut};
use std::collections::VecDeque;
use std::ffi::CString;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use libc::addrinfo;

use super::{errno, set_errno};
use crate::engine::facade::{blocking, may_block, spawn_helper};
use crate::wait::{WaitKind, WaitReason, Waiter, is_in_frame, refusal};

/// A name server that is silent keeps an asker for seconds, and a kernel thread with it (`tests/cancel`: ten thousand ask).
const ASKERS: usize = 32;

struct Question {
    name: Option<CString>,
    service: Option<CString>,
    hints: Option<addrinfo>,
    answer: Mutex<Option<Answer>>,
    has_come: Waiter,
}

// SAFETY: hints lead nowhere, and the list belongs to the answer.
unsafe impl Send for Question {}
// SAFETY: as above.
unsafe impl Sync for Question {}

/// The result, `errno`, and the list of addresses.
struct Answer(c_int, c_int, *mut addrinfo);

impl Drop for Answer {
    fn drop(&mut self) {
        if !self.2.is_null() {
            // SAFETY: libc has made the list, and it is the answer's.
            unsafe { libc::freeaddrinfo(self.2) };
        }
    }
}

/// The questions that nobody asks yet, and the number of askers.
static QUESTIONS: Mutex<(VecDeque<Arc<Question>>, usize)> = Mutex::new((VecDeque::new(), 0));

fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

fn next() -> Option<Arc<Question>> {
    let mut questions = locked(&QUESTIONS);
    let next = questions.0.pop_front();
    questions.1 -= usize::from(next.is_none());
    next
}

fn ask_all() {
    while let Some(question) = next() {
        // Otherwise it is given up.
        if Arc::strong_count(&question) == 1 {
            continue;
        }
        let text = |text: &Option<CString>| text.as_ref().map_or(null(), |text| text.as_ptr());
        let hints = question.hints.as_ref().map_or(null(), ptr::from_ref);
        let mut list = null_mut();
        // SAFETY: strings and a record, or null; a place.
        let result = unsafe {
            let (name, service) = (text(&question.name), text(&question.service));
            getaddrinfo::real(name, service, hints, &mut list)
        };
        *locked(&question.answer) = Some(Answer(result, errno(), list));
        question.has_come.wake();
    }
}

hooked! {
    fn getaddrinfo(
        name: *const c_char, service: *const c_char, hints: *const addrinfo,
        answer: *mut *mut addrinfo,
    ) -> c_int where real() {
        static KIND: WaitKind = WaitKind::outside("addresses of a host").fails();
        if !is_in_frame() {
            return blocking(real);
        }
        // SAFETY: a record of the caller's, or null; zeros are a record.
        let mut numeric = unsafe { hints.as_ref().copied().unwrap_or_else(|| core::mem::zeroed()) };
        numeric.ai_flags |= libc::AI_NUMERICHOST;
        // SAFETY: the caller's arguments. For a name that is a number nobody is asked.
        match may_block(|| unsafe { getaddrinfo::real(name, service, &numeric, answer) }) {
            libc::EAI_NONAME => {}
            result => return result,
        }
        // SAFETY: strings of the caller's, or null.
        let copy = |text: *const c_char| unsafe {
            (!text.is_null()).then(|| CStr::from_ptr(text).to_owned())
        };
        let question = Arc::new(Question {
            name: copy(name),
            service: copy(service),
            // SAFETY: a record of the caller's, or null.
            hints: unsafe { hints.as_ref() }.copied(),
            answer: Mutex::new(None),
            has_come: Waiter::new(),
        });
        let mut questions = locked(&QUESTIONS);
        questions.0.push_back(question.clone());
        let is_new = questions.1 < ASKERS;
        questions.1 += usize::from(is_new);
        drop(questions);
        if is_new && spawn_helper("gt-resolver", ask_all).is_err() {
            blocking(ask_all);
        }
        #[cfg_attr(not(hooks), expect(clippy::never_loop, reason = "no signal ends it"))]
        let (found, refusal) = loop {
            let _ = question.has_come.wait(WaitReason::only(&KIND), None);
            let found = locked(&question.answer).take();
            match refusal(None) {
                // libc's function goes on after a handler has run.
                #[cfg(hooks)]
                Some(libc::EINTR) if found.is_none() => _ = super::heed(!0),
                refusal => break (found, refusal),
            }
        };
        let Some(mut found) = found else {
            set_errno(refusal.unwrap_or(libc::ETIMEDOUT));
            return libc::EAI_SYSTEM;
        };
        if found.0 == 0 {
            // SAFETY: the caller's place.
            unsafe { *answer = core::mem::replace(&mut found.2, null_mut()) };
        }
        set_errno(found.1);
        found.0
    }
}
