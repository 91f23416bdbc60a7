//! `sprag ls`: the locks that are held or waited for.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use sprag::store::Listing;
use sprag::{HolderView, LockView, Mode};

use super::{Outcome, watch};
use crate::args::{Column, Ls};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::plain::one_line;
use crate::output::table::Table;
use crate::output::{time, view};
use crate::store::Opened;
use crate::{done, identity, slot, warnings};

/// More are not read, unless somebody says so.
pub(super) const MAX_LOCKS: usize = 10_000;

/// What was read of the locks of a store.
#[derive(Debug, Default)]
pub(super) struct Listed {
    pub(super) locks: Vec<LockView>,
    /// Whether there are more.
    pub(super) truncated: bool,
    /// The names of records that cannot be read.
    pub(super) unreadable: BTreeSet<String>,
}

/// Lists the locks.
pub(crate) fn list(args: &Ls, context: &Context) -> Outcome {
    let opened = Opened::open(&context.settings)?;
    let read = async || -> Result<Listed, Failure> {
        let mut listed = read_up_to(args.limit, &opened, args.prefix.as_deref()).await?;
        if !args.all {
            slot::hide(&mut listed.locks);
        }
        Ok(listed)
    };
    context.block_on(async {
        if args.watch {
            return watch::repeat(
                context,
                read,
                |listed: &Listed| listed.locks.iter().map(watch::shape).collect(),
                |listed| print(args, context, listed),
            )
            .await;
        }
        print(args, context, &read().await?);
        Ok(Exit::OK)
    })
}

/// All locks whose names begin with `prefix`, in order.
pub(super) async fn read(opened: &Opened, prefix: Option<&str>) -> Result<Vec<LockView>, Failure> {
    Ok(read_up_to(MAX_LOCKS, opened, prefix).await?.locks)
}

/// The first locks whose names begin with `prefix`, in order.
pub(super) async fn read_up_to(
    limit: usize,
    opened: &Opened,
    prefix: Option<&str>,
) -> Result<Listed, Failure> {
    let prefix = prefix.unwrap_or_default().to_owned();
    let mut listing = Listing { prefix, ..Listing::default() };
    let mut listed = Listed::default();
    loop {
        let page = opened.list(&listing).await?;
        listed.locks.extend(page.locks);
        listing.after = page.next;
        listed.unreadable.extend(warnings::left_out());
        if listing.after.is_none() || listed.locks.len() >= limit {
            listed.truncated = listing.after.is_some() || listed.locks.len() > limit;
            listed.locks.truncate(limit);
            return Ok(listed);
        }
    }
}

/// Says what is not in a list.
pub(super) fn say_what_is_missing(listed: &Listed, context: &Context) {
    if listed.truncated {
        let shown = listed.locks.len();
        context.output.line(&format!(
            "these are the first {shown}, there are more: name a PREFIX, or say --limit N"
        ));
    }
    if !listed.unreadable.is_empty() {
        let names: Vec<_> = listed.unreadable.iter().map(|name| one_line(name)).collect();
        context.output.line(&format!("left out, cannot be read: {}", names.join(", ")));
    }
}

fn print(args: &Ls, context: &Context, listed: &Listed) {
    let locks = &listed.locks;
    let own = |lock: &LockView| {
        lock.holders.iter().any(|holder| identity::is_own(&holder.holder, &context.settings))
    };
    let waiters: usize = locks.iter().map(|lock| lock.waiters.len()).sum();
    let stale = locks.iter().filter(|lock| lock.holders.iter().any(is_stale)).count();
    let output = &context.output;
    if output.json {
        let locks: Vec<Value> = locks
            .iter()
            .map(|lock| {
                let mut fields = view::lock(lock);
                fields["own"] = own(lock).into();
                fields
            })
            .collect();
        output.answer(json!({
            "locks": locks,
            "waiters": waiters,
            "stale": stale,
            "truncated": listed.truncated,
            "unreadable": listed.unreadable,
        }));
        return;
    }
    let columns = if args.columns.is_empty() { &Column::STANDARD[..] } else { &args.columns };
    let mut table = Table::new(columns.iter().map(|column| heading(*column)));
    for lock in locks {
        table.row(columns.iter().map(|column| cell(*column, lock)).collect());
    }
    let marks = std::iter::once("  ").chain(locks.iter().map(|l| if own(l) { "* " } else { "  " }));
    for (number, (mark, line)) in marks.zip(table.lines()).enumerate() {
        let line = format!("{mark}{line}");
        output.line(&if number == 0 { output.out.strong(&line) } else { line });
    }
    let plural =
        |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let stale = if stale == 0 { String::new() } else { format!(", {stale} stale") };
    output.line(&format!(
        "{}, {}{stale}      (* = yours)",
        plural(locks.len(), "lock"),
        plural(waiters, "waiter")
    ));
    say_what_is_missing(listed, context);
}

const fn heading(column: Column) -> &'static str {
    match column {
        Column::Name => "NAME",
        Column::Mode => "MODE",
        Column::Holder => "HOLDER",
        Column::Reason => "REASON",
        Column::Held => "HELD",
        Column::Lease => "LEASE",
        Column::Wait => "WAIT",
        Column::Token => "TOKEN",
        Column::Host => "HOST",
        Column::Since => "SINCE",
    }
}

fn cell(column: Column, lock: &LockView) -> String {
    let first = lock.holders.first();
    let single = if let [holder] = &lock.holders[..] { Some(holder) } else { None };
    let since = lock.holders.iter().filter_map(|holder| holder.holder.since_unix_ms).min();
    let done = done::marked(lock);
    let text = match column {
        // What `run --once-per` leaves behind is shown as the state of its lock.
        Column::Name if done.is_some() => done.map(str::to_owned),
        Column::Mode if done.is_some() => Some("done".to_owned()),
        Column::Reason | Column::Held | Column::Wait if done.is_some() => None,
        Column::Lease if done.is_some() => lease(&lock.holders).map(|left| format!("next {left}")),
        Column::Name => Some(lock.name.to_string()),
        Column::Mode => Some(mode(lock)),
        Column::Holder => match &lock.holders[..] {
            [_, _, ..] => Some(format!("({} holders)", lock.holders.len())),
            _ => first.map(|holder| holder.holder.worker_id.clone()),
        },
        Column::Reason => single.and_then(|holder| holder.holder.reason.clone()).map(short),
        Column::Held => since.map(|since| time::span(time::ago(since))),
        Column::Lease => lease(&lock.holders),
        Column::Wait => Some(lock.waiters.len().to_string()),
        Column::Token => Some(single.map_or(lock.fence, |holder| holder.fence).to_string()),
        Column::Host => first.map(|holder| holder.holder.node_id.clone()),
        Column::Since => since.map(time::short),
    };
    text.unwrap_or_else(|| "-".to_owned())
}

fn mode(lock: &LockView) -> String {
    let in_use: u32 = lock.holders.iter().map(|holder| count(holder.mode)).sum();
    match lock.holders.first().map(|holder| holder.mode) {
        Some(Mode::Permits { of, .. }) => format!("{in_use}/{}", lock.limit.unwrap_or(of)),
        Some(Mode::Exclusive) => "excl".to_owned(),
        Some(Mode::Shared | Mode::Upgradable) => "shared".to_owned(),
        None => "free".to_owned(),
    }
}

const fn count(mode: Mode) -> u32 {
    match mode {
        Mode::Permits { count, .. } => count,
        _ => 1,
    }
}

/// What is left of the leases: of the first and the last to end.
fn lease(holders: &[HolderView]) -> Option<String> {
    if holders.iter().any(is_stale) {
        return Some("STALE".to_owned());
    }
    let left = || holders.iter().filter_map(|holder| holder.remaining);
    let (first, last) = (left().min()?, left().max()?);
    let (first, last) = (time::span(whole(first)), time::span(whole(last)));
    Some(if first == last { first } else { format!("{first}..{last}") })
}

fn is_stale(holder: &HolderView) -> bool {
    holder.remaining.is_some_and(|left| left.is_zero())
}

const fn whole(span: Duration) -> Duration {
    Duration::from_secs(span.as_secs())
}

/// The first 40 characters.
fn short(text: String) -> String {
    match text.char_indices().nth(40) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text,
    }
}
