//! The models: in bounds that are looked at to the end, and with wrong rules that must be seen.
//!
//! The everyday run looks at the nearest states of each model. `cargo xtask model`
//! (`SPRAG_MODEL=full`) looks at all of them and shows the numbers; with `--large`
//! (`SPRAG_MODEL=large`) the models are bigger.

#![expect(clippy::print_stdout, reason = "the numbers are for people")]

use std::fmt::Debug;
use std::hash::Hash;
use std::num::NonZeroUsize;
use std::sync::Arc;

use sprag_proof::models::baton::{self, Baton};
use sprag_proof::models::explore::{Run, explore, explore_within};
use sprag_proof::models::ledger::{self, Ledger};
use sprag_proof::models::observed::{self, Observed};
use sprag_proof::models::queue::{self, Queue, Role};
use sprag_proof::models::redlock::{self, Redlock};
use sprag_proof::models::sessions::{self, Prompt, Sessions};
use stateright::Model;

/// How many steps the everyday run takes in each model that has no failure. The wrong rules below
/// are all seen within a fraction of it.
const EVERYDAY: NonZeroUsize = NonZeroUsize::new(1_000_000).expect("it is not zero");

fn large() -> bool {
    std::env::var("SPRAG_MODEL").is_ok_and(|size| size == "large")
}

/// Where the everyday run stops; no bound for the longer ones.
fn bound() -> Option<NonZeroUsize> {
    let longer = std::env::var_os("SPRAG_MODEL").is_some()
        || std::env::var("SPRAG_SIZE").is_ok_and(|size| size == "full");
    if longer { None } else { Some(EVERYDAY) }
}

/// No property fails, and all states are looked at, which are not fewer than when the model was
/// made; or as many as the everyday run has time for.
fn assert_proven<M>(name: &str, model: M, floor: usize)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq + Send + Sync + 'static,
{
    let bound = bound();
    let run = explore_within(model, bound);
    println!("{name}: {run}");
    assert!(run.failure.is_none(), "{name}: {run}");
    let stopped = bound.is_some_and(|bound| run.generated >= bound.get());
    let unique = run.unique;
    assert!(stopped || unique >= floor, "{name}: only {unique} states, there were {floor}");
}

/// A wrong rule is seen: otherwise a right one proves nothing.
fn assert_found(name: &str, run: &Run) {
    let failure = run.failure.as_ref().unwrap_or_else(|| panic!("{name} was not found: {run}"));
    let (property, steps) = (failure.property, failure.steps.len());
    println!("{name}: found in {:.1} s, {steps} steps: {property}", run.seconds);
}

#[test]
fn a_lease_on_a_store_without_a_clock_has_one_holder() {
    let small = Observed { late: 0, queue: false, writes: false, ..Observed::new() };
    let happened = Arc::clone(&small.happened);
    let with = |change: fn(&mut Observed)| {
        let mut model = small.clone();
        change(&mut model);
        model
    };
    let mut models = vec![
        ("observed, late requests", with(|model| model.late = 1), 1_000_000),
        ("observed, a guarded resource", with(|model| model.writes = true), 1_000_000),
        ("observed, a queue", with(|model| model.queue = true), 1_000_000),
        ("observed, clocks that differ", with(drifting), 1_000_000),
    ];
    if large() {
        let more = with(|model| (model.queue, model.leases) = (true, 3));
        models.push(("observed, a queue with more old leases", more, 1_000_000));
    }
    for (name, model, floor) in models {
        assert_proven(name, model, floor);
    }
    println!("observed, what happened:{happened}");
    assert_eq!(happened.never(), [""; 0]);
}

/// Two clocks that may differ by one tick at any time measure the same span with a difference of
/// up to two.
fn drifting(model: &mut Observed) {
    (model.ttl, model.skew, model.margin) = (3, 1, 2);
}

#[test]
fn a_margin_smaller_than_the_drift_is_found() {
    let mut model = Observed { late: 0, queue: false, writes: false, ..Observed::new() };
    drifting(&mut model);
    model.margin = 1;
    assert_found("a margin smaller than the drift", &explore(model));
}

#[test]
fn a_deadline_counted_from_the_reply_is_found() {
    let rule = observed::Rule::DeadlineFromReply;
    assert_found(
        "observed, deadline from the reply",
        &explore(Observed { rule, ..Observed::new() }),
    );
    let rule = sessions::Rule::DeadlineFromReply;
    let model = Sessions { rule, locks: 1, ..Sessions::new() };
    assert_found("sessions, deadline from the reply", &explore(model));
    let rule = queue::Rule::DeadlineFromReply;
    let model = Queue { rule, ..Queue::new(vec![Role::writer(), Role::writer()]) };
    assert_found("queue, deadline from the reply", &explore(model));
}

#[test]
fn an_observation_counted_from_the_send_is_found() {
    let rule = observed::Rule::ObservationFromSend;
    assert_found(
        "observed, observation from the send",
        &explore(Observed { rule, ..Observed::new() }),
    );
    let rule = sessions::Rule::ObservationFromSend;
    let model = Sessions { rule, locks: 1, ..Sessions::new() };
    assert_found("sessions, observation from the send", &explore(model));
}

#[test]
fn a_steal_against_any_version_is_found() {
    let rule = observed::Rule::StealAgainstAnyVersion;
    assert_found("a steal against any version", &explore(Observed { rule, ..Observed::new() }));
}

#[test]
fn a_lock_is_taken_over_only_from_a_dead_session() {
    let one = Sessions { locks: 1, ..Sessions::new() };
    let happened = Arc::clone(&one.happened);
    let detached = Sessions { detached: Some(0), ..one.clone() };
    let two = Sessions { locks: 2, one_way: true, late: 1, ..one.clone() };
    let brisk = Sessions { unlucky: 1, prompt: Prompt::AllButHeartbeats, ..two.clone() };
    let mut models = vec![
        ("sessions, one lock", one.clone(), 400_000),
        ("sessions, a detached lease", detached, 900_000),
        ("sessions, two locks, one detached, late heartbeats", brisk, 2_500_000),
    ];
    if large() {
        models.push(("sessions, a queue", Sessions { queue: true, ..one }, 1_000_000));
        let slow = Sessions { prompt: Prompt::Changes, ..two };
        models.push(("sessions, two locks, everybody is unlucky", slow, 26_000_000));
    }
    for (name, model, floor) in models {
        assert_proven(name, model, floor);
    }
    println!("sessions, what happened:{happened}");
    assert_eq!(happened.never(), [""; 0]);
}

#[test]
fn a_session_presumed_dead_is_found() {
    let rule = sessions::Rule::PresumeDead;
    let model = Sessions { rule, locks: 1, ..Sessions::new() };
    assert_found("a session presumed dead", &explore(model));
}

#[test]
fn a_take_over_because_the_lock_is_unchanged_is_found() {
    let rule = sessions::Rule::LockUnchanged;
    let model = Sessions { rule, locks: 1, ..Sessions::new() };
    assert_found("a take-over because the lock is unchanged", &explore(model));
}

#[test]
fn a_queue_of_readers_writers_and_permits_is_kept() {
    let (writer, reader, upgrader) = (Role::writer(), Role::reader(), Role::upgrader());
    let pair = Queue::new(vec![writer.clone(), writer.clone()]);
    let happened = Arc::clone(&pair.happened);
    let of = |late, roles: Vec<Role>| Queue {
        roles,
        late,
        happened: Arc::clone(&happened),
        ..pair.clone()
    };
    let first = Role { priority: 1, ..writer.clone() };
    let shortener = Role { shortens: true, ..writer.clone() };
    let trier = Role { queue: false, ..writer.clone() };
    let one = Role { modes: &queue::TAKE_ONE, ..Role::permits() };
    let both = Role { modes: &queue::TAKE_ALL, ..Role::permits() };
    let pair = Queue { operator: true, sessions: true, ..pair.clone() };
    let mut models = vec![
        ("queue, two writers, an operator, late requests", pair, 100_000),
        (
            "queue, renewals that overtake each other",
            of(1, vec![shortener.clone(), shortener]),
            100_000,
        ),
        ("queue, three writers", of(0, vec![first, writer.clone(), writer.clone()]), 100_000),
        (
            "queue, two readers and a writer",
            of(0, vec![reader.clone(), reader.clone(), writer]),
            100_000,
        ),
        ("queue, a reader and an upgrader", of(1, vec![reader.clone(), upgrader.clone()]), 100_000),
        ("queue, permits", of(0, vec![one.clone(), one, both]), 100_000),
        ("queue, one who only tries", of(1, vec![trier, upgrader.clone()]), 100_000),
    ];
    if large() {
        let three = of(0, vec![reader.clone(), reader.clone(), upgrader.clone()]);
        models.push(("queue, two readers and an upgrader", three, 1_000_000));
        let broken = Queue { operator: true, ..of(1, vec![reader, upgrader]) };
        models.push(("queue, a broken upgrader", broken, 1_000_000));
    }
    for (name, model, floor) in models {
        assert_proven(name, model, floor);
    }
    println!("queue, what happened:{happened}");
    assert_eq!(happened.never(), [""; 0]);
}

fn reader_and_upgrader() -> Queue {
    Queue::new(vec![Role::reader(), Role::upgrader()])
}

#[test]
fn a_validity_counted_from_a_repeated_request_is_found() {
    let rule = queue::Rule::GrantCountsFromRepeat;
    assert_found("validity from the repeat", &explore(Queue { rule, ..reader_and_upgrader() }));
}

#[test]
fn a_downgrade_believed_only_when_answered_is_found() {
    let rule = queue::Rule::DowngradeAfterReply;
    assert_found("downgrade after the reply", &explore(Queue { rule, ..reader_and_upgrader() }));
}

/// The machine cannot tell an old conversion from a new one: a store must not do a request after
/// a following one for the same lease. Nothing but conversions needs that promise.
#[test]
fn a_conversion_that_comes_late_is_found() {
    let model = Queue { in_order: false, ..reader_and_upgrader() };
    assert_found("a conversion that comes late", &explore(model));
    let model = Queue { in_order: false, ..Queue::new(vec![Role::writer(), Role::writer()]) };
    assert!(explore(model).failure.is_none(), "only conversions need the order");
}

#[test]
fn a_majority_of_nodes_grants_to_one_holder_with_a_growing_fence() {
    let all = Redlock::new();
    let happened = Arc::clone(&all.happened);
    let small = Redlock { late: 0, fresh: 0, attempts: 1, extends: false, ..all.clone() };
    let mut models = vec![
        (
            "redlock, extensions and a fresh node",
            Redlock { extends: true, fresh: 1, ..small.clone() },
            400_000,
        ),
        ("redlock, late requests", Redlock { late: 1, ..small.clone() }, 500_000),
        ("redlock, those who try again", Redlock { attempts: 2, ttl: 1, ..small.clone() }, 10_000),
    ];
    if large() {
        models.push(("redlock, and again", Redlock { attempts: 2, ..small }, 700_000));
        models.push(("redlock, everything", all, 10_000_000));
    }
    for (name, model, floor) in models {
        assert_proven(name, model, floor);
    }
    println!("redlock, what happened:{happened}");
    assert_eq!(happened.never(), [""; 0]);
}

#[test]
fn each_rule_of_redlock_is_needed() {
    use redlock::Rule;
    let small = Redlock { late: 0, fresh: 0, attempts: 1, extends: false, ..Redlock::new() };
    let fresh = Redlock { fresh: 1, ..small.clone() };
    let late = Redlock { late: 1, attempts: 2, ttl: 1, ..small.clone() };
    for (rule, world) in [
        (Rule::NoWriteBack, &small),
        (Rule::WriteBackToOne, &small),
        (Rule::WriteBackAnywhere, &small),
        (Rule::DeadlineFromReply, &small),
        (Rule::FreshNodeVotes, &fresh),
        (Rule::SilenceIsProof, &fresh),
        (Rule::FreshFences, &fresh),
        (Rule::FreesLaterAttempts, &late),
    ] {
        let model = Redlock { rule, ..world.clone() };
        assert_found(&format!("redlock, {rule:?}"), &explore(model));
    }
}

#[test]
fn a_lock_whose_holders_give_signs_of_life_has_one_holder() {
    let model = Ledger::new();
    let happened = Arc::clone(&model.happened);
    let mut models = vec![
        ("ledger, late swaps", Ledger { queue: false, ..model.clone() }, 100_000),
        ("ledger, a queue", Ledger { late: 0, ..model.clone() }, 100_000),
    ];
    if large() {
        models.push(("ledger, a queue and late swaps", model, 9_000_000));
    }
    for (name, model, floor) in models {
        assert_proven(name, model, floor);
    }
    println!("ledger, what happened:{happened}");
    assert_eq!(happened.never(), [""; 0]);
}

#[test]
fn wrong_rules_of_takeovers_are_found() {
    for rule in [
        ledger::Rule::SilentTakeover,
        ledger::Rule::SilenceFromSend,
        ledger::Rule::DeadlineFromReply,
        ledger::Rule::SignWithoutLook,
        ledger::Rule::EntersSilently,
    ] {
        let model = Ledger { rule, late: 0, ..Ledger::new() };
        assert_found(&format!("{rule:?}"), &explore(model));
    }
}

#[test]
fn a_lock_that_is_passed_on_before_it_is_written_has_one_holder() {
    let model = Baton::new();
    let happened = Arc::clone(&model.happened);
    let again = Baton { asks: [2, 2], ..model.clone() };
    let mut models = vec![
        ("baton, a pair", Baton { mighty: false, ..again.clone() }, 11_000),
        ("baton, three clients, two accidents", model.clone(), 300_000),
        ("baton within a process", Baton { keyed: true, accidents: 1, ..model }, 50_000),
    ];
    if large() {
        let keyed = Baton { keyed: true, ..Baton::new() };
        models.push(("baton within a process, two accidents", keyed, 300_000));
        let calm = Baton { accidents: 0, ..again.clone() };
        models.push(("baton, three who ask again", calm, 150_000));
        let unlucky = Baton { accidents: 1, ..again };
        models.push(("baton, three who ask again, an accident", unlucky, 1_000_000));
    }
    for (name, model, floor) in models {
        assert_proven(name, model, floor);
    }
    println!("baton, what happened:{happened}");
    assert_eq!(happened.never(), [""; 0]);
}

#[test]
fn each_rule_of_passing_on_is_needed() {
    use baton::Rule;
    for rule in [
        Rule::NoPromise,
        Rule::MarkNotAsked,
        Rule::MarkRaisedEarly,
        Rule::ForceSparesHeir,
        Rule::HeirExpires,
    ] {
        let model = Baton { rule, ..Baton::new() };
        assert_found(&format!("baton, {rule:?}"), &explore(model));
    }
    for rule in [
        Rule::NoPromise,
        Rule::ForceSparesHeir,
        Rule::HeirExpires,
        Rule::KeyEndsWithHolder,
        Rule::QuestionNotCounted,
    ] {
        let model = Baton { rule, keyed: true, ..Baton::new() };
        assert_found(&format!("baton within a process, {rule:?}"), &explore(model));
    }
}
