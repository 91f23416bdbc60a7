//! `sprag why`: who blocks whom.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use sprag::store::Listing;
use sprag::{LockName, LockView, PartyId};

use super::ls::Listed;
use super::{Outcome, suggest};
use crate::args::Why;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::plain::one_line;
use crate::store::Opened;
use crate::{held, warnings};

/// More pages of contended locks are not read.
const MAX_PAGES: usize = 64;

/// Shows the tree of what holds a lock up.
pub(crate) fn why(args: &Why, context: &Context) -> Outcome {
    let opened = Opened::open(&context.settings)?;
    context.block_on(async {
        let Listed { mut locks, truncated, unreadable } = contended(&opened).await?;
        let names = match &args.name {
            Some(name) => {
                if !locks.iter().any(|lock| lock.name == *name) {
                    locks.push(opened.inspect(name.as_str()).await?);
                }
                vec![name.clone()]
            }
            None => locks.iter().map(|lock| lock.name.clone()).collect(),
        };
        let graph = Graph { locks };
        let answers: Vec<_> = names.iter().map(|name| graph.explain(name)).collect();
        if context.output.json {
            let answers: Vec<Value> = answers.iter().map(Answer::to_json).collect();
            context.output.answer(
                json!({"locks": answers, "truncated": truncated, "unreadable": unreadable}),
            );
            return Ok(Exit::OK);
        }
        if answers.is_empty() {
            context.output.line("nobody waits for anything");
        }
        for answer in &answers {
            for line in &answer.lines {
                context.output.line(line);
            }
        }
        if truncated {
            let text = "there are more locks that somebody waits for, which were not looked at";
            context.output.line(text);
        }
        if !unreadable.is_empty() {
            let names: Vec<_> = unreadable.iter().map(|name| one_line(name)).collect();
            context.output.line(&format!("left out, cannot be read: {}", names.join(", ")));
        }
        if let (Some(name), [answer]) = (&args.name, &answers[..])
            && answer.unused
        {
            suggest::lock(name.as_str(), &opened, context).await;
        }
        Ok(Exit::OK)
    })
}

async fn contended(opened: &Opened) -> Result<Listed, Failure> {
    let mut listing = Listing { contended: true, ..Listing::default() };
    let mut listed = Listed::default();
    for _ in 0..MAX_PAGES {
        let page = opened.list(&listing).await?;
        listed.locks.extend(page.locks);
        listing.after = page.next;
        if listing.after.is_none() {
            break;
        }
    }
    listed.truncated = listing.after.is_some();
    listed.unreadable = warnings::left_out();
    Ok(listed)
}

/// The locks that somebody waits for.
struct Graph {
    locks: Vec<LockView>,
}

/// What holds one lock up.
struct Answer {
    name: LockName,
    lines: Vec<String>,
    /// The locks at the end, whose holders wait for nobody.
    roots: BTreeSet<LockName>,
    cycle: bool,
    /// How many waiters could go on if the first root were free.
    frees: usize,
    unused: bool,
}

impl Graph {
    fn lock(&self, name: &LockName) -> Option<&LockView> {
        self.locks.iter().find(|lock| lock.name == *name)
    }

    /// The locks that a party or somebody inside of it waits for, be it for an upgrade.
    fn wanted_by(&self, party: PartyId) -> impl Iterator<Item = &LockView> {
        self.locks.iter().filter(move |lock| {
            lock.waiters.iter().any(|waiter| waits(party, waiter.party))
                || lock.holders.iter().any(|holder| holder.upgrading && holder.party == party)
        })
    }

    fn explain(&self, name: &LockName) -> Answer {
        let mut answer = Answer {
            name: name.clone(),
            lines: Vec::new(),
            roots: BTreeSet::new(),
            cycle: false,
            frees: 0,
            unused: false,
        };
        match self.lock(name) {
            Some(lock) if lock.is_locked() => {
                self.descend(lock, &mut Vec::new(), &mut answer);
                answer.frees = answer.roots.first().map_or(0, |root| self.blocked_by(root));
                answer.lines.push(answer.summary());
            }
            lock => {
                answer.unused = lock.is_none_or(|lock| lock.fence == sprag::Fence::ZERO);
                answer.lines.push(format!("{name}  is free: nothing holds it up"));
            }
        }
        answer
    }

    /// Goes from a lock to the locks that its holders wait for.
    fn descend(&self, lock: &LockView, path: &mut Vec<LockName>, answer: &mut Answer) {
        let indent = match path.len() {
            0 => String::new(),
            depth => format!("{}└─ waits for ", "   ".repeat(depth - 1)),
        };
        let mut line = format!("{indent}{}  <- {}", lock.name, held::by(lock));
        if path.contains(&lock.name) {
            answer.cycle = true;
            answer.lines.push(format!("{line}   <== a circle"));
            return;
        }
        path.push(lock.name.clone());
        let mut next: Vec<&LockView> = Vec::new();
        for holder in &lock.holders {
            // An upgrade waits for the lock's own readers, not for another lock.
            let wanted = self.wanted_by(holder.party).filter(|wanted| wanted.name != lock.name);
            for wanted in wanted {
                if !next.iter().any(|known| known.name == wanted.name) {
                    next.push(wanted);
                }
            }
        }
        if next.is_empty() {
            answer.roots.insert(lock.name.clone());
            line += "   <== root blocker";
        }
        answer.lines.push(line);
        for wanted in next {
            self.descend(wanted, path, answer);
        }
        path.pop();
    }

    /// How many waiters are held up by the holders of this lock, directly or through others.
    fn blocked_by(&self, root: &LockName) -> usize {
        let mut blocked: BTreeSet<PartyId> = BTreeSet::new();
        let mut locks = vec![root];
        while let Some(name) = locks.pop() {
            for waiter in self.lock(name).into_iter().flat_map(|lock| &lock.waiters) {
                if blocked.insert(waiter.party) {
                    let held = self.locks.iter().filter(|lock| {
                        lock.holders.iter().any(|holder| waits(holder.party, waiter.party))
                    });
                    locks.extend(held.map(|lock| &lock.name));
                }
            }
        }
        blocked.len()
    }
}

/// Whether a holder has to wait until this waiter is done.
fn waits(holder: PartyId, waiter: PartyId) -> bool {
    holder == waiter || holder.is_around(waiter)
}

impl Answer {
    fn summary(&self) -> String {
        let circle = if self.cycle { "a circle: one of them has to let go" } else { "no cycle" };
        match (self.roots.first(), self.frees) {
            (Some(root), 0) => format!("{circle}; nobody waits for {root}"),
            (Some(root), 1) => format!("{circle}; breaking {root} frees 1 waiter"),
            (Some(root), frees) => format!("{circle}; breaking {root} frees {frees} waiters"),
            (None, _) => circle.to_owned(),
        }
    }

    fn to_json(&self) -> Value {
        json!({
            "name": self.name.as_str(),
            "tree": self.lines,
            "roots": self.roots.iter().map(LockName::as_str).collect::<Vec<_>>(),
            "cycle": self.cycle,
            "frees": self.frees,
        })
    }
}
