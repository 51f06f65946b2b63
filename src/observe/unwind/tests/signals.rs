//! Below a signal's handler, and below the preemption trampoline.

use super::*;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Mutex;

/// A stack as it was read in a handler, and as libgcc reads it.
struct Seen {
    frames: Vec<usize>,
    others: Vec<usize>,
    end: End,
}

static SEEN: Mutex<Option<Seen>> = Mutex::new(None);
static BOUNDS: Mutex<Option<Bounds>> = Mutex::new(None);

unsafe extern "C" {
    fn _Unwind_Backtrace(
        each: extern "C" fn(*mut libc::c_void, *mut libc::c_void) -> i32,
        list: *mut libc::c_void,
    ) -> i32;
    fn _Unwind_GetIP(frame: *mut libc::c_void) -> usize;
}

extern "C" fn note(frame: *mut libc::c_void, list: *mut libc::c_void) -> i32 {
    // SAFETY: the unwinder's own frame, and the list below.
    let (pc, list) = unsafe { (_Unwind_GetIP(frame), &mut *list.cast::<Vec<usize>>()) };
    list.extend((pc != 0).then_some(pc));
    0
}

extern "C" fn on_signal(_: i32) {
    in_handler();
    core::hint::black_box(());
}

#[inline(never)]
fn in_handler() {
    let registers = registers_here();
    let bounds = BOUNDS.lock().unwrap().unwrap();
    let mut frames = Vec::new();
    let end = Unwinder::new().frames(registers, |at| bounds.read(at), &mut frames);
    let mut others = Vec::new();
    // SAFETY: `note` takes such a list.
    unsafe { _Unwind_Backtrace(note, (&raw mut others).cast()) };
    *SEEN.lock().unwrap() = Some(Seen {
        frames,
        others,
        end,
    });
}

#[inline(never)]
fn interrupted() {
    // The kernel delivers the signal before the call returns: the interrupted code is libc's.
    // SAFETY: the handler is there.
    unsafe { libc::raise(libc::SIGURG) };
    core::hint::black_box(());
}

/// The first instruction of this one faults, so that the byte before it is another function's.
#[unsafe(naked)]
extern "C" fn faults_at_once() {
    #[cfg(target_arch = "x86_64")]
    naked_asm!(".cfi_startproc", "ud2", "ret", ".cfi_endproc");
    #[cfg(target_arch = "aarch64")]
    naked_asm!(".cfi_startproc", "udf #0", "ret", ".cfi_endproc");
}

extern "C" fn on_fault(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    in_handler();
    // SAFETY: the handler's argument; the instruction has two bytes on x86-64, and four on aarch64.
    unsafe {
        let machine = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext;
        #[cfg(target_arch = "x86_64")]
        (machine.gregs[libc::REG_RIP as usize] += 2);
        #[cfg(target_arch = "aarch64")]
        (machine.pc += 4);
    }
}

#[inline(never)]
fn calls_a_fault() {
    faults_at_once();
    core::hint::black_box(());
}

fn handle(signal: i32, handler: usize) {
    // SAFETY: handlers of the right type, for signals that nothing else in these tests uses.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(signal, &action, core::ptr::null_mut()), 0);
    }
}

#[test]
fn a_signals_frame_leads_to_what_it_interrupted() {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock();
    handle(libc::SIGURG, on_signal as *const () as usize);
    handle(libc::SIGILL, on_fault as *const () as usize);
    type Case = (fn(), &'static [&'static str]);
    let cases: [Case; 2] = [
        (interrupted, &["in_handler", "on_signal", "interrupted"]),
        (
            calls_a_fault,
            &["in_handler", "on_fault", "faults_at_once", "calls_a_fault"],
        ),
    ];
    for (case, expected) in cases {
        let mut thread = Thread::new(move |_, bounds| {
            *BOUNDS.lock().unwrap() = Some(bounds);
            case();
        });
        assert!(!thread.run());
        let Seen {
            frames,
            others,
            end,
        } = SEEN.lock().unwrap().take().unwrap();
        let names = names(&frames);
        assert_eq!(end, End::Bottom, "{names:#?}");
        assert_in_order(&names, expected);
        assert_in_order(&names, &["call_at_bottom"]);
        // libgcc's unwinder sees the same, from the frame on that both have.
        let below = |frames: &[usize], from| {
            let start = frames
                .iter()
                .position(|pc| *pc == from)
                .expect("a common frame");
            frames[start + 1..].to_vec()
        };
        let (ours, theirs) = (below(&frames, frames[1]), below(&others, frames[1]));
        // An interrupted instruction is given out with one added.
        let is_same = |(one, other): (&usize, &usize)| one.abs_diff(*other) <= 1;
        assert!(
            ours.len() == theirs.len() && ours.iter().zip(&theirs).all(is_same),
            "{ours:#x?} {theirs:#x?} {names:#?}"
        );
    }
}

static LOCAL: AtomicUsize = AtomicUsize::new(0);
static STOP: AtomicBool = AtomicBool::new(false);

#[inline(never)]
fn computes() -> u64 {
    let mut local = 0_u64;
    LOCAL.store((&raw mut local) as usize, Ordering::Release);
    while !STOP.load(Ordering::Relaxed) {
        local = local.wrapping_mul(3).wrapping_add(rotate(local));
    }
    local
}

#[inline(never)]
fn rotate(number: u64) -> u64 {
    core::hint::black_box(number).rotate_left(7)
}

/// Looks for the switch's frame on the stack of a thread that was preempted: it is the one from which the
/// trampoline leads to the function that computes.
#[test]
fn a_preempted_thread_has_its_functions() {
    let runtime = crate::runtime::Runtime::builder()
        .processors(1)
        .build()
        .unwrap();
    if runtime.mode() == crate::engine::public::Mode::Kernel {
        return eprintln!("the system preempts kernel threads");
    }
    let observer = runtime.spawn(|| {
        let hog = crate::spawn(computes);
        while LOCAL.load(Ordering::Acquire) == 0 {
            crate::yield_now();
        }
        // It runs nowhere: this thread has the only processor. But on a busy machine it may have lost that in a
        // system call just before, and run on: then it is preempted soon.
        let look = || {
            let found = search(LOCAL.load(Ordering::Acquire));
            if found.is_none() {
                crate::sleep(core::time::Duration::from_millis(1));
            }
            found
        };
        let found = std::iter::repeat_with(look).take(200).flatten().next();
        STOP.store(true, Ordering::Relaxed);
        hog.join().unwrap();
        found
    });
    let frames = observer.join().unwrap().expect("a frame of the switch");
    let full = names(&frames);
    let expected = [
        "preempt_trampoline",
        "computes",
        "__rust_begin_short_backtrace",
        "call_at_bottom",
    ];
    assert_in_order(&full, &expected);
    let shown = named(&frames, false);
    // It may have been preempted in a function that it calls.
    assert!(
        shown.iter().any(|name| name == "computes"),
        "{shown:#?} of {full:#?}"
    );
    let hidden = [expected[0], expected[2], expected[3]];
    assert!(
        !shown.iter().any(|name| hidden.contains(&&**name)),
        "{shown:#?}"
    );
}

fn search(local: usize) -> Option<Vec<usize>> {
    // Deep enough for the saved state; the stack is larger than that.
    let bounds = Bounds {
        bottom: local - (16 << 10),
        top: (local + 4096).next_multiple_of(8),
    };
    let mut unwinder = Unwinder::new();
    let mut saved = (bounds.bottom.next_multiple_of(8)..local).step_by(8);
    saved.find_map(|sp| {
        let registers = Registers::of_switch(sp, |address| bounds.read(address))?;
        if !unwinder.modules.has_code(registers.pc) {
            return None;
        }
        let mut frames = Vec::new();
        let end = unwinder.frames(registers, |at| bounds.read(at), &mut frames);
        let has = |name: &str| names(&frames).iter().any(|other| other == name);
        let is_whole = end == End::Bottom && has("preempt_trampoline");
        is_whole.then_some(frames)
    })
}
