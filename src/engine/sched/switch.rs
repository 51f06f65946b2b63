//! The switch: from the run loop to a green thread and back.
//!
//! The thread pointer is written once, on the way in. On the way back the green thread's stays in
//! place until the scheduler needs the kernel thread's own ([`Machine::come_home`]). So nothing
//! here, nor in the run loop's fast path, touches a thread-local: a test disassembles it.
//!
//! A thread that has changed its signal mask takes it along: once the mask was seen to differ
//! (`current::mask_changed`, `preempt`), the switch saves it and restores the kernel thread's base mask.
//! If a signal that the thread blocks has come for it, the mask stays on the kernel thread, and the thread
//! with it (`locked`), until it has taken the signal: nobody else may get that, and only the kernel knows all
//! about it, its place in the queue of a real-time signal included. A thread that is locked by itself keeps its mask on
//! its kernel thread, too, and what has not been taken at its end ends with the kernel thread.
//!
//! A thread that has changed its floating-point control takes that along too. Each switch asks for
//! it. The scheduler has the default, and so has any new thread unless its spawner has something
//! else.

use crate::engine::arch::{self, FloatControl};
use crate::engine::atomic::{Ordering, compiler_fence, fence};
use crate::engine::green::context::Action;
use crate::engine::green::{Green, Oddities};
use crate::engine::sched::{Machine, RunLoop, caches, cpu_time, handlers, locked};
use crate::engine::sys::signal;

/// Runs `green` on this kernel thread until it leaves its stack.
///
/// # Safety
/// The caller owns `green`, which is ready to run.
#[inline(always)]
pub(crate) unsafe fn to(run: &mut RunLoop, green: &'static Green, inherits: bool) -> Action {
    let machine = run.machine();
    green.set_machine(machine);
    let tick = machine.tick.load(Ordering::Relaxed).wrapping_add(1);
    // Release: a monitor that sees this tick sees all that the scheduler did before; see
    // `ownership`.
    machine.tick.store(tick, Ordering::Release);
    if !inherits {
        let slice = machine.slice.load(Ordering::Relaxed).wrapping_add(1);
        machine.slice.store(slice, Ordering::Relaxed);
    }
    if green.oddities.any() {
        enter_odd(machine, green);
    } else {
        caches::lend(machine, green);
    }
    if let Some(fiber) = green.fiber() {
        fiber.enter();
    }
    // Release: the monitor that sees the thread sees the tick; pairs with its Acquire.
    machine.current.store(Some(green), Ordering::Release);
    // Release: a report that sees what the thread writes sees that it runs; partner: the Acquire fence in
    // `ThreadSnapshot::holds`.
    fence(Ordering::Release);
    compiler_fence(Ordering::SeqCst);
    machine.leave_home();
    // SAFETY: the block is `green`'s and `green` is ours to run; nothing here touches a
    // thread-local.
    let action = unsafe {
        arch::set_thread_pointer(green.thread_pointer.get());
        // Here, since the processor waits before it writes the thread pointer: for this load, too, if it came first.
        green.since.note_time();
        green.context.resume()
    };
    compiler_fence(Ordering::SeqCst);
    if let Some(fiber) = green.fiber() {
        machine.come_home();
        fiber.leave();
    }
    green.since.left();
    // Release: pairs with the Acquire in the monitor's second look (`ownership`), and in a report's
    // (`inspect::threads`).
    machine.current.store(None, Ordering::Release);
    let floats = FloatControl::current();
    if floats != FloatControl::DEFAULT {
        take_floats(green, floats);
    }
    if handlers::exist() {
        // A handler may come here, and would find the thread-locals of a thread that runs elsewhere.
        machine.come_home();
    }
    if green.oddities.has(Oddities::MASK | Oddities::CLOCKED) {
        leave_odd(machine, green);
    }
    if let Action::Preempt = action {
        green.oddities.add(Oddities::CACHE);
    } else {
        caches::take(machine, green);
    }
    action
}

#[cold]
#[inline(never)]
fn enter_odd(machine: &Machine, green: &Green) {
    if green.oddities.has(Oddities::MASK) && !green.oddities.has(Oddities::LOCKED) {
        signal::set_mask(green.mask.get());
    }
    if green.oddities.has(Oddities::CACHE) {
        green.oddities.remove(Oddities::CACHE);
    } else {
        caches::lend(machine, green);
    }
    if let Some(floats) = green.oddities.take_floats() {
        floats.set();
    }
    if green.oddities.has(Oddities::CLOCKED) {
        cpu_time::begins(green);
    }
}

#[cold]
#[inline(never)]
fn leave_odd(machine: &'static Machine, green: &Green) {
    if green.oddities.has(Oddities::CLOCKED) {
        cpu_time::ends(green);
    }
    if green.oddities.has(Oddities::MASK) {
        take_mask(machine, green);
    }
}

#[cold]
#[inline(never)]
fn take_floats(green: &Green, floats: FloatControl) {
    green.oddities.keep_floats(floats);
    FloatControl::DEFAULT.set();
}

fn take_mask(machine: &'static Machine, green: &Green) {
    if locked::keeps_mask(machine, green) {
        return;
    }
    let base = machine.base_mask.get();
    let mask = signal::set_mask(base);
    // A preemption signal that was blocked has come now, unless the program has fetched it.
    machine.expect_no_signal();
    green.mask.set(mask);
    if mask == base {
        green.oddities.remove(Oddities::MASK);
    }
}
