//! A push whose answer is wrong, late or missing: what became of it is read back.

use sprag::LockState;
use sprag_ledger::Swapped;
use sprag_testkit::git_server::{HttpFault, Transport, skipped};
use sprag_testkit::support::{LONG, eventually, let_time_pass, within};

use super::*;

const NOT_DONE: [HttpFault; 2] = [HttpFault::FailBefore, HttpFault::CloseBefore];
const DONE: [HttpFault; 3] = [HttpFault::FailAfter, HttpFault::CloseAfter, HttpFault::CutAnswer];

/// F48
#[tokio::test]
async fn what_was_done_is_known_although_the_answer_is_not() {
    if skipped() {
        return;
    }
    let server = GitServer::start(Transport::Http).await;
    for git_talks in [false, true] {
        let ledger = GitLedger::open(server.config().git_talks(git_talks)).unwrap();
        for fault in DONE {
            let name = format!("{fault:?}-{git_talks}");
            server.http().fail(fault);
            let swapped = ledger.swap(&[write(&name, None)]).unwrap();
            assert_eq!(swapped, [Swapped::Done(tip(&ledger, &name))], "{fault:?}");
            // And two at once.
            let pair = [write(&format!("{name}-1"), None), write(&format!("{name}-2"), None)];
            server.http().fail(fault);
            let swapped = ledger.swap(&pair).unwrap();
            assert!(swapped.iter().all(|one| matches!(one, Swapped::Done(Some(_)))), "{fault:?}");
        }
    }
}

/// F48
#[tokio::test]
async fn what_was_not_done_stays_in_doubt_or_is_refused() {
    if skipped() {
        return;
    }
    let server = GitServer::start(Transport::Http).await;
    for git_talks in [false, true] {
        let ledger = GitLedger::open(server.config().git_talks(git_talks)).unwrap();
        for fault in NOT_DONE {
            let name = format!("{fault:?}-{git_talks}");
            server.http().fail(fault);
            let error = ledger.swap(&[write(&name, None)]).unwrap_err();
            assert!(error.is_indeterminate(), "{fault:?}: {error:?}");
            assert_eq!(tip(&ledger, &name), None);
            // Once somebody else was there it can never happen any more.
            let swapped = ledger.swap(&[write(&name, None)]).unwrap();
            assert!(matches!(swapped[0], Swapped::Done(_)));
            server.http().fail(fault);
            assert_eq!(ledger.swap(&[write(&name, None)]).unwrap(), [Swapped::Refused]);
        }
    }
}

/// F48: a server that fails before it is told what to do has done nothing.
#[tokio::test]
async fn what_was_never_sent_is_no_win() {
    if skipped() {
        return;
    }
    let server = GitServer::start(Transport::Http).await;
    for git_talks in [false, true] {
        let ledger = GitLedger::open(server.config().git_talks(git_talks)).unwrap();
        let name = format!("never-sent-{git_talks}");
        server.http().fail(HttpFault::FailGreeting);
        ledger.swap(&[write(&name, None)]).unwrap_err();
        assert_eq!(tip(&ledger, &name), None);
        assert!(matches!(ledger.swap(&[write(&name, None)]).unwrap()[..], [Swapped::Done(_)]));
    }
}

/// F48, F07, F08: as a user sees it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_are_taken_and_released_once_whatever_the_server_answers() {
    if skipped() {
        return;
    }
    let server = GitServer::start(Transport::Http).await;
    let (ours, theirs) = (client(&server), client(&server));
    for fault in DONE.into_iter().chain(NOT_DONE) {
        server.http().fail(fault);
        let guard = within("taken", ours.lock("report").ttl(LONG).acquire()).await.unwrap();
        assert_eq!(guard.state(), LockState::Held);
        assert!(theirs.lock("report").try_acquire().await.unwrap().is_none(), "{fault:?}");
        server.http().fail(fault);
        within("released", guard.release()).await.unwrap();
        let next = theirs.lock("report").ttl(LONG).try_acquire().await.unwrap();
        next.expect("it is free").release().await.unwrap();
    }
}

/// F48, F62: the push is done long after its sender gave up on it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_that_lands_late_is_found_or_undone() {
    if skipped() {
        return;
    }
    let server = GitServer::start(Transport::Http).await;
    let go = server.repository().root().join("go");
    let wait = format!("while [ ! -e {} ]; do sleep 0.05; done", go.display());
    server.repository().hook("pre-receive", &wait);
    let config = quick(server.config()).timeout(Duration::from_millis(700));
    let ours = Client::new(Arc::new(open_git(config).unwrap()));
    let theirs = client(&server);
    let error = ours.lock("report").ttl(LONG).try_acquire().await.unwrap_err();
    assert!(error.is_unavailable(), "{error:?}");
    std::fs::write(go, "").unwrap();
    // What was given up is released, be it that it is granted only now.
    eventually("it is free", || async {
        let taken = theirs.lock("report").ttl(LONG).try_acquire().await.unwrap();
        match taken {
            Some(guard) => guard.release().await.is_ok(),
            None => false,
        }
    })
    .await;
}

/// F52: the server's git dies in the middle of a push.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_git_that_is_killed_in_the_middle_takes_nothing_with_it() {
    if skipped() {
        return;
    }
    for transport in [Transport::File, Transport::Daemon, Transport::Http] {
        let server = GitServer::start(transport).await;
        let ours = client(&server);
        // The parent of the hook is the git that receives the push.
        server.repository().hook("pre-receive", "kill -9 $PPID");
        let ledger = ledger(&server);
        let error = ledger.swap(&[write("a", None)]).unwrap_err();
        assert!(error.is_indeterminate(), "{transport:?}: {error:?}");
        server.repository().no_hook("pre-receive");
        assert_eq!(tip(&ledger, "a"), None, "{transport:?}");
        let guard = within("taken", ours.lock("report").ttl(LONG).acquire()).await.unwrap();
        guard.release().await.unwrap();
        server.repository().run(&["fsck", "--strict"]);
    }
}

/// F09: the server is gone for a while, and comes back in time or not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_without_a_server_is_told_in_time() {
    if skipped() {
        return;
    }
    let server = GitServer::start(Transport::Http).await;
    let ours = client(&server);
    let guard = ours.lock("report").ttl(SHORT).acquire().await.unwrap();
    for _ in 0..2 {
        server.http().fail(HttpFault::FailBefore);
    }
    // Renewals go on after a few that failed.
    let_time_pass(SHORT * 2).await;
    assert!(guard.is_valid());
    for _ in 0..1000 {
        server.http().fail(HttpFault::CloseBefore);
    }
    within("it is told", guard.lost()).await;
}
