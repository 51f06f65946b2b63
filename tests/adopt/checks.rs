//! What std's documentation says of threads, thread-locals, panics and locks, each as a small function that panics if it is
//! not so.
//!
//! The checks use std alone (and libc where they are about pthreads), and know nothing of green threads: they hold for every
//! thread that `std::thread` starts. They judge by counting. Time appears only where the documentation promises a lower
//! bound.

mod handles;
mod locals;
mod locals_end;
mod messages;
mod panics;
mod parking;
mod poison;
mod scopes;
mod start;
mod sync;
mod system;

use std::any::Any;
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

macro_rules! checks {
    ($($module:ident: $($name:ident)*;)*) => {
        &[$($((
            concat!(stringify!($module), "::", stringify!($name)),
            $module::$name as fn(),
        ),)*)*]
    };
}

/// Every check, by its name. A function that is missing here is reported as dead code.
pub const CHECKS: &[(&str, fn())] = checks! {
    start:
        a_value_comes_back
        a_large_value_comes_back
        a_closure_takes_what_it_captures
        a_closure_may_be_large
        a_closure_is_dropped_before_join_returns
        what_spawn_follows_is_seen
        what_happened_is_seen_after_join
        a_name_is_seen_inside_and_outside
        without_a_name_there_is_none
        a_long_name_is_kept
        a_name_may_be_any_text
        an_empty_name_is_a_name
        a_name_with_nul_panics
        names_may_be_the_same
        a_builder_says_that_it_has_spawned
        a_deep_stack_is_deep
        the_usual_stack_is_deep
        a_small_stack_is_enough_for_little
        an_odd_stack_size_is_taken
        many_deep_stacks_at_once
        a_stack_that_cannot_be_is_an_error
        an_unchecked_thread_borrows
        threads_start_threads
        a_tree_of_threads
        a_thousand_at_once
        a_thousand_in_turn
        parallelism_is_at_least_one;
    handles:
        a_handle_knows_its_thread
        a_handle_in_another_thread_joins
        handles_join_in_any_order
        a_detached_thread_goes_on
        a_detached_threads_value_is_dropped
        the_value_of_an_ended_thread_goes_with_its_handle
        is_finished_waits_for_nothing
        is_finished_after_a_panic
        a_thread_outlives_its_end
        ids_are_unique
        ids_are_not_used_again
        an_id_stays
        an_id_is_a_key
        handles_cross_threads
        handles_can_be_printed;
    parking:
        a_token_is_kept
        a_token_from_another_thread_is_kept
        unpark_before_the_start_is_kept
        a_thread_that_ended_can_be_unparked
        parked_threads_take_turns
        unpark_is_followed_by_what_was_written
        any_clone_unparks
        park_timeout_ends
        park_timeout_zero_returns
        a_token_ends_park_timeout
        many_parked_threads_wake
        sleep_is_long_enough
        sleeping_for_nothing_returns
        sleepers_sleep_at_once
        yielding_lets_others_in
        spinning_lets_others_in;
    locals:
        each_thread_has_its_own
        nested_threads_have_fresh_ones
        scoped_threads_have_fresh_ones
        they_begin_when_they_are_used
        they_begin_once
        a_constant_begins_as_it_is
        a_cell_can_be_used_by_its_key
        a_ref_cell_can_be_used_by_its_key
        set_does_not_begin_them
        borrowing_twice_panics
        one_may_begin_with_another
        a_beginning_that_panicked_is_tried_again
        live_threads_have_different_places
        a_place_stays
        values_stay_apart
        they_need_not_be_send
        large_ones
        aligned_ones
        hash_states_differ;
    locals_end:
        destructors_run_before_join_returns
        destructors_run_before_a_scoped_join_returns
        destructors_run_after_the_closure
        destructors_run_once_each
        destructors_run_on_their_thread
        destructors_run_after_a_panic
        destructors_run_in_detached_threads
        what_was_not_used_is_not_dropped
        one_that_is_gone_says_so
        one_may_begin_in_a_destructor
        one_may_be_used_in_anothers_destructor
        one_without_a_destructor_is_never_gone
        a_destructor_knows_its_thread
        a_destructor_may_wait
        a_destructor_may_start_threads
        a_destructor_may_park
        the_value_is_dropped_by_who_joins;
    panics:
        a_literal_is_the_payload
        a_formatted_text_is_the_payload
        any_value_is_the_payload
        an_assertion_is_a_panic
        a_payload_goes_through_threads
        a_payload_is_dropped_once
        a_resumed_panic_calls_no_hook
        the_hook_runs_on_the_thread
        the_hook_sees_no_name
        the_hook_sees_the_place
        panicking_is_of_the_thread
        panicking_ends_when_caught
        a_panic_drops_in_reverse
        a_panic_drops_what_was_captured
        a_deep_panic_drops_all
        a_caught_panic_is_over
        a_panic_in_a_destructor
        a_detached_panic_hurts_nobody
        a_hundred_panic_at_once
        a_destructor_waits_while_panicking
        a_destructor_yields_while_panicking
        a_thread_started_while_panicking
        a_backtrace_shows_the_caller;
    poison:
        a_panic_poisons_a_mutex
        a_caught_panic_poisons_too
        a_guard_dropped_before_poisons_nothing
        poison_can_be_cleared
        what_was_poisoned_can_be_taken
        a_writer_poisons
        a_reader_poisons_nothing
        a_condvar_tells_of_poison
        a_panic_poisons_once
        call_once_force_tells_of_poison
        a_once_lock_is_tried_again
        a_lazy_lock_is_poisoned
        a_sender_goes_with_a_panic
        a_receiver_goes_with_a_panic;
    scopes:
        threads_borrow
        threads_borrow_parts_mutably
        a_scope_gives_its_value
        an_empty_scope
        a_scope_waits
        a_scope_waits_for_nested_spawns
        a_handle_gives_the_value
        a_value_may_borrow
        a_handle_knows_its_thread
        is_finished_comes
        a_name_is_seen
        a_name_with_nul_panics
        a_panic_comes_out_of_the_scope
        a_joined_panic_does_not
        the_scopes_own_panic_waits
        the_scopes_own_panic_wins
        scopes_nest
        scopes_in_threads_of_scopes
        three_hundred_in_a_scope
        a_scope_is_followed_by_what_was_written;
    sync:
        a_mutex_excludes
        try_lock_fails_while_it_is_held
        a_mutex_is_taken_in_turns
        a_condvar_wakes_one
        a_condvar_wakes_all
        wait_while_waits
        wait_timeout_is_long_enough
        a_wait_holds_the_lock_again
        readers_read_at_once
        a_writer_excludes
        try_read_and_try_write_fail
        a_barrier_has_one_leader
        a_barrier_waits_for_all
        once_runs_once
        once_waits
        a_once_lock_has_one_value
        a_once_lock_is_waited_for
        a_lazy_lock_runs_once
        the_last_owner_drops
        a_weak_one_sees_the_end
        release_and_acquire
        stores_are_in_one_order
        counters_count;
    messages:
        all_arrive_in_order
        a_rendezvous_meets
        a_full_channel_says_so
        a_full_channel_waits
        an_empty_channel_says_so
        what_was_sent_arrives_after_the_end
        a_message_without_receiver_comes_back
        messages_go_with_the_receiver
        recv_timeout_is_long_enough
        recv_timeout_sees_the_end
        an_iterator_ends
        a_channel_through_a_channel
        a_ring_of_threads
        a_message_carries_what_was_written;
    system:
        pthread_self_is_the_handles
        pthread_self_is_each_ones_own
        pthread_self_stays
        pthread_join_of_a_handle
        pthread_detach_of_a_handle
        a_name_is_pthreads
        a_name_is_seen_from_outside
        a_long_name_is_cut
        a_pthread_can_be_named
        errno_is_each_ones_own
        the_signal_mask_is_inherited
        the_signal_mask_stays
        numbers_stay
        rounding_is_usual
        variables_are_the_same
        the_directory_is_the_same
        the_process_is_the_same
        printing_from_threads
        stdout_locks_again
        a_child_process_is_waited_for
        a_pipe_waits
        a_socket_waits
        a_stream_waits
        a_file_from_many_threads
        instants_go_on;
};

/// Its panic, if any.
fn caught<T>(body: impl FnOnce() -> T) -> thread::Result<T> {
    catch_unwind(AssertUnwindSafe(body))
}

/// What a panic says.
fn text(payload: Box<dyn Any + Send>) -> String {
    match payload.downcast::<&'static str>() {
        Ok(text) => text.to_string(),
        Err(payload) => *payload.downcast::<String>().expect("a text"),
    }
}

/// Says what a panic of the thread's said.
fn died<T>(result: thread::Result<T>) -> String {
    text(result.err().expect("a panic"))
}

/// Gives way until it holds.
fn wait_until(mut condition: impl FnMut() -> bool) {
    while !condition() {
        thread::yield_now();
    }
}

/// Goes so many bytes deep below `top`, and counts the calls.
#[inline(never)]
fn dig(top: usize, deep: usize) -> usize {
    let here = black_box([1u8; 512]);
    let below = top - (&raw const here as usize);
    match below < deep {
        true => dig(top, deep) + black_box(here[0] as usize),
        false => 1,
    }
}

fn dig_here(deep: usize) -> usize {
    let here = black_box(0u8);
    dig(&raw const here as usize, deep)
}
