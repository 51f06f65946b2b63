//! How a thread's static block lies about its thread pointer: the ELF ABI has two variants.
//!
//! ```text
//!   variant I (aarch64)                       variant II (x86-64)
//!
//!   |                       | high addresses  |                       |
//!   | thread-locals         |                 | control block:        |
//!   +-----------------------+                 |   self, vector, self  |
//!   | vector, a word        |                 +-----------------------+ <- thread pointer
//!   +-----------------------+ <- thread       | thread-locals         |
//!   | control block         |    pointer      |                       |
//!   |                       | low addresses   |                       |
//! ```
//!
//! All that the two do differently stands here. Offsets are in bytes; those of the control block's head are fixed
//! by the ABI (compilers emit them) or by 25 years of glibc.

use std::ops::Range;

/// The facts of a variant.
pub(super) struct Variant {
    /// The control block lies above the thread pointer, the thread-locals below; or the other way round.
    is_control_above: bool,
    /// From the thread pointer: the word that leads to the vector of modules.
    pub(super) vector: usize,
    /// In the control block: words that hold its own address.
    pub(super) own_address: &'static [usize],
    /// In the control block: values that are the same in every thread.
    pub(super) guards: &'static [usize],
    /// In the control block: from `multiple_threads` up to the last of these values.
    pub(super) shared: Range<usize>,
    /// In the control block: the word in which a thread says that the loader looks up a symbol for it
    /// (`gscope_flag`).
    pub(super) look_up_flag: usize,
}

const I: Variant = Variant {
    is_control_above: false,
    vector: 0,
    own_address: &[],
    guards: &[],
    shared: 0..8,
    look_up_flag: 4,
};

const II: Variant = Variant {
    is_control_above: true,
    vector: 8,
    own_address: &[0, 0x10],
    guards: &[0x28, 0x30],
    shared: 0x18..0x38,
    look_up_flag: 0x1c,
};

/// The one here.
pub(super) const VARIANT: Variant = match cfg!(target_arch = "x86_64") {
    true => II,
    false => I,
};

impl Variant {
    /// Bytes of glibc's below and above the thread pointer, if the control block has `control` bytes and
    /// the loader speaks of `all`.
    pub(super) const fn sides(&self, all: usize, control: usize) -> (usize, usize) {
        match self.is_control_above {
            true => (all - control, control),
            false => (control, all),
        }
    }

    /// From the thread pointer to the control block of so many bytes.
    pub(super) const fn control_block(&self, control: usize) -> isize {
        match self.is_control_above {
            true => 0,
            false => -(control as isize),
        }
    }

    /// From the thread pointer to the thread-locals of a module, which lie at this distance.
    pub(super) const fn thread_locals(&self, distance: usize) -> isize {
        match self.is_control_above {
            true => -(distance as isize),
            false => distance as isize,
        }
    }

    /// Where the loader's descriptor says that the vector's word lies, from the control block.
    pub(super) const fn vector_in_descriptor(&self, control: usize) -> usize {
        self.vector
            .wrapping_add_signed(-self.control_block(control))
    }
}

#[cfg(test)]
mod tests {
    use super::{I, II};

    #[test]
    fn the_two_sides_of_a_thread_pointer() {
        assert_eq!(II.sides(0x1000, 0x900), (0x700, 0x900));
        assert_eq!(I.sides(0x1000, 0x720), (0x720, 0x1000));
        assert_eq!(
            (II.control_block(0x900), I.control_block(0x720)),
            (0, -0x720)
        );
        assert_eq!(
            (II.thread_locals(0x30), I.thread_locals(0x30)),
            (-0x30, 0x30)
        );
        assert_eq!(II.vector_in_descriptor(0x900), 8);
        assert_eq!(I.vector_in_descriptor(0x720), 0x720);
    }
}
