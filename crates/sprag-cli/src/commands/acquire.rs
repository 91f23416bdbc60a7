//! `sprag acquire`: a lease without a process.

use std::io;
use std::time::Duration;

use serde_json::json;
use sprag::{LockGuard, LockRequest, Ticket, Wait};
use tokio::time::timeout;

use super::{Outcome, aftermath};
use crate::args::Acquire;
use crate::code::Code;
use crate::config::{Origin, Setting, Settings};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::lease_text::LeaseText;
use crate::output::plain::shell_word;
use crate::output::view::millis;
use crate::output::{time, with_schema};
use crate::run::environment::{Around, store_url};
use crate::run::signals::{Received, STOPPING, Signals};
use crate::store::{Opened, is_public};
use crate::{held, identity};

/// When the first line about waiting comes, and the next ones.
const FIRST_LINE: Duration = Duration::from_millis(500);
const NEXT_LINE: Duration = Duration::from_secs(30);
/// How long the store may take to say for whom.
const LOOK: Duration = Duration::from_secs(1);
/// How often signals are looked for, and how long leaving the queue may take.
const TICK: Duration = Duration::from_millis(100);
const LEAVING: Duration = Duration::from_millis(600);

/// Takes a detached lease and says how it can be used.
pub(crate) fn acquire(args: &Acquire, context: &Context) -> Outcome {
    // Before there are threads that would get them.
    let signals = Signals::block(&STOPPING)
        .map_err(|error| Failure::new(Code::System, format!("cannot wait for signals: {error}")))?;
    let opened =
        Opened::open_with(&context.settings, |locks| locks.allow_force(args.asking.is_forced()))?;
    context.block_on(async {
        let ttl = args.asking.ttl(&context.settings);
        let before = match args.asking.is_forced() {
            true => opened.inspect(args.name.as_str()).await?.holders,
            false => Vec::new(),
        };
        let asked = time::now();
        let guard = match take(args, context, &opened, ttl, &signals).await {
            Ok(Taking::Taken(guard)) => *guard,
            Ok(Taking::Stopped(signal)) => {
                opened.shutdown(LEAVING).await;
                return Ok(Exit::signal(signal.number));
            }
            Err(error) if error.is_held() || error.is_timeout() => {
                let failure = held::explain(error, &opened).await;
                return Err(failure.exiting(args.asking.if_held_exit()));
            }
            Err(error) => return Err(error.into()),
        };
        let until = aftermath::until(&before);
        if let Some(warning) = aftermath::warning(&before, until, opened.capability()) {
            context.output.note(&warning);
        }
        let mode = guard.mode();
        let waited = time::ago(asked);
        // Making the ticket renews the lease; counted from before, the store ends it later.
        let expires = time::now() + millis(ttl);
        let ticket = guard.into_ticket().await?;
        let lease = LeaseText::new(ticket.lease(), &context.settings.store.value);
        let text = if context.output.json {
            with_schema(json!({
                "changed": true,
                "lock": ticket.name().as_str(),
                "lease": lease.to_string(),
                "token": ticket.fence().get(),
                "mode": mode.as_str(),
                "ttl_ms": millis(ttl),
                "expires": time::rfc3339(expires),
                "waited_ms": millis(waited),
                "store": opened.shown,
            }))
            .to_string()
        } else if args.export {
            export(&ticket, &lease, context)
        } else {
            say(&ticket, &lease, expires)
        };
        match context.output.try_line(&text) {
            Ok(()) => Ok(Exit::OK),
            Err(error) => Err(give_back(&ticket, &opened, &error).await),
        }
    })
}

/// What came of asking for the lock.
enum Taking {
    Taken(Box<LockGuard>),
    /// A signal came first.
    Stopped(Received),
}

/// Waits for the lock and says so.
async fn take(
    args: &Acquire,
    context: &Context,
    opened: &Opened,
    ttl: Duration,
    signals: &Signals,
) -> sprag::Result<Taking> {
    let started = time::now();
    let wait = args.asking.wait().unwrap_or(context.settings.wait.value);
    let me = identity::holder(&context.settings).worker_id;
    let mut asking = std::pin::pin!(ask(args, wait, &context.settings, opened, ttl));
    let mut next_line = FIRST_LINE;
    loop {
        tokio::select! {
            biased;
            guard = &mut asking => return guard.map(|guard| Taking::Taken(Box::new(guard))),
            () = tokio::time::sleep(TICK) => {}
        }
        if let Some(signal) = signals.next_that_ends() {
            return Ok(Taking::Stopped(signal));
        }
        let waited = time::ago(started);
        if waited < next_line {
            continue;
        }
        next_line = waited + NEXT_LINE;
        if let Ok(Ok(seen)) = timeout(LOOK, opened.inspect(args.name.as_str())).await {
            context.output.note(&held::waiting(&seen, &me, waited, wait));
        }
    }
}

/// Takes the lease at once, or waits with one that lives by this process: whoever is killed while
/// it waits must not be handed the lock, let alone for the whole TTL.
async fn ask(
    args: &Acquire,
    wait: Wait,
    settings: &Settings,
    opened: &Opened,
    ttl: Duration,
) -> sprag::Result<LockGuard> {
    let lease = |wait| request(args, wait, settings, opened).ttl(ttl).detached().no_renewal();
    if wait == Wait::No {
        return lease(wait).acquire().await;
    }
    if let Some(guard) = lease(Wait::No).try_acquire().await? {
        return Ok(guard);
    }
    let short = ttl.min(sprag::default_ttl(&settings.store.value));
    let mut guard = request(args, wait, settings, opened).ttl(short).acquire().await?;
    guard.extend(ttl).await?;
    Ok(guard)
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

fn export(ticket: &Ticket, lease: &LeaseText, context: &Context) -> String {
    let (name, token) = (shell_word(ticket.name().as_str()), ticket.fence());
    let mut text =
        format!("export SPRAG_LOCK={name}\nexport SPRAG_LEASE={lease}\nexport SPRAG_TOKEN={token}");
    match store_to_export(&context.settings) {
        Some(store) => text += &format!("\nexport SPRAG_STORE={}", shell_word(&store)),
        // What is found without a flag is found again.
        None if matches!(context.settings.store.origin, Origin::Flag(_)) => context.output.note(
            "the URL of the store has a secret and is not exported: give -S to renew and release, too",
        ),
        None => {}
    }
    text
}

/// What names the store for the next commands, without a secret.
fn store_to_export(settings: &Settings) -> Option<String> {
    let Setting { value: url, origin } = &settings.store;
    let absolute = match origin {
        Origin::Default => url.clone(),
        _ => store_url(url),
    };
    if is_public(&absolute) {
        return Some(absolute);
    }
    settings.stores.iter().find(|(_, named)| named.value == *url).map(|(name, _)| name.clone())
}

fn say(ticket: &Ticket, lease: &LeaseText, expires: u64) -> String {
    let (name, token) = (ticket.name(), ticket.fence());
    let until = time::short(expires);
    format!("acquired {name:?} (token {token}) until {until}\nlease {lease}")
}
