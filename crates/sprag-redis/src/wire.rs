//! What the script that looks at a lock answers.

use serde::Deserialize;
use sprag_core::Fence;
use sprag_core::record::{Hold, Record, Wait};

/// The answer of `scripts/look.lua`.
#[derive(Debug, Deserialize)]
pub(crate) struct Looked {
    pub(crate) now_us: u64,
    fence: Fence,
    limit: Option<u32>,
    holders: Vec<Hold>,
    waiters: Vec<Wait>,
    /// Who has the plain key and is none of us.
    foreign: Option<Hold>,
}

impl Looked {
    pub(crate) fn into_record(self) -> Record {
        let (fence, limit, waiters) = (self.fence, self.limit, self.waiters);
        let holders = self.holders.into_iter().chain(self.foreign).collect();
        Record { fence, limit, holders, waiters, ..Record::default() }
    }
}
