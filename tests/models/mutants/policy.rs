//! The mutants of the policies' protocols.

use super::*;

pub(super) const MUTANTS: &[Mutant] = &[
    // ---- local_queue: who owns which slots ----
    Mutant {
        protocol: "local_queue",
        name: "two_thieves_copy",
        model: "two_thieves",
        fails: "",
        edits: &[(
            LOCAL_QUEUE,
            "(count != 0 && !front.is_busy()).then",
            "(count != 0).then",
        )],
    },
    Mutant {
        protocol: "local_queue",
        name: "slots_are_free_before_they_are_copied",
        model: "one_thief",
        fails: RACE,
        edits: &[(
            LOCAL_QUEUE,
            "            first: self.first.wrapping_add(count),\n            ..self\n        }\n    }\n\n    /// The thief has copied",
            "            first: self.first.wrapping_add(count),\n            kept: self.first.wrapping_add(count),\n        }\n    }\n\n    /// The thief has copied",
        )],
    },
    Mutant {
        protocol: "local_queue",
        name: "the_seat_frees_what_a_thief_copies",
        model: "one_thief",
        fails: "",
        edits: &[(
            LOCAL_QUEUE,
            "let kept = if self.is_busy() { self.kept } else { first };",
            "let kept = first;",
        )],
    },
    Mutant {
        protocol: "local_queue",
        name: "release_keeps_what_the_seat_has_taken",
        model: "half_is_taken",
        fails: "no slot is free again",
        edits: &[(
            LOCAL_QUEUE,
            "            kept: self.first,\n            ..self",
            "            kept: claim.kept,\n            ..self",
        )],
    },
    Mutant {
        protocol: "local_queue",
        name: "an_old_end_counts",
        model: "one_thief",
        fails: "",
        edits: &[(
            LOCAL_QUEUE,
            "            waiting if waiting <= SLOTS as u32 => waiting,\n            _ => 0,",
            "            waiting => waiting.min(SLOTS as u32),",
        )],
    },
    // ---- local_queue: orderings ----
    Mutant {
        protocol: "local_queue",
        name: "push_to_the_ring_does_not_release",
        model: "one_thief",
        fails: RACE,
        edits: &[(
            LOCAL_QUEUE,
            "        self.end.store(end.wrapping_add(1), Ordering::Release);",
            "        self.end.store(end.wrapping_add(1), Ordering::Relaxed);",
        )],
    },
    Mutant {
        protocol: "local_queue",
        name: "steal_does_not_acquire",
        model: "one_thief",
        fails: RACE,
        edits: &[(
            LOCAL_QUEUE,
            "front.waiting(self.end.load(Ordering::Acquire))",
            "front.waiting(self.end.load(Ordering::Relaxed))",
        )],
    },
    Mutant {
        protocol: "local_queue",
        name: "thief_does_not_release",
        model: "one_thief",
        fails: RACE,
        edits: &[(
            LOCAL_QUEUE,
            "self.change(Ordering::Release, |front|",
            "self.change(Ordering::Relaxed, |front|",
        )],
    },
    Mutant {
        protocol: "local_queue",
        name: "space_does_not_acquire",
        model: "one_thief",
        fails: RACE,
        edits: &[(
            LOCAL_QUEUE,
            "Front::of(self.front.load(Ordering::Acquire))",
            "Front::of(self.front.load(Ordering::Relaxed))",
        )],
    },
];
