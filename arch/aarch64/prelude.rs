//! The code before a system call, from which the first argument of the call can be told, as long as it is
//! plain to see there. The kernel has overwritten the register that held it.
//!
//! A branch into the middle of that code is not seen. In glibc 2.36 one leads there, to a call that nothing interrupts (the
//! wake-up in `pthread_rwlock_unlock`); a test looks at the libc that it runs with.

/// All instructions have this size.
pub(super) type Instruction = u32;

/// The instruction that makes a system call: `svc #0`.
pub(super) const SYSCALL: Instruction = 0xd400_0001;
/// How many instructions before its end are looked at.
pub(super) const LENGTH: usize = 16;

const ZERO: u32 = 31;

/// The value that the last move to x0 in `code` has moved, if that is plain to see: a constant, or that of
/// a register which nothing has written since.
pub(super) fn first_argument_in(
    code: &[Instruction],
    register: impl Fn(usize) -> u64,
) -> Option<u64> {
    for (at, &instruction) in code.iter().enumerate().rev() {
        let (value, source) = match move_to_x0(instruction) {
            Some(Source::Constant(value)) => (value, None),
            // Extended in place: the value was in x0 itself.
            Some(Source::SignedWord(0) | Source::Register { number: 0, .. }) => return None,
            Some(Source::Register { number, mask }) => {
                (register(number as usize) & mask, Some(number))
            }
            Some(Source::SignedWord(number)) => {
                let word = register(number as usize) as i32;
                (i64::from(word) as u64, Some(number))
            }
            None => match may_write(instruction) {
                Some(writes) if writes & 1 == 0 => continue,
                _ => return None,
            },
        };
        let keeps = |&instruction: &Instruction| {
            may_write(instruction)
                .is_some_and(|writes| source.is_none_or(|number| writes >> number & 1 == 0))
        };
        return code[at + 1..].iter().all(keeps).then_some(value);
    }
    None
}

enum Source {
    Constant(u64),
    Register {
        number: u32,
        mask: u64,
    },
    /// The lower half, with its sign.
    SignedWord(u32),
}

/// What `instruction` moves to x0, if it is a plain move.
fn move_to_x0(instruction: Instruction) -> Option<Source> {
    const WORD: u64 = u32::MAX as u64;
    let constant = u64::from(instruction >> 5 & 0xffff);
    let source = match instruction & 0x1f {
        0 => instruction >> 16 & 0x1f,
        _ => return None,
    };
    match instruction & 0xffe0_ffff {
        0xaa00_03e0 if source == ZERO => return Some(Source::Constant(0)), // mov x0, xzr
        0x2a00_03e0 if source == ZERO => return Some(Source::Constant(0)), // mov w0, wzr
        0xaa00_03e0 => {
            return Some(Source::Register {
                number: source,
                mask: !0,
            });
        } // mov x0, xN
        0x2a00_03e0 => {
            return Some(Source::Register {
                number: source,
                mask: WORD,
            });
        } // mov w0, wN
        _ => {}
    }
    match instruction & 0xffe0_001f {
        0xd280_0000 | 0x5280_0000 => return Some(Source::Constant(constant)), // mov x0 or w0, #constant
        0x9280_0000 => return Some(Source::Constant(!constant)),              // mov x0, #!constant
        0x1280_0000 => return Some(Source::Constant(!constant & WORD)),       // mov w0, #!constant
        _ => {}
    }
    match (instruction & 0xffff_fc1f, instruction >> 5 & 0x1f) {
        (_, ZERO) => None,
        (0x9340_7c00, number) => Some(Source::SignedWord(number)), // sxtw x0, wN
        _ => None,
    }
}

/// The registers that `instruction` may write, a bit each; a few more, perhaps. `None`: it is of a kind
/// that is not looked into, such as a branch.
fn may_write(instruction: Instruction) -> Option<u32> {
    let bit = |shift: u32| 1 << (instruction >> shift & 0x1f);
    const NOP: Instruction = 0xd503_201f;
    match instruction >> 25 & 0xf {
        _ if instruction == NOP => Some(0),
        // Arithmetic and moves, with constants and with registers: the lowest bits name the result.
        0b1000 | 0b1001 | 0b0101 | 0b1101 => Some(bit(0)),
        // Loads and stores: of a pair, of a register, of a constant. The base may move, too.
        0b0100 | 0b0110 | 0b1100 | 0b1110 => match instruction >> 24 & 0x38 | instruction >> 24 & 1
        {
            0b101_000 | 0b101_001 => Some(bit(0) | bit(10) | bit(5)),
            0b111_001 => Some(bit(0)),
            0b111_000 => Some(bit(0) | bit(5)),
            0b011_000 => Some(bit(0)),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Instruction, LENGTH, SYSCALL, first_argument_in, may_write};

    const MOV_X0_X19: Instruction = 0xaa13_03e0;
    const MOV_W0_W20: Instruction = 0x2a14_03e0;
    const MOV_X0_MINUS_100: Instruction = 0x9280_0c60;
    const MOV_W0_7: Instruction = 0x5280_00e0;
    const MOV_X0_XZR: Instruction = 0xaa1f_03e0;
    const SXTW_X0_W1: Instruction = 0x9340_7c20;
    const SXTW_X0_W0: Instruction = 0x9340_7c00;
    const MOV_W0_W0: Instruction = 0x2a00_03e0;
    const MOV_X8_57: Instruction = 0xd280_0728;
    const MOV_X1_X20: Instruction = 0xaa14_03e1;
    const MOV_X19_X2: Instruction = 0xaa02_03f3;
    const LDR_X0_SP_8: Instruction = 0xf940_07e0;
    const LDR_X2_SP_8: Instruction = 0xf940_07e2;
    const LDP_X19_X20_SP: Instruction = 0xa940_53f3;
    const ADD_X0_SP_8: Instruction = 0x9100_23e0;
    const BL: Instruction = 0x9400_0010;
    const CBZ_X3: Instruction = 0xb400_0063;
    const NOP: Instruction = 0xd503_201f;

    fn told(code: &[Instruction]) -> Option<u64> {
        first_argument_in(code, |number| 0xffff_ffff_ffff_0000 | number as u64)
    }

    #[test]
    fn the_first_argument_of_a_call() {
        let x19 = 0xffff_ffff_ffff_0013;
        assert_eq!(told(&[MOV_X0_X19]), Some(x19));
        assert_eq!(told(&[MOV_X0_X19, MOV_X8_57, NOP, LDR_X2_SP_8]), Some(x19));
        assert_eq!(told(&[BL, MOV_X0_X19, MOV_X1_X20]), Some(x19));
        assert_eq!(told(&[MOV_W0_W20, MOV_X8_57]), Some(0xffff_0014));
        assert_eq!(told(&[MOV_X0_MINUS_100]), Some(-100_i64 as u64));
        assert_eq!(told(&[MOV_X0_X19, MOV_W0_7]), Some(7));
        assert_eq!(told(&[MOV_X0_XZR]), Some(0));
        assert_eq!(told(&[SXTW_X0_W1]), Some(0xffff_ffff_ffff_0001));
    }

    #[test]
    fn what_is_not_plain_is_left() {
        for code in [
            &[][..],
            &[MOV_X8_57],
            &[MOV_X0_X19, BL],
            &[MOV_X0_X19, CBZ_X3],
            &[MOV_X0_X19, MOV_X19_X2],
            &[MOV_X0_X19, LDP_X19_X20_SP],
            &[MOV_W0_W20, LDP_X19_X20_SP],
            &[SXTW_X0_W1, MOV_X1_X20],
            &[MOV_X0_X19, SXTW_X0_W0],
            &[MOV_W0_W0, MOV_X8_57],
            &[MOV_X0_X19, LDR_X0_SP_8],
            &[MOV_X0_X19, ADD_X0_SP_8],
        ] {
            assert_eq!(told(code), None, "{code:x?}");
        }
    }

    #[test]
    fn calls_of_glibc() {
        let first = |number: u64| Some(0xffff_ffff_ffff_0000 | number);
        // 2.36: `read`, with one thread and with several; `clock_nanosleep`; `pause`.
        assert_eq!(told(&[0x3400_0163, 0xaa13_03e0, 0xd280_07e8]), first(19));
        let read = [
            0x97fe_81f4, // bl
            0xaa15_03e1,
            0x2a00_03e3,
            0xaa14_03e2,
            0xaa13_03e0, // mov x0, x19
            0xd280_07e8,
        ];
        assert_eq!(told(&read), first(19));
        let sleep = [0xaa13_03e0, 0xaa16_03e2, 0xaa15_03e3, 0xd280_0e68];
        assert_eq!(told(&sleep), first(19));
        let pause = [
            0x97ff_09dd, // bl
            0x2a00_03e4,
            0xd280_0001,
            0xd280_0000, // mov x0, #0
            0xd280_0002,
            0xd280_0003,
            0xd280_0928,
        ];
        assert_eq!(told(&pause), Some(0));
        // `semtimedop`, 2.36 and 2.43; `ptrace`, 2.43: extended in place.
        assert_eq!(told(&[0xd503_245f, SXTW_X0_W0, 0xd280_1808]), None);
        let ptrace = [MOV_W0_W0, 0x9a83_30a3, 0x2904_7fe1, 0xb980_4be1];
        assert_eq!(told(&ptrace), None);
        // 2.43: the one place for cancellation points. x2 has another argument by now.
        let cancellable = [
            0x3718_0140, // tbnz
            0xaa01_03e8,
            0xaa02_03e0, // mov x0, x2
            0xaa03_03e1,
            0xaa04_03e2, // mov x2, x4
            0xaa05_03e3,
            0xaa06_03e4,
            0xaa07_03e5,
        ];
        assert_eq!(told(&cancellable), None);
    }

    /// libc's code, as it lies in memory.
    fn libc_code() -> &'static [Instruction] {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let is_code = |line: &&str| line.contains(" r-xp ") && line.ends_with("/libc.so.6");
        let line = maps.lines().find(is_code).expect("libc's code");
        let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let [start, end] = [start, end].map(|at| usize::from_str_radix(at, 16).unwrap());
        // SAFETY: mapped for as long as the process runs, and not written.
        unsafe { core::slice::from_raw_parts(start as *const Instruction, (end - start) / 4) }
    }

    /// Where the instruction at index `at` branches to, if that is near: functions are small, and constants that lie
    /// between them look like branches.
    fn branches_to(at: usize, instruction: Instruction) -> Option<usize> {
        // The distance: so many bits, from this bit on.
        let (from, bits) = match instruction {
            i if i & 0xfc00_0000 == 0x1400_0000 => (0, 26), // b
            i if i & 0xff00_0000 == 0x5400_0000 => (5, 19), // b.cond
            i if i & 0x7e00_0000 == 0x3400_0000 => (5, 19), // cbz, cbnz
            i if i & 0x7e00_0000 == 0x3600_0000 => (5, 14), // tbz, tbnz
            _ => return None,
        };
        let distance = (instruction << (32 - from - bits)) as i32 >> (32 - bits);
        let is_near = distance.unsigned_abs() < 1 << 12;
        is_near.then(|| at.checked_add_signed(distance as isize))?
    }

    /// No branch of libc's leads between a move that is believed and its call, but to calls that nothing interrupts.
    #[test]
    fn no_branch_leads_behind_a_move() {
        const MOV_X8_FUTEX: Instruction = 0xd280_0008 | (libc::SYS_futex as u32) << 5;
        let code = libc_code();
        let targets: std::collections::HashSet<usize> = (0..code.len())
            .filter_map(|at| branches_to(at, code[at]))
            .collect();
        let mut believed = 0;
        for at in (LENGTH..code.len()).filter(|&at| code[at] == SYSCALL) {
            // The shortest code that is enough begins with the move.
            let tells = |&start: &usize| told(&code[start..at]).is_some();
            let Some(start) = (at - LENGTH + 1..at).rev().find(tells) else {
                continue;
            };
            believed += 1;
            let led_to = (start + 1..=at).find(|place| targets.contains(place));
            assert!(
                led_to.is_none() || code[start..at].contains(&MOV_X8_FUTEX),
                "{:x?}",
                &code[start..=at]
            );
        }
        assert!(believed > 100, "only {believed} calls");
    }

    #[test]
    fn registers_that_are_written() {
        assert_eq!(may_write(MOV_X8_57), Some(1 << 8));
        assert_eq!(may_write(MOV_X1_X20), Some(1 << 1));
        assert!(may_write(LDP_X19_X20_SP).unwrap() & (1 << 19 | 1 << 20) == 1 << 19 | 1 << 20);
        assert!(may_write(BL).is_none() && may_write(CBZ_X3).is_none());
    }
}
