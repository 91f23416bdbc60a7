//! `sprag check`: is it still held?

use std::path::Path;

use serde_json::{Value, json};
use sprag::LockName;

use super::Outcome;
use crate::args::Check;
use crate::code::Code;
use crate::config::environment;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::time;
use crate::output::view::millis;
use crate::run::socket::{self, Held};
use crate::store::Opened;

/// Asks the wrapper if there is one, else the store.
pub(crate) fn check(args: &Check, context: &Context) -> Outcome {
    let socket = environment("SPRAG_SOCKET").filter(|path| !path.is_empty());
    let locks = match socket.filter(|_| !args.lease.is_given()) {
        Some(socket) => of_wrapper(Path::new(&socket), args.lease.name())?,
        None => vec![of_store(args, context)?],
    };
    let held = locks.iter().all(|lock| lock.safe_for.is_some());
    if context.output.json {
        let locks: Vec<Value> = locks.iter().map(to_json).collect();
        context.output.answer(json!({"held": held, "locks": locks}));
    } else if !context.output.quiet {
        for Held { lock, token, safe_for } in locks {
            context.output.line(&match safe_for {
                Some(span) => format!("held {lock} token {token}, safe for {}", time::span(span)),
                None => format!("not held: {lock}, the last token is {token}"),
            });
        }
    }
    Ok(if held { Exit::OK } else { Exit::NO })
}

fn of_wrapper(socket: &Path, name: Option<&LockName>) -> Result<Vec<Held>, Failure> {
    let told = socket::ask(socket).map_err(|error| {
        let message = format!("cannot ask the sprag run around this process: {error}");
        Failure::new(Code::Unavailable, message)
            .advice("it may be gone; treat the lock as lost")
            .hint("ask the store instead", "sprag check --lease $SPRAG_LEASE")
    })?;
    let mut locks = told.locks;
    if let Some(name) = name {
        locks.retain(|held| held.lock == name.as_str());
        if locks.is_empty() {
            let message = format!("the sprag run around this process does not hold {name:?}");
            return Err(Failure::new(Code::NotHolder, message));
        }
    }
    Ok(locks)
}

fn of_store(args: &Check, context: &Context) -> Result<Held, Failure> {
    let (name, text) = args.lease.resolve()?;
    let lease = text.id;
    let opened = Opened::open(&context.settings)?;
    context.block_on(async {
        let seen = opened.inspect(name.as_str()).await?;
        let ours = seen.holders.iter().find(|holder| holder.lease == lease);
        if ours.is_none() {
            text.check_store(&name, ("checked", "check"), &opened, &context.settings).await?;
        }
        Ok(Held {
            lock: name.as_str().to_owned(),
            token: ours.map_or(seen.fence, |ours| ours.fence).get(),
            safe_for: ours.map(|ours| ours.remaining.unwrap_or(ours.ttl)),
        })
    })
}

fn to_json(held: &Held) -> Value {
    json!({
        "lock": held.lock,
        "token": held.token,
        "held": held.safe_for.is_some(),
        "safe_ms": held.safe_for.map(millis),
    })
}
