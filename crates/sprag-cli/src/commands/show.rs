//! `sprag show`: one lock.

use sprag::{LockView, WaiterView};

use super::{Outcome, suggest, watch};
use crate::args::Show;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::view::shell_word;
use crate::output::{time, view};
use crate::store::Opened;
use crate::{held, identity};

/// Shows the lock.
pub(crate) fn show(args: &Show, context: &Context) -> Outcome {
    let opened = Opened::open(&context.settings)?;
    let read =
        async || -> Result<LockView, Failure> { Ok(opened.inspect(args.name.as_str()).await?) };
    context.block_on(async {
        if args.watch {
            let shape = |lock: &LockView| vec![watch::shape(lock)];
            return watch::repeat(context, read, shape, |lock| print(lock, &opened, context)).await;
        }
        let lock = read().await?;
        print(&lock, &opened, context);
        if lock.fence == sprag::Fence::ZERO {
            suggest::lock(args.name.as_str(), &opened, context).await;
        }
        Ok(Exit::OK)
    })
}

fn print(lock: &LockView, opened: &Opened, context: &Context) {
    let output = &context.output;
    if output.json {
        let mut fields = view::lock(lock);
        let own = |h: &sprag::HolderView| identity::is_own(&h.holder, &context.settings);
        fields["own"] = lock.holders.iter().any(own).into();
        fields["free"] = (!lock.is_locked()).into();
        fields["store"] = opened.shown.as_str().into();
        output.answer(fields);
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
        let who = &holder.holder.worker_id;
        let since = since.unwrap_or_default();
        output.line(&format!("  holder   {who}   token {}{since}", holder.fence));
        output.line(&format!("  lease    {}", held::lease(holder)));
        if let Some(reason) = &holder.holder.reason {
            output.line(&format!("  reason   {reason}"));
        }
        if holder.upgrading {
            output.line("           waits for the other readers to leave");
        }
    }
    for (place, waiter) in lock.waiters.iter().enumerate() {
        let label = if place == 0 { "queue" } else { "" };
        output.line(&format!("  {label:<8} {}. {}", place + 1, describe(waiter)));
    }
    let stale = lock.holders.iter().find(|holder| holder.remaining.is_some_and(|l| l.is_zero()));
    if let Some(holder) = stale {
        let word = shell_word(lock.name.as_str());
        let hint = output.out.note("hint:");
        output.line(&format!("{hint} sprag break {word} --token {} -m WHY", holder.fence));
    }
}

fn describe(waiter: &WaiterView) -> String {
    let mut text = format!("{}  waiting {}", waiter.holder.worker_id, time::span(waiter.waiting));
    if let Some(reason) = &waiter.holder.reason {
        text += &format!("  {reason:?}");
    }
    if waiter.priority != 0 {
        text += &format!("  priority {}", waiter.priority);
    }
    text
}
