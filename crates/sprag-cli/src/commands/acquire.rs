//! `sprag acquire`: a lease without a process.

use std::io;
use std::time::Duration;

use serde_json::json;
use sprag::{LockGuard, LockRequest, Ticket, Wait};

use super::Outcome;
use crate::args::Acquire;
use crate::code::Code;
use crate::config::Settings;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::view::{millis, shell_word};
use crate::output::{time, with_schema};
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
        let text = if context.output.json {
            with_schema(json!({
                "changed": true,
                "lock": ticket.name().as_str(),
                "lease": ticket.lease().to_string(),
                "token": ticket.fence().get(),
                "mode": mode.as_str(),
                "ttl_ms": millis(ttl),
                "expires": time::rfc3339(expires),
                "waited_ms": millis(waited),
                "store": opened.shown,
            }))
            .to_string()
        } else if args.export {
            export(&ticket)
        } else {
            say(&ticket, expires)
        };
        match context.output.try_line(&text) {
            Ok(()) => Ok(Exit::OK),
            Err(error) => Err(give_back(&ticket, &opened, &error).await),
        }
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

/// A lease that nobody knows would only be in the way until its end.
async fn give_back(ticket: &Ticket, opened: &Opened, error: &io::Error) -> Failure {
    let name = ticket.name();
    let released = opened.release_lease(name.as_str(), ticket.lease()).await;
    let fate = if released.is_ok() { "was released again" } else { "stays until its TTL is over" };
    Failure::new(
        Code::System,
        format!("cannot write the lease to stdout: {error}; {name:?} {fate}"),
    )
    .detail("changed", released.is_err())
    .detail("lock", name.as_str())
}

fn export(ticket: &Ticket) -> String {
    let name = shell_word(ticket.name().as_str());
    let (lease, token) = (ticket.lease(), ticket.fence());
    format!("export SPRAG_LOCK={name}\nexport SPRAG_LEASE={lease}\nexport SPRAG_TOKEN={token}")
}

fn say(ticket: &Ticket, expires: u64) -> String {
    let (name, token, lease) = (ticket.name(), ticket.fence(), ticket.lease());
    let until = time::short(expires);
    format!("acquired {name:?} (token {token}) until {until}\nlease {lease}")
}
