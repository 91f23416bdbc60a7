//! `sprag break`: a lock is taken away from its holder.

use std::io::{self, BufRead, IsTerminal, Write};

use serde_json::json;
use sprag::{HolderView, LockView};

use super::{Outcome, aftermath, suggest};
use crate::args::Break;
use crate::code::Code;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::held;
use crate::output::plain::one_line;
use crate::output::plain::shell_word;
use crate::output::time;
use crate::output::view;
use crate::store::Opened;

/// Breaks the holders that carry the token.
pub(crate) fn break_lock(args: &Break, context: &Context) -> Outcome {
    let opened = Opened::open(&context.settings)?;
    context.block_on(async {
        let seen = opened.inspect(args.name.as_str()).await?;
        let holders: Vec<_> =
            seen.holders.iter().filter(|holder| holder.fence == args.token).collect();
        let [first, ..] = &holders[..] else {
            if seen.fence == sprag::Fence::ZERO {
                suggest::lock(args.name.as_str(), &opened, context).await;
            }
            return Err(not_held(args, &seen));
        };
        let lease = held::lease(first);
        if is_alive(first) && !args.force {
            return Err(alive(args, first, &lease));
        }
        confirm(args, context, &first.holder.worker_id)?;
        let broken = match opened.evict(args.name.as_str(), args.token, &args.reason).await {
            Err(error) if error.is_not_owner() => {
                return Err(not_held(args, &opened.inspect(args.name.as_str()).await?));
            }
            other => other?,
        };
        let until = aftermath::until(holders.iter().copied());
        let who: Vec<_> = broken.iter().map(|holder| &holder.worker_id).collect();
        let next = seen.waiters.first().map(|waiter| waiter.holder.worker_id.as_str());
        if context.output.json {
            context.output.answer(json!({
                "changed": true,
                "lock": args.name.as_str(),
                "token": args.token.get(),
                "broken": who,
                "next": next,
                "forced": args.force,
                "may_run_until": until.map(time::rfc3339),
            }));
        } else if !context.output.quiet {
            let next = next.map(|next| format!("; next in queue: {}", one_line(next)));
            let next = next.unwrap_or_default();
            let who: Vec<_> = who.iter().map(|who| one_line(who)).collect();
            let (name, token, who) = (&args.name, args.token, who.join(", "));
            context.output.line(&format!(
                "broke {name:?}: token {token} of {who} (its lease was {lease}){next}"
            ));
            let able = opened.capability();
            if let Some(warning) = aftermath::warning(holders.iter().copied(), until, able) {
                context.output.line(&warning);
            }
            if let Some(item) = args.name.as_str().strip_prefix("work/") {
                let free = format!("sprag work recover {}", shell_word(item));
                context.output.note(&format!("a claim has a branch too, which goes with: {free}"));
            }
        }
        Ok(Exit::OK)
    })
}

/// A store that cannot tell may have a live holder.
fn is_alive(holder: &HolderView) -> bool {
    holder.remaining.is_none_or(|left| !left.is_zero())
}

fn not_held(args: &Break, seen: &LockView) -> Failure {
    let (name, token) = (&args.name, args.token);
    let message = match seen.holders.first() {
        None => format!("not broken: nobody holds {name:?}"),
        Some(now) => {
            format!("not broken: the current token of {name:?} is {}, you named {token}", now.fence)
        }
    };
    Failure::new(Code::NotBroken, message)
        .hint("look again", format!("sprag show {}", shell_word(name.as_str())))
        .detail("changed", false)
        .detail("lock", name.as_str())
        .detail("state", view::lock(seen))
}

fn alive(args: &Break, holder: &HolderView, lease: &str) -> Failure {
    let word = shell_word(args.name.as_str());
    let is = if holder.remaining.is_some() { "is" } else { "may be" };
    Failure::new(Code::Alive, format!("not broken: the holder of {:?} {is} alive", args.name))
        .fact("holder", holder.holder.worker_id.clone())
        .fact("lease", lease)
        .hint(
            "break it anyway",
            format!("sprag break {word} --token {} --force -m WHY", args.token),
        )
        .detail("changed", false)
}

/// Lets a person type the name; elsewhere somebody must have said yes before.
fn confirm(args: &Break, context: &Context, holder: &str) -> Result<(), Failure> {
    if args.yes {
        return Ok(());
    }
    let no = |why: &str| {
        let failure = Failure::new(Code::NotConfirmed, format!("not broken: {why}"));
        Err(failure.detail("changed", false))
    };
    if context.no_input || !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return no("nobody can be asked here; say --yes");
    }
    let name = args.name.as_str();
    let holder = one_line(holder);
    let question = format!("{holder} will lose {name:?}. Type the name of the lock to go on: ");
    let mut stderr = io::stderr().lock();
    let mut answer = String::new();
    let asked = stderr.write_all(question.as_bytes()).and_then(|()| stderr.flush());
    match asked.and_then(|()| io::stdin().lock().read_line(&mut answer)) {
        Ok(_) if answer.trim_end_matches(['\r', '\n']) == name => Ok(()),
        Ok(_) => no("that was not its name"),
        Err(error) => no(&format!("cannot ask: {error}")),
    }
}
