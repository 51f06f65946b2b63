//! Mutants of the channels and of select.

use super::*;

#[rustfmt::skip]
pub(super) const MUTANTS: &[Mutant] = &[
    // ---- channels: nobody waits for ever ----
    Mutant { protocol: "channels", name: "place_goes_to_nobody", model: "bounded", fails: "deadlock",
        edits: &[(SHARED, "        if !self.senders.is_empty() {\n            self.settle(spare, woken);\n        }\n        message\n    }\n\n    /// Receives from", "        message\n    }\n\n    /// Receives from")] },
    Mutant { protocol: "channels", name: "sender_queues_under_another_lock", model: "bounded", fails: "deadlock",
        edits: &[(SHARED, "                let to_send = Some(message);\n", "                drop(state);\n                state = self.lock();\n                let to_send = Some(message);\n")] },
    Mutant { protocol: "channels", name: "receiver_queues_under_another_lock", model: "unbounded", fails: "deadlock",
        edits: &[(SHARED, "                Take::Empty if !matches!(until, Until::Now) => None,\n", "                Take::Empty if !matches!(until, Until::Now) => {\n                    drop(state);\n                    state = self.lock();\n                    None\n                }\n")] },
    Mutant { protocol: "channels", name: "last_sender_wakes_nobody", model: "unbounded", fails: "deadlock",
        edits: &[(CELL, "true => wake_all(self, State::disconnect_senders),", "true => _ = self.lock().disconnect_senders(),")] },
    Mutant { protocol: "channels", name: "last_receiver_wakes_nobody", model: "last_receiver_goes", fails: "deadlock",
        edits: &[(CELL, "false => wake_all(self, |state| state.disconnect_receivers(&mut messages)),", "false => _ = self.lock().disconnect_receivers(&mut messages),")] },
    Mutant { protocol: "select", name: "reserved_place_goes_to_nobody", model: "sent_right_is_given_back", fails: "deadlock",
        edits: &[(SELECTING, "Side::Senders => state.reserved -= 1,", "Side::Senders => return state.reserved -= 1,")] },
    Mutant { protocol: "select", name: "promised_message_goes_to_nobody", model: "received_right_is_given_back", fails: "deadlock",
        edits: &[(SELECTING, "Side::Receivers => state.break_promise(ticket),", "Side::Receivers => return state.break_promise(ticket),")] },
    Mutant { protocol: "select", name: "peer_is_not_sent_away", model: "received_right_is_given_back_at_zero", fails: "deadlock",
        edits: &[(SELECTING, "Right::Peer(peer) => peer.send_away().wake(),", "Right::Peer(peer) => drop(peer),")] },
    Mutant { protocol: "select", name: "observers_are_not_told_of_a_peer", model: "observers_at_zero", fails: "deadlock",
        edits: &[(SELECTING, "                if entry.waiting.kind != Kind::Observer {", "                if false {"),
                 (SHARED, "        if self.capacity == 0 {\n            let other_side", "        if false {\n            let other_side")] },
    Mutant { protocol: "select", name: "observer_takes_the_only_wake_up", model: "observers", fails: LOST,
        edits: &[(CELL, "self.list.iter().find(|node| is_taker(node)) else {", "self.list.iter().find(|_| true) else {")] },
    // ---- channels: each message once ----
    Mutant { protocol: "channels", name: "claim_is_not_looked_at", model: "bounded_with_deadlines", fails: RACE,
        edits: &[(QUEUE, "claimed.then(|| Claimed::from_raw(node))", "{ let _ = claimed; Some(Claimed::from_raw(node)) }")] },
    Mutant { protocol: "select", name: "outcome_after_the_wake_up", model: "select_meets_select", fails: RACE,
        edits: &[(SELECTING, "                    receiver.wake();\n", "                    let node = ptr::from_ref(receiver.node());\n                    receiver.wake();\n                    unsafe { (*node).outcome.set(1) };\n")] },
    Mutant { protocol: "channels", name: "sent_though_sent_away", model: "last_receiver_goes", fails: LOST,
        edits: &[(SHARED, "(false, Some(message)) => message,", "(false, Some(message)) => { core::mem::forget(message); return Ok(()) }")] },
    Mutant { protocol: "select", name: "promised_is_not_counted", model: "select_beside_another", fails: "a promised message is not in its channel",
        edits: &[(SHARED, "        self.promised += 1;\n        self.tickets\n", "        self.tickets\n"),
                 (SHARED, "        self.promised -= 1;\n        self.buffer.pop(spare)", "        self.buffer.pop(spare)"),
                 (SHARED, "self.buffer.find(ticket, self.promised)", "self.buffer.find(ticket, self.buffer.len)")] },
    Mutant { protocol: "select", name: "reserved_is_not_counted", model: "select_beside_another", fails: LOST,
        edits: &[(SHARED, "self.buffer.len + self.reserved < self.capacity", "self.buffer.len < self.capacity")] },
    // ---- select ----
    Mutant { protocol: "select", name: "peer_before_the_own_wait", model: "select_meets_select", fails: "deadlock",
        edits: &[(SELECTING, "    if !entry.waiting.give_up() {\n        Attempt::Taken", "    let mut right = None;\n    if entry.waiting.kind != Kind::Observer && { right = grant(); false } || !entry.waiting.give_up() {\n        Attempt::Taken"),
                 (SELECTING, "        granted(grant())\n", "        granted(right)\n")] },
    Mutant { protocol: "select", name: "select_meets_itself", model: "select_is_not_its_own_peer", fails: "maximum number of branches",
        edits: &[(CELL, "is_taker(node) && own.is_none_or(|own| !ptr::eq(node.wait.get(), own.wait()))", "is_taker(node)")] },
    Mutant { protocol: "select", name: "taken_and_still_selected", model: "select_receives", fails: RACE,
        edits: &[(SELECTING, "                Attempt::Taken => taken = true,", "                Attempt::Taken => {}")] },
    Mutant { protocol: "select", name: "default_looks_at_two_moments", model: "default_looks_at_one_moment", fails: LOST,
        edits: &[(SELECTING, "if is_over && operations.len() == 1 {", "if is_over {")] },
];
