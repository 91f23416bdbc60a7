//! What the store's promise depends on, outside its own code.

use std::path::Path;

use sprag_core::Result;
use sprag_core::diagnosis::Finding;

use crate::error::from_io;
use crate::filesystem;

/// With less room than this, requests may soon fail.
const LITTLE_ROOM: u64 = 64 << 20;

/// Looks at the file and its file system.
pub(crate) fn findings(database: &Path) -> Result<Vec<Finding>> {
    let found = rustix::fs::statfs(database)
        .map_err(|errno| from_io("examine the file system of", database, errno.into()))?;
    let shown = database.display();
    let version = rusqlite::version();
    let mut findings = vec![Finding::good(format!("SQLite {version}, {shown}"))];
    findings.push(match filesystem::unsure(&found) {
        None => Finding::good("file locks: the file system is a local one"),
        Some(kind) => Finding::warn(format!(
            "{shown} is on {kind}: locks are safe only if no other machine sees it"
        ))
        .fix("use a directory on a local disk"),
    });
    let block = u64::try_from(found.f_bsize).unwrap_or(0);
    let room = block.saturating_mul(found.f_bavail);
    let text = format!("{} MiB of room", room >> 20);
    findings.push(if room < LITTLE_ROOM {
        Finding::warn(text).fix("make room: a full disk refuses new locks")
    } else {
        Finding::good(text)
    });
    findings.push(Finding::good("clock: one machine, one clock, which runs on during suspend"));
    Ok(findings)
}
