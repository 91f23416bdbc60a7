//! `sprag release`: a lease is given back.

use serde_json::json;
use sprag::Released;

use super::Outcome;
use super::renew::over;
use crate::args::Release;
use crate::context::Context;
use crate::exit::Exit;
use crate::output::time;
use crate::output::view::millis;
use crate::store::Opened;

/// Releases the lease.
pub(crate) fn release(args: &Release, context: &Context) -> Outcome {
    let (name, text) = args.lease.resolve()?;
    let lease = text.id;
    let opened = Opened::open(&context.settings)?;
    context.block_on(async {
        let seen = opened.inspect(name.as_str()).await?;
        let ours = seen.holders.iter().find(|holder| holder.lease == lease);
        if ours.is_none() {
            let what = ("released", "release");
            text.check_store(&name, what, &opened, &context.settings).await?;
        }
        if let Released::AlreadyLost(loss) = opened.release_lease(name.as_str(), lease).await? {
            let what = loss.to_string();
            return Err(over("released", &name, lease, &what, &opened, &context.settings).await);
        }
        let token = ours.map(|ours| ours.fence);
        let held = ours.and_then(|ours| ours.holder.since_unix_ms).map(time::ago);
        if context.output.json {
            context.output.answer(json!({
                "changed": true,
                "lock": name.as_str(),
                "token": token.map(sprag::Fence::get),
                "held_ms": held.map(millis),
            }));
        } else if !context.output.quiet {
            let token = token.map(|token| format!(" (token {token})")).unwrap_or_default();
            let held = held.map(|h| format!(" after {}", time::span(h))).unwrap_or_default();
            context.output.line(&format!("released {name:?}{token}{held}"));
        }
        Ok(Exit::OK)
    })
}
