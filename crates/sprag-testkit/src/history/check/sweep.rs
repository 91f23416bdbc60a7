//! [`largest_before`]: the one sweep that most checks are made of.

use sprag_core::Fence;

use crate::history::Event;

/// A fence at a moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark<'a> {
    pub(super) at: u64,
    pub(super) fence: Fence,
    pub(super) event: &'a Event,
}

/// For each of `later` calls `judge` with the mark of the largest fence among those of `earlier`
/// that are strictly earlier.
pub(super) fn largest_before<'a>(
    mut earlier: Vec<Mark<'a>>,
    mut later: Vec<Mark<'a>>,
    mut judge: impl FnMut(Mark<'a>, Mark<'a>),
) {
    earlier.sort_by_key(|mark| mark.at);
    later.sort_by_key(|mark| mark.at);
    let mut earlier = earlier.into_iter().peekable();
    let mut largest: Option<Mark<'a>> = None;
    for mark in later {
        while let Some(done) = earlier.next_if(|done| done.at < mark.at) {
            if largest.is_none_or(|known| known.fence < done.fence) {
                largest = Some(done);
            }
        }
        if let Some(largest) = largest {
            judge(largest, mark);
        }
    }
}
