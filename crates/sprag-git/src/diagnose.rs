//! What the promise of a remote depends on.

use sprag_core::diagnosis::Finding;

use crate::error::{GitError, Trouble};
use crate::ledger::GitLedger;

/// From so many on, a push takes long: each lists all references of the server.
const MANY: usize = 5000;

pub(crate) fn examine(ledger: &GitLedger) -> Result<Vec<Finding>, GitError> {
    let mut findings = Vec::new();
    let version = ledger.config.git().version()?;
    findings.push(Finding::good(format!("git {version}")));
    let refs = ledger.wire.refs(&["refs/"])?;
    let ours = refs.iter().filter(|(name, _)| name.as_str().starts_with("refs/sprag/")).count();
    let count = format!("the remote has {} references, {ours} of them for locks", refs.len());
    findings.push(if refs.len() > MANY {
        let fix = "use a repository for locks alone: every push lists all references";
        Finding::note(count).fix(fix)
    } else {
        Finding::good(count)
    });
    match ledger.wire.knows_atomic() {
        Ok(true) => findings.push(Finding::good("the server takes pushes, several at once too")),
        Ok(false) => findings.push(
            Finding::fail("the server does not take several references in one push")
                .fix("set receive.advertiseAtomic to true on the server, or use another one"),
        ),
        Err(error) => findings.push(match error.trouble() {
            Trouble::Forbidden | Trouble::AuthRefused | Trouble::HookRefused => {
                Finding::fail(format!("we may not write: {error}"))
                    .fix("ask for write access to the repository")
            }
            _ => Finding::fail(format!("pushes fail: {error}")),
        }),
    }
    Ok(findings)
}
