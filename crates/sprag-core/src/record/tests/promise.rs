//! The lock that is promised to the one who comes next.

use super::*;

/// 1 holds, the lock is promised to 2, and 3 waits behind it.
fn promised() -> Record {
    let record = acquire(Record::default(), 1, 0).record;
    let record = acquire(record, 2, 1).record;
    let mut record = acquire(record, 3, 2).record;
    assert!(record.promise(0, 0));
    assert_eq!(record.heir, Some(Heir { lease: lease(2), fence: record.fence }));
    record.check().unwrap();
    record
}

fn with_priority(number: u128) -> Acquire {
    Acquire { priority: 8, ..request(number, Mode::Exclusive) }
}

fn by_force(number: u128) -> Acquire {
    Acquire { steal: Steal::Force, ..request(number, Mode::Exclusive) }
}

fn reap(record: Record, now_ms: u64, dead: &[u128]) -> Record {
    run_dead(record, Command::Reap, now_ms, dead).record
}

#[test]
fn a_promise_is_kept_whatever_becomes_of_the_holder() {
    let fence = promised().fence;
    let waiting = take(promised(), with_priority(4), 3);
    assert_eq!(waiting.outcome, Outcome::Queued { ahead: 0 }, "it is first, but for the promise");
    let record = waiting.record;
    let evict =
        Command::Evict { fence: record.holders[0].fence, by: "op".into(), reason: "x".into() };
    let renewed = renew(renew(renew(record.clone(), 2, 900).record, 3, 900).record, 4, 900).record;
    for (how, after) in [
        ("released", release(record.clone(), 1, 5).record),
        ("died", reap(record.clone(), 5, &[1])),
        ("expired", reap(renewed, TTL, &[])),
        ("evicted", run(record.clone(), evict, 5).record),
    ] {
        assert_eq!((holders(&after), after.holders[0].fence), (vec![2], fence), "{how}");
        assert_eq!(after.heir, None, "{how}");
        // What was promised is kept; now the order of the queue counts again.
        assert_eq!(holders(&release(after, 2, 950).record), [4], "{how}");
    }
}

#[test]
fn an_heir_that_is_gone_inherits_nothing() {
    let record = run(promised(), Command::Withdraw { lease: lease(2) }, 3).record;
    assert_eq!(record.heir, None);
    assert_eq!(holders(&release(record, 1, 5).record), [3]);
    // That a waiter is dead is seen when it is its turn.
    let record = run_dead(promised(), Command::Release { lease: lease(1) }, 3, &[2]).record;
    assert_eq!((holders(&record), record.heir), (vec![3], None));
}

#[test]
fn an_heir_does_not_end_with_its_time_because_it_may_be_inside() {
    // It counts its time from its last question, which is no sign of life here.
    let asked = acquire(promised(), 2, 900).record;
    let record = renew(asked, 1, 900).record;
    let record = reap(record, 2 + TTL, &[]);
    assert_eq!(waiters(&record), [2], "who was promised nothing is dropped");
    let record = acquire(record, 4, 2 + TTL).record;
    assert_eq!(holders(&release(record, 1, 3 + TTL).record), [2]);
}

#[test]
fn force_robs_the_heir_too_because_it_may_be_inside() {
    for dead in [&[][..], &[1]] {
        let promised = promised();
        let fence = promised.fence;
        let command = Command::Acquire(Box::new(by_force(9)));
        let forced = run_dead(promised, command, 5, dead);
        assert!(is_granted(&forced), "{dead:?}");
        assert!(forced.record.holders[0].fence > fence);
        assert_eq!((waiters(&forced.record), forced.record.heir), (vec![3], None));
        let stolen = Loss::Stolen { by: "w9".into(), forced: true };
        let told = forced
            .events
            .iter()
            .any(|event| event.lease == lease(2) && event.kind == EventKind::Gone(stolen.clone()));
        assert!(told, "the heir must hear of it: {:?}", forced.events);
        assert_eq!(renew(forced.record, 2, 6).outcome, Outcome::Gone(stolen));
    }
}

#[test]
fn a_promised_fence_is_not_used_after_a_larger_one() {
    let fence = promised().fence;
    let record = convert(promised(), 1, Mode::Shared, false).record;
    assert_eq!(holders(&record), [1], "nobody goes past the promise");
    let upgraded = convert(record, 1, Mode::Exclusive, false).record;
    assert!(upgraded.fence > fence);
    let record = release(upgraded.clone(), 1, 5).record;
    assert_eq!(holders(&record), [2]);
    assert!(record.holders[0].fence > upgraded.fence);
}

#[test]
fn only_an_exclusive_holder_promises_and_only_to_a_waiter_like_it() {
    assert!(!Record::default().promise(0, 0));
    assert!(!acquire(Record::default(), 1, 0).record.promise(0, 0), "nobody waits");
    let reader = shared(Record::default(), 1, 0).record;
    assert!(!acquire(reader, 2, 1).record.promise(0, 0), "a reader may not be the last one");
    let writer = acquire(Record::default(), 1, 0).record;
    assert!(!shared(writer.clone(), 2, 1).record.promise(0, 0), "a reader comes with others");
    let detached = Acquire { session: None, ..request(2, Mode::Exclusive) };
    assert!(!take(writer, detached, 1).record.promise(0, 0), "nobody knows where it is");
    let waiting = acquire(acquire(Record::default(), 1, 0).record, 2, 1).record;
    assert!(!waiting.clone().promise(0, 1), "the next important one may be on its way");
    assert!(waiting.clone().promise(0, -1));
    let mut record = promised();
    let before = record.clone();
    assert!(!record.promise(0, 0), "there is one already");
    assert_eq!(record, before);
    let mut record = acquire(acquire(Record::default(), 1, 0).record, 2, 1).record;
    record.fence = Fence::MAX;
    assert!(!record.promise(0, 0), "no fence is left");
}

#[test]
fn a_promise_has_a_format_of_its_own() {
    let text = promised().to_json();
    assert!(text.starts_with(r#"{"format":2,"#), "{text}");
    assert_eq!(Record::from_json(&text).unwrap(), promised());
    let older = text.replacen("\"format\":2", "\"format\":1", 1);
    assert!(Record::from_json(&older).is_err(), "who writes 1 knows no promises");
    let fence = format!("\"fence\":{}}}}}", promised().fence);
    let above = text.replace(&fence, "\"fence\":99}}");
    assert_ne!(above, text);
    assert!(Record::from_json(&above).is_err(), "no fence is promised that was not given out");
}
