//! Stands in for the library's `inspect`: its protocol files.

/// Why threads wait.
pub(crate) mod notes {
    include!(concat!(env!("OUT_DIR"), "/parts/notes.rs"));
}
pub(crate) mod threads {
    include!(concat!(env!("OUT_DIR"), "/parts/threads.rs"));
}

/// No kernel thread is looked at; the places of a table are.
pub(crate) mod kernel {
    include!(concat!(env!("OUT_DIR"), "/parts/kernel.rs"));

    use crate::engine::sched::Identity;
    use crate::engine::sched::park::Parking;

    pub(crate) enum KernelThread {}

    macro_rules! nothing {
        ($($name:ident -> $result:ty)*) => {$(
            pub(crate) fn $name(&self) -> $result {
                match *self {}
            }
        )*};
    }

    impl KernelThread {
        nothing! {
            identity -> *const Identity
            mark -> usize
            millis -> u32
            parking -> *const Parking
            thread -> i32
            turns -> u32
        }

        pub(crate) fn is_gone(&self, _: i32) -> bool {
            match *self {}
        }
    }
}
