//! Stands in for the library's `policy`: its protocol file.

pub(crate) mod work_stealing {
    include!(concat!(env!("OUT_DIR"), "/parts/work_stealing.rs"));
}
