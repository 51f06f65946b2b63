//! Stands in for the library's `green`: its protocol files.

#[path = "../../../src/engine/green/since.rs"]
pub(crate) mod since;
#[path = "../../../src/engine/green/subject.rs"]
pub(crate) mod subject;

/// No kernel thread is looked at.
pub(crate) mod resident {
    use crate::engine::sched::Identity;
    use crate::engine::sched::park::Parking;

    pub(crate) enum Resident {}

    macro_rules! nothing {
        ($($name:ident -> $result:ty)*) => {$(
            pub(crate) fn $name(&self) -> $result {
                match *self {}
            }
        )*};
    }

    impl Resident {
        nothing! {
            identity -> *const Identity
            is_left_over -> bool
            mark -> usize
            millis -> u32
            parking -> *const Parking
            thread -> i32
            turns -> u32
        }
    }
}
