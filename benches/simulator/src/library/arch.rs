//! Stands in for the library's `arch`: the clock is the simulation's.

pub(crate) fn ticks() -> u64 {
    crate::virtual_time::ticks()
}

pub(crate) fn cpu() -> usize {
    crate::virtual_time::cpu()
}
