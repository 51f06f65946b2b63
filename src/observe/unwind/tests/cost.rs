//! Figures: `cargo test --release --lib observe::unwind -- --ignored --nocapture`.

use super::*;
use std::time::Instant;

/// Functions that call one another, each with some registers to save.
macro_rules! road {
    ($name:ident) => {
        #[inline(never)]
        fn $name(yielder: &Yield, number: u64) -> u64 {
            yielder.suspend();
            core::hint::black_box(number)
        }
    };
    ($name:ident $next:ident $($rest:ident)*) => {
        #[inline(never)]
        fn $name(yielder: &Yield, number: u64) -> u64 {
            let room = core::hint::black_box([number; 8]);
            let found = $next(yielder, number + 1);
            core::hint::black_box(&room);
            found ^ room[3]
        }
        road!($next $($rest)*);
    };
}
road!(one two three four five six seven eight nine ten eleven twelve);

fn thread() -> Thread {
    let mut thread = Thread::new(|yielder, _| {
        core::hint::black_box(one(yielder, 1));
    });
    assert!(thread.run());
    thread
}

#[test]
#[ignore = "figures"]
fn cost_of_a_stack_and_a_symbol() {
    let mut thread = thread();
    let start = Instant::now();
    let mut unwinder = Unwinder::new();
    println!("an unwinder: {:?}", start.elapsed());
    let (registers, bounds) = (thread.registers(), thread.bounds);
    let mut frames = Vec::new();
    let read = |unwinder: &mut Unwinder, frames: &mut Vec<usize>| {
        unwinder.frames(registers, |at| bounds.read(at), frames)
    };
    let start = Instant::now();
    assert_eq!(read(&mut unwinder, &mut frames), End::Bottom);
    println!("{} frames, cold: {:?}", frames.len(), start.elapsed());
    const ROUNDS: u32 = 200_000;
    let start = Instant::now();
    for _ in 0..ROUNDS {
        read(&mut unwinder, &mut frames);
    }
    println!(
        "{} frames, warm: {:?}",
        frames.len(),
        start.elapsed() / ROUNDS
    );
    let start = Instant::now();
    for _ in 0..1000 {
        unwinder.rules.fill((0, Rule::Untold));
    }
    let clearing = start.elapsed();
    let start = Instant::now();
    for _ in 0..1000 {
        unwinder.rules.fill((0, Rule::Untold));
        read(&mut unwinder, &mut frames);
    }
    println!("without rules: {:?}", (start.elapsed() - clearing) / 1000);
    let mut stacks = crate::observe::numbers::NumberMap::default();
    let start = Instant::now();
    for _ in 0..ROUNDS {
        crate::observe::snapshot::number_of(&mut stacks, &frames);
    }
    println!("into the stacks: {:?}", start.elapsed() / ROUNDS);
    let before = resident();
    let mut symbols = Symbols::default();
    let modules = &unwinder.modules;
    let start = Instant::now();
    symbols.of(frames[0], modules);
    println!("the first symbol: {:?}", start.elapsed());
    let start = Instant::now();
    for &frame in &frames[1..] {
        symbols.of(frame, modules);
    }
    println!(
        "{} more, each: {:?}",
        frames.len() - 1,
        start.elapsed() / (frames.len() as u32 - 1)
    );
    let other: Vec<usize> = (0..200).map(symbols_at).collect();
    let start = Instant::now();
    for &address in &other {
        symbols.of(address, modules);
    }
    println!(
        "{} of other functions, each: {:?}",
        other.len(),
        start.elapsed() / other.len() as u32
    );
    let start = Instant::now();
    for _ in 0..1000 {
        symbols.of(frames[3], modules);
    }
    println!("one again: {:?}", start.elapsed() / 1000);
    println!("memory that symbols take: {} KiB", resident() - before);
    drop(symbols);
    println!("that they leave: {} KiB", resident().saturating_sub(before));
    assert!(!thread.run());
}

/// KiB of the process' memory.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.unwrap().trim().trim_end_matches(" kB");
    number.parse().unwrap()
}

/// Somewhere in the program's code.
fn symbols_at(index: usize) -> usize {
    (symbols_at as fn(usize) -> usize as usize)
        .wrapping_sub(100 * 997)
        .wrapping_add(997 * index)
}

/// As in a dump: each stack is read once, and lies in memory that no cache has.
#[test]
#[ignore = "figures"]
fn cost_of_many_stacks() {
    const THREADS: usize = 10_000;
    let mut threads: Vec<_> = (0..THREADS).map(|_| thread()).collect();
    let registers: Vec<_> = threads.iter().map(Thread::registers).collect();
    let mut unwinder = Unwinder::new();
    let mut stacks = crate::observe::numbers::NumberMap::default();
    let mut frames = Vec::new();
    let start = Instant::now();
    for (key, thread) in threads.iter().enumerate() {
        let read = |at| thread.bounds.read(at);
        let end = unwinder.frames(registers[key], read, &mut frames);
        assert_eq!(end, End::Bottom);
        crate::observe::snapshot::number_of(&mut stacks, &frames);
    }
    let each = start.elapsed() / THREADS as u32;
    println!(
        "{THREADS} threads with {} frames, each: {each:?}",
        frames.len()
    );
    assert_eq!(stacks.entries.len(), 1);
    for thread in &mut threads {
        assert!(!thread.run());
    }
}
