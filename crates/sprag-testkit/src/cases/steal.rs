//! Taking a lock from its holder, and breaking it.
#![expect(clippy::unwrap_used, reason = "a case fails by panicking")]

use sprag_core::record::Expiry;
use sprag_core::store::{Attempt, Bind, Renewal, Renewed, Request, Takeover};
use sprag_core::{Client, Fence, Holder, LockRequest, LockState, Loss, Released, Strategy};

use crate::fault::{Fault, FaultStore, Op};
use crate::harness::Harness;
use crate::support::{
    LONG, able, let_time_pass, look, new_lease, now, request, spawn_acquire, until_waiters, within,
};

async fn thief(harness: &dyn Harness, name: &str) -> Client {
    let builder = Client::builder(harness.store().await).allow_force(true);
    builder.holder(Holder::new(name, "here")).build().unwrap()
}

fn force(client: &Client) -> LockRequest {
    client.lock("report").strategy(Strategy::ForceAcquire).ttl(LONG)
}

/// F60: a holder that gave no sign of life for so long is robbed by who asks for that, although
/// its lease is good; it is told at its next renewal who did it, and frees nothing afterwards.
pub async fn a_silent_holder_is_robbed_and_told(harness: &dyn Harness) {
    let faults = FaultStore::new(harness.store().await);
    let (silent, thief) = (faults.client(), thief(harness, "thief").await);
    let ttl = harness.ttl() * 8;
    let steal = |client: &Client| {
        client.lock("report").strategy(Strategy::StealStale { after: ttl / 2 }).ttl(LONG)
    };
    if !able(&thief, |able| able.steal, steal).await {
        return;
    }
    let mut old = silent.lock("report").ttl(ttl).acquire().await.unwrap();
    faults.always(Op::Renew, Fault::LoseRequest);
    // Nobody is overdue before two of its renewals, one every third of its TTL, are missing.
    let early = steal(&thief).no_wait().acquire().await;
    assert!(early.unwrap_err().is_held());
    let_time_pass(ttl / 3 * 2).await;
    let new = within("stolen", steal(&thief).acquire()).await.unwrap();
    match thief.capability().expiry {
        Expiry::Clock => {
            assert!(now() < old.valid_until(), "the machine is too slow for this case");
        }
        // Where only signs of life are seen, nobody is robbed before its lease has ended.
        Expiry::Observed => {
            assert!(now() > old.valid_until(), "robbed while it was good");
            assert!(new.fence() > old.fence());
            assert!(old.extend(LONG).await.unwrap_err().is_lost());
            assert_eq!(look(thief.store(), "report").await.holders[0].lease, new.lease());
            return;
        }
    }
    assert!(new.fence() > old.fence() && new.took_over() && !old.took_over());
    faults.heal();
    let error = old.extend(LONG).await.unwrap_err();
    let stolen = Loss::Stolen { by: "thief".into(), forced: false };
    assert_eq!(error.loss(), Some(&stolen), "{error:?}");
    assert_eq!(within("the loss is told", old.lost()).await, stolen);
    assert_eq!(old.release().await.unwrap(), Released::AlreadyLost(stolen));
    assert!(new.is_valid());
    assert_eq!(look(thief.store(), "report").await.holders[0].lease, new.lease());
}

/// A holder that nobody renews cannot miss a renewal: silent or not, it is not robbed before its
/// lease ends, and then nobody is pushed aside.
pub async fn a_fixed_lease_is_not_robbed_before_its_end(harness: &dyn Harness) {
    let (fixed, thief) = (harness.client().await, thief(harness, "thief").await);
    let ttl = harness.ttl() * 4;
    let strategy = Strategy::StealStale { after: harness.ttl() };
    let steal = |client: &Client| client.lock("report").strategy(strategy).ttl(LONG);
    if !able(&thief, |able| able.steal, steal).await {
        return;
    }
    let old = fixed.lock("report").ttl(ttl).no_renewal().acquire().await.unwrap();
    let new = within("the lease is over", steal(&thief).acquire()).await.unwrap();
    assert!(!old.is_valid(), "robbed while it was good");
    assert!(!new.took_over());
}

/// A holder that gives signs of life is not robbed: the thief waits like anybody else.
pub async fn a_living_holder_is_not_robbed(harness: &dyn Harness) {
    let (living, thief) = (harness.client().await, thief(harness, "thief").await);
    let after = LONG / 2;
    let steal = |client: &Client| {
        client.lock("report").strategy(Strategy::StealStale { after }).ttl(LONG)
    };
    if !able(&thief, |able| able.steal, steal).await {
        return;
    }
    let guard = living.lock("report").ttl(LONG).acquire().await.unwrap();
    let error = steal(&thief).wait(harness.ttl()).acquire().await.unwrap_err();
    assert!(error.is_timeout(), "{error:?}");
    assert_eq!(guard.state(), LockState::Held);
    guard.release().await.unwrap();
}

/// A sign of life between two tries counts: who was silent for long and renews is not robbed.
pub async fn a_renewal_saves_from_being_robbed(harness: &dyn Harness) {
    let (client, store) = (harness.client().await, harness.store().await);
    let steal = |client: &Client| client.lock("report").strategy(Strategy::steal_stale());
    if !able(&client, |able| able.steal, steal).await {
        return;
    }
    let (after, ttl) = (harness.ttl() * 2, harness.ttl() * 3);
    let mut thief = request("report");
    thief.takeover = Takeover::Overdue(after);
    // Once, if the machine is not so busy that the thief comes too late after the renewal.
    for _ in 0..5 {
        let silent = Request { ttl, ..request("report") };
        assert!(matches!(store.try_acquire(&silent).await.unwrap(), Attempt::Granted(_)));
        let_time_pass(after).await;
        let (name, lease, bind) = (silent.name.clone(), silent.lease, Bind::Keep);
        let renewed = now();
        let answers = store.renew(&[Renewal { name, lease, ttl, bind }]).await.unwrap();
        let answer = store.try_acquire(&thief).await.unwrap();
        if matches!(answers[0], Renewed::Held(_)) && now().since(renewed) < after {
            assert!(matches!(answer, Attempt::Held(_)), "robbed after a renewal: {answer:?}");
            return;
        }
        for lease in [silent.lease, thief.lease] {
            store.release(&thief.name, lease).await.unwrap();
        }
        thief.lease = new_lease();
    }
    panic!("the machine is too slow for this case");
}

/// Force is refused unless the client allows it, and then nothing is asked of the store.
pub async fn force_is_refused_unless_allowed(harness: &dyn Harness) {
    let faults = FaultStore::new(harness.store().await);
    let client = faults.client();
    if !able(&client, |able| able.steal, force).await {
        return;
    }
    let guard = client.lock("report").ttl(LONG).acquire().await.unwrap();
    let error = force(&client).acquire().await.unwrap_err();
    assert!(error.is_refused(), "{error:?}");
    assert_eq!(faults.count(Op::TryAcquire), 1);
    assert!(guard.is_valid());
}

/// Force takes the lock from a living holder and past the queue; the old holder is told.
pub async fn force_takes_it_and_the_holder_is_told(harness: &dyn Harness) {
    let (holder, thief) = (harness.client().await, thief(harness, "operator").await);
    if !able(&thief, |able| able.steal, force).await {
        return;
    }
    let ttl = harness.ttl() * 3;
    let old = holder.lock("report").ttl(ttl).acquire().await.unwrap();
    let waiting = spawn_acquire(holder.lock("report").ttl(LONG));
    until_waiters(thief.store(), "report", 1).await;
    let new = force(&thief).acquire().await.unwrap();
    assert!(new.fence() > old.fence());
    let loss = within("the loss is told", old.lost()).await;
    let forced = Loss::Stolen { by: "operator".into(), forced: true };
    // A machine so busy that no renewal got through in time learns by its deadline.
    assert!(loss == forced || loss == Loss::Expired || loss == Loss::Unreachable, "{loss:?}");
    assert!(!waiting.is_finished() && new.is_valid());
    new.release().await.unwrap();
    drop(within("the waiter is next", waiting).await.unwrap().unwrap());
}

/// Breaking compares the fence: the holder that the operator saw, or nobody. The broken holder is
/// told who did it and why, and the next waiter is let in.
pub async fn breaking_names_what_it_breaks(harness: &dyn Harness) {
    let (holder, operator) = (harness.client().await, thief(harness, "operator").await);
    let waiter = harness.client().await;
    let ttl = harness.ttl() * 3;
    let guard = holder.lock("report").ttl(ttl).acquire().await.unwrap();
    let waiting = spawn_acquire(waiter.lock("report").ttl(LONG));
    until_waiters(operator.store(), "report", 1).await;
    let wrong = Fence::new(guard.fence().get() + 1).unwrap();
    let error = operator.evict("report", wrong, "a slip").await.unwrap_err();
    assert!(error.is_not_owner(), "{error:?}");
    assert!(guard.is_valid());

    let fence = guard.fence();
    let broken = operator.evict("report", fence, "it hangs").await.unwrap();
    assert_eq!(broken.len(), 1);
    let next = within("the waiter is let in", waiting).await.unwrap().unwrap();
    assert!(next.fence() > fence);
    let loss = within("the loss is told", guard.lost()).await;
    let told = Loss::Broken { by: "operator".into(), reason: "it hangs".into(), fence };
    assert!(loss == told || loss == Loss::Expired || loss == Loss::Unreachable, "{loss:?}");
    assert!(operator.evict("report", fence, "again").await.unwrap_err().is_not_owner());
    assert!(matches!(guard.release().await.unwrap(), Released::AlreadyLost(_)));
    assert!(next.is_valid());
}

/// FAULTS 4: a lost reply to a break may be answered by breaking again: nobody else is hit.
pub async fn a_repeated_break_hits_nobody_else(harness: &dyn Harness) {
    let faults = FaultStore::new(harness.store().await);
    let (operator, holder) = (faults.client(), harness.client().await);
    let old = holder.lock("report").ttl(LONG).no_renewal().acquire().await.unwrap();
    faults.once(Op::Evict, Fault::LoseReply);
    let error = operator.evict("report", old.fence(), "it hangs").await.unwrap_err();
    assert!(error.is_unavailable(), "{error:?}");
    let new = holder.lock("report").ttl(LONG).acquire().await.unwrap();
    assert!(operator.evict("report", old.fence(), "it hangs").await.unwrap_err().is_not_owner());
    assert_eq!(look(operator.store(), "report").await.holders[0].lease, new.lease());
}

/// A holder from which the lock is taken, by a break or by force, is told at once, and not when it
/// renews its lease next. A store that cannot tell says so, and tells at the renewal.
pub async fn an_evicted_holder_is_told_at_once(harness: &dyn Harness) {
    let (holder, thief) = (harness.client().await, thief(harness, "thief").await);
    let able = thief.capability().clone();
    // Renewed after three minutes, or soon where that is what tells.
    let ttl = if able.eviction_hints { LONG * 9 } else { harness.ttl() * 3 };
    let broken = holder.lock("broken").ttl(ttl).acquire().await.unwrap();
    thief.evict("broken", broken.fence(), "it hangs").await.unwrap();
    let loss = within("the break is told", broken.lost()).await;
    let (by, reason) = ("thief".into(), "it hangs".into());
    let told = Loss::Broken { by, reason, fence: broken.fence() };
    if !able.eviction_hints {
        assert!(loss == told || loss == Loss::Expired || loss == Loss::Unreachable, "{loss:?}");
        return;
    }
    assert!(loss == told || loss == Loss::SessionDied, "{loss:?}");
    // By now it listens.
    let again = holder.lock("broken").ttl(ttl).acquire().await.unwrap();
    thief.evict("broken", again.fence(), "it hangs").await.unwrap();
    within("the second break is told", again.lost()).await;
    if able.steal {
        let old = holder.lock("report").ttl(ttl).acquire().await.unwrap();
        let new = force(&thief).acquire().await.unwrap();
        let stolen = Loss::Stolen { by: "thief".into(), forced: true };
        assert_eq!(within("the force is told", old.lost()).await, stolen);
        assert!(new.is_valid());
    }
}
