//! Leases that leave their process.

use std::time::Duration;

use sprag_core::Loss;

use super::Scene;
use crate::process::{Answer, Ask, Command, TroubleKind};
use crate::support::{LONG, name, now, until_unused, until_waiters};

/// A ticket moves a held lock to another process: the same lease, the same fence, and nobody
/// gets in between, even if the first process is killed. From then on the lock lives and dies
/// with the second process.
pub async fn a_ticket_moves_a_lock_to_another_process(scene: &Scene) {
    let lock = name("report");
    let (mut from, mut to) = (scene.taker("from").await, scene.taker("to").await);
    let mut waiter = scene.taker("waiter").await;
    // Long enough for the way between two processes on a loaded machine.
    let ttl = scene.mortal_ttl().max(Duration::from_secs(10));
    let held = from.acquire(Ask::new(lock.clone(), ttl)).await;
    let waiting = waiter.start(Command::Acquire(Ask::new(lock.clone(), LONG)));
    until_waiters(&scene.store, "report", 1).await;
    let answer = from.ask(Command::Detach(lock.clone())).await;
    if !scene.store.capability().detached {
        assert!(matches!(answer, Answer::Failed(_)), "{answer:?} is no refusal");
        waiter.granted(waiting).await;
        return;
    }
    let Answer::Ticket(ticket) = answer else { panic!("{answer:?} is no ticket") };
    from.kill().await;
    let adopted = to.ask(Command::Adopt(ticket.clone())).await;
    let Answer::Granted(adopted) = adopted else { panic!("not adopted: {adopted:?}") };
    assert_eq!((adopted.lease, adopted.fence), (held.lease, held.fence));
    assert!(!waiter.has_answered(&waiting), "somebody got in between");
    // It is good for one, also if it was copied.
    let mut late = scene.taker("late").await;
    let answer = late.start(Command::Adopt(ticket.clone()));
    let trouble = late.failed(answer).await;
    assert!(matches!(trouble.kind, TroubleKind::Lost(Loss::Adopted)), "{trouble:?}");

    let died = now();
    to.kill().await;
    let next = waiter.granted(waiting).await;
    let took = now().since(died);
    // Where a death is not seen, it is noticed when the lease ends.
    let slack = if scene.harness.sees_death() { Duration::ZERO } else { ttl };
    assert!(took < ttl + slack, "the death was seen after {took:?}");
    assert!(next.fence > held.fence, "{next:?} after {held:?}");
    // A ticket is good for as long as its lease.
    let answer = late.start(Command::Adopt(ticket));
    let trouble = late.failed(answer).await;
    assert!(matches!(trouble.kind, TroubleKind::Lost(_)), "{trouble:?}");
    assert_eq!(waiter.release(&lock).await, None);
    until_unused(&scene.store, "report").await;
}

/// A detached lease outlives its process, to the end of its TTL and not longer.
pub async fn a_detached_lease_outlives_its_process_until_its_end(scene: &Scene) {
    let lock = name("report");
    let ttl = Duration::from_secs(1).max(scene.harness.ttl());
    let (mut holder, mut other) = (scene.taker("holder").await, scene.taker("other").await);
    let ask = Ask::new(lock.clone(), ttl).detached();
    let answer = holder.ask(Command::Acquire(ask)).await;
    if !scene.store.capability().detached {
        assert!(matches!(answer, Answer::Failed(_)), "{answer:?} is no refusal");
        return;
    }
    let Answer::Granted(held) = answer else { panic!("not granted: {answer:?}") };
    holder.kill().await;
    let next = other.acquire(Ask::new(lock.clone(), LONG)).await;
    assert!(next.t_recv_ns >= held.valid_until_ns, "it ended with its process");
    let waited = Duration::from_nanos(next.t_recv_ns - held.t_send_ns);
    // It may have been renewed once before the process was killed.
    assert!(waited < ttl * 2 + scene.death_is_seen_within(), "free after {waited:?}");
    assert!(next.fence > held.fence, "{next:?} after {held:?}");
}
