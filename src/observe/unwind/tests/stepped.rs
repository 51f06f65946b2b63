//! One instruction after another: the processor traps behind each, and the stack is read there. From one
//! instruction to the next a function is called, or is returned from, or neither: the frames below stay.

use super::*;
use core::cell::UnsafeCell;
use std::sync::Mutex;

struct TaskReader {
    unwinder: Unwinder,
    bounds: Bounds,
    last: Vec<usize>,
    now: Vec<usize>,
    steps: usize,
    deepest: usize,
    wrong: Option<(&'static str, Vec<usize>, Vec<usize>)>,
}

struct Shared(UnsafeCell<Option<TaskReader>>);
// SAFETY: one thread alone is stepped through.
unsafe impl Sync for Shared {}
static OBSERVER: Shared = Shared(UnsafeCell::new(None));

impl TaskReader {
    fn see(&mut self, registers: Registers) {
        if self.wrong.is_some() {
            return;
        }
        let TaskReader {
            unwinder,
            bounds,
            now,
            ..
        } = self;
        let end = unwinder.frames(registers, |address| bounds.read(address), now);
        let (now, last) = (&self.now, &self.last);
        let fits = last.is_empty()
            || match now.len() as isize - last.len() as isize {
                0 => now[1..] == last[1..],
                1 => now[2..] == last[1..],
                -1 => now[1..] == last[2..],
                _ => false,
            };
        if end != End::Bottom || !fits {
            let kind = if fits { "no bottom" } else { "other frames" };
            self.wrong = Some((kind, last.clone(), now.clone()));
        }
        self.steps += 1;
        self.deepest = self.deepest.max(self.now.len());
        core::mem::swap(&mut self.now, &mut self.last);
    }
}

unsafe extern "C" fn on_trap(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the handler's argument, and the observer, which nobody else uses now.
    unsafe {
        let machine = &(*context.cast::<libc::ucontext_t>()).uc_mcontext;
        let register = |name: i32| machine.gregs[name as usize] as usize;
        let registers = Registers::new(
            register(libc::REG_RIP),
            register(libc::REG_RSP),
            register(libc::REG_RBP),
        );
        if let Some(observer) = &mut *OBSERVER.0.get() {
            observer.see(registers);
        }
    }
}

fn handle_traps() {
    // SAFETY: a handler of the right type, for a signal that nothing else uses.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = on_trap as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(
            libc::sigaction(libc::SIGTRAP, &action, core::ptr::null_mut()),
            0
        );
    }
}

/// From the return on every instruction traps.
#[unsafe(naked)]
extern "C" fn trap() {
    naked_asm!(
        ".cfi_startproc",
        "pushfq",
        ".cfi_adjust_cfa_offset 8",
        "or qword ptr [rsp], 0x100",
        "popfq",
        ".cfi_adjust_cfa_offset -8",
        "ret",
        ".cfi_endproc",
    )
}

#[unsafe(naked)]
extern "C" fn trap_no_more() {
    naked_asm!(
        ".cfi_startproc",
        "pushfq",
        ".cfi_adjust_cfa_offset 8",
        "and qword ptr [rsp], -0x101",
        "popfq",
        ".cfi_adjust_cfa_offset -8",
        "ret",
        ".cfi_endproc",
    )
}

#[inline(never)]
fn work(numbers: &mut [u64], room: &mut [u8; 200]) -> u64 {
    use std::io::Write;
    let mut sum = 0;
    numbers.sort_by(|one, other| other.cmp(one));
    for &number in &*numbers {
        sum += leaf(number) + many(number, [number; 9]);
    }
    write!(
        &mut room[..],
        "{sum:>20} {:?} {:e}",
        &numbers[..3],
        sum as f64
    )
    .unwrap();
    let number: f64 = core::str::from_utf8(&room[..20])
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    // libc's: no frame pointers, jumps between functions, and code chosen for the processor.
    // SAFETY: fitting arguments.
    unsafe {
        let mut buffer = [0_u8; 100];
        libc::snprintf(
            buffer.as_mut_ptr().cast(),
            100,
            c"%d %s %.3f".as_ptr(),
            7,
            c"x".as_ptr(),
            number,
        );
        libc::qsort(numbers.as_mut_ptr().cast(), numbers.len(), 8, Some(compare));
        sum += libc::strlen(buffer.as_ptr().cast()) as u64;
    }
    let virtual_call: &dyn Fn(u64) -> u64 = core::hint::black_box(&leaf);
    let boxed = Box::new(virtual_call(sum));
    let text = format!("{boxed}, {number}").repeat(10);
    sum + text.len() as u64
}

#[inline(never)]
fn leaf(number: u64) -> u64 {
    core::hint::black_box(number).count_ones() as u64
}

#[inline(never)]
fn many(number: u64, all: [u64; 9]) -> u64 {
    // Needs all registers, so the prologue and the epilogue are long.
    let mut all = core::hint::black_box(all);
    for round in 0..3 {
        for index in 0..9 {
            all[index] = leaf(all[(index + 1) % 9]) ^ (all[index].rotate_left(round) + number);
        }
    }
    all.iter().fold(0, |one, other| one ^ other)
}

unsafe extern "C" fn compare(one: *const libc::c_void, other: *const libc::c_void) -> i32 {
    // SAFETY: of the numbers that are sorted.
    unsafe { (*one.cast::<u64>()).cmp(&*other.cast::<u64>()) as i32 }
}

/// Steps through `work`; returns the number of instructions and the most frames.
pub(crate) fn step(work: fn()) -> (usize, usize) {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock();
    handle_traps();
    let mut thread = Thread::new(move |_, bounds| {
        let observer = TaskReader {
            unwinder: Unwinder::new(),
            bounds,
            last: Vec::with_capacity(FRAMES),
            now: Vec::with_capacity(FRAMES),
            steps: 0,
            deepest: 0,
            wrong: None,
        };
        // SAFETY: nothing is stepped through yet, and then nothing more.
        unsafe { *OBSERVER.0.get() = Some(observer) };
        trap();
        work();
        trap_no_more();
    });
    assert!(!thread.run());
    // SAFETY: as above.
    let observer = unsafe { (*OBSERVER.0.get()).take() }.unwrap();
    if let Some((kind, last, now)) = observer.wrong {
        let offset = |pc: &usize| (pc - 1, observer.unwinder.modules.raw(pc - 1));
        panic!(
            "{kind} after {} steps:\n{:#x?}\n{:#?}\nafter\n{:#x?}\n{:#?}",
            observer.steps,
            now.iter().map(offset).collect::<Vec<_>>(),
            names(&now),
            last.iter().map(offset).collect::<Vec<_>>(),
            names(&last),
        );
    }
    (observer.steps, observer.deepest)
}

#[test]
fn every_instruction_leads_to_the_bottom() {
    let (steps, deepest) = step(|| {
        let mut numbers: [u64; 24] = core::array::from_fn(|index| (index as u64 * 7919) % 101);
        core::hint::black_box(work(&mut numbers, &mut [b' '; 200]));
    });
    println!("{steps} instructions, {deepest} frames at most");
    assert!(steps > 10_000 && deepest > 6);
}
