//! A server that says no for reasons of its own: told apart from a lock that is held, with what to
//! do.

use sprag::{DistributedLock as _, Error, Locks};
use sprag_ledger::Swapped;
use sprag_testkit::git_server::{Transport, skipped};
use sprag_testkit::support::{LONG, within};

use super::*;

/// What who asks once is told.
async fn told(server: &GitServer) -> Error {
    let client = client(server);
    match within("an answer", client.lock("report").ttl(LONG).try_acquire()).await {
        Err(error) => error,
        Ok(granted) => panic!("{granted:?}"),
    }
}

#[track_caller]
fn says(error: &Error, words: &[&str]) {
    let text = error.to_string();
    assert!(words.iter().all(|word| text.contains(word)), "{text:?} does not say {words:?}");
}

/// F51
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hook_that_refuses_is_no_holder() {
    if skipped() {
        return;
    }
    for transport in [Transport::File, Transport::Http] {
        let server = GitServer::start(transport).await;
        for hook in ["pre-receive", "update"] {
            server.repository().hook(hook, "echo 'ask the release team' >&2; exit 1");
            let error = told(&server).await;
            assert!(error.is_refused(), "{error:?}");
            says(&error, &["hook declined", "allow pushes to refs/sprag/"]);
            server.repository().no_hook(hook);
        }
        let guard = client(&server).lock("report").ttl(LONG).try_acquire().await.unwrap();
        assert!(guard.is_some());
    }
}

/// F51
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_write_is_told_so() {
    if skipped() {
        return;
    }
    let server = GitServer::start(Transport::Http).await;
    server.http().forbid_pushes();
    let error = told(&server).await;
    assert!(error.is_refused(), "{error:?}");
    says(&error, &["403", "ask for write access"]);
    // Looking is allowed.
    let locks = Locks::open(&server.url()).unwrap();
    assert!(!locks.is_locked("report").await.unwrap());
    let findings = locks.store().diagnose().await.unwrap();
    let text = format!("{findings:?}");
    assert!(text.contains("we may not write"), "{text}");
}

/// F49
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stale_lock_file_is_no_holder() {
    if skipped() {
        return;
    }
    for transport in [Transport::File, Transport::Http] {
        for git_talks in [false, true] {
            let server = GitServer::start(transport).await;
            let ledger = GitLedger::open(server.config().git_talks(git_talks)).unwrap();
            let lock = server.repository().stale_lock("refs/sprag/test/a");
            let error = ledger.swap(&[write("a", None)]).unwrap_err();
            assert!(error.is_busy(), "{error:?}");
            says(&error, &["remove the stale .lock file"]);
            std::fs::remove_file(lock).unwrap();
            let swapped = ledger.swap(&[write("a", None)]).unwrap();
            assert!(matches!(swapped[0], Swapped::Done(_)), "{swapped:?}");
        }
    }
}

/// A server that cannot change several references at once changes none, rather than some.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_atomic_pushes_is_refused() {
    if skipped() {
        return;
    }
    let server = GitServer::start(Transport::File).await;
    server.repository().run(&["config", "receive.advertiseAtomic", "false"]);
    for git_talks in [false, true] {
        let ledger = GitLedger::open(server.config().git_talks(git_talks)).unwrap();
        let error = ledger.swap(&[write("a", None), write("b", None)]).unwrap_err();
        assert!(error.is_unsupported(), "{error:?}");
        assert_eq!(tip(&ledger, "a"), None);
    }
    let findings = format!("{:?}", ledger(&server).diagnose().unwrap());
    assert!(findings.contains("receive.advertiseAtomic"), "{findings}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_comes_from_the_url_or_from_a_helper() {
    if skipped() {
        return;
    }
    let server = GitServer::start(Transport::Http).await;
    // ada:secret
    server.http().require_login("YWRhOnNlY3JldA==");
    let swap =
        |config: GitConfig, name: &str| GitLedger::open(config).unwrap().swap(&[write(name, None)]);
    let done = |swapped: sprag::Result<Vec<Swapped>>| {
        assert!(matches!(swapped.unwrap()[0], Swapped::Done(_)));
    };
    done(swap(GitConfig::url(server.http().url_with("ada:secret")), "a"));
    let wrong = swap(GitConfig::url(server.http().url_with("ada:wrong")), "b").unwrap_err();
    assert!(wrong.is_refused() && !format!("{wrong:?}").contains("wrong@"), "{wrong:?}");
    // A clone whose settings know a helper.
    let clone = server.repository().root().join("clone");
    let git = sprag_git::Git::new();
    git.ok(["init", "--quiet", clone.to_str().unwrap()]).unwrap();
    let git = git.directory(&clone);
    git.ok(["remote", "add", "origin", &server.http().url()]).unwrap();
    git.ok(["config", "credential.helper", "!f() { echo username=ada; echo password=secret; }; f"])
        .unwrap();
    for git_talks in [false, true] {
        let config = GitConfig::remote("origin", &clone).git_talks(git_talks);
        done(swap(config, &format!("c{git_talks}")));
    }
    // Nobody is asked, and nothing hangs.
    let config = GitConfig::url(server.http().url());
    assert!(swap(config, "d").unwrap_err().is_refused());
}
