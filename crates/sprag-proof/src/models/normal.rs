//! Making states that mean the same look the same.
//!
//! Versions, fences, tickets and lease ids grow for ever; what the machine does with them only
//! depends on which are equal and which is larger. So after each step they are renumbered from
//! the bottom. That makes the models finite without a limit on time, grants or renewals.

use sprag_core::record::Record;
use sprag_core::{Fence, LeaseId, Loss};

/// The version of the record after every step.
pub const CURRENT: u64 = 1;
/// Any version that the record had before: it never comes back.
pub const OUTDATED: u64 = 0;

/// Renumbers what grows in a record, and forgets the gone leases that nobody will ask for.
///
/// Fences are not touched: they also live outside of the record.
pub fn renumber(record: &mut Record, mut is_asked_for: impl FnMut(LeaseId) -> bool) {
    record.version = CURRENT;
    record.tickets = 0;
    for wait in &mut record.waiters {
        // The queue is in order, so the tickets keep it.
        wait.ticket = record.tickets;
        record.tickets += 1;
    }
    // Nothing depends on how a holder came in, or on the order of holders.
    record.holders.iter_mut().for_each(|hold| hold.took_over = false);
    record.holders.sort_unstable_by_key(|hold| hold.lease);
    record.gone.retain(|gone| is_asked_for(gone.lease));
    record.gone.sort_unstable_by_key(|gone| gone.lease);
    for gone in &mut record.gone {
        if let Loss::Broken { fence, .. } = &mut gone.loss {
            *fence = Fence::ZERO;
        }
    }
}

/// Replaces numbers by their ranks, from 1; zero stays zero.
pub fn rank(numbers: &mut [&mut u64]) {
    let mut sorted: Vec<u64> =
        numbers.iter().map(|number| **number).filter(|number| *number > 0).collect();
    sorted.sort_unstable();
    sorted.dedup();
    for number in numbers {
        if **number > 0 {
            **number = 1 + sorted.partition_point(|other| *other < **number) as u64;
        }
    }
}

/// Replaces fences by their ranks, those of the record and those outside of it.
pub fn rank_fences(record: &mut Record, others: Vec<&mut u64>) {
    let mut fences = vec![record.fence.get()];
    fences.extend(record.holders.iter().map(|hold| hold.fence.get()));
    let mut numbers: Vec<&mut u64> = fences.iter_mut().collect();
    for other in others {
        numbers.push(other);
    }
    rank(&mut numbers);
    let as_fence = |number: u64| Fence::new(number).unwrap_or(Fence::MAX);
    record.fence = as_fence(fences[0]);
    for (hold, fence) in record.holders.iter_mut().zip(&fences[1..]) {
        hold.fence = as_fence(*fence);
    }
}
