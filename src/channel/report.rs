//! What a report tells of a channel that a thread waits for: its length, its capacity, and how many
//! handles each side has.
//!
//! The report reads the channel without its lock, word by word, and forgets what it has read if the
//! thread does not wait any more (`engine::green::subject`).

use core::marker::PhantomData;

use super::cell::Side;
use super::cell::half;
use super::shared::Shared;
use super::state::State;
use crate::engine::door::{About, Facts, Subject, subject, word};

/// A select, which waits for several channels.
pub(super) static SELECT: Subject = Subject::inside("select", subject::nothing);

/// The subjects of channels of one type of message.
struct Of<T>(PhantomData<T>);

impl<T> Of<T> {
    const SEND: Subject = Subject::inside("room in channel", look::<T>);
    const RECEIVE: Subject = Subject::inside("message from channel", look::<T>);
}

/// A thread waits on its `side` of the channel.
#[inline(always)]
pub(super) fn about<T>(channel: &Shared<T>, side: Side) -> About {
    let subject = match side {
        Side::Senders => &Of::<T>::SEND,
        Side::Receivers => &Of::<T>::RECEIVE,
    };
    About::new(subject, channel)
}

fn look<T>(channel: usize, facts: &mut Facts) {
    let state = channel + Shared::<T>::STATE;
    if let Some(length) = word::read(state + State::<T>::LENGTH) {
        facts.number("length", length as u64);
    }
    match word::read(state + State::<T>::CAPACITY) {
        None | Some(usize::MAX) => {}
        Some(capacity) => facts.number("capacity", capacity as u64),
    }
    for (name, place) in half::counts::<T>(channel) {
        if let Some(count) = word::read(place) {
            facts.number(name, count as u64);
        }
    }
}
