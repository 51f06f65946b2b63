//! Stands in for the library's `runtime`: the part of a file that is a protocol.

pub(crate) mod packet {
    include!(concat!(env!("OUT_DIR"), "/parts/packet.rs"));
}
