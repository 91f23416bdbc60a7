//! The whole way of a work item over every transport, and on reftables.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use sprag_core::{Holder, LockGuard};
use sprag_testkit::git_server::{GitServer, RefFormat, Repository, Transport, skipped};
use sprag_work::{
    ErrorKind, GitSource, How, ItemName, NewItem, Outcome, Rules, Source, Task, Wanted, Worker,
};

/// A worker in a clone of what is served, which has one commit.
fn source(server: &GitServer) -> GitSource {
    let clone = server.clone_named("clone");
    let git = |args: &[&str]| {
        let mut git = server.repository().command();
        let output = git.arg("-C").arg(&clone).args(args).output().unwrap();
        assert!(output.status.success(), "git {args:?}: {output:?}");
    };
    git(&["config", "user.name", "tester"]);
    git(&["config", "user.email", "tester@example.com"]);
    git(&["commit", "--quiet", "--allow-empty", "-m", "start"]);
    git(&["push", "--quiet", "origin", "HEAD:refs/heads/main"]);
    let rules =
        Rules { main: Some("main".into()), category: Some("bugs".into()), ..Rules::default() };
    GitSource::open(&clone, &rules, Holder::new("agent", "here")).unwrap()
}

fn new(name: &str) -> NewItem {
    NewItem { name: ItemName::new(name).unwrap(), text: None, priority: 0 }
}

/// An item is made, goes through all states in worktrees, and leaves nothing behind.
async fn an_item_goes_its_way(transport: Transport, format: RefFormat) {
    if skipped() {
        return;
    }
    let Some(repository) = Repository::new(format) else {
        // Git knows reftables since 2.45.
        let version = std::process::Command::new("git").arg("version").output().unwrap().stdout;
        let version = String::from_utf8(version).unwrap();
        let minor = version.split('.').nth(1).and_then(|minor| minor.parse::<u32>().ok());
        assert!(format == RefFormat::Reftable && minor < Some(45), "{format:?}, {version}");
        return;
    };
    let server = GitServer::serve(repository, transport).await;
    let source = source(&server);
    source.create(&new("x")).unwrap();
    let step = |task: &Task, _: &LockGuard| {
        let folder = task.directory.join(task.folder.as_deref().unwrap());
        let note = folder.join(task.item.place.state.as_str());
        std::fs::write(note, "done\n").unwrap();
        Outcome::Done { category: None }
    };
    let how = How { worktree: true, ..How::default() };
    let finished = Worker::new(source, step).claiming(how).drain(|_| ()).unwrap();
    assert_eq!(finished.len(), 7, "{finished:?}");
    let remote = |args: &[&str]| server.repository().run(args);
    let files = remote(&["ls-tree", "-r", "--name-only", "main", "docs/work/"]);
    let done = |line: &&str| line.starts_with("docs/work/bugs/archive/production/x-");
    assert_eq!(files.lines().filter(done).count(), 8, "{files}");
    let refs = remote(&["for-each-ref", "--format=%(refname)"]);
    let left = refs.lines().filter(|name| !name.starts_with("refs/sprag/locks/"));
    assert_eq!(left.collect::<Vec<_>>(), ["refs/heads/main"]);
}

macro_rules! ways {
    ($($name:ident: $transport:ident, $format:ident;)*) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            an_item_goes_its_way(Transport::$transport, RefFormat::$format).await;
        }
    )*};
}

ways! {
    an_item_goes_its_way_through_the_daemon: Daemon, Files;
    an_item_goes_its_way_over_http: Http, Files;
    an_item_goes_its_way_over_https: Https, Files;
    an_item_goes_its_way_over_ssh: Ssh, Files;
    an_item_goes_its_way_on_reftables: File, Reftable;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_write_claims_nothing_and_is_told_so() {
    if skipped() {
        return;
    }
    let server = GitServer::start(Transport::Http).await;
    let source = source(&server);
    source.create(&new("x")).unwrap();
    server.http().forbid_pushes();
    let refs = server.repository().run(&["for-each-ref"]);
    let how = How { worktree: true, ..How::default() };
    let claimed = source.claim_named("x", &how).unwrap_err();
    for error in [claimed, source.create(&new("y")).unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
        assert!(error.message().contains("403"), "{error:?}");
    }
    assert_eq!(source.ready(&Wanted::default()).unwrap().items.len(), 1, "looking is allowed");
    assert_eq!(server.repository().run(&["for-each-ref"]), refs);
}
