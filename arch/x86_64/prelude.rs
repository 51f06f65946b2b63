//! The code before a system call, from which the number of the call can be read, as long as it is plain
//! to see there. The kernel has overwritten the register that held it.

/// The instruction that makes a system call.
pub(super) const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// How far before its end the number is looked for.
pub(super) const LENGTH: usize = 32;

/// The number in the last `mov eax, number` of `code` (`xor eax, eax` for 0), if that is plain to see.
pub(super) fn number_in(code: &[u8]) -> Option<u64> {
    (1..code.len()).rev().find_map(|at| match code[at - 1..] {
        // A prefix would make it a move of another size or to another register.
        [0x40..=0x4f | 0x66, ..] => None,
        [_, 0xb8, low, high @ 0..=1, 0, 0, ref rest @ ..] if leaves_eax(rest) => {
            Some(u64::from(u16::from_le_bytes([low, high])))
        }
        [_, 0x31 | 0x33, 0xc0, ref rest @ ..] if leaves_eax(rest) => Some(0),
        _ => None,
    })
}

/// Whether `code` is whole instructions of a few kinds, none of which writes eax: moves, and
/// arithmetic with constants.
fn leaves_eax(mut code: &[u8]) -> bool {
    while !code.is_empty() {
        let (rex, rest) = match *code {
            [rex @ 0x40..=0x4f, ref rest @ ..] => (rex, rest),
            _ => (0, code),
        };
        // A register's number has its fourth bit in the prefix: of an operand in the middle of the
        // second byte with REX.R, of one at its end with REX.B.
        let (writes, length) = match *rest {
            [opcode @ 0xb8..=0xbf, ..] if rex & 8 == 0 => (opcode & 7 | (rex & 1) << 3, 5),
            [opcode, operands, ref rest @ ..] => {
                let (mode, middle, end) = (operands >> 6, operands >> 3 & 7, operands & 7);
                let sib = usize::from(mode != 3 && end == 4);
                let displacement = match mode {
                    0 if end == 5 => 4,
                    0 if end == 4 && rest.first().is_none_or(|sib| sib & 7 == 5) => 4,
                    1 => 1,
                    2 => 4,
                    _ => 0,
                };
                let (to_middle, constant) = match opcode {
                    0x8b | 0x8d | 0x63 | 0x33 => (true, 0), // mov, lea, movsxd, xor
                    0x89 | 0x31 => (false, 0),              // mov, xor
                    0x80 | 0x83 => (false, 1),              // and, or, xor ... with a constant
                    0x81 | 0xc7 => (false, 4),              // the same, mov
                    _ => return false,
                };
                let writes = match (to_middle, mode) {
                    (true, _) => middle | (rex & 4) << 1,
                    (false, 3) => end | (rex & 1) << 3,
                    (false, _) => MEMORY,
                };
                (writes, 2 + sib + displacement + constant)
            }
            _ => return false,
        };
        const EAX: u8 = 0;
        const MEMORY: u8 = !0;
        if writes == EAX || rest.len() < length {
            return false;
        }
        code = &rest[length..];
    }
    true
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_number_of_a_call() {
        let mov_eax = [0x90, 0xb8, 0x0f, 1, 0, 0];
        let mov_r8d = [0x41, 0xb8, 8, 0, 0, 0];
        let mov_ax = [0x66, 0xb8, 8, 0, 0, 0];
        let xor_eax = [0x31, 0xc0];
        let number = |parts: &[&[u8]]| super::number_in(&parts.concat());
        assert_eq!(number(&[&mov_eax]), Some(0x10f));
        assert_eq!(number(&[&mov_eax, &mov_r8d]), Some(0x10f));
        assert_eq!(number(&[&mov_r8d, &mov_eax]), Some(0x10f));
        assert_eq!(number(&[&mov_eax, &xor_eax]), Some(0));
        assert_eq!(number(&[&xor_eax, &mov_r8d]), None); // an operand's prefix may stand before it
        assert_eq!(number(&[&[0x90], &xor_eax, &mov_r8d]), Some(0));
        assert_eq!(number(&[&[0x48], &xor_eax]), None);
        assert_eq!(number(&[&mov_eax, &mov_ax]), None);
        assert_eq!(number(&[&mov_r8d]), None);
        assert_eq!(number(&[&[0x90; 30]]), None);
    }

    #[test]
    fn code_before_a_call_may_be_harmless() {
        let harmless: [&[u8]; 9] = [
            &[],
            &[0x8b, 0x7c, 0x24, 0x1c],             // mov edi, [rsp + 0x1c]
            &[0x40, 0x80, 0xf6, 0x81],             // xor sil, 0x81
            &[0x4c, 0x89, 0xc7],                   // mov rdi, r8
            &[0x48, 0x8d, 0x3d, 1, 2, 3, 4],       // lea rdi, [rip + ...]
            &[0x8d, 0x3c, 0xfd, 8, 0, 0, 0],       // lea edi, [rdi * 8 + 8]
            &[0x45, 0x31, 0xd2, 0x31, 0xf6],       // xor r10d, r10d; xor esi, esi
            &[0x41, 0xb8, 8, 0, 0, 0],             // mov r8d, 8
            &[0xc7, 0x44, 0x24, 0x3c, 2, 0, 0, 0], // mov dword ptr [rsp + 0x3c], 2
        ];
        for code in harmless {
            assert!(super::leaves_eax(code), "{code:x?}");
        }
        let others: [&[u8]; 7] = [
            &[0x89, 0xe8],                   // mov eax, ebp
            &[0x8b, 0x07],                   // mov eax, [rdi]
            &[0x31, 0xc0],                   // xor eax, eax
            &[0xb8, 1, 0, 0, 0],             // mov eax, 1
            &[0x83, 0xc8, 2],                // or eax, 2
            &[0x48, 0x8b, 0x44, 0x24, 0x20], // mov rax, [rsp + 0x20]
            &[0x8b, 0x7c, 0x24],             // half an instruction
        ];
        for code in others {
            assert!(!super::leaves_eax(code), "{code:x?}");
        }
    }
}
