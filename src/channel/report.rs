//! What a report tells of a channel that a thread waits for: its length, its capacity, and how many
//! handles each side has.
//!
//! The report reads the channel without its lock, word by word, and forgets what it has read if the
//! thread does not wait any more (`engine::inspect::reason`).

use core::marker::PhantomData;

use super::cell::{Side, half};
use super::shared::Shared;
use super::state::State;
use crate::sys::word;
use crate::wait::{Facts, WaitKind, WaitReason, reason};

/// A select, which waits for several channels.
pub(super) static SELECT: WaitKind = WaitKind::inside("select", reason::nothing);

/// The wait reasons of channels of one type of message.
struct Of<T>(PhantomData<T>);

impl<T> Of<T> {
    const SEND: WaitKind = WaitKind::inside("room in channel", look::<T>);
    const RECEIVE: WaitKind = WaitKind::inside("message from channel", look::<T>);
}

/// A thread waits on its `side` of the channel.
#[inline(always)]
pub(super) fn wait_reason<T>(channel: &Shared<T>, side: Side) -> WaitReason {
    let kind = match side {
        Side::Senders => &Of::<T>::SEND,
        Side::Receivers => &Of::<T>::RECEIVE,
    };
    WaitReason::new(kind, channel)
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
