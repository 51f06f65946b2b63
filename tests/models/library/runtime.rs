//! Stands in for the library's `runtime`: the part of a file that is a protocol.

pub(crate) mod spawn {
    include!(concat!(env!("OUT_DIR"), "/parts/spawn.rs"));
}
