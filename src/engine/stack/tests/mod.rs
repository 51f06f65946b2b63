//! The stacks, tried out. Each test runs in a child process of its own: many count its memory,
//! limit or kill it, and none shares the pool with the runtime's tests.

mod guards;
mod overflow;

use super::*;
use slab::fold;
use std::cell::RefCell;
use std::process::{Command, Output};

const MIB: usize = 1 << 20;
const RESERVE: usize = 5000;
const CHILD: &str = "GREENTHREAD_TEST_CHILD";

/// Runs `body` in a fresh process that runs this one test only; `test` is its name.
fn in_child(test: &str, body: impl FnOnce()) -> Option<Output> {
    if std::env::var(CHILD).is_ok_and(|child| child == test) {
        init(RESERVE, MIB).unwrap();
        body();
        return None;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    // A filter that matches nothing does no harm: one of them is the test's path.
    let paths = ["", "guards::", "overflow::"]
        .map(|module| format!("engine::stack::tests::{module}{test}"));
    command
        .args(["--exact", "--nocapture", "--test-threads=1"])
        .args(paths);
    Some(command.env(CHILD, test).output().unwrap())
}

fn must_succeed(output: Option<Output>) {
    if let Some(output) = output {
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}\n{text}", output.status);
        assert!(
            String::from_utf8_lossy(&output.stdout).contains("1 passed"),
            "it ran"
        );
        eprint!("{text}");
    }
}

fn byte(address: usize) -> &'static AtomicU8 {
    // SAFETY: the tests read and write stacks of their own, or a guard, to be killed.
    unsafe { AtomicU8::from_ptr(std::ptr::with_exposed_provenance_mut(address)) }
}

fn write(address: usize, value: u8) {
    byte(address).store(value, Relaxed);
}

fn read(address: usize) -> u8 {
    byte(address).load(Relaxed)
}

/// Bytes in memory between `start` and `end`.
fn resident(start: usize, end: usize) -> usize {
    let mut pages = vec![false; (end - start) / page()];
    mm::tests::resident(start, &mut pages).unwrap();
    pages.iter().filter(|&&page| page).count() * page()
}

/// Gives slots back that their owner has initialised, so to speak.
fn release_furnished(slots: &[&'static Slot]) {
    for slot in slots {
        slot.extra.store(1, Release);
        release(slot);
    }
}

/// The deepest that a stack has been since its memory was last given back: bytes in memory
/// below the reserve, counted from the deepest page.
fn high_water(slot: &Slot) -> usize {
    let stack_end = slot.bottom() + slot.size();
    let mut pages = vec![false; slot.size() / page()];
    mm::tests::resident(slot.bottom(), &mut pages).unwrap();
    let deepest = pages.iter().position(|page| *page);
    deepest.map_or(0, |deepest| stack_end - (slot.bottom() + deepest * page()))
}

#[test]
fn slots_are_whole_pages_of_any_size() {
    for page in [4 << 10, 16 << 10, 64 << 10]
        .into_iter()
        .filter(|&page| page <= LARGEST_PAGE)
    {
        for class in (0..CLASSES as u8).map(Class) {
            let deep = deep(class.size(), page);
            assert!((GUARD + class.size()).is_multiple_of(page) && deep.is_multiple_of(page));
            assert!(deep + KEEP.max(page) == class.size());
        }
    }
}

fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps")
        .unwrap()
        .lines()
        .count()
}

#[test]
fn sizes_are_rounded_up_to_a_class() {
    must_succeed(in_child("sizes_are_rounded_up_to_a_class", || {
        for (size, class) in [
            (0, MIN_SIZE),
            (MIN_SIZE, MIN_SIZE),
            (MIN_SIZE + 1, 2 * MIN_SIZE),
            (MIB - 1, MIB),
            (MIB, MIB),
            (5 * MIB, 8 * MIB),
            (1 << 30, 1 << 30),
        ] {
            let slot = acquire(size).unwrap();
            assert_eq!(slot.size(), class);
            assert_eq!(slot.bottom() % page(), 0);
            assert!(slot.top() - RESERVE >= slot.bottom() + class);
            write(slot.bottom(), 1);
            write(slot.top() - 1, 1);
            release(slot);
        }
    }));
}

#[test]
fn a_slot_is_found_by_any_of_its_addresses() {
    must_succeed(in_child("a_slot_is_found_by_any_of_its_addresses", || {
        let slot = acquire(32 << 10).unwrap();
        let is_ours = |address| find(address).is_some_and(|found| std::ptr::eq(found, slot));
        let end = slot.top() + size_of::<Slot>();
        assert!(is_ours(slot.bottom() - GUARD) && is_ours(slot.bottom() - 1));
        assert!(is_ours(slot.bottom()) && is_ours(slot.top()) && is_ours(end - 1));
        assert!(!is_ours(slot.bottom() - GUARD - 1) && !is_ours(end));
        let local = 0;
        assert!(find(&raw const local as usize).is_none() && find(0).is_none());
        assert!(find(usize::MAX).is_none());

        let visited = || {
            let mut seen = 0;
            visit(|extra| seen += usize::from(extra == 1));
            seen
        };
        assert_eq!(visited(), 0, "not initialised yet");
        slot.extra.store(1, Release);
        assert_eq!(visited(), 1);
        slot.extra.store(0, Release);
        release(slot);
        assert!(find(slot.top()).is_none(), "not initialised: decommitted");
    }));
}

#[test]
fn recycling_gives_memory_back_and_keeps_the_reserve() {
    must_succeed(in_child(
        "recycling_gives_memory_back_and_keeps_the_reserve",
        || {
            let slot = acquire(MIB).unwrap();
            let stack_end = slot.bottom() + slot.size();
            assert_eq!(high_water(slot), 0);
            write(stack_end - 3 * page(), 1);
            assert_eq!(high_water(slot), 3 * page());
            (slot.bottom()..stack_end)
                .step_by(page())
                .for_each(|address| write(address, 7));
            write(slot.top() - RESERVE, 9);
            assert_eq!(high_water(slot), MIB);
            release_furnished(&[slot]);
            let kept = KEEP.max(page());
            assert_eq!(resident(slot.bottom(), stack_end), kept);
            let again = acquire(MIB).unwrap();
            assert!(
                std::ptr::eq(slot, again),
                "the last released is the first taken"
            );
            assert_eq!(
                (read(stack_end - kept), read(stack_end - kept - page())),
                (7, 0)
            );
            assert_eq!(read(slot.top() - RESERVE), 9);
            must_fault(slot.bottom() - 1);
        },
    ));
}

#[test]
fn a_cache_is_last_in_first_out_and_spills_to_the_pool() {
    must_succeed(in_child(
        "a_cache_is_last_in_first_out_and_spills_to_the_pool",
        || {
            let deep = |slot: &Slot| write(slot.bottom(), 1);
            let is_deep = |slot: &Slot| resident(slot.bottom(), slot.bottom() + page()) != 0;
            let slots: Vec<_> = (0..1060).map(|_| acquire(MIB).unwrap()).collect();
            let mut cache = Cache::new(MIB);
            assert!(cache.pop().is_none());
            slots.iter().for_each(|slot| slot.extra.store(1, Release));

            // The list was empty. The cache for which it was found so keeps the slot acquired.
            cache.keep(slots[0]);
            assert!(std::ptr::eq(cache.pop().unwrap(), slots[0]));

            // For any other thread: half of what the cache has goes to the list, trimmed.
            slots[..3].iter().for_each(|slot| deep(slot));
            cache.push(slots[0]);
            assert!(cache.pop().is_none() && !is_deep(slots[0]));
            assert!(std::ptr::eq(acquire(MIB).unwrap(), slots[0]));
            deep(slots[0]);
            slots[..3].iter().for_each(|slot| cache.push(slot));
            WANTED.store(true, Relaxed);
            cache.push(slots[3]);
            assert!(is_deep(slots[0]) && is_deep(slots[1]) && !is_deep(slots[2]));
            assert!(std::ptr::eq(cache.pop().unwrap(), slots[1]));
            assert!(std::ptr::eq(cache.pop().unwrap(), slots[0]) && cache.pop().is_none());
            assert!(cache.fetch());
            let fetched = [cache.pop().unwrap().top(), cache.pop().unwrap().top()];
            assert_eq!(fetched, [slots[3].top(), slots[2].top()]);
            assert!(cache.pop().is_none());

            // More than fit: half goes, trimmed, and each slot is somewhere once.
            slots.iter().for_each(|slot| deep(slot));
            slots.iter().for_each(|slot| cache.push(slot));
            assert_eq!(
                slots.iter().filter(|slot| is_deep(slot)).count(),
                cache.list.len()
            );
            assert_eq!(cache.list.len(), 548);
            let kept = slots[..512].iter().chain(&slots[1024..]);
            for slot in kept.rev() {
                assert!(std::ptr::eq(cache.pop().unwrap(), *slot));
            }
            cache.push(slots[1059]);
            cache.drain();
            assert!(cache.pop().is_none() && !is_deep(slots[1059]));
            let mut free: Vec<_> = (0..513).map(|_| acquire(MIB).unwrap().top()).collect();
            let mut own: Vec<_> = slots[512..1024]
                .iter()
                .chain(&slots[1059..])
                .map(|s| s.top())
                .collect();
            free.sort();
            own.sort();
            assert_eq!(free, own);
        },
    ));
}

#[test]
fn slots_of_another_class_do_not_stay_in_a_cache() {
    must_succeed(in_child(
        "slots_of_another_class_do_not_stay_in_a_cache",
        || {
            let mut cache = Cache::new(MIB);
            cache.keep(acquire(MIB).unwrap());
            assert!(cache.pop().is_some());
            let small = acquire(MIN_SIZE).unwrap();
            small.extra.store(1, Release);
            cache.keep(small);
            assert!(cache.pop().is_none() && std::ptr::eq(acquire(MIN_SIZE).unwrap(), small));
        },
    ));
}

/// Forks a child that writes to `address`, and sees it killed by SIGSEGV.
fn must_fault(address: usize) {
    // SAFETY: the child makes system calls and one write, as is right after a fork.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::signal(libc::SIGSEGV, libc::SIG_DFL);
            write(address, 1);
            libc::_exit(0);
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        let signal = libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status));
        assert_eq!(signal, Some(libc::SIGSEGV), "writing to {address:#x}");
    }
}

/// Initialises a slot as its owner does, writes to it, and decommits it.
fn use_and_vacate(slot: &'static Slot) {
    slot.extra.store(1, Release);
    for address in [slot.bottom(), slot.top() - RESERVE, slot.top() - 1] {
        write(address, 1);
    }
    slot.extra.store(0, Release);
    // SAFETY: nobody uses it.
    unsafe { decommit(slot) };
}

#[test]
fn a_decommitted_slot_is_cut_again_as_new() {
    must_succeed(in_child("a_decommitted_slot_is_cut_again_as_new", || {
        for folds in [false, true] {
            let slots: Vec<_> = (0..100).map(|_| acquire(MIB).unwrap()).collect();
            let places = |slots: &[&Slot]| {
                let mut places: Vec<_> = slots.iter().map(|slot| slot.top()).collect();
                places.sort();
                places
            };
            let (kept, decommitted) = slots.split_at(10);
            let gone_places = places(decommitted);
            let all_of = |slot: &Slot| (slot.bottom(), slot.top() + size_of::<Slot>());
            let spans: Vec<_> = decommitted.iter().map(|slot| all_of(slot)).collect();
            kept.iter().for_each(|slot| write(slot.bottom(), 5));
            decommitted.iter().for_each(|slot| use_and_vacate(slot));
            let in_memory = |spans: &[(usize, usize)]| {
                spans
                    .iter()
                    .map(|&(start, end)| resident(start, end))
                    .sum::<usize>()
            };
            assert_eq!(in_memory(&spans), 0);
            assert!(decommitted.iter().all(|slot| find(slot.bottom()).is_none()));
            if folds {
                let before = mappings();
                assert!(fold() && fold());
                while fold() {}
                assert_eq!(mappings(), before);
                assert_eq!(in_memory(&spans), 0);
            }
            let again: Vec<_> = (0..90).map(|_| acquire(MIB).unwrap()).collect();
            assert_eq!(places(&again), gone_places);
            for slot in &again {
                assert_eq!((slot.size(), slot.extra.load(Relaxed)), (MIB, 0));
                for address in [slot.bottom(), slot.top() - RESERVE, slot.top() - 1] {
                    assert_eq!(read(address), 0);
                }
            }
            must_fault(again[0].bottom() - 1);
            must_fault(again[89].bottom() - GUARD);
            assert!(kept.iter().all(|slot| read(slot.bottom()) == 5));
            slots.iter().for_each(|slot| release(slot));
        }
    }));
}

/// From the lowest on, also if that has decommitted after others were cut again.
#[test]
fn the_lowest_decommitted_slot_is_cut_first() {
    must_succeed(in_child("the_lowest_decommitted_slot_is_cut_first", || {
        // In the order in which they were cut, from the first slabs.
        let slots: Vec<_> = (0..50).map(|_| acquire(MIB).unwrap()).collect();
        let tops: Vec<_> = slots.iter().map(|slot| slot.top()).collect();
        let cut_again = |count: usize| -> Vec<_> {
            let again = (0..count).map(|_| acquire(MIB).unwrap().top());
            again.collect()
        };
        slots[20..30].iter().for_each(|slot| use_and_vacate(slot));
        assert_eq!(cut_again(5), tops[20..25]);
        // One in the slab before, and one on each side of those in theirs.
        let more = [10, 17, 40].into_iter();
        more.for_each(|index| use_and_vacate(slots[index]));
        assert_eq!(cut_again(2), [tops[10], tops[17]]);
        assert_eq!(cut_again(5), tops[25..30]);
        assert_eq!(cut_again(1), tops[40..41]);
        let new = cut_again(1);
        assert!(!tops.contains(&new[0]));
    }));
}

#[test]
fn a_look_halves_what_nobody_has_taken() {
    must_succeed(in_child("a_look_halves_what_nobody_has_taken", || {
        const SECOND: u64 = 1_000_000_000;
        const KEPT: usize = 32;
        let free = || common(Class::of(MIB)).lock().list.len();
        let decommitted = RefCell::new(Vec::new());
        let destroy = |slot: &'static Slot| {
            decommitted.borrow_mut().push(slot.top());
            use_and_vacate(slot);
            Ok(())
        };
        // A look at this second; how many slots it has returned, and whether there is more.
        let look = |second: u64| {
            let before = free();
            let more = reclaim::look(second * SECOND, 2, || None, destroy, || true);
            (before - free(), more)
        };
        let slots: Vec<_> = (0..132).map(|_| acquire(MIB).unwrap()).collect();
        release_furnished(&slots);
        assert_eq!(look(1), (0, true), "they are new");
        let again = reclaim::look(2 * SECOND - 1, 2, || None, destroy, || true);
        assert!(
            again && free() == 132,
            "too early for those of another cluster"
        );
        let needed: Vec<_> = (0..30).map(|_| acquire(MIB).unwrap()).collect();
        release_furnished(&needed);
        assert_eq!(look(2), (35, true), "30 were needed");
        assert_eq!(look(3), (33, true));
        let needed: Vec<_> = (0..30).map(|_| acquire(MIB).unwrap()).collect();
        assert_eq!(look(4), (1, true), "they are needed now");
        release_furnished(&needed);
        let rest: Vec<_> = (5..13).map(look).collect();
        assert_eq!(rest.iter().map(|look| look.0).sum::<usize>(), 31);
        assert_eq!((rest[0].0, rest[7], free()), (1, (0, false), KEPT));

        // Those of an idle processor count from the next look on.
        let crowd: Vec<_> = (0..132).map(|_| acquire(MIB).unwrap()).collect();
        let mut cache = Cache::new(MIB);
        crowd.iter().for_each(|slot| slot.extra.store(1, Release));
        WANTED.store(false, Relaxed);
        crowd.iter().for_each(|slot| cache.push(slot));
        let idle = || cache.take();
        assert!(reclaim::look(20 * SECOND, 2, idle, destroy, || true));
        assert!(free() == 132 && cache.is_empty());
        assert_eq!(look(21), (50, true));

        // Who has something better to do goes on later.
        assert!(reclaim::look(22 * SECOND, 2, || None, destroy, || false));
        assert_eq!(free(), 82);
        // One that stays goes back to its list.
        for (stays, more) in [
            (reclaim::Stays::ForNow, true),
            (reclaim::Stays::ForEver, false),
        ] {
            let stays = RefCell::new(Some(stays));
            let refuse = |_: &'static Slot| stays.take().map_or(Ok(()), Err);
            let now = if more { 23 } else { 24 };
            assert_eq!(
                reclaim::look(now * SECOND, 2, || None, refuse, || true),
                more
            );
            assert_eq!(free(), 82);
        }
        reclaim::all(1, destroy);
        assert_eq!(free(), 16);
        assert!(decommitted.take().len() >= 166);
    }));
}

#[test]
fn little_address_space_is_enough() {
    must_succeed(in_child("little_address_space_is_enough", || {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        let used = statm.split(' ').next().unwrap().parse::<usize>().unwrap() * page();
        let limit = (used + 12 * MIB) as u64;
        let limit = libc::rlimit {
            rlim_cur: limit,
            rlim_max: limit,
        };
        // SAFETY: limits this child only.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
        // Not even half of a first slab fits; whatever fits is used.
        let slots: [_; 8] = std::array::from_fn(|_| acquire(2 * MIB));
        let taken = slots.iter().flatten().count();
        assert!((4..6).contains(&taken), "{taken} slots in 12 MiB");
        assert!(init(RESERVE, 64 * MIB).is_err(), "seen at once");
        let kinds = slots
            .iter()
            .filter_map(|slot| slot.as_ref().err())
            .map(io::Error::kind);
        assert!(
            kinds
                .into_iter()
                .all(|kind| kind == io::ErrorKind::OutOfMemory)
        );
        let slot = *slots.iter().flatten().next().unwrap();
        release(slot);
        assert!(acquire(2 * MIB).is_ok(), "what is free can still be had");
    }));
}

#[test]
fn many_stacks_in_few_mappings() {
    must_succeed(in_child("many_stacks_in_few_mappings", || {
        const COUNT: usize = 200_000;
        acquire(MIN_SIZE).unwrap();
        if mm::SPLIT.load(Relaxed) {
            return eprintln!("skipped: this kernel has no guard markers");
        }
        let before = mappings();
        let slots: Vec<_> = (0..COUNT).map(|_| acquire(MIB).unwrap()).collect();
        slots.iter().for_each(|slot| write(slot.top() - RESERVE, 1));
        let more = mappings() - before;
        eprintln!("{COUNT} stacks: {more} mappings more");
        assert!(more < 200);
        let tops: std::collections::HashSet<_> = slots.iter().map(|slot| slot.top()).collect();
        assert_eq!(tops.len(), COUNT);
        assert!(
            slots
                .iter()
                .all(|slot| std::ptr::eq(find(slot.bottom()).unwrap(), *slot))
        );
    }));
}

/// Slots move between threads, and none is ever in two places.
#[test]
fn slots_have_one_owner() {
    must_succeed(in_child("slots_have_one_owner", || {
        std::thread::scope(|scope| {
            for thread in 2..=5_u64 {
                scope.spawn(move || {
                    let mut cache = Cache::new(MIB);
                    let mut random = thread;
                    let mut held: Vec<&'static Slot> = Vec::new();
                    for _ in 0..20_000 {
                        random = random.wrapping_mul(6364136223846793005).wrapping_add(1);
                        if random >> 63 == 0 && held.len() < 100 {
                            let slot = cache.pop().map_or_else(|| acquire(MIB), Ok).unwrap();
                            // 0: new, 1: nobody's.
                            assert!(slot.extra.swap(thread as usize, Relaxed) <= 1);
                            held.push(slot);
                        } else if let Some(slot) = held.pop() {
                            assert_eq!(slot.extra.swap(1, Relaxed), thread as usize);
                            if random >> 62 & 1 == 0 {
                                cache.push(slot)
                            } else {
                                release(slot)
                            }
                        }
                    }
                    for slot in held {
                        slot.extra.store(1, Relaxed);
                        release(slot);
                    }
                    cache.drain();
                });
            }
        });
    }));
}
