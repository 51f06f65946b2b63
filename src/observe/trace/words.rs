//! How an event is written: words of 64 bits. The lowest eight say what kind of word it is, the others
//! carry its value.
//!
//! | words, in a processor's ring | event |
//! |---|---|
//! | [`Time`](Kind::Time) | the next event happens now, in ticks |
//! | [`Named`](Kind::Named), [`Name`](Kind::Name) … | a thread's number, and its name, seven bytes a word |
//! | [`By`](Kind::By), `Woke` or `Spawned` | a thread has woken or made another one |
//! | [`To`](Kind::To), `HandedOver` | a thread has handed over to another one |
//! | [`Text`](Kind::Text), `Parked` | a thread waits for this |
//! | any other | one word an event |
//!
//! A word that belongs to an event comes before the event's own. Each word says by itself what it is: a
//! reader that has lost some goes on at the next `Time`.
//!
//! A thread is known by a number of 28 bits, in whose upper bit kernel threads differ from others, and
//! above it by the trace's number (1 to 15, which come round again).

use core::num::NonZeroU64;

/// What a word says. Those from `Yielded` on are events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Kind {
    /// No word: memory that was not written.
    Nothing,
    Time,
    Named,
    Name,
    By,
    To,
    Text,
    /// The reader's own: so many words were lost here.
    Lost,

    Yielded,
    Preempted,
    Parked,
    ParkedUntil,
    HandedOver,
    Ended,
    HandedOff,
    Woke,
    Spawned,
    Fired,
    Arrived,
    Stole,
    Found,
    Given,
    Resumed,
    Idle,
    KernelBegan,
    KernelEnded,
    KernelWaits,
    KernelGoesOn,
}

impl Kind {
    /// The kind of a word, which may be any number.
    pub(super) fn of(word: u64) -> Kind {
        let kind = word as u8;
        match kind <= Kind::KernelGoesOn as u8 {
            // SAFETY: the kinds are numbered from 0 to this last one.
            true => unsafe { core::mem::transmute::<u8, Kind>(kind) },
            false => Kind::Nothing,
        }
    }
}

/// Where in a thread's number that of the trace stands.
pub(super) const SESSION_SHIFT: u32 = 28;
/// The bits of a thread's own number.
pub(super) const NUMBER: u32 = (1 << SESSION_SHIFT) - 1;
/// In the number of a kernel thread that is not the runtime's own.
pub(super) const KERNEL: u32 = 1 << (SESSION_SHIFT - 1);
/// The number of a thread that is the runtime's own.
pub(super) fn number(id: NonZeroU64) -> u32 {
    id.get() as u32 & (KERNEL - 1)
}

/// Names are cut to so many bytes.
const LONGEST_NAME: usize = 112;
const BYTES_A_WORD: usize = 7;
/// The longest event, in words, introductions included.
pub(super) const LONGEST: u64 = 2 * (LONGEST_NAME / BYTES_A_WORD + 1) as u64 + 4;

/// A word of this kind. `value` has 56 bits.
#[inline(always)]
pub(super) const fn word(kind: Kind, value: u64) -> u64 {
    value << 8 | kind as u64
}

/// The value of a word.
#[inline(always)]
pub(super) const fn value(word: u64) -> u64 {
    word >> 8
}

/// A name's words.
pub(super) fn name(name: &str) -> impl Iterator<Item = u64> {
    let fits = (0..=LONGEST_NAME.min(name.len())).rev();
    let end = fits.into_iter().find(|&at| name.is_char_boundary(at));
    let bytes = name.as_bytes().get(..end.unwrap_or(0)).unwrap_or(&[]);
    bytes.chunks(BYTES_A_WORD).map(|part| {
        let mut value = [0; 8];
        value[..part.len()].copy_from_slice(part);
        word(Kind::Name, u64::from_le_bytes(value))
    })
}

/// The bytes of one of a name's words. A name has no zero in it.
pub(super) fn bytes_of(word: u64) -> impl Iterator<Item = u8> {
    let bytes = value(word).to_le_bytes();
    bytes.into_iter().take_while(|&byte| byte != 0)
}

/// Names what a thread waits for: the text's address, and above it its length.
pub(super) fn text(text: &'static str) -> u64 {
    let length = text.len().min(0xFF) as u64;
    word(
        Kind::Text,
        length << 48 | text.as_ptr().expose_provenance() as u64,
    )
}
