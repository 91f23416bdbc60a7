//! The locks beside a semaphore that number its holders: `gpu#0`, `gpu#1`.

use sprag::{HolderView, LockName, LockView};

use crate::done;

/// The name of the lock that stands for a slot.
pub(crate) fn name(lock: &LockName, index: u32) -> String {
    format!("{lock}#{index}")
}

/// Which slot of `lock` a holder has, by the locks beside it.
pub(crate) fn of(holder: &HolderView, lock: &LockView, beside: &[LockView]) -> Option<u32> {
    let own = |slot: &&LockView| slot.holders.iter().any(|other| other.party == holder.party);
    beside.iter().filter(own).find_map(|slot| number(slot, lock))
}

fn number(slot: &LockView, lock: &LockView) -> Option<u32> {
    let digits = slot.name.as_str().strip_prefix(lock.name.as_str())?.strip_prefix('#')?;
    digits.parse().ok().filter(|index| lock.limit.is_some_and(|limit| *index < limit))
}

/// Leaves out what only stands beside another lock of the list, which is in order, for one of its
/// holders: its slot, or the mark that it is going to make.
pub(crate) fn hide(locks: &mut Vec<LockView>) {
    let shown: Vec<bool> = locks.iter().map(|lock| !stands_beside(lock, locks)).collect();
    let mut shown = shown.into_iter();
    locks.retain(|_| shown.next().unwrap_or(true));
}

fn stands_beside(lock: &LockView, all: &[LockView]) -> bool {
    let Some((main, suffix)) = lock.name.as_str().rsplit_once('#') else { return false };
    let Ok(index) = all.binary_search_by(|other| other.name.as_str().cmp(main)) else {
        return false;
    };
    let main = &all[index];
    let own = |holder: &HolderView| main.holders.iter().any(|one| one.party == holder.party);
    let pending = suffix == done::SUFFIX && done::marked(lock).is_none();
    lock.holders.iter().any(own) && (pending || number(lock, main).is_some())
}
