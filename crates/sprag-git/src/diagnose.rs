//! What the promise of a remote depends on.

use sprag_core::diagnosis::Finding;
use sprag_ledger::{Oid, RefName};

use crate::error::{GitError, Trouble};
use crate::ledger::GitLedger;

/// From so many on, a push takes long: each lists all references of the server.
const MANY: usize = 5000;

/// The histories of so many locks are counted, each up to so many commits.
const COUNTED: usize = 100;
const DEPTH: usize = 2_000;

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
    findings.push(stored(ledger, &refs));
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

/// What the locks leave in the repository.
fn stored(ledger: &GitLedger, refs: &[(RefName, Oid)]) -> Finding {
    let below = |prefix| refs.iter().filter(move |(name, _)| name.as_str().starts_with(prefix));
    let tips: Vec<Oid> = below(RefName::locks()).map(|(_, tip)| tip.clone()).collect();
    let sessions = below(RefName::sessions()).count();
    let text = format!("{} locks and {sessions} sessions are kept", tips.len());
    let counted = &tips[..tips.len().min(COUNTED)];
    if counted.is_empty() {
        return Finding::good(text);
    }
    let which =
        if counted.len() < tips.len() { format!(" of {COUNTED} locks") } else { String::new() };
    match ledger.wire.commits(counted, DEPTH) {
        Ok(commits) => {
            Finding::good(format!("{text}, with {} commits as the history{which}", commits.len()))
        }
        Err(error) => Finding::warn(format!("{text}; their history cannot be read: {error}"))
            .fix("see which lock it is: sprag ls names those that can be read"),
    }
}
