//! `sprag show`: one lock.

use serde_json::Value;
use sprag::{LockName, LockView, WaiterView};

use super::history::{self, Tenure};
use super::{Outcome, ls, suggest, watch};
use crate::args::Show;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::plain::{one_line, shell_word};
use crate::output::{time, view};
use crate::store::Opened;
use crate::{held, identity, slot};

/// Everything about one lock.
struct Seen {
    lock: LockView,
    /// The locks that stand for its slots.
    slots: Vec<LockView>,
    /// Who held it before, the latest first.
    before: Vec<Tenure>,
}

/// Shows the lock.
pub(crate) fn show(args: &Show, context: &Context) -> Outcome {
    let opened = Opened::open(&context.settings)?;
    context.block_on(async {
        if args.watch {
            let shape = |seen: &Seen| vec![watch::shape(&seen.lock)];
            let read = async || read(&args.name, &opened).await;
            return watch::repeat(context, read, shape, |seen| print(seen, &opened, context)).await;
        }
        let seen = read(&args.name, &opened).await?;
        print(&seen, &opened, context);
        if seen.lock.fence == sprag::Fence::ZERO {
            suggest::lock(args.name.as_str(), &opened, context).await;
        }
        Ok(Exit::OK)
    })
}

async fn read(name: &LockName, opened: &Opened) -> Result<Seen, Failure> {
    let lock = opened.inspect(name.as_str()).await?;
    let slots = match lock.limit {
        Some(_) => ls::read(opened, Some(&format!("{name}#"))).await?,
        None => Vec::new(),
    };
    Ok(Seen { before: history::read(opened, name).await, lock, slots })
}

fn to_json(seen: &Seen, opened: &Opened, context: &Context) -> Value {
    let lock = &seen.lock;
    let mut fields = view::lock(lock);
    for (index, holder) in lock.holders.iter().enumerate() {
        if let Some(slot) = slot::of(holder, lock, &seen.slots) {
            fields["holders"][index]["slot"] = slot.into();
        }
    }
    let own = |h: &sprag::HolderView| identity::is_own(&h.holder, &context.settings);
    fields["own"] = lock.holders.iter().any(own).into();
    fields["free"] = (!lock.is_locked()).into();
    fields["before"] = seen.before.iter().map(Tenure::to_json).collect();
    fields["store"] = opened.shown.as_str().into();
    fields
}

fn print(seen: &Seen, opened: &Opened, context: &Context) {
    let (lock, output) = (&seen.lock, &context.output);
    if output.json {
        output.answer(to_json(seen, opened, context));
        return;
    }
    let mode = lock.holders.first().map_or("free", |holder| holder.mode.as_str());
    let slots = lock.limit.map(|limit| format!("  {limit} slots")).unwrap_or_default();
    let name = output.out.strong(lock.name.as_str());
    output.line(&format!("{name}  {mode}{slots}  {}", opened.shown));
    if lock.holders.is_empty() {
        output.line(&match lock.fence.get() {
            0 => "  nobody has ever held it".to_owned(),
            last => format!("  nobody holds it; the last token was {last}"),
        });
    }
    for holder in &lock.holders {
        let since = holder.holder.since_unix_ms.map(|since| {
            format!("   since {} ({})", time::short(since), time::span(time::ago(since)))
        });
        let who = one_line(&holder.holder.worker_id);
        let since = since.unwrap_or_default();
        let slot = slot::of(holder, lock, &seen.slots).map(|slot| format!("   slot {slot}"));
        let slot = slot.unwrap_or_default();
        output.line(&format!("  holder   {who}{slot}   token {}{since}", holder.fence));
        output.line(&format!("  lease    {}", held::lease(holder)));
        if let Some(reason) = &holder.holder.reason {
            output.line(&format!("  reason   {}", one_line(reason)));
        }
        if holder.upgrading {
            output.line("           waits for the other readers to leave");
        }
    }
    for (place, waiter) in lock.waiters.iter().enumerate() {
        let label = if place == 0 { "queue" } else { "" };
        output.line(&format!("  {label:<8} {}. {}", place + 1, describe(waiter)));
    }
    if !seen.before.is_empty() {
        let before: Vec<_> = seen.before.iter().map(Tenure::text).collect();
        output.line(&format!("  before   {}", before.join(" · ")));
    }
    let stale = lock.holders.iter().find(|holder| holder.remaining.is_some_and(|l| l.is_zero()));
    if let Some(holder) = stale {
        let word = shell_word(lock.name.as_str());
        let hint = output.out.note("hint:");
        output.line(&format!("{hint} sprag break {word} --token {} -m WHY", holder.fence));
    }
}

fn describe(waiter: &WaiterView) -> String {
    let (who, waiting) = (one_line(&waiter.holder.worker_id), time::span(waiter.waiting));
    let mut text = format!("{who}  waiting {waiting}");
    if let Some(reason) = &waiter.holder.reason {
        text += &format!("  {reason:?}");
    }
    if waiter.priority != 0 {
        text += &format!("  priority {}", waiter.priority);
    }
    text
}
