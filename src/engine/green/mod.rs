//! What a report sees of a thread from outside.

pub(crate) mod inspection;
pub(crate) mod quiet;
pub(crate) mod resident;
mod since;
pub(crate) mod subject;

pub(crate) use self::since::Since;
