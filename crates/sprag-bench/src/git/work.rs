//! One work item among many, from the claim to the merge.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use sprag_core::{Holder, LockGuard};
use sprag_git::Git;
use sprag_testkit::git_server::{GitServer, Transport};
use sprag_work::{GitSource, How, Outcome, Rules, Task, Turn, Worker};

use super::seconds;
use crate::options::Options;
use crate::report::{Goal, Row, progress};

const ITEMS: usize = 1_000;
const FILES: usize = 10_000;
const FROM: &str = "docs/work/bugs/readyfordevelopment";
const TO: &str = "docs/work/bugs/readyfortesting";
const EMPTY: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";

pub(crate) async fn measure(options: &Options) -> Result<Row> {
    let server = GitServer::start(Transport::File).await;
    fill(&server)?;
    let (ours, by_hand) = (clone(&server, "ours")?, ByHand::new(&server)?);
    let rules = Rules { main: Some("main".into()), ..Rules::default() };
    let (mut mine, mut theirs) = (Vec::new(), Vec::new());
    for pair in 0..=options.pairs {
        // As a command does: it finds out where it is each time.
        let step = seconds(async {
            let source = GitSource::open(&ours, &rules, Holder::new("bench", "here"))?;
            let work = |_: &Task, _: &LockGuard| Outcome::Done { category: None };
            let how = How { worktree: true, ..How::default() };
            let turn = Worker::new(source, work).claiming(how).turn()?;
            let Turn::Worked { result, .. } = turn else { anyhow::bail!("there is no item") };
            anyhow::ensure!(result?.merged.is_some(), "nothing was merged");
            Ok(())
        });
        let step = step.await?;
        let hand = seconds(async { by_hand.step() }).await?;
        if pair > 0 {
            mine.push(step * 1000.0);
            theirs.push(hand * 1000.0);
        }
        progress(&format!("work next: pair {pair} of {}", options.pairs));
    }
    let what = "work next among 1,000 items and 10,000 files, ms";
    Ok(Row::pairs(what, &mine, ("git by hand", &theirs), Some(Goal::AtMost(2.0))))
}

fn clone(server: &GitServer, name: &str) -> Result<PathBuf> {
    let path = server.repository().root().join(name);
    let shown = path.to_string_lossy().into_owned();
    Git::new().ok(["clone", "--quiet", "--branch", "main", &server.git_url(), &shown])?;
    let git = Git::new().directory(&path);
    git.ok(["config", "user.name", "bench"])?;
    git.ok(["config", "user.email", "bench@localhost"])?;
    Ok(path)
}

/// Gives the remote its items and files.
fn fill(server: &GitServer) -> Result<()> {
    let folder = server.clone_named("seed");
    progress(&format!("making {ITEMS} items and {FILES} files"));
    let write = |path: String, text: String| -> Result<()> {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().context("it is in a folder")?)?;
        Ok(std::fs::write(path, text)?)
    };
    for number in 0..ITEMS {
        write(format!("{FROM}/item-{number:08x}/README.md"), format!("{number}\n"))?;
    }
    for number in 0..FILES {
        write(format!("src/{}/{number}.rs", number / 100), format!("// {number}\n"))?;
    }
    let git = Git::new().directory(&folder);
    git.ok(["add", "."])?;
    let name = ["-c", "user.name=bench", "-c", "user.email=bench@localhost"];
    git.ok(name.into_iter().chain(["commit", "--quiet", "-m", "start"]))?;
    git.ok(["push", "--quiet", "origin", "HEAD:refs/heads/main"]).map(drop).context("push")
}

/// The git commands of the same step, and no less: look, claim by lock, session and branch, worktree,
/// move, merge, one push, clear up.
struct ByHand {
    git: Git,
    worktree: PathBuf,
}

impl ByHand {
    fn new(server: &GitServer) -> Result<Self> {
        let path = clone(server, "hand")?;
        let git = Git::new().directory(&path);
        git.ok_with(["hash-object", "-wt", "tree", "--stdin"], b"")?;
        Ok(Self { git, worktree: path.with_file_name("hand-work") })
    }

    fn step(&self) -> Result<()> {
        let git = &self.git;
        let run = |args: &[&str]| git.ok(args).map(|said| said.text());
        run(&["fetch", "--quiet", "origin", "main"])?;
        let main = run(&["rev-parse", "FETCH_HEAD"])?;
        let items = run(&["ls-tree", "--name-only", &main, &format!("{FROM}/")])?;
        let path = items.lines().next().context("an item")?;
        let item = path.rsplit('/').next().unwrap_or_default();
        let (branch, lock) =
            (format!("indevelopment-{item}"), format!("refs/sprag/by-hand/{item}"));
        let session = format!("refs/sprag/by-hand-sessions/{item}");
        let taken = run(&["commit-tree", EMPTY, "-m", "taken"])?;
        let sign = run(&["commit-tree", EMPTY, "-m", item])?;
        run(&[
            "push",
            "--quiet",
            "--atomic",
            &format!("--force-with-lease={lock}:"),
            &format!("--force-with-lease=refs/heads/{branch}:"),
            "origin",
            &format!("{taken}:{lock}"),
            &format!("{sign}:{session}"),
            &format!("{main}:refs/heads/{branch}"),
        ])?;
        let worktree = self.worktree.to_string_lossy().into_owned();
        run(&["worktree", "add", "--quiet", "--no-track", "-b", &branch, &worktree, &main])?;
        let there = Git::new().directory(&self.worktree);
        std::fs::create_dir_all(self.worktree.join(TO))?;
        there.ok(["mv", path, &format!("{TO}/{item}")])?;
        there.ok(["commit", "--quiet", "-m", "move"])?;
        there.ok(["fetch", "--quiet", "origin", "main"])?;
        there.ok(["checkout", "--quiet", "--detach", "FETCH_HEAD"])?;
        there.ok(["merge", "--quiet", "--no-ff", "-m", "merge", &branch])?;
        let free = run(&["commit-tree", EMPTY, "-p", &taken, "-m", "free"])?;
        there.ok([
            "push",
            "--quiet",
            "--atomic",
            &format!("--force-with-lease={lock}:{taken}"),
            "origin",
            "HEAD:refs/heads/main",
            &format!("{free}:{lock}"),
            &format!(":{session}"),
            &format!(":refs/heads/{branch}"),
        ])?;
        run(&["worktree", "remove", "--force", &worktree])?;
        run(&["branch", "--quiet", "-D", &branch])?;
        Ok(())
    }
}
