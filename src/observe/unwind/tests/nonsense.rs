//! Stacks that are none, and stacks that cannot be read.

use super::*;

fn seed() -> u64 {
    let seed = std::env::var("GT_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("GT_SEED={seed}");
    seed
}

#[inline(never)]
fn first(yielder: &Yield) {
    second(yielder);
    core::hint::black_box(());
}

#[inline(never)]
fn second(yielder: &Yield) {
    yielder.suspend();
}

#[test]
fn a_word_that_cannot_be_read_ends_the_stack() {
    let mut thread = Thread::new(|yielder, _| first(yielder));
    assert!(thread.run());
    let (whole, end) = thread.frames();
    assert_eq!(end, End::Bottom);
    let mut unwinder = Unwinder::new();
    let mut reads = 0;
    for failing in 0.. {
        let (mut count, mut frames) = (0, Vec::new());
        let read = |address| {
            count += 1;
            (count <= failing)
                .then(|| thread.bounds.read(address))
                .flatten()
        };
        let end = unwinder.frames(thread.registers(), read, &mut frames);
        assert_eq!(frames[..], whole[..frames.len()]);
        if end == End::Bottom {
            reads = failing;
            break;
        }
        assert_eq!(end, End::Lost);
        assert!(frames.len() < whole.len());
    }
    assert!(
        reads >= whole.len() - 1 && reads <= 3 * whole.len(),
        "{reads}"
    );
    assert!(!thread.run());
}

/// Random words, addresses of code, of the stack itself: whatever leads astray.
#[test]
fn nonsense_is_read_to_an_end() {
    let mut random = fastrand::Rng::with_seed(seed());
    let mut unwinder = Unwinder::new();
    const WORDS: usize = 512;
    const START: usize = 0x7000_0000;
    let code = [
        nonsense_is_read_to_an_end as fn() as usize & !0xfff,
        libc::getpid as *const () as usize & !0xfff,
        libc::malloc as *const () as usize & !0xfff,
        Symbols::default as fn() -> Symbols as usize & !0xfff,
    ];
    let mut ends = [0; 3];
    for _ in 0..30_000 {
        let mut word = || match random.u8(..4) {
            0 => code[random.usize(..4)] + random.usize(..0x4000),
            1 => START + 8 * random.usize(..WORDS),
            2 => random.usize(..),
            _ => random.usize(..64),
        };
        let registers = Registers::of_signal([word(), word(), word(), word()]);
        let stack: [usize; WORDS] = core::array::from_fn(|_| word());
        let mut frames = Vec::new();
        let read = |address: usize| stack.get(address.wrapping_sub(START) / 8).copied();
        let end = unwinder.frames(registers, read, &mut frames);
        assert!((1..=FRAMES).contains(&frames.len()));
        assert!(end != End::Cut || frames.len() == FRAMES);
        ends[end as usize] += 1;
    }
    println!("bottom, cut, lost: {ends:?}");
}

/// As far as all words of memory that is not mapped, everything is an address.
#[test]
fn a_stack_of_one_word_is_bounded() {
    let mut unwinder = Unwinder::new();
    let own = a_stack_of_one_word_is_bounded as fn() as usize;
    for word in [0, 1, 8, own, own + 1, usize::MAX, usize::MAX - 7, 1 << 63] {
        for pc in [own, word] {
            for (sp, bp) in [(0, word), (word, word), (usize::MAX - 7, 8), (word, 0)] {
                let mut frames = Vec::new();
                let registers = Registers::new(pc, sp, bp);
                unwinder.frames(registers, |_| Some(word), &mut frames);
                assert!((1..=FRAMES).contains(&frames.len()));
            }
        }
    }
}
