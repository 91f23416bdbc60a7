//! `sprag renew`: a lease goes on.

use serde_json::json;
use sprag::audit::{AuditEntry, AuditKind, AuditQuery};
use sprag::{Error, Fence, LeaseId, LockName, Loss};

use super::Outcome;
use crate::args::Renew;
use crate::code::Code;
use crate::config::Settings;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::plain::one_line;
use crate::output::time;
use crate::output::view::millis;
use crate::store::Opened;
use crate::{held, identity};

/// Renews the lease for another TTL.
pub(crate) fn renew(args: &Renew, context: &Context) -> Outcome {
    let (name, text) = args.lease.resolve()?;
    let lease = text.id;
    let opened = Opened::open(&context.settings)?;
    context.block_on(async {
        let settings = &context.settings;
        let gone = async |what: &str| {
            text.check_store(&name, ("renewed", "renew"), &opened, settings).await?;
            Err(over("renewed", &name, lease, what, &opened, settings).await)
        };
        let ttl = match args.ttl {
            Some(ttl) => ttl,
            None => {
                let seen = opened.inspect(name.as_str()).await?;
                match seen.holders.iter().find(|holder| holder.lease == lease) {
                    Some(holder) => holder.ttl,
                    None => return gone("it is over").await,
                }
            }
        };
        let asked = time::now();
        let grant = match opened.renew_lease(name.as_str(), lease, ttl).await {
            Ok(grant) => grant,
            Err(error) if error.is_lost() || error.is_not_owner() => {
                let what = error.loss().map_or_else(|| Error::to_string(&error), |l| l.to_string());
                return gone(&what).await;
            }
            Err(error) => return Err(error.into()),
        };
        let (expires, token) = (asked + millis(ttl), grant.fence);
        if context.output.json {
            context.output.answer(json!({
                "changed": true,
                "lock": name.as_str(),
                "token": token.get(),
                "ttl_ms": millis(ttl),
                "expires": time::rfc3339(expires),
            }));
        } else if !context.output.quiet {
            let until = time::short(expires);
            context.output.line(&format!("renewed {name:?} (token {token}) until {until}"));
        }
        Ok(Exit::OK)
    })
}

/// The failure for a lease that is over, with who has the lock now.
pub(super) async fn over(
    done: &str,
    name: &LockName,
    lease: LeaseId,
    what: &str,
    opened: &Opened,
    settings: &Settings,
) -> Failure {
    let why = one_line(what);
    let message = format!("not {done}: your lease of {name:?} does not hold it any more: {why}");
    let failure = Failure::new(Code::NotHolder, message)
        .detail("lock", name.as_str())
        .detail("changed", false);
    note(done, name, lease, opened, settings).await;
    let Ok(seen) = opened.inspect(name.as_str()).await else { return failure };
    let failure = match seen.holders.iter().find(|holder| holder.lease != lease) {
        Some(holder) => failure.fact("now", format!("{}, token {}", held::by(&seen), holder.fence)),
        None => failure.fact("now", format!("free; the last token was {}", seen.fence)),
    };
    let failure = failure.detail("token", seen.fence.get());
    match what == Loss::Released.to_string() {
        true => failure,
        false => failure.advice("what you did since the lease ended was not protected; check it"),
    }
}

/// Leaves a note that somebody came with an old lease; not being able to is no second failure.
async fn note(done: &str, name: &LockName, lease: LeaseId, opened: &Opened, settings: &Settings) {
    let query = AuditQuery { name: Some(name.clone()), ..AuditQuery::default() };
    let trail = opened.audit(&query).await.unwrap_or_default();
    let granted = trail.iter().rev().find(|entry| entry.lease == lease && entry.fence.get() > 0);
    let token = granted.map_or(Fence::ZERO, |entry| entry.fence);
    let what = if done == "released" { "release" } else { "renewal" };
    let holder = identity::holder(settings);
    let entry =
        AuditEntry::new(time::now(), name.clone(), AuditKind::Refused, token, lease, holder);
    let entry = entry.detail(format!("{what} with old token"));
    opened.store().note(&[entry]).await.ok();
}
