//! People and programs that use git on the same repository.

use std::process::Stdio;

use sprag_ledger::Swapped;
use sprag_testkit::git_server::{Transport, skipped};
use sprag_testkit::support::{LONG, within};

use super::*;

/// F17: a fast-forward, which any git would take.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_who_pushes_on_top_of_a_lock_ends_it_and_takes_nothing() {
    if skipped() {
        return;
    }
    let server = GitServer::start(Transport::File).await;
    let (ours, theirs) = (client(&server), client(&server));
    let guard = ours.lock("report").ttl(SHORT).acquire().await.unwrap();
    let name = RefName::lock(&sprag_testkit::support::name("report"));
    let repository = server.repository();
    let tip = repository.run(&["rev-parse", name.as_str()]);
    let tree = format!("{tip}^{{tree}}");
    let who = ["-c", "user.name=a", "-c", "user.email=a@b"];
    let made = ["commit-tree", &tree, "-p", &tip, "-m", "mine now"];
    let commit = repository.run(&[&who[..], &made[..]].concat());
    repository.run(&["push", "--quiet", &server.git_url(), &format!("{commit}:{name}")]);
    within("the holder is told", guard.lost()).await;
    let error = theirs.lock("report").ttl(LONG).try_acquire().await.unwrap_err();
    assert!(error.is_corrupt(), "{error:?}");
    drop(guard);
}

/// A swap that was refused is refused for every transport and every kind of repository.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reference_that_a_stranger_made_is_in_the_way() {
    if skipped() {
        return;
    }
    for transport in Transport::ALL {
        let server = GitServer::start(transport).await;
        let ledger = ledger(&server);
        let first = ledger.swap(&[write("a", None)]).unwrap();
        let Swapped::Done(Some(first)) = first[0].clone() else { panic!("{first:?}") };
        // By plain git, and without asking anybody.
        let mut push = server.repository().command();
        push.envs(server.environment()).arg("--git-dir").arg(server.repository().path());
        push.args(["push", "--quiet", &server.git_url()]);
        push.arg(format!("{first}:refs/sprag/test/b")).stderr(Stdio::null());
        assert!(push.status().unwrap().success(), "{transport:?}");
        let both = ledger.swap(&[write("b", None), write("c", None)]).unwrap();
        assert_eq!(both, [Swapped::Refused, Swapped::Aborted], "{transport:?}");
        assert_eq!(tip(&ledger, "c"), None);
    }
}
