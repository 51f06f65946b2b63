//! The guards below the stacks: they fault, with the kernel's markers and without.

use super::*;

/// Both ends of the guard fault, and its neighbours are writable and keep their values.
fn check_guards() {
    let slots: Vec<_> = (0..20).map(|_| acquire(64 << 10).unwrap()).collect();
    for (i, slot) in slots.iter().enumerate() {
        write(slot.bottom(), i as u8);
        write(slot.top() - 1, i as u8);
    }
    for slot in &slots {
        must_fault(slot.bottom() - 1);
        must_fault(slot.bottom() - GUARD);
    }
    for (i, slot) in slots.iter().enumerate() {
        assert_eq!(
            (read(slot.bottom()), read(slot.top() - 1)),
            (i as u8, i as u8)
        );
    }
}

#[test]
fn guards_fault() {
    must_succeed(in_child("guards_fault", check_guards));
}

#[test]
fn guards_fault_on_kernels_without_markers() {
    must_succeed(in_child("guards_fault_on_kernels_without_markers", || {
        mm::SPLIT.store(true, Relaxed);
        check_guards();
    }));
}

#[test]
fn without_markers_the_end_of_mappings_is_an_error() {
    must_succeed(in_child(
        "without_markers_the_end_of_mappings_is_an_error",
        || {
            mm::SPLIT.store(true, Relaxed);
            let limit = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap();
            let limit: usize = limit.trim().parse().unwrap();
            if limit > 1_000_000 {
                return eprintln!("skipped: {limit} mappings allowed");
            }
            let mut taken = 0;
            let error = loop {
                match acquire(MIN_SIZE) {
                    Ok(_) => taken += 1,
                    Err(error) => break error,
                }
            };
            assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
            assert!(taken > limit / 2 - 1000, "{taken} slots");
            // The slot without a guard is not handed out without one later, either.
            assert!(acquire(MIN_SIZE).is_err());
        },
    ));
}
