//! The contract of a ledger, on GitHub's refs.

use std::sync::Arc;
use std::time::Duration;

use sprag_github::GitHubStore;
use sprag_github_sim::{Fault, Target};
use sprag_ledger::{Change, Entry, Ledger, New, Oid, RefName, Swapped};

use crate::place::{Place, REPO};

fn lock(number: u64) -> RefName {
    RefName::lock(&sprag_core::LockName::new(format!("issue-{number}")).unwrap())
}

fn session() -> RefName {
    RefName::new("refs/sprag/sessions/00000000000000000000000000000007").unwrap()
}

fn entry(text: &str) -> Entry {
    Entry { summary: format!("summary of {text}"), body: format!(r#"{{"text":"{text}"}}"#) }
}

fn change(name: &RefName, old: Option<&Oid>, text: &str) -> Change {
    Change { name: name.clone(), old: old.cloned(), new: New::Entry(entry(text)) }
}

fn ledger(place: &Place) -> Arc<dyn Ledger> {
    Arc::clone(GitHubStore::open(&place.config()).unwrap().ledger().unwrap().ledger())
}

fn done(swapped: sprag_core::Result<Vec<Swapped>>) -> Vec<Option<Oid>> {
    let tip = |swapped| match swapped {
        Swapped::Done(tip) => tip,
        other => panic!("not done: {other:?}"),
    };
    swapped.unwrap().into_iter().map(tip).collect()
}

#[test]
fn a_ref_is_created_once_and_moved_only_from_where_it_is() {
    let place = Place::new();
    let (first, second) = (ledger(&place), ledger(&place));
    assert_eq!(first.tips(&[lock(1)]).unwrap(), [None]);
    let one = done(first.swap(&[change(&lock(1), None, "one")])).remove(0).unwrap();
    assert_eq!(second.swap(&[change(&lock(1), None, "rival")]).unwrap(), [Swapped::Refused]);
    assert_eq!(second.tips(&[lock(1)]).unwrap(), [Some(one.clone())]);
    assert_eq!(second.entries(&[(lock(1), one.clone())]).unwrap(), [entry("one")]);
    let two = done(second.swap(&[change(&lock(1), Some(&one), "two")])).remove(0).unwrap();
    let late = first.swap(&[change(&lock(1), Some(&one), "late")]).unwrap();
    assert_eq!(late, [Swapped::Refused]);
    let history = first.history(&lock(1), 10).unwrap();
    assert_eq!(history, [(two, entry("two")), (one, entry("one"))]);
}

/// No fast-forward, and a compare-and-swap all the same, be it alone or with others.
#[test]
fn a_ref_that_begins_anew_is_compared_all_the_same() {
    let place = Place::new();
    let (ledger, other) = (ledger(&place), ledger(&place));
    let root = |name: &RefName, old: &Oid, text: &str| Change {
        new: New::Root(entry(text)),
        ..change(name, Some(old), text)
    };
    let one = done(ledger.swap(&[change(&lock(1), None, "one")])).remove(0).unwrap();
    let two = done(ledger.swap(&[root(&lock(1), &one, "two")])).remove(0).unwrap();
    assert_eq!(other.history(&lock(1), 10).unwrap(), [(two.clone(), entry("two"))]);
    // Rivals who know what was before, in each of the ways that there are.
    let late = root(&lock(1), &one, "late");
    assert_eq!(other.swap(std::slice::from_ref(&late)).unwrap(), [Swapped::Refused]);
    let plain = change(&lock(1), Some(&one), "late");
    assert_eq!(other.swap(std::slice::from_ref(&plain)).unwrap(), [Swapped::Refused]);
    for late in [late, plain] {
        let both = [late, change(&session(), None, "beat")];
        assert_eq!(other.swap(&both).unwrap(), [Swapped::Refused, Swapped::Aborted]);
    }
    // And the chain goes on.
    let both = [root(&lock(1), &two, "three"), change(&session(), None, "beat")];
    let tips = done(ledger.swap(&both));
    let three = tips[0].clone().unwrap();
    let four = done(other.swap(&[change(&lock(1), Some(&three), "four")])).remove(0).unwrap();
    let history = ledger.history(&lock(1), 10).unwrap();
    assert_eq!(history, [(four, entry("four")), (three, entry("three"))]);
}

#[test]
fn equal_entries_are_told_apart() {
    let place = Place::new();
    let (first, second) = (ledger(&place), ledger(&place));
    let tips = |ledger: &Arc<dyn Ledger>, number| {
        done(ledger.swap(&[change(&lock(number), None, "same")])).remove(0)
    };
    assert_ne!(tips(&first, 1), tips(&second, 2));
    assert_eq!(second.swap(&[change(&lock(1), None, "same")]).unwrap(), [Swapped::Refused]);
}

#[test]
fn several_refs_are_swapped_together_or_not_at_all() {
    let place = Place::new();
    let (ledger, other) = (ledger(&place), ledger(&place));
    let both = [change(&lock(1), None, "one"), change(&session(), None, "beat")];
    let tips = done(ledger.swap(&both));
    assert_eq!(tips[0], tips[1], "one commit for both");
    let at = [(lock(1), tips[0].clone().unwrap()), (session(), tips[1].clone().unwrap())];
    assert_eq!(other.entries(&at).unwrap(), [entry("one"), entry("beat")]);
    // One of the two is not where it has to be.
    let wrong = [change(&lock(1), tips[0].as_ref(), "two"), change(&session(), None, "beat")];
    let answer = ledger.swap(&wrong).unwrap();
    assert_eq!(answer, [Swapped::Aborted, Swapped::Refused]);
    assert_eq!(ledger.tips(&[lock(1)]).unwrap(), [tips[0].clone()]);
    // And a farewell is compared as well.
    let bye = |old: &Option<Oid>| Change { name: session(), old: old.clone(), new: New::Nowhere };
    let release = |old| [change(&lock(1), tips[0].as_ref(), "free"), bye(old)];
    done(ledger.swap(&release(&tips[1])));
    assert_eq!(ledger.tips(&[session()]).unwrap(), [None]);
    let listed = ledger.list("refs/sprag/").unwrap();
    assert_eq!(listed.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>(), [lock(1)]);
}

#[test]
fn a_lost_answer_is_read_back() {
    let place = Place::new();
    let ledger = ledger(&place);
    let mut tip = None;
    let faults = [Fault::ErrorAfter(502), Fault::CloseAfter, Fault::ErrorAfter(504)];
    for (round, fault) in faults.into_iter().enumerate() {
        place.github.fail_next(Target::Kind("git/refs"), fault);
        let text = format!("round {round}");
        tip = done(ledger.swap(&[change(&lock(1), tip.as_ref(), &text)])).remove(0);
    }
    place.github.fail_next(Target::Kind("graphql"), Fault::ErrorAfter(502));
    let both = [change(&lock(1), tip.as_ref(), "both"), change(&session(), None, "beat")];
    assert_eq!(done(ledger.swap(&both)).len(), 2);
    assert_eq!(ledger.history(&lock(1), 10).unwrap().len(), 4);
}

#[test]
fn what_was_not_done_is_in_doubt_and_never_called_refused() {
    let place = Place::new();
    let ledger = ledger(&place);
    let tip = done(ledger.swap(&[change(&lock(1), None, "one")])).remove(0);
    for fault in [Fault::ErrorBefore(502), Fault::CloseBefore, Fault::Flake] {
        place.github.fail_next(Target::Kind("git/refs"), fault);
        let error = ledger.swap(&[change(&lock(1), tip.as_ref(), "two")]).unwrap_err();
        assert!(error.is_indeterminate(), "{fault:?}: {error}");
    }
    done(ledger.swap(&[change(&lock(1), tip.as_ref(), "two")]));
}

#[test]
fn a_read_from_yesterday_decides_nothing() {
    let place = Place::frozen();
    let ledger = ledger(&place);
    let one = done(ledger.swap(&[change(&lock(1), None, "one")])).remove(0);
    place.github.advance(Duration::from_secs(1));
    let two = done(ledger.swap(&[change(&lock(1), one.as_ref(), "two")])).remove(0);
    place.github.advance(Duration::from_secs(1));
    // From now on reads show any state of the last ten seconds; so "one" may be read after a swap
    // from "two" was lost, and must not be taken for a refusal.
    place.github.lag(Duration::from_secs(10));
    for _ in 0..20 {
        place.github.fail_next(Target::Kind("PATCH"), Fault::CloseBefore);
        match ledger.swap(&[change(&lock(1), two.as_ref(), "three")]) {
            Err(error) => assert!(error.is_indeterminate(), "{error}"),
            Ok(swapped) => panic!("{swapped:?}"),
        }
    }
}

#[test]
fn looking_again_at_what_has_not_changed_is_free() {
    let place = Place::new();
    let ledger = ledger(&place);
    done(ledger.swap(&[change(&lock(1), None, "one")]));
    ledger.tips(&[lock(1)]).unwrap();
    ledger.tips(&[lock(1)]).unwrap();
    place.github.clear_counters();
    for _ in 0..10 {
        ledger.tips(&[lock(1)]).unwrap();
    }
    let counters = place.github.counters();
    assert_eq!((counters.len(), counters.primary(), counters.graphql()), (10, 0, 0));
}

#[test]
fn a_server_that_does_not_know_the_empty_tree_is_given_one() {
    let place = Place::new();
    place.github.forget_empty_tree(REPO);
    let ledger = ledger(&place);
    let one = done(ledger.swap(&[change(&lock(1), None, "one")])).remove(0);
    place.github.clear_counters();
    done(ledger.swap(&[change(&lock(1), one.as_ref(), "two")]));
    assert_eq!(place.github.counters().len(), 2, "and only once");
}
