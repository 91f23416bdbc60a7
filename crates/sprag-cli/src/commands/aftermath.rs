//! What may still run under a lock that was taken away.

use sprag::{Capability, HolderView};

use crate::output::plain::one_line;
use crate::output::time;
use crate::output::view::millis;
use crate::run::forced::may_run;

/// Until when the commands of these holders may run, if the lock is taken from them now.
pub(crate) fn until<'a>(holders: impl IntoIterator<Item = &'a HolderView>) -> Option<u64> {
    let longest = holders.into_iter().filter_map(may_run).max()?;
    Some(time::now().saturating_add(millis(longest)))
}

/// The same in words.
pub(crate) fn warning<'a>(
    holders: impl IntoIterator<Item = &'a HolderView>,
    until: Option<u64>,
    able: &Capability,
) -> Option<String> {
    let running = holders.into_iter().filter(|holder| may_run(holder).is_some());
    let who: Vec<_> = running.map(|holder| one_line(&holder.holder.worker_id)).collect();
    let (who, until) = (who.join(", "), time::short(until?));
    let told = if able.eviction_hints { "now" } else { "when it renews its lease next" };
    Some(format!(
        "the command of {who} may still run until {until}: it is told {told}, and stopped"
    ))
}
