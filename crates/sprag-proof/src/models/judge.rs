//! What must be true of every single step of the machine, in words of its own.
//!
//! It looks only at what went in and what came out, and shares no code with the machine: a rule
//! that is wrong in both would be found by neither.

use sprag_core::record::{Applied, Command, Context, EventKind, Hold, Outcome, Record};
use sprag_core::{LeaseId, Loss, Mode};

/// What can be wrong with a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The record contradicts itself.
    RecordUnsound,
    /// The version did not grow by one exactly with the change.
    VersionWrong,
    /// A grant took a fence that is not larger than all before.
    FenceReused,
    /// A lease that was gone holds or waits again.
    GoneCameBack,
    /// A command took something from a lease that it did not name.
    WrongLeaseHit,
    /// The answer is not what the record says.
    AnswerUntrue,
    /// A waiter was granted before one that was ahead of it.
    Overtaken,
    /// The lock can be had by the first waiter, and it was not given it.
    LeftIdle,
    /// A dead session was granted the lock.
    GrantedToDead,
    /// The guarded resource took a write of an older grant after one of a newer.
    ResourceWentBack,
}

/// Finds what is wrong with one step. `newest` is the largest fence ever given out;
/// `priority_of` tells what a lease asked for.
pub fn judge(
    before: &Record,
    command: &Command,
    applied: &Applied,
    context: &Context<'_>,
    newest: u64,
    priority_of: impl Fn(LeaseId) -> i8,
) -> Option<Fault> {
    let after = &applied.record;
    let grown = before.version + u64::from(applied.changed);
    let faults = [
        (after.check().is_err(), Fault::RecordUnsound),
        (after.version != grown, Fault::VersionWrong),
        (!applied.changed && after != before, Fault::VersionWrong),
        (!fences_grow(applied, newest), Fault::FenceReused),
        (before.gone.iter().any(|gone| is_here(after, gone.lease)), Fault::GoneCameBack),
        (hits_a_stranger(before, command, applied), Fault::WrongLeaseHit),
        (!answer_is_true(after, command, &applied.outcome), Fault::AnswerUntrue),
        (overtakes(before, applied, priority_of), Fault::Overtaken),
        (is_left_idle(after), Fault::LeftIdle),
        (grants_to_dead(applied, context), Fault::GrantedToDead),
    ];
    faults.into_iter().find(|(found, _)| *found).map(|(_, fault)| fault)
}

fn hold_of(record: &Record, lease: LeaseId) -> Option<&Hold> {
    record.holders.iter().find(|hold| hold.lease == lease)
}

fn is_here(record: &Record, lease: LeaseId) -> bool {
    hold_of(record, lease).is_some() || record.waiters.iter().any(|wait| wait.lease == lease)
}

/// The leases that were granted the lock, or an upgrade, in this step.
pub fn granted(applied: &Applied) -> impl Iterator<Item = (LeaseId, u64)> + '_ {
    let granted = applied.events.iter().filter(|event| event.kind == EventKind::Granted);
    granted.map(|event| (event.lease, event.fence.get()))
}

fn fences_grow(applied: &Applied, mut newest: u64) -> bool {
    granted(applied).all(|(lease, fence)| {
        let exclusive = hold_of(&applied.record, lease)
            .is_none_or(|hold| matches!(hold.mode, Mode::Exclusive | Mode::Permits { .. }));
        let good = if exclusive { fence > newest } else { fence >= newest };
        newest = newest.max(fence);
        good
    })
}

/// Release frees the lease it names, and evict those that carry the fence it names.
fn hits_a_stranger(before: &Record, command: &Command, applied: &Applied) -> bool {
    let mut hit = applied.events.iter().filter_map(|event| match &event.kind {
        EventKind::Gone(loss) => Some((event.lease, loss)),
        EventKind::Granted => None,
    });
    hit.any(|(lease, loss)| match (loss, command) {
        (
            Loss::Released,
            Command::Release { lease: named } | Command::Withdraw { lease: named },
        ) => lease != *named,
        (Loss::Broken { .. }, Command::Evict { fence, .. }) => {
            hold_of(before, lease).is_none_or(|hold| hold.fence != *fence)
        }
        (Loss::Released | Loss::Broken { .. }, _) => true,
        (Loss::Stolen { .. }, command) => !matches!(command, Command::Acquire(_)),
        _ => false,
    })
}

fn answer_is_true(after: &Record, command: &Command, outcome: &Outcome) -> bool {
    let lease = match command {
        Command::Acquire(acquire) => acquire.lease,
        Command::Renew { lease, .. }
        | Command::Convert { lease, .. }
        | Command::Release { lease }
        | Command::Withdraw { lease } => *lease,
        Command::Evict { .. } | Command::Reap => return true,
    };
    let hold = hold_of(after, lease);
    match outcome {
        Outcome::Granted(grant) => {
            hold.is_some_and(|hold| (hold.fence, hold.mode) == (grant.fence, grant.mode))
        }
        Outcome::Queued { .. } => hold.is_none_or(|hold| hold.upgrading) && is_here(after, lease),
        Outcome::Gone(_) => !is_here(after, lease),
        _ => true,
    }
}

/// Whoever is granted leaves nobody behind who was ahead: of higher priority, or of the same and
/// earlier. Who came with this very command is last of its priority.
fn overtakes(before: &Record, applied: &Applied, priority_of: impl Fn(LeaseId) -> i8) -> bool {
    let place = |lease: LeaseId| {
        let ticket = before.waiters.iter().find(|wait| wait.lease == lease).map(|wait| wait.ticket);
        (-i16::from(priority_of(lease)), ticket.unwrap_or(u64::MAX))
    };
    let upgraded = |lease| hold_of(before, lease).is_some();
    granted(applied).filter(|(lease, _)| !upgraded(*lease)).any(|(lease, _)| {
        applied.record.waiters.iter().any(|left| place(left.lease) < place(lease))
    })
}

/// Whether a lease in mode `asked` may come beside one in mode `held`.
pub const fn fits(held: Mode, asked: Mode) -> bool {
    use Mode::{Permits, Shared, Upgradable};
    matches!(
        (held, asked),
        (Shared, Shared | Upgradable) | (Upgradable, Shared) | (Permits { .. }, Permits { .. })
    )
}

const fn permits(mode: Mode) -> u32 {
    match mode {
        Mode::Permits { count, .. } => count,
        _ => 0,
    }
}

fn is_left_idle(after: &Record) -> bool {
    if after.holders.iter().any(|hold| hold.upgrading) {
        return after.holders.len() == 1;
    }
    let Some(first) = after.waiters.first() else { return false };
    let taken: u32 = after.holders.iter().map(|hold| permits(hold.mode)).sum();
    after.holders.iter().all(|hold| fits(hold.mode, first.mode))
        && (permits(first.mode) == 0 || taken + permits(first.mode) <= after.limit.unwrap_or(0))
}

fn grants_to_dead(applied: &Applied, context: &Context<'_>) -> bool {
    let mut events = applied.events.iter().filter(|event| event.kind == EventKind::Granted);
    events.any(|event| event.session.is_some_and(|session| (context.is_dead)(session)))
}
