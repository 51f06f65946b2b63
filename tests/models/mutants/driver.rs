//! Mutants of the protocols by which threads wait for descriptors, ours and others.

use super::*;

/// Somebody got another end of its call, or another file.
const OTHERWISE: &str = "left == right";

/// For a mutant that weakens an ordering to another one.
const USE_ORDERING: (&str, &str, &str) = (
    REGISTRATION,
    "Ordering::SeqCst, const_fn",
    "Ordering::{self, SeqCst}, const_fn",
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
        edits: &[(WATCH_CALL, "            watched.arm_for_others(fd, &mut lists, 0, &mut ready);\n", "")] },
    Mutant { protocol: "watch", name: "watched_until_an_event", model: "watched_by_a_poller", fails: "deadlock",
        edits: &[(WATCH, "        self.arm_for_others(fd, &mut lists, woken, ready);\n", "")] },
    Mutant { protocol: "watch", name: "watched_for_nobody_else", model: "watched_by_a_poller", fails: "deadlock",
        edits: &[(WATCH, "self.arm_for_others(fd, &mut lists, woken, ready)", "self.arm_for_others(fd, &mut lists, READ | WRITE, ready)")] },
    Mutant { protocol: "watch", name: "watched_for_the_last_only", model: "watched_both_ways", fails: "deadlock",
        edits: &[(WATCH, "let armed = arm(nested, fd, lists.events(0));", "let armed = arm(nested, fd, match waiting.purpose { Purpose::Read => READ, Purpose::Write => WRITE, Purpose::Poll(events) => events });")] },
    Mutant { protocol: "watch", name: "watched_and_writers_are_not_told", model: "watched_both_ways", fails: FOR_EVER,
        edits: &[(WATCH, "[(Purpose::Read, READ), (Purpose::Write, WRITE)]", "[(Purpose::Read, READ)]")] },
    Mutant { protocol: "watch", name: "watched_though_it_is_not_armed", model: "watched_by_a_poller_and_closed", fails: "deadlock",
        edits: &[(WATCH, "            self.note(&lists);\n        }\n        armed\n", "            self.note(&lists);\n        }\n        Ok(())\n")] },
    Mutant { protocol: "watch", name: "watched_though_it_is_gone", model: "watched_and_closed_unseen", fails: "deadlock",
        edits: &[(WATCH, "if arm(nested, fd, wanted).is_err() {", "if arm(nested, fd, wanted).is_err() && false {")] },
    // ---- watch: who is found ----
    Mutant { protocol: "watch", name: "watched_and_noted_too_late", model: "watched_by_a_poller_and_closed", fails: "deadlock",
        edits: &[(WATCH, "        self.note(&lists);\n        let armed = arm(nested, fd, lists.events(0));\n", "        let armed = arm(nested, fd, lists.events(0));\n        perturb::point(\"\");\n        self.note(&lists);\n")] },
    Mutant { protocol: "watch", name: "watched_and_not_looked_at_again", model: "watched_by_a_poller_and_closed", fails: "deadlock",
        edits: &[(MODEL, "    look_again(fd);\n", "")] },
    Mutant { protocol: "watch", name: "watched_by_sleepers_only", model: "watched_and_closed_when_woken", fails: OTHERWISE,
        edits: &[(WATCH, "!lists.is_empty() || !lists.calls.is_empty();", "!lists.is_empty();")] },
    Mutant { protocol: "watch", name: "watched_where_it_was_before", model: "watched_by_two_and_closed", fails: "deadlock",
        edits: &[(WATCH, "if seat.is_some_and(|seat| seat.fd.load(Relaxed) != fd) {", "if false {")] },
    Mutant { protocol: "watch", name: "watched_and_left_where_it_was", model: "watched_and_closed_in_time", fails: RACE,
        edits: &[(WATCH, "if self.fd.load(Relaxed) == fd {", "if true {")] },
    Mutant { protocol: "watch", name: "watched_elsewhere_unknown_to_itself", model: "watched_and_closed_in_time", fails: RACE,
        edits: &[(WATCH_CLOSING, "                            (*node.cast::<Waiting>()).fd.store(new, Relaxed);\n", "")] },
    // ---- watch: calls and their duplicate ----
    Mutant { protocol: "watch", name: "watched_and_the_call_stays", model: "watched_and_closed", fails: OTHERWISE,
        edits: &[(WATCH_CLOSING, "                        seat.fd.store(new, Relaxed);\n", "")] },
    Mutant { protocol: "watch", name: "watched_and_moved_is_refused", model: "watched_and_closed", fails: OTHERWISE,
        edits: &[(WATCH_CALL, "            Err(_) if self.fd() != fd => Ok(true),\n", "")] },
    Mutant { protocol: "watch", name: "watched_elsewhere_and_not_armed", model: "watched_and_closed", fails: "deadlock",
        edits: &[(WATCH_CLOSING, "                    watched.arm_for_others(new, theirs, 0, &mut ready);\n", "")] },
    Mutant { protocol: "watch", name: "watched_by_uncounted_calls", model: "watched_and_closed", fails: OTHERWISE,
        edits: &[(WATCH_CLOSING, "                    watched.users.fetch_add(1, Relaxed);\n", "")] },
    Mutant { protocol: "watch", name: "watched_and_not_known_to_be_ours", model: "watched_and_closed", fails: OTHERWISE,
        edits: &[(WATCH_CLOSING, "                        seat.moved.store(true, Relaxed);\n", "")] },
    Mutant { protocol: "watch", name: "watched_and_closed_by_the_first", model: "watched_by_two_and_closed", fails: "it is open",
        edits: &[(WATCH_CALL, "watched.users.fetch_sub(1, Relaxed) == 1", "watched.users.fetch_sub(1, Relaxed) >= 1")] },
    Mutant { protocol: "watch", name: "watched_and_ended_where_it_was", model: "watched_and_closed_when_woken", fails: OTHERWISE,
        edits: &[(WATCH_CALL, "            if seat.fd.load(Relaxed) != fd {\n                continue;", "            if false {\n                continue;")] },
    Mutant { protocol: "watch", name: "watched_by_nobody_and_duplicated", model: "watched_by_a_poller_and_closed", fails: OTHERWISE,
        edits: &[(WATCH_CLOSING, "            close_duplicate(duplicate);\n", "")] },
    Mutant { protocol: "watch", name: "watched_and_the_programs_is_closed", model: "watched_and_closed_twice_without_duplicate", fails: OTHERWISE,
        edits: &[(WATCH_CLOSING, "            self.give_away(&lists);\n            if let", "            if target.is_some() { self.give_away(&lists); }\n            if let")] },
    // ---- watch: what a handler has closed ----
    Mutant { protocol: "watch", name: "watched_and_not_settled", model: "watched_and_closed_by_a_handler", fails: OTHERWISE,
        edits: &[(WATCH_CALL, "        if self.is_seated.get() {\n            settle(fd);\n        }\n", "")] },
    Mutant { protocol: "watch", name: "watched_and_not_settled_by_a_newcomer", model: "watched_and_closed_by_a_handler_beside_a_newcomer", fails: "deadlock",
        edits: &[(WATCH_CALL, "        watched.settle(self.fd());\n", "")] },
    Mutant { protocol: "watch", name: "watched_and_settled_twice", model: "watched_and_closed_by_a_handler_beside_a_newcomer", fails: "it is open",
        edits: &[(WATCH_CLOSING, "if is_kept && duplicate != Some(kept) {", "if false {")] },
    Mutant { protocol: "watch", name: "watched_and_kept_for_nobody", model: "watched_and_closed_by_a_handler_in_time", fails: OTHERWISE,
        edits: &[(WATCH_CLOSING, "        watched.forget_kept();\n", "")] },
    Mutant { protocol: "watch", name: "watched_and_settled_too_early", model: "watched_and_closed_by_a_handler_beside_a_newcomer", fails: "deadlock",
        edits: &[(WATCH_CLOSING, "            self.give(fd, Some(kept), true);", "            self.kept.store(NONE, Release);\n            self.give(fd, Some(kept), false);")] },
    Mutant { protocol: "watch", name: "watched_and_kept_and_not_looked_for", model: "watched_and_closed_by_a_handler_in_time", fails: OTHERWISE,
        edits: &[(WATCH_CLOSING, " || watched.kept.load(Relaxed) != NONE;", ";")] },
];
