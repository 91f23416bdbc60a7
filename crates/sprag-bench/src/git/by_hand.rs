//! [`ByHand`]: the git commands that take and release a lock.

use anyhow::{Context as _, Result};
use sprag_git::Git;
use sprag_testkit::git_server::GitServer;

/// What a shell script would do, and no less: look, two unique commits, one push.
#[derive(Debug)]
pub(crate) struct ByHand {
    git: Git,
    url: String,
    count: u64,
    _folder: tempfile::TempDir,
}

impl ByHand {
    pub(crate) fn new(server: &GitServer) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let git = Git::new().repository(folder.path());
        git.ok(["init", "--quiet", "--bare"])?;
        git.ok_with(["hash-object", "-wt", "tree", "--stdin"], b"")?;
        git.ok(["config", "user.name", "bench"])?;
        git.ok(["config", "user.email", "bench@localhost"])?;
        Ok(Self { git, url: server.git_url(), count: 0, _folder: folder })
    }

    fn commit(&mut self, parent: Option<&str>) -> Result<String> {
        self.count += 1;
        let message = format!("{} {}", std::process::id(), self.count);
        let tree = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";
        let mut args = vec!["commit-tree", tree, "-m", &message];
        args.extend(parent.iter().flat_map(|parent| ["-p", parent]));
        Ok(self.git.ok(args)?.text())
    }

    fn push(&self, changes: &[(&str, &str, &str)]) -> Result<()> {
        let mut args: Vec<String> =
            ["push", "--quiet", "--porcelain", "--atomic"].map(Into::into).into();
        args.extend(
            changes.iter().map(|(name, old, _)| format!("--force-with-lease={name}:{old}")),
        );
        args.push(self.url.clone());
        args.extend(changes.iter().map(|(name, _, new)| format!("{new}:{name}")));
        self.git.ok(args).map(drop).context("by hand")
    }

    /// Takes a lock and releases it.
    pub(crate) fn cycle(&mut self, name: &str) -> Result<()> {
        let lock = format!("refs/sprag/by-hand/{name}");
        let session = format!("refs/sprag/by-hand-sessions/{name}");
        let found = self.git.ok(["ls-remote", &self.url, &lock])?.text();
        let old = found.split('\t').next().unwrap_or_default().to_owned();
        let parent = Some(old.as_str()).filter(|old| !old.is_empty());
        let (taken, sign) = (self.commit(parent)?, self.commit(None)?);
        self.push(&[(&lock, &old, &taken), (&session, "", &sign)])?;
        let free = self.commit(Some(&taken))?;
        self.push(&[(&lock, &taken, &free), (&session, &sign, "")])
    }
}
