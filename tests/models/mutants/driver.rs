//! Mutants of the protocols by which threads wait for descriptors, ours and others.

use super::*;

/// Somebody got another end of its call, or another file.
const OTHERWISE: &str = "left == right";
/// A node is used that lies in a list of another's lock: its memory is not an atomic of the model's any more.
const ASTRAY: &str = "index out of bounds";

/// For a mutant that weakens an ordering to another one.
const USE_ORDERING: (&str, &str, &str) = (
    REGISTRATION,
    "Ordering::{Acquire, Relaxed, Release, SeqCst};\n",
    "Ordering::{self, Acquire, Relaxed, Release, SeqCst};\n",
);

#[rustfmt::skip]
pub(super) const MUTANTS: &[Mutant] = &[
    // ---- registration: who closes and who registers see each other ----
    Mutant { protocol: "registration", name: "registered_unseen", model: "closed_beside_one", fails: "deadlock",
        edits: &[(REGISTRATION, "self.record.store(Some(mine), SeqCst)", "self.record.store(Some(mine), Ordering::Release)"), USE_ORDERING] },
    Mutant { protocol: "registration", name: "registered_and_not_looked_for", model: "closed_beside_one", fails: "deadlock",
        edits: &[(REGISTRATION, "self.record.load(SeqCst)", "self.record.load(Ordering::Acquire)"), USE_ORDERING] },
    Mutant { protocol: "registration", name: "registered_and_closed_unseen", model: "closed_beside_one", fails: "deadlock",
        edits: &[(REGISTRATION, "self.closed.store(true, SeqCst)", "self.closed.store(true, Ordering::Release)"), USE_ORDERING] },
    Mutant { protocol: "registration", name: "registered_without_a_look", model: "closed_beside_one", fails: "deadlock",
        edits: &[(REGISTRATION, "self.closed.load(SeqCst)", "self.closed.load(Ordering::Acquire)"), USE_ORDERING] },
    Mutant { protocol: "registration", name: "registered_and_closed_too_late", model: "closed_beside_one", fails: "deadlock",
        edits: &[(MODEL, "        self.registration.close();\n        self.end_waits();\n", "        self.end_waits();\n        self.registration.close();\n")] },
    Mutant { protocol: "registration", name: "registered_and_asked_too_early", model: "closed_before_the_record", fails: "deadlock",
        edits: &[(REGISTRATION, "        let record = self.record();\n        self.check_open()?;\n", "        self.check_open()?;\n        let record = self.record();\n")] },
    Mutant { protocol: "registration", name: "registered_twice", model: "closed_beside_two", fails: "deadlock",
        edits: &[(REGISTRATION, "            match self.record() {\n                Some(record)", "            match None {\n                Some(record)")] },
    // ---- watch: no event is lost ----
    Mutant { protocol: "watch", name: "watched_and_not_passed_on", model: "watched_with_two_items", fails: "deadlock",
        edits: &[(WATCH, "            watched.arm_for_others(lists, 0, ready);\n", "")] },
    Mutant { protocol: "watch", name: "watched_until_an_event", model: "watched_by_a_poller", fails: "deadlock",
        edits: &[(WATCH, "        self.arm_for_others(&mut lists, woken, ready);\n", "")] },
    Mutant { protocol: "watch", name: "watched_for_nobody_else", model: "watched_by_a_poller", fails: "deadlock",
        edits: &[(WATCH, "self.arm_for_others(&mut lists, woken, ready)", "self.arm_for_others(&mut lists, EVENTS[0] | EVENTS[1], ready)")] },
    Mutant { protocol: "watch", name: "watched_for_the_last_only", model: "watched_both_ways", fails: "deadlock",
        edits: &[(WATCH, "let armed = self.arm(lists.events(0));", "let armed = self.arm(wanted(node));")] },
    Mutant { protocol: "watch", name: "watched_and_writers_are_not_told", model: "watched_both_ways", fails: FOR_EVER,
        edits: &[(WATCH, "in EVENTS.into_iter().filter(", "in EVENTS.into_iter().take(1).filter(")] },
    Mutant { protocol: "watch", name: "watched_though_it_is_not_armed", model: "watched_by_a_poller_and_closed", fails: "deadlock",
        edits: &[(WATCH, "            unsafe { lists.waiting.remove(node) };\n        }\n        armed\n", "            unsafe { lists.waiting.remove(node) };\n        }\n        Ok(())\n")] },
    Mutant { protocol: "watch", name: "watched_though_it_is_gone", model: "watched_and_closed_unseen", fails: "deadlock",
        edits: &[(WATCH, "if is_wanted && self.arm(events).is_err() {", "if is_wanted && self.arm(events).is_err() && false {")] },
    // ---- watch: who is found ----
    Mutant { protocol: "watch", name: "watched_and_noted_too_late", model: "watched_by_a_poller_and_closed", fails: "deadlock",
        edits: &[(WATCH, "        self.note(lists);\n        let armed = self.arm(lists.events(0));\n", "        let armed = self.arm(lists.events(0));\n        perturb::point(\"\");\n        self.note(lists);\n")] },
    Mutant { protocol: "watch", name: "watched_and_not_looked_at_again", model: "watched_by_a_poller_and_closed", fails: "deadlock",
        edits: &[(MODEL, "    look_again(fd);\n", "")] },
    Mutant { protocol: "watch", name: "watched_by_sleepers_only", model: "watched_and_closed_when_woken", fails: OTHERWISE,
        edits: &[(WATCH, " || !lists.calls.is_empty();", ";")] },
    Mutant { protocol: "watch", name: "watched_where_it_was_before", model: "watched_by_two_and_closed", fails: "deadlock",
        edits: &[(WATCH, "change.take_if(|_| is_here)?", "change.take_if(|_| is_here || true)?")] },
    Mutant { protocol: "watch", name: "watched_and_left_where_it_was", model: "watched_and_closed_in_time", fails: LOST,
        edits: &[(WATCH, "change.take_if(|_| is_here)?", "change.take_if(|_| is_here || true)?")] },
    Mutant { protocol: "watch", name: "watched_elsewhere_unknown_to_itself", model: "watched_and_closed_in_time", fails: ASTRAY,
        edits: &[(WATCH, "                    theirs.waiting.push_back(&call.waiting);\n", "                    self.waiting.push_back(&call.waiting);\n")] },
    // ---- watch: calls and their duplicate ----
    Mutant { protocol: "watch", name: "watched_and_the_call_stays", model: "watched_and_closed", fails: OTHERWISE,
        edits: &[(WATCH, "                call.fd.store(to.fd, Relaxed);\n", "")] },
    Mutant { protocol: "watch", name: "watched_elsewhere_and_not_armed", model: "watched_and_closed", fails: "deadlock",
        edits: &[(WATCH, "            to.arm_for_others(theirs, 0, ready);\n", "")] },
    Mutant { protocol: "watch", name: "watched_and_not_known_to_be_ours", model: "watched_and_closed", fails: OTHERWISE,
        edits: &[(WATCH, "                call.moved.store(true, Relaxed);\n", "")] },
    Mutant { protocol: "watch", name: "watched_and_closed_by_the_first", model: "watched_by_two_and_closed", fails: "it is open",
        edits: &[(WATCH, "self.moved.load(Relaxed) && !lists.calls.iter().any(is_user);", "self.moved.load(Relaxed) && (true || lists.calls.iter().any(is_user));")] },
    Mutant { protocol: "watch", name: "watched_and_ended_where_it_was", model: "watched_and_closed_when_woken", fails: OTHERWISE,
        edits: &[(WATCH, "change.take_if(|_| is_here)?", "change.take_if(|_| is_here || true)?")] },
    Mutant { protocol: "watch", name: "watched_by_nobody_and_duplicated", model: "watched_by_a_poller_and_closed", fails: OTHERWISE,
        edits: &[(WATCH, "            close_duplicate(duplicate);\n", "")] },
    Mutant { protocol: "watch", name: "watched_and_the_programs_is_closed", model: "watched_and_closed_twice_without_duplicate", fails: OTHERWISE,
        edits: &[(WATCH, "                    calls.for_each(|call| call.moved.store(false, Relaxed));\n", "                    drop(calls);\n")] },
    // ---- watch: what a handler has closed ----
    Mutant { protocol: "watch", name: "watched_and_not_settled", model: "watched_and_closed_by_a_handler", fails: OTHERWISE,
        edits: &[(WATCH, "            true => self.settled(),\n", "            true => self.fd.load(Relaxed),\n")] },
    Mutant { protocol: "watch", name: "watched_and_not_settled_by_a_newcomer", model: "watched_and_closed_by_a_handler_beside_a_newcomer", fails: "deadlock",
        edits: &[(WATCH, "this.change(|_, lists, _| unsafe { lists.calls.push_back(this.node()) })?;", "Watched::of(this.fd.load(Relaxed))?.change(|lists, _| unsafe { lists.calls.push_back(this.node()) });")] },
    Mutant { protocol: "watch", name: "watched_and_settled_twice", model: "watched_and_closed_by_a_handler_beside_a_newcomer", fails: "it is open",
        edits: &[(WATCH, "if is_kept && duplicate != Some(self.kept.load(Relaxed)) {", "if false {")] },
    Mutant { protocol: "watch", name: "watched_and_kept_for_nobody", model: "watched_and_closed_by_a_handler_in_time", fails: OTHERWISE,
        edits: &[(WATCH, "        watched.wake_all();\n        watched.forget_kept();\n", "        watched.wake_all();\n")] },
    Mutant { protocol: "watch", name: "watched_and_settled_too_early", model: "watched_and_closed_by_a_handler_beside_a_newcomer", fails: "deadlock",
        edits: &[(WATCH, "            self.give(Some(kept), true);", "            self.kept.store(NONE, Release);\n            self.give(Some(kept), false);")] },
    Mutant { protocol: "watch", name: "watched_and_kept_and_not_looked_for", model: "watched_and_closed_by_a_handler_in_time", fails: OTHERWISE,
        edits: &[(WATCH, " || watched.kept.load(Relaxed) != NONE;", ";")] },
];
