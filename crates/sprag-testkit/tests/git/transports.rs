//! The contract of a ledger over every transport, on every kind of repository, with every git of
//! this machine, and a race over each of them.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, Stdio};
use std::sync::Barrier;

use sprag::{GitConfig, GitLedger};
use sprag_ledger::{Change, Entry, Ledger, New, Oid, RefName, Swapped};
use sprag_testkit::git_server::{GitServer, RefFormat, Repository, Transport, programs, skipped};

fn ledger(server: &GitServer) -> GitLedger {
    GitLedger::open(server.config()).unwrap()
}

fn write(name: &str, old: Option<&Oid>) -> Change {
    let name = RefName::new(format!("refs/sprag/test/{name}")).unwrap();
    // All write the same, so that nothing but the nonce tells them apart.
    let entry = Entry { summary: "taken".into(), body: "{}".into() };
    Change { name, old: old.cloned(), new: New::Entry(entry) }
}

fn done(swapped: &Swapped) -> Oid {
    match swapped {
        Swapped::Done(Some(oid)) => oid.clone(),
        other => panic!("{other:?}"),
    }
}

/// What a ledger is for, in one go.
fn keeps_its_contract(ledger: &GitLedger, what: &str) {
    let first = done(&ledger.swap(&[write("a", None)]).unwrap()[0]);
    assert_eq!(ledger.swap(&[write("a", None)]).unwrap(), [Swapped::Refused], "{what}");
    let second = done(&ledger.swap(&[write("a", Some(&first))]).unwrap()[0]);
    let both = [write("a", Some(&first)), write("b", None)];
    assert_eq!(ledger.swap(&both).unwrap(), [Swapped::Refused, Swapped::Aborted], "{what}");
    let name = write("a", None).name;
    let history = ledger.history(&name, 5).unwrap();
    let oids: Vec<_> = history.iter().map(|(oid, _)| oid.clone()).collect();
    assert_eq!(oids, [second.clone(), first], "{what}");
    let listed = ledger.list("refs/sprag/test/").unwrap();
    assert_eq!(listed, [(name.clone(), second.clone())], "{what}");
    let delete = Change { name: name.clone(), old: Some(second), new: New::Nowhere };
    assert_eq!(ledger.swap(&[delete]).unwrap(), [Swapped::Done(None)], "{what}");
    assert_eq!(ledger.tips(&[name]).unwrap(), [None], "{what}");
}

async fn everywhere(transport: Transport) {
    if skipped() {
        return;
    }
    for program in programs() {
        for (format, options) in [
            (RefFormat::Files, &[][..]),
            (RefFormat::Reftable, &[]),
            (RefFormat::Files, &["--object-format=sha256"]),
        ] {
            let what = format!("{} {format:?} {options:?}", program.display());
            let Some(repository) = Repository::with_program(&program, format, options) else {
                assert_eq!(format, RefFormat::Reftable, "{what}");
                continue;
            };
            let server = GitServer::serve(repository, transport).await;
            keeps_its_contract(&ledger(&server), &what);
        }
        // And with nothing but git's own commands.
        let repository = Repository::with_program(&program, RefFormat::Files, &[]).unwrap();
        let server = GitServer::serve(repository, transport).await;
        let by_git = GitLedger::open(server.config().git_talks(true)).unwrap();
        keeps_its_contract(&by_git, &format!("{} by itself", program.display()));
    }
}

/// Clients and rounds of a race; `SPRAG_TORTURE=full` is for the long form.
fn size(transport: Transport) -> (usize, usize) {
    let full = std::env::var("SPRAG_TORTURE").is_ok_and(|value| value == "full");
    match transport {
        _ if full => (50, 20),
        // Each of its connections costs a key exchange.
        Transport::Ssh | Transport::Https => (4, 1),
        _ => (8, 2),
    }
}

/// F16: all want the same new name at the same moment. Exactly one has it, in each round.
async fn has_one_winner(transport: Transport, format: RefFormat) {
    if skipped() {
        return;
    }
    let Some(repository) = Repository::new(format) else { return };
    let server = GitServer::serve(repository, transport).await;
    let (clients, rounds) = size(transport);
    let ledgers: Vec<_> = (0..clients).map(|_| ledger(&server)).collect();
    for round in 0..rounds {
        let name = format!("round{round}");
        let gate = Barrier::new(clients);
        let run = |ledger: &GitLedger| {
            gate.wait();
            // A server that is overrun by so many says so; then nothing is known, and one asks
            // where the reference is, as the store does.
            match ledger.swap(&[write(&name, None)]) {
                Ok(swapped) => matches!(swapped[0], Swapped::Done(_)),
                Err(error) => {
                    assert!(error.is_indeterminate(), "{error:?}");
                    false
                }
            }
        };
        let winners = std::thread::scope(|scope| {
            let racers: Vec<_> = ledgers.iter().map(|ledger| scope.spawn(|| run(ledger))).collect();
            racers.into_iter().map(|racer| racer.join().unwrap()).filter(|won| *won).count()
        });
        assert_eq!(winners, 1, "round {round}");
    }
}

/// F16: a branch that everybody pushes at the commit of main, and the exit code.
async fn naive_recipe_has_many(transport: Transport) {
    if skipped() {
        return;
    }
    let server = GitServer::start(transport).await;
    let (clients, _) = size(transport);
    let main = done(&ledger(&server).swap(&[write("main", None)]).unwrap()[0]);
    let clones: Vec<_> = (0..clients).map(|_| tempfile::tempdir().unwrap()).collect();
    let git = |clone: &tempfile::TempDir, args: &[&str]| {
        let mut git: Command = server.repository().command();
        git.envs(server.environment()).arg("-C").arg(clone.path()).args(args);
        git.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
    };
    let url = server.git_url();
    for clone in &clones {
        assert!(git(clone, &["init", "--quiet"]));
        assert!(git(clone, &["fetch", "--quiet", &url, main.as_str()]));
    }
    let gate = Barrier::new(clients);
    let claim = |clone: &tempfile::TempDir| {
        gate.wait();
        git(clone, &["push", "--quiet", &url, &format!("{main}:refs/heads/indevelopment-x")])
    };
    let mut winners = std::thread::scope(|scope| {
        let racers: Vec<_> = clones.iter().map(|clone| scope.spawn(|| claim(clone))).collect();
        racers.into_iter().map(|racer| racer.join().unwrap()).filter(|won| *won).count()
    });
    // Whoever comes later believes it too.
    let late = format!("{main}:refs/heads/indevelopment-x");
    winners += usize::from(git(&clones[0], &["push", "--quiet", &url, &late]));
    assert!(winners > 1, "{winners}: then nobody would need this store");
}

macro_rules! transports {
    ($($module:ident: $transport:expr;)*) => {$(
        mod $module {
            use super::*;

            #[tokio::test]
            async fn the_contract_is_kept_on_every_repository() {
                everywhere($transport).await;
            }

            #[tokio::test]
            async fn a_race_has_one_winner() {
                has_one_winner($transport, RefFormat::Files).await;
            }

            #[tokio::test]
            async fn a_race_on_reftables_has_one_winner() {
                has_one_winner($transport, RefFormat::Reftable).await;
            }

            #[tokio::test]
            async fn the_naive_recipe_has_many_winners() {
                naive_recipe_has_many($transport).await;
            }
        }
    )*};
}

transports! {
    file: Transport::File;
    daemon: Transport::Daemon;
    http: Transport::Http;
    https: Transport::Https;
    ssh: Transport::Ssh;
}

#[tokio::test]
async fn a_server_whose_authority_nobody_knows_is_not_talked_to() {
    if skipped() {
        return;
    }
    let server = GitServer::start(Transport::Https).await;
    for config in
        [GitConfig::url(server.git_url()), GitConfig::url(server.git_url()).git_talks(true)]
    {
        let error = GitLedger::open(config).unwrap().swap(&[write("a", None)]).unwrap_err();
        let said = error.to_string().to_lowercase();
        assert!(said.contains("certificate"), "{said}");
    }
    assert_eq!(server.http().requests(), [""; 0], "nothing was told to it");
}
