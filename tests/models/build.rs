//! Writes the mutants: copies of a protocol's source, or of its model where an obligation lies with
//! the user, with one thing weakened; and a test for each that says how it must fail.

use std::{collections::BTreeMap, env, fmt::Write as _, fs, path::Path};

/// For each protocol, the sources that a mutant of it is made of: all that stand on one another.
const PROTOCOLS: &[(&str, &[&str])] = &[
    ("ticket", &[TICKET]),
    ("ownership", &[OWNERSHIP]),
    ("idle", &[IDLE]),
    ("claim", &[CLAIM, LIST]),
    ("queue", &[CLAIM, LIST, QUEUE]),
    ("mutex", &[CLAIM, LIST, QUEUE, RAW_MUTEX]),
    ("once", &[CLAIM, LIST, QUEUE, ONCE]),
    ("rwlock", &[RAW_RWLOCK]),
    ("lock", &[LOCK]),
    ("readers", &[READERS]),
    ("inbox", &[INBOX]),
    ("dependents", &[DEPENDENTS]),
    ("readiness", &[CLAIM, LIST, QUEUE, READINESS]),
    (
        "channels",
        &[
            CLAIM,
            LIST,
            "channel/mod.rs",
            "channel/buffer.rs",
            "channel/error.rs",
            "channel/handle.rs",
            "channel/iter.rs",
            "channel/receiver.rs",
            RIGHTS,
            "channel/select.rs",
            SELECTING,
            "channel/sender.rs",
            SHARED,
            STATE,
            "channel/timer.rs",
            "channel/turn.rs",
        ],
    ),
    (
        "condvar",
        &[CLAIM, LIST, QUEUE, RAW_MUTEX, POISON, MUTEX, CONDVAR],
    ),
];

const TICKET: &str = "wait/ticket.rs";
const OWNERSHIP: &str = "sched/ownership.rs";
const IDLE: &str = "sched/idle.rs";
const CLAIM: &str = "wait/claim.rs";
const LIST: &str = "wait/list.rs";
const QUEUE: &str = "wait/queue.rs";
const RAW_MUTEX: &str = "sync/raw_mutex.rs";
const ONCE: &str = "sync/once.rs";
const RAW_RWLOCK: &str = "sync/raw_rwlock.rs";
const POISON: &str = "sync/poison.rs";
const MUTEX: &str = "sync/mutex.rs";
const CONDVAR: &str = "sync/condvar.rs";
const LOCK: &str = "sys/lock.rs";
const READERS: &str = "policy/readers.rs";
const READINESS: &str = "driver/readiness.rs";
const INBOX: &str = "driver/uring/inbox.rs";
const DEPENDENTS: &str = "dataflow/dependents.rs";
const RIGHTS: &str = "channel/rights.rs";
const SELECTING: &str = "channel/selecting.rs";
const SHARED: &str = "channel/shared.rs";
const STATE: &str = "channel/state.rs";
/// The model's own file.
const MODEL: &str = "model";

struct Mutant {
    protocol: &'static str,
    name: &'static str,
    /// In which file, what is replaced (it must be there exactly once), and by what.
    edits: &'static [(&'static str, &'static str, &'static str)],
    /// The model that must fail, and a part of its message.
    model: &'static str,
    fails: &'static str,
}

/// A data race on something that only one thread at a time may touch.
const RACE: &str = "Causality violation";
const LOST: &str = "lost or doubled";
const WAITS: &str = "a job waits while a processor sleeps";

#[rustfmt::skip]
const MUTANTS: &[Mutant] = &[
    // ---- ticket: orderings ----
    Mutant { protocol: "ticket", name: "notify_does_not_acquire", model: "wait_for_two", fails: RACE,
        edits: &[(TICKET, "swap(NOTIFIED, AcqRel)", "swap(NOTIFIED, Release)")] },
    Mutant { protocol: "ticket", name: "notify_does_not_release", model: "wait_for_two", fails: LOST,
        edits: &[(TICKET, "swap(NOTIFIED, AcqRel)", "swap(NOTIFIED, Acquire)")] },
    Mutant { protocol: "ticket", name: "commit_does_not_release", model: "wait_for_two", fails: RACE,
        edits: &[(TICKET, "EMPTY, parked, Release", "EMPTY, parked, Relaxed")] },
    Mutant { protocol: "ticket", name: "refused_commit_does_not_acquire", model: "wait_with_timeout", fails: RACE,
        edits: &[(TICKET, "match self.word.swap(EMPTY, Acquire) {\n            NOTIFIED => Commit", "match self.word.swap(EMPTY, Relaxed) {\n            NOTIFIED => Commit")] },
    Mutant { protocol: "ticket", name: "resumed_does_not_acquire", model: "wait_with_timeout", fails: RACE,
        edits: &[(TICKET, "match self.word.swap(EMPTY, Acquire) {\n            NOTIFIED => Outcome", "match self.word.swap(EMPTY, Relaxed) {\n            NOTIFIED => Outcome")] },
    Mutant { protocol: "ticket", name: "resumed_kernel_thread_does_not_acquire", model: "kernel_thread_times_out", fails: RACE,
        edits: &[(TICKET, "match self.word.swap(EMPTY, Acquire) {\n            NOTIFIED => Outcome", "match self.word.swap(EMPTY, Relaxed) {\n            NOTIFIED => Outcome")] },
    Mutant { protocol: "ticket", name: "consume_does_not_acquire", model: "wait_for_two", fails: LOST,
        edits: &[(TICKET, "self.word.swap(EMPTY, Acquire) == NOTIFIED", "self.word.swap(EMPTY, Relaxed) == NOTIFIED")] },
    Mutant { protocol: "ticket", name: "expire_does_not_acquire", model: "wait_with_timeout", fails: RACE,
        edits: &[(TICKET, "seen, EXPIRED, AcqRel", "seen, EXPIRED, Release")] },
    Mutant { protocol: "ticket", name: "expire_does_not_release", model: "wait_with_timeout", fails: RACE,
        edits: &[(TICKET, "seen, EXPIRED, AcqRel", "seen, EXPIRED, Acquire")] },
    // ---- ticket: transitions ----
    Mutant { protocol: "ticket", name: "notify_resumes_who_is_not_parked", model: "wait_for_two", fails: RACE,
        edits: &[(TICKET, "            _ => Found::Nobody,", "            NOTIFIED => Found::Nobody,\n            _ => Found::Green,")] },
    Mutant { protocol: "ticket", name: "expire_overwrites_a_notification", model: "wait_with_timeout", fails: LOST,
        edits: &[(TICKET, "while seen != NOTIFIED && seen != EXPIRED", "while seen != EXPIRED")] },
    Mutant { protocol: "ticket", name: "commit_parks_over_a_notification", model: "wait_for_two", fails: LOST,
        edits: &[(TICKET, "// Release: the saved context; partners: Acquire in `notify` and `expire`.\n",
            "if self.word.swap(parked, Release) != parked { return Commit::Parked; }\n")] },
    Mutant { protocol: "ticket", name: "is_notified_only_looks", model: "one_sees_the_other", fails: LOST,
        edits: &[(TICKET, "self.word.fetch_or(0, AcqRel) == NOTIFIED", "self.word.load(Acquire) == NOTIFIED")] },
    Mutant { protocol: "ticket", name: "kernel_thread_blocks_without_comparing", model: "kernel_thread_waits", fails: "deadlock",
        edits: &[(MODEL, "            if self.ticket.as_futex().load(Relaxed) == Ticket::ASLEEP {\n                drop", "            {\n                drop")] },
    Mutant { protocol: "ticket", name: "kernel_thread_is_parked_like_a_green_one", model: "kernel_thread_waits", fails: RACE,
        edits: &[(TICKET, "const ASLEEP: u32 = 4;", "const ASLEEP: u32 = PARKED;")] },
    Mutant { protocol: "ticket", name: "notifier_looks_at_a_kernel_thread_again", model: "kernel_thread_waits", fails: RACE,
        edits: &[(MODEL, "Found::Kernel => self.futex_wake(),", "Found::Kernel => { self.futex_wake(); self.beside.with(|_| ()) }")] },
    Mutant { protocol: "ticket", name: "asleep_is_not_woken", model: "kernel_thread_waits", fails: "deadlock",
        edits: &[(TICKET, "            ASLEEP => Found::Kernel,\n", "")] },

    // ---- ownership: the asymmetric fence and the second look ----
    Mutant { protocol: "ownership", name: "entry_without_fence", model: "enter_twice", fails: RACE,
        edits: &[(OWNERSHIP, "    compiler_fence(SeqCst);\n", "")] },
    Mutant { protocol: "ownership", name: "retake_without_barrier", model: "enter_twice", fails: RACE,
        edits: &[(OWNERSHIP, "        barrier();\n", "")] },
    Mutant { protocol: "ownership", name: "retake_without_second_look", model: "enter_twice", fails: RACE,
        edits: &[(OWNERSHIP, "unchanged() || !self.give_back(p)", "true")] },
    Mutant { protocol: "ownership", name: "second_look_at_off_only", model: "migrate_away", fails: RACE,
        edits: &[(MODEL, "off == 0 && current == GREEN && now == tick", "off == 0")] },
    Mutant { protocol: "ownership", name: "second_look_without_tick", model: "migrate_and_return", fails: RACE,
        edits: &[(MODEL, "off == 0 && current == GREEN && now == tick", "off == 0 && current == GREEN")] },
    Mutant { protocol: "ownership", name: "second_look_in_another_order", model: "migrate_away", fails: RACE,
        edits: &[(MODEL, "            let off = self.off.load(Acquire);\n", ""),
                 (MODEL, "            off == 0 && current", "            let off = self.off.load(Acquire);\n            off == 0 && current")] },
    Mutant { protocol: "ownership", name: "second_look_at_off_does_not_acquire", model: "enter_twice", fails: RACE,
        edits: &[(MODEL, "self.off.load(Acquire)", "self.off.load(Relaxed)")] },
    Mutant { protocol: "ownership", name: "tick_does_not_release", model: "migrate_and_return", fails: RACE,
        edits: &[(MODEL, "first.tick.store(1, Release)", "first.tick.store(1, Relaxed)")] },
    Mutant { protocol: "ownership", name: "exit_does_not_release", model: "enter_twice", fails: RACE,
        edits: &[(MODEL, "self.off.store(0, Release)", "self.off.store(0, Relaxed)")] },
    // ---- ownership: three states ----
    Mutant { protocol: "ownership", name: "given_back_to_who_has_left", model: "enter_twice", fails: LOST,
        edits: &[(OWNERSHIP, "!self.give_back(p)", "{ self.assign(p); false }")] },
    Mutant { protocol: "ownership", name: "settle_overwrites", model: "enter_twice", fails: LOST,
        edits: &[(OWNERSHIP, "        while word.is_null() {", "        if word.is_null() { self.word.store(Self::DETACHED, Release); return None; }\n        while word.is_null() {")] },
    Mutant { protocol: "ownership", name: "surrender_overwrites", model: "surrender", fails: LOST,
        edits: &[(OWNERSHIP, "let p = self.settle()?;", "let p = self.settle()?;\n            if true { self.word.store(Self::DETACHED, Release); return Some(p); }")] },
    // ---- ownership: orderings ----
    Mutant { protocol: "ownership", name: "settle_does_not_release", model: "surrender", fails: RACE,
        edits: &[(OWNERSHIP, "Self::DETACHED, Release, Acquire", "Self::DETACHED, Relaxed, Acquire")] },
    Mutant { protocol: "ownership", name: "give_back_does_not_acquire", model: "enter_twice", fails: RACE,
        edits: &[(OWNERSHIP, "p.as_ptr(), Relaxed, Acquire", "p.as_ptr(), Relaxed, Relaxed")] },
    Mutant { protocol: "ownership", name: "assign_does_not_release", model: "assigned", fails: RACE,
        edits: &[(OWNERSHIP, "store(p.as_ptr(), Release)", "store(p.as_ptr(), Relaxed)")] },
    Mutant { protocol: "ownership", name: "settle_does_not_acquire", model: "assigned", fails: RACE,
        edits: &[(OWNERSHIP, "let mut word = self.word.load(Acquire)", "let mut word = self.word.load(Relaxed)")] },

    // ---- idle ----
    Mutant { protocol: "idle", name: "no_fence_before_looking_for_sleepers", model: "one_readier", fails: WAITS,
        edits: &[(IDLE, "        // Partner: the fence in `announce_sleep`.\n        fence(SeqCst);\n", "")] },
    Mutant { protocol: "idle", name: "no_fence_after_announcing", model: "one_readier", fails: WAITS,
        edits: &[(IDLE, "        // Partner: the fence in `claim_wake`.\n        fence(SeqCst);\n", "")] },
    Mutant { protocol: "idle", name: "no_second_look_before_sleeping", model: "one_readier", fails: WAITS,
        edits: &[(MODEL, "self.is_work() && self.get_up(me)", "false")] },
    Mutant { protocol: "idle", name: "no_ramp", model: "one_readier", fails: WAITS,
        edits: &[(IDLE, "        before == 1\n", "        false\n")] },
    Mutant { protocol: "idle", name: "no_fence_before_looking_for_more", model: "one_readier", fails: WAITS,
        edits: &[(MODEL, "            fence(SeqCst); // partner: in `claim_wake`\n", "")] },
    Mutant { protocol: "idle", name: "gets_up_as_no_searcher", model: "one_readier", fails: WAITS,
        edits: &[(IDLE, "self.sleeper_to_searcher(|_| true)", "self.word.fetch_update(Relaxed, Relaxed, |w| (sleeping(w) > 0).then(|| w - SLEEPER + AWAKE)).is_ok()"),
                 (MODEL, "                searcher = true;\n                continue;\n", "                if self.take() { return; }\n                searcher = false;\n                continue;\n")] },
    Mutant { protocol: "idle", name: "cancel_is_never_refused", model: "one_readier", fails: "a claim without a sleeper",
        edits: &[(IDLE, "self.sleeper_to_searcher(|_| true)", "{ self.word.fetch_add(SEARCHER + AWAKE - SLEEPER, Relaxed); true }")] },

    Mutant { protocol: "idle", name: "no_look_when_retiring", model: "one_retires", fails: WAITS,
        edits: &[(MODEL, "                drop(sleepers);\n                self.look_for_others();\n", "                drop(sleepers);\n")] },
    Mutant { protocol: "idle", name: "no_fence_when_retiring", model: "one_retires", fails: WAITS,
        edits: &[(IDLE, "        // Partner: the fence in `claim_wake`: readiers relied on us, if we searched.\n        fence(SeqCst);\n", ""),
                 (MODEL, "    fn look_for_others(&self) {\n", "    fn look_for_others(&self) {\n        if !self.is_work() { return; }\n")] },
    Mutant { protocol: "idle", name: "searches_on_when_retired", model: "one_retires", fails: "miscounted",
        edits: &[(MODEL, "self.idle.retire(searcher)", "self.idle.retire(false)")] },
    Mutant { protocol: "idle", name: "withdraws_who_is_being_woken", model: "one_retires", fails: "a claim without a sleeper",
        edits: &[(IDLE, "(sleeping(w) > 0).then(|| w - SLEEPER))", "Some(w.wrapping_sub(SLEEPER)))")] },
    Mutant { protocol: "idle", name: "no_look_when_appearing", model: "one_appears", fails: WAITS,
        edits: &[(MODEL, "        self.idle.appear();\n        drop(sleepers);\n        self.look_for_others();\n", "        self.idle.appear();\n        drop(sleepers);\n")] },
    Mutant { protocol: "idle", name: "no_fence_when_appearing", model: "one_appears", fails: WAITS,
        edits: &[(IDLE, "        // Partner: the fence in `claim_wake`: a readier may have found nobody to wake.\n        fence(SeqCst);\n", "")] },

    // ---- rwlock: transitions ----
    Mutant { protocol: "rwlock", name: "who_gives_up_passes_nothing_on", model: "behind_who_gives_up", fails: "deadlock",
        edits: &[(RAW_RWLOCK, "if waited == Waited::TimedOut {", "if false {")] },
    Mutant { protocol: "rwlock", name: "downgrade_passes_nothing_on", model: "behind_who_downgrades", fails: "deadlock",
        edits: &[(RAW_RWLOCK, "        if before.has(QUEUED) {", "        if false {")] },
    Mutant { protocol: "rwlock", name: "queued_is_cleared_without_the_list", model: "behind_who_gives_up", fails: "deadlock",
        edits: &[(RAW_RWLOCK, "                _ => {\n                    let to", "                None => {\n                    drop(locked);\n                    self.state.fetch_and(!QUEUED, Relaxed);\n                    return entering.wake();\n                }\n                _ => {\n                    let to")] },
    Mutant { protocol: "rwlock", name: "queued_is_never_cleared", model: "two_readers", fails: LOST,
        edits: &[(RAW_RWLOCK, "None => State(state.0 & !QUEUED)", "None => state")] },
    Mutant { protocol: "rwlock", name: "queues_without_saying_so", model: "two_writers", fails: "deadlock",
        edits: &[(RAW_RWLOCK, "let without = State(state.0 & !*woken | QUEUED);", "let without = State(state.0 & !*woken);"),
                 (RAW_RWLOCK, "                    without.queued(wish.since)\n", "                    without\n")] },
    Mutant { protocol: "rwlock", name: "woken_writer_keeps_it_in_the_queue", model: "two_writers", fails: "deadlock",
        edits: &[(RAW_RWLOCK, "State(state.0 & !*woken | QUEUED)", "State(state.0 | QUEUED)")] },
    Mutant { protocol: "rwlock", name: "woken_is_kept_with_the_lock", model: "two_writers", fails: LOST,
        edits: &[(RAW_RWLOCK, "State(state.0 & !woken | WRITER)", "State(state.0 | WRITER)")] },
    Mutant { protocol: "rwlock", name: "woken_does_not_stop_the_next", model: "two_writers", fails: "deadlock",
        edits: &[(RAW_RWLOCK, "let free = state.is_free() && !state.has(WOKEN);", "let free = state.is_free();")] },
    Mutant { protocol: "rwlock", name: "writer_leaves_in_two_steps", model: "two_writers", fails: "deadlock",
        edits: &[(RAW_RWLOCK, "let before = State(self.state.fetch_sub(WRITER, Release));", "let before = self.state();\n        self.state.fetch_sub(WRITER, Release);")] },
    Mutant { protocol: "rwlock", name: "reader_leaves_in_two_steps", model: "two_readers", fails: "deadlock",
        edits: &[(RAW_RWLOCK, "let before = State(self.state.fetch_sub(READER, Release));", "let before = self.state();\n        self.state.fetch_sub(READER, Release);")] },
    Mutant { protocol: "rwlock", name: "handed_over_while_it_is_held", model: "late", fails: RACE,
        edits: &[(RAW_RWLOCK, "if first.to_write && free && is_late", "if first.to_write && is_late")] },
    Mutant { protocol: "rwlock", name: "hold_of_who_is_gone_stays", model: "late_at_times", fails: LOST,
        edits: &[(RAW_RWLOCK, "self.state.fetch_sub(hold, Relaxed);", "")] },
    Mutant { protocol: "rwlock", name: "handed_to_whoever_is_first", model: "late_at_times", fails: LOST,
        edits: &[(RAW_RWLOCK, "|tag| Wish::from_tag(tag).to_write == to_write", "|_| true")] },
    // ---- rwlock: orderings ----
    Mutant { protocol: "rwlock", name: "read_does_not_acquire", model: "two_readers", fails: RACE,
        edits: &[(RAW_RWLOCK, "match self.change(state, State(state.0 + READER), Acquire)", "match self.change(state, State(state.0 + READER), Relaxed)")] },
    Mutant { protocol: "rwlock", name: "write_does_not_acquire", model: "two_writers", fails: RACE,
        edits: &[(RAW_RWLOCK, "match self.change(state, State(state.0 | WRITER), Acquire)", "match self.change(state, State(state.0 | WRITER), Relaxed)")] },
    Mutant { protocol: "rwlock", name: "woken_writer_does_not_acquire", model: "two_writers", fails: RACE,
        edits: &[(RAW_RWLOCK, "State(state.0 & !woken | WRITER), Acquire", "State(state.0 & !woken | WRITER), Relaxed")] },
    Mutant { protocol: "rwlock", name: "handing_over_does_not_acquire", model: "two_writers", fails: RACE,
        edits: &[(RAW_RWLOCK, "State(state.0 + hold), Acquire", "State(state.0 + hold), Relaxed")] },
    Mutant { protocol: "rwlock", name: "reader_does_not_release", model: "two_readers", fails: RACE,
        edits: &[(RAW_RWLOCK, "fetch_sub(READER, Release)", "fetch_sub(READER, Relaxed)")] },
    Mutant { protocol: "rwlock", name: "writer_does_not_release", model: "two_writers", fails: RACE,
        edits: &[(RAW_RWLOCK, "fetch_sub(WRITER, Release)", "fetch_sub(WRITER, Relaxed)")] },
    Mutant { protocol: "rwlock", name: "downgrade_does_not_release", model: "downgrades", fails: RACE,
        edits: &[(RAW_RWLOCK, "fetch_add(READER - WRITER, Release)", "fetch_add(READER - WRITER, Relaxed)")] },

    // ---- condvar ----
    Mutant { protocol: "condvar", name: "unlocks_before_it_queues", model: "one_waits", fails: "deadlock",
        edits: &[(CONDVAR, "let locked = self.queue.lock();\n", "unsafe { mutex.unlock() };\n        let locked = self.queue.lock();\n"),
                 (CONDVAR, "let unlock = || unsafe { mutex.unlock() };", "let unlock = || ();")] },
    Mutant { protocol: "condvar", name: "unlocks_before_its_place_is_public", model: "one_waits", fails: "deadlock",
        edits: &[(QUEUE, "        if let Err(mut locked) = self.release_if(decide) {", "        then();\n        if let Err(mut locked) = self.release_if(decide) {"),
                 (QUEUE, "        then();\n        match wait.wait", "        match wait.wait")] },
    Mutant { protocol: "condvar", name: "notification_is_called_a_time_out", model: "one_gives_up", fails: "deadlock",
        edits: &[(CONDVAR, "matches!(waited, Ok(Waited::TimedOut))", "deadline.is_some()")] },
    Mutant { protocol: "condvar", name: "notifies_who_is_gone", model: "one_gives_up", fails: "deadlock",
        edits: &[(LIST, "if let Some(claimed) = unsafe { self.take(node) } {\n                return Some(claimed);\n            }\n        }\n    }\n\n    /// The first that is like that.",
                        "return unsafe { self.take(node) };\n        }\n    }\n\n    /// The first that is like that.")] },
    Mutant { protocol: "condvar", name: "all_is_one", model: "all_are_notified", fails: "deadlock",
        edits: &[(CONDVAR, "self.queue.lock().wake_all(|flags| flags);", "self.wake_one();")] },
    // ---- claim: once, and who loses it waits for the winner ----
    Mutant { protocol: "claim", name: "claim_is_not_exclusive", model: "two_lists", fails: LOST,
        edits: &[(CLAIM, ".compare_exchange(ptr::null_mut(), name, Relaxed, Relaxed)\n            .is_ok()", ".swap(name, Relaxed).is_null() || true")] },
    Mutant { protocol: "claim", name: "time_out_without_claim", model: "two_lists_and_a_deadline", fails: LOST,
        edits: &[(CLAIM, "Outcome::Expired if self.give_up() =>", "Outcome::Expired if { self.give_up(); true } =>")] },
    Mutant { protocol: "claim", name: "lost_claim_does_not_wait_for_the_winner", model: "two_lists_and_a_deadline", fails: RACE,
        edits: &[(CLAIM, "Outcome::Expired => deadline = None,", "Outcome::Expired => { deadline = None; return Ended::Taken(self.claim.load(Relaxed).cast()) }")] },
    Mutant { protocol: "claim", name: "found_itself_without_claim", model: "two_lists", fails: LOST,
        edits: &[(MODEL, "Some(_) if wait.give_up() =>", "Some(_) =>")] },
    Mutant { protocol: "claim", name: "handed_over_after_waking", model: "two_lists", fails: RACE,
        edits: &[(MODEL, "            receiver.node().outcome.set(1);\n            receiver.wake();", "            let node: *const Node = receiver.node();\n            receiver.wake();\n            unsafe { (*node).outcome.set(1) };")] },

    // ---- queue: orderings ----
    Mutant { protocol: "queue", name: "lock_does_not_acquire", model: "baton", fails: RACE,
        edits: &[(QUEUE, "word | GUARDED, Ordering::Acquire", "word | GUARDED, Ordering::Relaxed")] },
    Mutant { protocol: "queue", name: "release_does_not_release", model: "baton", fails: RACE,
        edits: &[(QUEUE, "flags & FLAGS | first,\n                Ordering::Release,", "flags & FLAGS | first,\n                Ordering::Relaxed,")] },
    // ---- queue: one step ----
    Mutant { protocol: "queue", name: "decide_is_not_asked_again", model: "gate", fails: "deadlock",
        edits: &[(QUEUE, "        loop {\n            let Some(State(flags)) = decide(State(word & FLAGS | first)) else {\n                return false;\n            };\n", "        let Some(_) = decide(State(word & FLAGS | first)) else { return false };\n        loop {\n            let flags = word;\n")] },
    Mutant { protocol: "queue", name: "flags_of_others_are_overwritten", model: "gate", fails: "deadlock",
        edits: &[(QUEUE, "                Err(now) => word = now,", "                Err(_) => { self.queue.word.store(flags & FLAGS | first, Ordering::Release); return true }")] },
    Mutant { protocol: "queue", name: "not_all_are_woken", model: "gate", fails: "deadlock",
        edits: &[(QUEUE, "        crowd.wake(|| queue.lock());\n", "")] },
    Mutant { protocol: "queue", name: "who_gave_up_ends_the_search", model: "baton_and_a_deadline", fails: "deadlock",
        edits: &[(LIST, "            let node: *const Node = self.first().filter(|node| fits(node))?;\n            // SAFETY: in this list.\n            if let Some(claimed) = unsafe { self.take(node) } {\n                return Some(claimed);\n            }", "            let node: *const Node = self.first().filter(|node| fits(node))?;\n            return unsafe { self.take(node) };")] },

    // ---- mutex: orderings ----
    Mutant { protocol: "mutex", name: "try_lock_does_not_acquire", model: "excludes", fails: RACE,
        edits: &[(RAW_MUTEX, "state.with(HELD), Acquire", "state.with(HELD), Relaxed")] },
    Mutant { protocol: "mutex", name: "lock_contended_does_not_acquire", model: "excludes", fails: RACE,
        edits: &[(RAW_MUTEX, "self.queue.change(state, mine, Acquire)", "self.queue.change(state, mine, Relaxed)")] },
    Mutant { protocol: "mutex", name: "unlock_does_not_release", model: "excludes", fails: RACE,
        edits: &[(RAW_MUTEX, "clear_known(HELD, Release)", "clear_known(HELD, Relaxed)")] },
    Mutant { protocol: "mutex", name: "hand_over_does_not_acquire", model: "starving", fails: RACE,
        edits: &[(RAW_MUTEX, "locked.state(Acquire)", "locked.state(Relaxed)")] },
    // ---- mutex: no wake-up is lost ----
    Mutant { protocol: "mutex", name: "queues_though_it_is_free", model: "excludes", fails: "deadlock",
        edits: &[(RAW_MUTEX, "(!is_free(state)).then(|| ", "Some(")] },
    Mutant { protocol: "mutex", name: "unlock_looks_for_waiters_first", model: "excludes", fails: "deadlock",
        edits: &[(RAW_MUTEX, "let before = self.queue.clear_known(HELD, Release);", "let before = self.queue.state(Relaxed); self.queue.clear_known(HELD, Release);")] },
    Mutant { protocol: "mutex", name: "woken_is_not_cleared_by_who_locks", model: "excludes", fails: LOST,
        edits: &[(RAW_MUTEX, "let mine = state.with(HELD).without(woken);", "let mine = state.with(HELD);")] },
    Mutant { protocol: "mutex", name: "woken_is_not_given_back", model: "barging", fails: "deadlock",
        edits: &[(RAW_MUTEX, "state.without(woken).with(starving)", "state.with(starving)")] },
    // ---- mutex: hand-over ----
    Mutant { protocol: "mutex", name: "handed_over_without_held", model: "starving", fails: "deadlock",
        edits: &[(RAW_MUTEX, "let sign = if starving { HELD } else { WOKEN };", "let sign = if starving { 0 } else { WOKEN };")] },
    Mutant { protocol: "mutex", name: "barging_while_starving", model: "starving", fails: RACE,
        edits: &[(RAW_MUTEX, "!state.has(HELD | STARVING)", "!state.has(HELD)")] },
    Mutant { protocol: "mutex", name: "who_was_handed_it_tries_again", model: "starving", fails: "deadlock",
        edits: &[(RAW_MUTEX, "if outcome == HANDED {", "if outcome == HANDED && false {")] },
    Mutant { protocol: "mutex", name: "nobody_is_left_and_still_starving", model: "starving_at_times", fails: LOST,
        edits: &[(RAW_MUTEX, "None => state.without(STARVING),", "None => state,")] },

    // ---- once ----
    Mutant { protocol: "once", name: "completion_is_not_acquired", model: "runs_once", fails: RACE,
        edits: &[(ONCE, "self.queue.state(Acquire).has(COMPLETE)", "self.queue.state(crate::atomic::Ordering::Relaxed).has(COMPLETE)")] },
    Mutant { protocol: "once", name: "poison_is_not_acquired", model: "panics_once", fails: RACE,
        edits: &[(ONCE, "            let state = self.queue.state(Acquire);", "            let state = self.queue.state(crate::atomic::Ordering::Relaxed);"),
                 (ONCE, "self.queue.change(state, running, Acquire)", "self.queue.change(state, running, crate::atomic::Ordering::Relaxed)"),
                 (ONCE, "while unfinished(self.queue.state(Acquire))", "while unfinished(self.queue.state(crate::atomic::Ordering::Relaxed))")] },
    Mutant { protocol: "once", name: "runs_beside_another", model: "runs_once", fails: RACE,
        edits: &[(ONCE, "if !state.has(RUNNING) && self.queue.change(state, running, Acquire).is_ok() {", "self.queue.set(RUNNING, Acquire);\n            {")] },
    Mutant { protocol: "once", name: "waits_for_nobody", model: "runs_once", fails: "deadlock",
        edits: &[(ONCE, "unfinished(state).then_some(state)", "Some(state)")] },
    Mutant { protocol: "once", name: "completed_before_it_is", model: "runs_once", fails: RACE,
        edits: &[(ONCE, "let running = state.without(POISONED).with(RUNNING);", "let running = state.without(POISONED).with(COMPLETE);")] },
    Mutant { protocol: "once", name: "a_panic_completes", model: "panics_once", fails: LOST,
        edits: &[(ONCE, "leaves: POISONED,", "leaves: COMPLETE,")] },
    Mutant { protocol: "once", name: "poison_wakes_nobody", model: "panics_once", fails: "deadlock",
        edits: &[(ONCE, "self.once.queue.lock().wake_all(done);", "if self.leaves == POISONED { self.once.queue.set(POISONED, Acquire); self.once.queue.clear(RUNNING, crate::atomic::Ordering::Release); } else { self.once.queue.lock().wake_all(done); }")] },

    // ---- the scheduler's lock ----
    Mutant { protocol: "lock", name: "unlock_wakes_nobody", model: "three_lock", fails: "deadlock",
        edits: &[(LOCK, "            futex::wake(&self.lock.word, 1);\n", "")] },
    Mutant { protocol: "lock", name: "sleeps_without_saying_so", model: "three_lock", fails: "deadlock",
        edits: &[(LOCK, "while self.word.swap(CONTENDED, Ordering::Acquire) != FREE {\n            futex::wait(&self.word, CONTENDED, None);", "while self.word.swap(HELD, Ordering::Acquire) != FREE {\n            futex::wait(&self.word, HELD, None);")] },
    Mutant { protocol: "lock", name: "locking_does_not_acquire", model: "three_lock", fails: RACE,
        edits: &[(LOCK, "            .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)\n            .is_err()", "            .compare_exchange(FREE, HELD, Ordering::Relaxed, Ordering::Relaxed)\n            .is_err()")] },
    Mutant { protocol: "lock", name: "locking_late_does_not_acquire", model: "three_lock", fails: RACE,
        edits: &[(LOCK, "swap(CONTENDED, Ordering::Acquire)", "swap(CONTENDED, Ordering::Relaxed)")] },
    Mutant { protocol: "lock", name: "unlocking_does_not_release", model: "three_lock", fails: RACE,
        edits: &[(LOCK, "swap(FREE, Ordering::Release)", "swap(FREE, Ordering::Relaxed)")] },

    // ---- dependents ----
    Mutant { protocol: "dependents", name: "add_does_not_release", model: "two_added", fails: RACE,
        edits: &[(DEPENDENTS, "newest, edge, Release, Acquire", "newest, edge, core::sync::atomic::Ordering::Relaxed, Acquire")] },
    Mutant { protocol: "dependents", name: "close_does_not_acquire", model: "two_added", fails: RACE,
        edits: &[(DEPENDENTS, "swap(closed(), AcqRel)", "swap(closed(), Release)")] },
    Mutant { protocol: "dependents", name: "close_does_not_release", model: "one_added", fails: RACE,
        edits: &[(DEPENDENTS, "swap(closed(), AcqRel)", "swap(closed(), Acquire)")] },
    Mutant { protocol: "dependents", name: "refused_at_once_does_not_acquire", model: "one_added", fails: RACE,
        edits: &[(DEPENDENTS, "self.newest.load(Acquire)", "self.newest.load(core::sync::atomic::Ordering::Relaxed)")] },
    Mutant { protocol: "dependents", name: "refused_late_does_not_acquire", model: "one_added", fails: RACE,
        edits: &[(DEPENDENTS, "newest, edge, Release, Acquire", "newest, edge, Release, core::sync::atomic::Ordering::Relaxed")] },
    Mutant { protocol: "dependents", name: "closed_in_two_steps", model: "one_added", fails: LOST,
        edits: &[(DEPENDENTS, "let newest = self.newest.swap(closed(), AcqRel);", "let newest = self.newest.load(Acquire);\n        self.newest.store(closed(), Release);")] },
    Mutant { protocol: "dependents", name: "looks_only_once", model: "one_added", fails: LOST,
        edits: &[(DEPENDENTS, "(newest, edge, Release, Acquire) {\n                Ok(_) => return true,\n", "(newest, edge, Release, Acquire) {\n                Ok(_) => return true,\n                Err(now) if now == closed() => return true,\n")] },
    Mutant { protocol: "dependents", name: "lost_beside_another", model: "two_added", fails: LOST,
        edits: &[(DEPENDENTS, "                (*edge).older.set(newest);\n", "")] },
    Mutant { protocol: "dependents", name: "maker_keeps_its_reference", model: "two_inputs", fails: LOST,
        edits: &[(MODEL, "        input.dependents.add(|| own.another());\n    }\n    own.arrive();", "        input.dependents.add(|| own.another());\n    }\n    mem::forget(own);")] },

    // ---- readers ----
    Mutant { protocol: "readers", name: "the_reader_does_not_fence", model: "reads_while_written", fails: RACE,
        edits: &[(READERS, "            compiler_fence(Ordering::SeqCst);\n", "")] },
    Mutant { protocol: "readers", name: "the_writer_has_no_barrier", model: "reads_while_written", fails: RACE,
        edits: &[(READERS, "            kernel_thread::barrier();\n", "")] },
    Mutant { protocol: "readers", name: "a_reader_does_not_look", model: "reads_while_written", fails: RACE,
        edits: &[(READERS, "if !self.writing.load(Ordering::Acquire)", "if true || !self.writing.load(Ordering::Acquire)")] },
    Mutant { protocol: "readers", name: "the_writer_waits_for_no_seat", model: "reads_while_written", fails: RACE,
        edits: &[(READERS, "self.seats.iter().any(reads) || ", "")] },
    Mutant { protocol: "readers", name: "the_writer_waits_for_nobody_outside", model: "reads_while_written", fails: RACE,
        edits: &[(READERS, " || self.others.load(Ordering::Acquire) != 0", "")] },
    Mutant { protocol: "readers", name: "a_flag_goes_down_without_release", model: "reads_while_written", fails: RACE,
        edits: &[(READERS, "flag.store(false, Ordering::Release)", "flag.store(false, Ordering::Relaxed)")] },
    Mutant { protocol: "readers", name: "leaving_does_not_release", model: "reads_while_written", fails: RACE,
        edits: &[(READERS, "self.others.fetch_sub(1, Ordering::Release)", "self.others.fetch_sub(1, Ordering::Relaxed)")] },
    Mutant { protocol: "readers", name: "flags_are_not_acquired", model: "reads_while_written", fails: RACE,
        edits: &[(READERS, "seat.0.load(Ordering::Acquire)", "seat.0.load(Ordering::Relaxed)")] },
    Mutant { protocol: "readers", name: "the_count_is_not_acquired", model: "reads_while_written", fails: RACE,
        edits: &[(READERS, "self.others.load(Ordering::Acquire)", "self.others.load(Ordering::Relaxed)")] },
    Mutant { protocol: "readers", name: "writing_does_not_release", model: "reads_while_written", fails: RACE,
        edits: &[(READERS, "self.writing.store(false, Ordering::Release)", "self.writing.store(false, Ordering::Relaxed)")] },
    Mutant { protocol: "readers", name: "reading_does_not_acquire", model: "reads_while_written", fails: RACE,
        edits: &[(READERS, "self.writing.load(Ordering::Acquire)", "self.writing.load(Ordering::Relaxed)")] },
    // ---- inbox ----
    Mutant { protocol: "inbox", name: "push_does_not_release", model: "two_ask", fails: RACE,
        edits: &[(INBOX, "record.cast_mut(), Release, Relaxed", "record.cast_mut(), Relaxed, Relaxed")] },
    Mutant { protocol: "inbox", name: "take_does_not_acquire", model: "two_ask", fails: RACE,
        edits: &[(INBOX, "swap(ptr::null_mut(), Acquire)", "swap(ptr::null_mut(), Relaxed)")] },
    Mutant { protocol: "inbox", name: "nobody_rings", model: "two_ask", fails: "deadlock",
        edits: &[(INBOX, "Ok(_) => return top == asleep(),", "Ok(_) => return false,")] },
    Mutant { protocol: "inbox", name: "rings_only_who_comes_second", model: "two_ask", fails: "deadlock",
        edits: &[(INBOX, "Ok(_) => return top == asleep(),", "Ok(_) => return !below.is_null(),")] },
    Mutant { protocol: "inbox", name: "rests_without_looking", model: "two_ask", fails: "deadlock",
        edits: &[(INBOX, "            .compare_exchange(ptr::null_mut(), asleep(), Relaxed, Relaxed)\n            .is_ok()", "            .swap(asleep(), Relaxed).is_null() || true")] },
    Mutant { protocol: "inbox", name: "roused_without_looking", model: "roused_by_itself", fails: "deadlock",
        edits: &[(INBOX, "            .compare_exchange(asleep(), ptr::null_mut(), Relaxed, Relaxed);", "            .swap(ptr::null_mut(), Relaxed);")] },
    Mutant { protocol: "inbox", name: "the_youngest_first", model: "time_is_up", fails: "cancelled before it began",
        edits: &[(INBOX, "        while !rest.is_null() {", "        if !rest.is_null() { return Batch(rest); }\n        while !rest.is_null() {")] },
    Mutant { protocol: "inbox", name: "result_after_the_wake_up", model: "two_ask", fails: RACE,
        edits: &[(MODEL, "            (*operation).result.set(result);\n            Waiter::wake_at(&raw const (*operation).waiter);", "            Waiter::wake_at(&raw const (*operation).waiter);\n            (*operation).result.set(result);")] },
    Mutant { protocol: "inbox", name: "leaves_before_the_completion", model: "time_is_up", fails: RACE,
        edits: &[(MODEL, "                assert_eq!(operation.waiter.wait(None), Outcome::Notified);\n                assert_eq!(operation.result.get(), CANCELLED, \"lost or doubled\");", "                let _ = CANCELLED;")] },
    // ---- readiness ----
    Mutant { protocol: "readiness", name: "maybe_is_cleared_after_the_call", model: "two_read", fails: "deadlock",
        edits: &[(READINESS, "            self.queue.clear(MAYBE, Acquire);\n", ""),
                 (MODEL, "                let answer = self.call(asked);\n", "                let answer = self.call(asked);\n                self.readiness.forget();\n"),
                 (READINESS, "    /// The caller is about to try.", "    pub(crate) fn forget(&self) { self.queue.clear(MAYBE, Acquire) }\n    /// The caller is about to try.")] },
    Mutant { protocol: "readiness", name: "clearing_does_not_acquire", model: "two_read", fails: "deadlock",
        edits: &[(READINESS, "self.queue.clear(MAYBE, Acquire)", "self.queue.clear(MAYBE, Relaxed)")] },
    Mutant { protocol: "readiness", name: "announcing_does_not_release", model: "two_read", fails: "deadlock",
        edits: &[(READINESS, "self.queue.change(state, state.with(news), Release)", "self.queue.change(state, state.with(news), Relaxed)")] },
    Mutant { protocol: "readiness", name: "what_is_left_wakes_nobody", model: "one_gives_up_reading", fails: "deadlock",
        edits: &[(READINESS, "        if state.has_waiters()\n            ||", "        if")] },
    Mutant { protocol: "readiness", name: "what_is_left_is_not_said", model: "one_gives_up_reading", fails: "deadlock",
        edits: &[(READINESS, "if emptied && !state.has(DOUBT) {", "if true {")] },
    Mutant { protocol: "readiness", name: "an_event_wakes_nobody", model: "two_read", fails: "deadlock",
        edits: &[(READINESS, "if !state.has_waiters() && self.queue", "if self.queue")] },
    Mutant { protocol: "readiness", name: "waits_without_looking", model: "two_read", fails: "deadlock",
        edits: &[(READINESS, "(!state.has(MAYBE | CLOSED))", "(!state.has(CLOSED))")] },
    Mutant { protocol: "readiness", name: "waits_though_it_is_closed", model: "closed", fails: "deadlock",
        edits: &[(READINESS, "(!state.has(MAYBE | CLOSED))", "(!state.has(MAYBE))"),
                 (READINESS, "self.tell(MAYBE | DOUBT | CLOSED, ready)", "self.tell(DOUBT | CLOSED, ready)")] },
    Mutant { protocol: "readiness", name: "the_end_is_not_behind_the_bytes", model: "the_end_is_behind", fails: "deadlock",
        edits: &[(READINESS, "if emptied && !state.has(DOUBT) {", "if emptied {")] },
    // ---- channels: nobody waits for ever ----
    Mutant { protocol: "channels", name: "place_goes_to_nobody", model: "bounded", fails: "deadlock",
        edits: &[(STATE, "            if !self.senders.is_empty() {\n                self.settle(spare, woken);\n            }\n            return Take::Received;", "            return Take::Received;")] },
    Mutant { protocol: "channels", name: "sender_queues_under_another_lock", model: "bounded", fails: "deadlock",
        edits: &[(SHARED, "            if queued {\n", "            if queued {\n                drop(state);\n                state = self.lock();\n")] },
    Mutant { protocol: "channels", name: "receiver_queues_under_another_lock", model: "unbounded", fails: "deadlock",
        edits: &[(SHARED, "                Take::Empty if !matches!(until, Until::Now) => {\n", "                Take::Empty if !matches!(until, Until::Now) => {\n                    drop(state);\n                    state = self.lock();\n")] },
    Mutant { protocol: "channels", name: "last_sender_wakes_nobody", model: "unbounded", fails: "deadlock",
        edits: &[(SHARED, "disconnect_senders(&crowd) };\n            first.wake();\n            crowd.wake(|| this.lock());", "disconnect_senders(&crowd) };\n            let _ = first;")] },
    Mutant { protocol: "channels", name: "last_receiver_wakes_nobody", model: "last_receiver_goes", fails: "deadlock",
        edits: &[(SHARED, "disconnect_receivers(&crowd) };\n            first.wake();\n            crowd.wake(|| this.lock());", "disconnect_receivers(&crowd) };\n            let _ = first;")] },
    Mutant { protocol: "channels", name: "reserved_place_goes_to_nobody", model: "sent_right_is_given_back", fails: "deadlock",
        edits: &[(RIGHTS, "        self.reserved -= 1;\n        self.settle(spare, woken);", "        self.reserved -= 1;")] },
    Mutant { protocol: "channels", name: "promised_message_goes_to_nobody", model: "received_right_is_given_back", fails: "deadlock",
        edits: &[(RIGHTS, "        self.break_promise(ticket);\n        self.settle(spare, woken);", "        self.break_promise(ticket);")] },
    Mutant { protocol: "channels", name: "peer_is_not_sent_away", model: "received_right_is_given_back_at_zero", fails: "deadlock",
        edits: &[(RIGHTS, "                peer.node().outcome.set(TRY_AGAIN);\n                peer.wake();", "                let _ = peer;")] },
    Mutant { protocol: "channels", name: "observers_are_not_told_of_a_peer", model: "observers_at_zero", fails: "deadlock",
        edits: &[(STATE, "    if !is_taker(waiting) || list.is_empty() {", "    if true {")] },
    Mutant { protocol: "channels", name: "observer_takes_the_only_wake_up", model: "observers", fails: LOST,
        edits: &[(STATE, "let Some(receiver) = self.receivers.first_where(is_taker)", "let Some(receiver) = self.receivers.first_where(|_| true)")] },
    // ---- channels: each message once ----
    Mutant { protocol: "channels", name: "claim_is_not_looked_at", model: "bounded_with_deadlines", fails: RACE,
        edits: &[(LIST, "claimed.then(|| Claimed::new(node))", "{ let _ = claimed; Some(Claimed::new(node)) }")] },
    Mutant { protocol: "channels", name: "outcome_after_the_wake_up", model: "received_right_is_given_back_at_zero", fails: RACE,
        edits: &[(RIGHTS, "                peer.node().outcome.set(TRY_AGAIN);\n                peer.wake();", "                let node: *const Node = peer.node();\n                peer.wake();\n                unsafe { (*node).outcome.set(TRY_AGAIN) };")] },
    Mutant { protocol: "channels", name: "sent_though_sent_away", model: "last_receiver_goes", fails: LOST,
        edits: &[(SHARED, "                        Ended::Taken(_) if node.outcome.get() == DONE => return Ok(()),\n                        Ended::Taken(_) => {}", "                        Ended::Taken(_) => return Ok(()),")] },
    Mutant { protocol: "channels", name: "promised_is_not_counted", model: "select_beside_another", fails: "a promised message is not in its channel",
        edits: &[(STATE, "        self.promised += 1;\n        self.tickets\n", "        self.tickets\n"),
                 (STATE, "            self.buffer.pop(into, spare);\n        }\n        self.promised -= 1;\n", "            self.buffer.pop(into, spare);\n        }\n"),
                 (STATE, "self.buffer.find(ticket, self.promised)", "self.buffer.find(ticket, self.buffer.len())")] },
    Mutant { protocol: "channels", name: "reserved_is_not_counted", model: "select_beside_another", fails: LOST,
        edits: &[(STATE, "self.buffer.len() + self.reserved < self.capacity", "self.buffer.len() < self.capacity")] },
    // ---- select ----
    Mutant { protocol: "channels", name: "peer_before_the_own_wait", model: "select_meets_select", fails: "deadlock",
        edits: &[(RIGHTS, "    if !node.give_up() {\n        Attempt::Taken", "    let mut right = None;\n    if node.tag.get() != OBSERVER && { right = grant(); false } || !node.give_up() {\n        Attempt::Taken"),
                 (RIGHTS, "        granted(grant())\n", "        granted(right)\n")] },
    Mutant { protocol: "channels", name: "select_meets_itself", model: "select_is_not_its_own_peer", fails: "maximum number of branches",
        edits: &[(RIGHTS, "is_taker(node) && !ptr::eq(node.wait(), own)", "is_taker(node)")] },
    Mutant { protocol: "channels", name: "taken_and_still_selected", model: "select_receives", fails: RACE,
        edits: &[(SELECTING, "            Attempt::Taken => taken = true,", "            Attempt::Taken => {}")] },
    Mutant { protocol: "channels", name: "default_looks_at_two_moments", model: "default_looks_at_one_moment", fails: LOST,
        edits: &[(SELECTING, "if is_over && operations.len() == 1 {", "if is_over {")] },
];

fn main() {
    println!("cargo::rustc-check-cfg=cfg(greenthread_model)");
    println!("cargo::rustc-cfg=greenthread_model");
    println!("cargo::rerun-if-changed=build.rs");

    let here = env::var("CARGO_MANIFEST_DIR").unwrap();
    let out = env::var("OUT_DIR").unwrap();
    let mut index = String::new();
    for mutant in MUTANTS {
        let &Mutant {
            protocol,
            name,
            edits,
            model,
            fails,
        } = mutant;
        let (_, sources) = PROTOCOLS
            .iter()
            .find(|known| known.0 == protocol)
            .expect(protocol);
        let mut edited = edits.iter().map(|edit| edit.0);
        assert!(
            edited.all(|file| file == MODEL || sources.contains(&file)),
            "{name}"
        );
        // A copy of a file in which the mutant takes the place of the crate; else the original.
        let copy = |file: &str, original: String| {
            println!("cargo::rerun-if-changed={original}");
            let mut text = fs::read_to_string(&original).unwrap();
            for (_, from, to) in edits.iter().filter(|edit| edit.0 == file) {
                // A mutant that does not mutate would prove nothing.
                let found = text.matches(from).count();
                assert_eq!(found, 1, "{name}: {from:?} in {original}");
                text = text.replace(from, to);
            }
            let text = text.replace("crate::", &format!("crate::{name}::"));
            let copy = Path::new(&out).join(name).join(file);
            fs::create_dir_all(copy.parent().unwrap()).unwrap();
            fs::write(&copy, text).unwrap();
            let module = Path::new(file).file_stem().unwrap().to_str().unwrap();
            format!("#[path = {copy:?}] pub(crate) mod {module};")
        };
        let mut root = String::new();
        let mut folders = BTreeMap::<_, String>::new();
        for file in *sources {
            let (folder, _) = file.split_once('/').unwrap();
            let copied = copy(file, format!("{here}/../../src/{file}"));
            // A folder's own file declares the others.
            if !sources.contains(&&*format!("{folder}/mod.rs")) {
                *folders.entry(folder).or_default() += &copied;
            } else if file.ends_with("/mod.rs") {
                root = copied.replace(" mod mod;", &format!(" mod {folder};"));
            }
        }
        let model_file = copy(MODEL, format!("{here}/{protocol}.rs"));
        writeln!(index, "mod {name} {{ #![allow(unused, clippy::all, clippy::undocumented_unsafe_blocks)] use crate::*;").unwrap();
        for (folder, files) in folders {
            writeln!(
                index,
                "    pub(crate) mod {folder} {{ pub(crate) use crate::{folder}::*; {files} }}"
            )
            .unwrap();
        }
        writeln!(index, "    {root} {model_file}").unwrap();
        writeln!(
            index,
            "    #[test] fn is_caught() {{ crate::must_fail(\"{name}::is_caught\", model::{model}, {fails:?}) }}\n}}"
        )
        .unwrap();
    }
    fs::write(Path::new(&out).join("mutants.rs"), index).unwrap();
}
