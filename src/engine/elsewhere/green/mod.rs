//! What a report sees of a thread: the engine's own files, but for deadlocks.

#[path = "../../green/inspection.rs"]
pub(crate) mod inspection;
/// Nobody looks for deadlocks here.
pub(crate) mod quiet {
    pub(crate) fn tell() {}
}
#[path = "../../green/resident.rs"]
pub(crate) mod resident;
#[path = "../../green/subject.rs"]
pub(crate) mod subject;
