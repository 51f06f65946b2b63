//! A preempted thread finds every register as it was: the general ones, the flags, the vectors with whatever
//! length they have, and the events of floating-point numbers. (x86-64's vectors are in `stress`.)
#![cfg(target_arch = "aarch64")]

use crate::common::*;
use greenthread::runtime::{Mode, Runtime};
use std::arch::naked_asm;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::Duration;

/// FPSR, an empty place, x2 to x30, the flags.
type General = [u64; 32];
/// The vectors, the predicates and FFR, as they are loaded and stored; vectors have 256 bytes at most.
type Vectors = [u8; (32 * 8 + 17) * 32];

/// A function that loads the registers, waits until the byte at `stop` is not zero, and stores them. It
/// writes no register meanwhile but x0.
macro_rules! holder {
    ($name:ident, $load:literal, $store:literal) => {
        #[unsafe(naked)]
        unsafe extern "C" fn $name(
            general: *mut General,
            vectors: *mut Vectors,
            stop: *const AtomicBool,
        ) {
            naked_asm!(
                ".arch_extension sve",
                "stp x29, x30, [sp, #-176]!",
                "stp x19, x20, [sp, #16]",
                "stp x21, x22, [sp, #32]",
                "stp x23, x24, [sp, #48]",
                "stp x25, x26, [sp, #64]",
                "stp x27, x28, [sp, #80]",
                "stp d8, d9, [sp, #96]",
                "stp d10, d11, [sp, #112]",
                "stp d12, d13, [sp, #128]",
                "stp d14, d15, [sp, #144]",
                "stp x0, x1, [sp, #160]",
                $load,
                "mov x1, x2",
                "ldr x2, [x0]",
                "msr fpsr, x2",
                "ldr x2, [x0, #248]",
                "msr nzcv, x2",
                ".irp i, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30",
                "ldr x\\i, [x0, #8 * \\i]",
                ".endr",
                "2: ldrb w0, [x1]",
                "cbz w0, 2b",
                "ldr x0, [sp, #160]",
                ".irp i, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30",
                "str x\\i, [x0, #8 * \\i]",
                ".endr",
                "mrs x2, nzcv",
                "str x2, [x0, #248]",
                "mrs x2, fpsr",
                "str x2, [x0]",
                "ldr x1, [sp, #168]",
                $store,
                "ldp x19, x20, [sp, #16]",
                "ldp x21, x22, [sp, #32]",
                "ldp x23, x24, [sp, #48]",
                "ldp x25, x26, [sp, #64]",
                "ldp x27, x28, [sp, #80]",
                "ldp d8, d9, [sp, #96]",
                "ldp d10, d11, [sp, #112]",
                "ldp d12, d13, [sp, #128]",
                "ldp d14, d15, [sp, #144]",
                "ldp x29, x30, [sp], #176",
                "ret",
                ".arch_extension nosve",
            )
        }
    };
}

holder!(
    hold_vectors,
    ".irp i, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
     ldr q\\i, [x1, #16 * \\i]
     .endr",
    ".irp i, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
     str q\\i, [x1, #16 * \\i]
     .endr"
);

holder!(
    hold_scalable_vectors,
    ".irp i, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
     ldr z\\i, [x1, #\\i, mul vl]
     .endr
     addvl x3, x1, #16
     addvl x3, x3, #16
     ldr p0, [x3, #16, mul vl]
     wrffr p0.b
     .irp i, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
     ldr p\\i, [x3, #\\i, mul vl]
     .endr",
    ".irp i, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
     str z\\i, [x1, #\\i, mul vl]
     .endr
     addvl x3, x1, #16
     addvl x3, x3, #16
     .irp i, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
     str p\\i, [x3, #\\i, mul vl]
     .endr
     rdffr p0.b
     str p0, [x3, #16, mul vl]"
);

/// Bytes of a vector; 0: they are not scalable.
fn vector_length() -> usize {
    if !std::arch::is_aarch64_feature_detected!("sve") {
        return 0;
    }
    const PR_SVE_GET_VL: i32 = 51;
    // SAFETY: only asks.
    let told = unsafe { libc::prctl(PR_SVE_GET_VL) };
    assert!(told > 0);
    told as usize & 0xffff
}

/// What thread `seed` has in its registers.
fn contents(seed: u64, length: usize) -> (Box<General>, Box<Vectors>) {
    let mut general = Box::new([0; 32]);
    for (i, register) in general.iter_mut().enumerate().skip(2) {
        *register = (seed + 1) * 0x0123_4567_89ab_cdef ^ i as u64;
    }
    general[0] = 0x0800_009f & (seed | 0x0800_0000);
    general[31] = (seed & 0xf) << 28;
    let mut vectors = Box::new([0; size_of::<Vectors>()]);
    for (i, byte) in vectors.iter_mut().enumerate() {
        *byte = (i as u64 * 31 + seed * 97) as u8;
    }
    if length > 0 {
        // FFR: ones, and then zeroes.
        let ffr = 32 * length + 16 * (length / 8);
        vectors[ffr..ffr + length / 8].fill(0);
        vectors[ffr] = 0xff >> (seed % 8);
    }
    (general, vectors)
}

#[test]
fn every_register_survives_preemption() {
    let _w = watchdog("registers::every_register_survives_preemption");
    let builder = Runtime::builder().processors(2);
    let runtime = builder
        .time_slice(Duration::from_micros(500))
        .build()
        .unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let length = vector_length();
    println!("scalable vectors of {length} bytes");
    let hold = match length {
        0 => hold_vectors,
        _ => hold_scalable_vectors,
    };
    let holder = |seed| {
        let stop = stop.clone();
        move || {
            let (mut general, mut vectors) = contents(seed, length);
            // SAFETY: places of the right sizes; the function keeps what a function must.
            unsafe { hold(&mut *general, &mut *vectors, Arc::as_ptr(&stop)) };
            let (own_general, own_vectors) = contents(seed, length);
            assert_eq!(general, own_general);
            assert!(vectors == own_vectors);
        }
    };
    let holders: Vec<_> = (0..8).map(|seed| runtime.spawn(holder(seed))).collect();
    let green = runtime.mode() == Mode::Green;
    wait_until(|| runtime.metrics().preemptions >= 400 || !green);
    stop.store(true, Relaxed);
    holders
        .into_iter()
        .for_each(|holder| holder.join().unwrap());
    runtime.shutdown();
}
