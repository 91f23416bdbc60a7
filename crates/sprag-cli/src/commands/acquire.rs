//! `sprag acquire`: a lease without a process.

use std::time::Duration;

use serde_json::json;
use sprag::{LockGuard, LockRequest, Ticket, Wait};

use super::Outcome;
use crate::args::Acquire;
use crate::config::Settings;
use crate::context::Context;
use crate::exit::Exit;
use crate::output::view::{millis, shell_word};
use crate::output::{Output, time};
use crate::run::environment::{Around, store_url};
use crate::store::Opened;
use crate::{held, identity};

/// When the first line about waiting comes, and the next ones.
const FIRST_LINE: Duration = Duration::from_millis(500);
const NEXT_LINE: Duration = Duration::from_secs(30);

/// Takes a detached lease and says how it can be used.
pub(crate) fn acquire(args: &Acquire, context: &Context) -> Outcome {
    let opened =
        Opened::open_with(&context.settings, |locks| locks.allow_force(args.asking.force))?;
    context.block_on(async {
        let ttl = args.asking.ttl(&context.settings);
        let asked = time::now();
        let guard = match take(args, context, &opened, ttl).await {
            Ok(guard) => guard,
            Err(error) if error.is_held() || error.is_timeout() => {
                let failure = held::explain(error, &opened).await;
                return Err(failure.exiting(args.asking.if_held_exit()));
            }
            Err(error) => return Err(error.into()),
        };
        let mode = guard.mode();
        let waited = time::ago(asked);
        // Making the ticket renews the lease; counted from before, the store ends it later.
        let expires = time::now() + millis(ttl);
        let ticket = guard.into_ticket().await?;
        if context.output.json {
            context.output.answer(json!({
                "changed": true,
                "lock": ticket.name().as_str(),
                "lease": ticket.lease().to_string(),
                "token": ticket.fence().get(),
                "mode": mode.as_str(),
                "ttl_ms": millis(ttl),
                "expires": time::rfc3339(expires),
                "waited_ms": millis(waited),
                "store": opened.shown,
            }));
        } else if args.export {
            export(&ticket, &context.output);
        } else {
            say(&ticket, expires, context);
        }
        Ok(Exit::OK)
    })
}

/// Waits for the lock and says so.
async fn take(
    args: &Acquire,
    context: &Context,
    opened: &Opened,
    ttl: Duration,
) -> sprag::Result<LockGuard> {
    let started = time::now();
    let wait = args.asking.wait().unwrap_or(context.settings.wait.value);
    let me = identity::holder(&context.settings).worker_id;
    let request = request(args, wait, &context.settings, opened);
    let request = request.ttl(ttl).detached().no_renewal();
    let mut acquire = std::pin::pin!(request.acquire());
    let mut pause = FIRST_LINE;
    loop {
        tokio::select! {
            biased;
            guard = &mut acquire => return guard,
            () = tokio::time::sleep(pause) => {}
        }
        if let Ok(seen) = opened.inspect(args.name.as_str()).await {
            let line = held::waiting(&seen, &me, time::ago(started), wait);
            context.output.note(&line);
        }
        pause = NEXT_LINE;
    }
}

fn request(args: &Acquire, wait: Wait, settings: &Settings, opened: &Opened) -> LockRequest {
    let around = Around::here(&store_url(&settings.store.value));
    let asking = &args.asking;
    let mut request = opened.lock(args.name.as_str()).party(around.inner_party());
    request = request.mode(asking.mode()).priority(asking.priority).strategy(asking.strategy());
    if let Some(reason) = &asking.reason {
        request = request.reason(reason);
    }
    match wait {
        Wait::No => request.no_wait(),
        Wait::AtMost(span) => request.wait(span),
        Wait::Forever => request.wait_forever(),
    }
}

fn export(ticket: &Ticket, output: &Output) {
    output.line(&format!("export SPRAG_LOCK={}", shell_word(ticket.name().as_str())));
    output.line(&format!("export SPRAG_LEASE={}", ticket.lease()));
    output.line(&format!("export SPRAG_TOKEN={}", ticket.fence()));
}

fn say(ticket: &Ticket, expires: u64, context: &Context) {
    let (name, token, lease) = (ticket.name(), ticket.fence(), ticket.lease());
    let until = time::short(expires);
    context.output.line(&format!("acquired {name:?} (token {token}) until {until}"));
    context.output.line(&format!("lease {lease}"));
}
