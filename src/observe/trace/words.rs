//! How an event is written: words of 64 bits. The lowest eight say what kind of word it is, the others
//! carry its value.
//!
//! | words, in a processor's ring | event |
//! |---|---|
//! | [`Time`](Kind::Time) | the next event happens now, in ticks |
//! | [`Named`](Kind::Named), [`Name`](Kind::Name) … | a thread's number, and its name, seven bytes a word |
//! | [`By`](Kind::By), `Woke` or `Spawned` | a thread has woken or made another one |
//! | [`To`](Kind::To), `HandedOver` | a thread has handed over to another one |
//! | [`At`](Kind::At) or [`Text`](Kind::Text), `Parked` | a thread waits at a waiter; for something that has a name |
//! | any other | one word an event |
//!
//! A word that belongs to an event comes before the event's own. Each word says by itself what it is: a
//! reader that has lost some goes on at the next `Time`.
//!
//! A thread is known by a number of 28 bits, in whose upper bit kernel threads differ from others, and
//! above it by the trace's number (1 to 15).

/// What a word says. Those from `Yielded` on are events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    /// No word: memory that was not written.
    Nothing,
    Time,
    Named,
    Name,
    By,
    To,
    At,
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
    pub(crate) fn of(word: u64) -> Kind {
        use Kind::*;
        const ALL: [Kind; 29] = [
            Nothing,
            Time,
            Named,
            Name,
            By,
            To,
            At,
            Text,
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
        ];
        ALL.get((word & 0xFF) as usize).copied().unwrap_or(Nothing)
    }
}

/// Where in a thread's number that of the trace stands.
pub(crate) const SESSION_SHIFT: u32 = 28;
/// The bits of a thread's own number.
pub(crate) const NUMBER: u32 = (1 << SESSION_SHIFT) - 1;
/// In the number of a kernel thread that is not the runtime's own.
pub(crate) const KERNEL: u32 = 1 << (SESSION_SHIFT - 1);
/// Names are cut to so many bytes.
const LONGEST_NAME: usize = 112;
const BYTES_A_WORD: usize = 7;
/// The longest event, in words, introductions included.
pub(crate) const LONGEST: u64 = 2 * (LONGEST_NAME / BYTES_A_WORD + 1) as u64 + 4;

/// A word of this kind. `value` has 56 bits.
#[inline(always)]
pub(crate) const fn word(kind: Kind, value: u64) -> u64 {
    value << 8 | kind as u64
}

/// The value of a word.
#[inline(always)]
pub(crate) const fn value(word: u64) -> u64 {
    word >> 8
}

/// A name's words.
pub(crate) fn name(name: &str) -> impl Iterator<Item = u64> {
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
pub(crate) fn bytes_of(word: u64) -> impl Iterator<Item = u8> {
    let bytes = value(word).to_le_bytes();
    bytes.into_iter().take_while(|&byte| byte != 0)
}

/// Names what a thread waits for: the text's address, and above it its length.
pub(crate) fn text(text: &'static str) -> u64 {
    let length = text.len().min(0xFF) as u64;
    word(
        Kind::Text,
        length << 48 | text.as_ptr().expose_provenance() as u64,
    )
}
