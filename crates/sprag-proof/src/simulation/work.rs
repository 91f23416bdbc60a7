//! What a worker does with locks.

use std::sync::Arc;
use std::time::Duration;

use sprag_core::{Holder, LockRequest, Mode};
use tokio::time::sleep;

use super::oracle::Held;
use super::sim::Kind;
use super::worker::{Wish, Worker};

/// As good as for ever: longer than any lock is held.
const LONG: Duration = Duration::from_secs(3600);

impl Worker {
    /// Takes a lock, works under it, gives it back.
    pub(super) async fn one_lock(&mut self) {
        let lock = self.dice.index(self.sim.setting.locks.len());
        let wish = self.wish(lock);
        let request = self.request(wish);
        let Some(held) = self.acquire(wish, request, false).await else { return };
        self.work(&held, wish).await;
        self.give_back(&held, wish).await;
    }

    async fn work(&mut self, held: &Arc<Held>, wish: Wish) {
        let steps = self.dice.number(1, 4);
        for _ in 0..steps {
            let length = self.dice.time(1, 8_000);
            if !self.hold(held, wish, length).await {
                // What is done after a loss must not harm: the fence sees to it.
                self.increment(held).await;
                return;
            }
            let kind = self.sim.setting.locks[held.lock].kind;
            match self.dice.number(0, 9) {
                0 => self.extend(held).await,
                1..=4 if kind == Kind::ReadWrite => self.upgrade(held, wish).await,
                5 if kind == Kind::ReadWrite => self.downgrade(held).await,
                6 => self.ask_again(held).await,
                _ => self.increment(held).await,
            }
        }
    }

    /// Reads the protected counter, thinks, and writes it back plus one.
    async fn increment(&mut self, held: &Held) {
        let answer = held.ask(|guard| (guard.fence(), guard.mode()));
        let Some((fence, Mode::Exclusive)) = answer else { return };
        let read = self.sim.oracle().read(held.lock, fence);
        let Some(value) = read else {
            return self.note("write refused", held.lock, fence.get());
        };
        sleep(self.dice.time(1, 200)).await;
        let written = self.sim.oracle().write(held.lock, fence, value + 1);
        match written {
            Ok(true) => self.note("written", held.lock, fence.get()),
            Ok(false) => self.note("write refused", held.lock, fence.get()),
            Err(broken) => self.fail(held.lock, &broken),
        }
    }

    async fn extend(&mut self, held: &Held) {
        let ttl = self.dice.time(500, 30_000);
        let Some(mut guard) = held.take(None) else { return };
        let extended = guard.extend(ttl).await;
        self.note(if extended.is_ok() { "extended" } else { "not extended" }, held.lock, 0);
        held.put(guard);
    }

    async fn upgrade(&mut self, held: &Held, wish: Wish) {
        let Some(mut guard) = held.take(None) else { return };
        let (before, mode) = (guard.fence(), guard.mode());
        held.upgrades(false);
        let patience = if self.dice.chance(300) { self.dice.time(1, 3_000) } else { LONG };
        let upgraded = if mode == Mode::Upgradable {
            tokio::select! {
                biased;
                upgraded = guard.upgrade() => upgraded.is_ok(),
                () = sleep(patience) => false,
            }
        } else {
            guard.try_upgrade().await.unwrap_or(false)
        };
        let after = guard.fence();
        held.put(guard);
        held.upgrades(!upgraded);
        if !upgraded {
            return self.note("not upgraded", held.lock, 0);
        }
        self.note("upgraded", held.lock, after.get());
        if mode != Mode::Exclusive && after <= before {
            self.fail(held.lock, &format!("upgraded from fence {before} to {after}"));
        }
        if let Err(broken) = self.sim.oracle().fence_is_new(held, self.sim.setting.rough) {
            self.fail(held.lock, &broken);
        }
        self.check_exclusion(held.lock);
        // From now on it is exclusive, until it is turned into something else.
        for _ in 0..3 {
            sleep(self.dice.time(1, 300)).await;
            let now = held.ask(|guard| (guard.is_valid(), guard.fence(), guard.mode()));
            if let Some((true, fence, mode)) = now
                && (fence, mode) != (after, Mode::Exclusive)
            {
                self.fail(held.lock, &format!("upgraded to {after}, now {mode} with {fence}"));
            }
            if !self.still_valid(held, wish) {
                return;
            }
        }
    }

    async fn downgrade(&mut self, held: &Held) {
        let Some(mut guard) = held.take(Some(Mode::Shared)) else { return };
        if guard.mode() == Mode::Shared {
            return held.put(guard);
        }
        // Unanswered, it counts as done: the oracle looks at what the guard shows then.
        let downgraded = guard.downgrade(Mode::Shared).await;
        self.note(if downgraded.is_ok() { "downgraded" } else { "not downgraded" }, held.lock, 0);
        held.put(guard);
    }

    /// Asks for a lock that this very worker holds.
    async fn ask_again(&mut self, held: &Held) {
        let wish = self.wish(held.lock);
        if wish.mode != Mode::Exclusive {
            return;
        }
        let request = self.request(wish).wait(Duration::from_secs(3));
        let again = request.acquire().await;
        self.note("asked again", held.lock, 0);
        match again {
            // Only if the first was lost meanwhile; the oracle knows.
            Ok(guard) => drop(self.entered(held.lock, guard)),
            Err(error) if error.is_already_held_here() => {}
            Err(error) => self.refused(held.lock, &error, true),
        }
    }

    /// Takes two locks, in order; in some runs also out of order.
    pub(super) async fn several_locks(&mut self) {
        let (first, second) = if self.dice.chance(500) { (0, 1) } else { (1, 0) };
        if self.sim.setting.disorder {
            return self.out_of_order(first, second).await;
        }
        let names = [first, second].map(|lock| self.sim.setting.locks[lock].name.clone());
        let last = names.iter().max().cloned().expect("two names");
        let (ttl, limit) = (self.dice.time(500, 30_000), self.dice.time(50, 30_000));
        let (holder, party) = (self.holder(), self.party);
        self.note("asks for both", first, 0);
        let options =
            |request: LockRequest| request.ttl(ttl).wait(limit).holder(holder.clone()).party(party);
        match self.client.acquire_many(names, options).await {
            Ok(guards) => {
                self.note("holds both", first, 0);
                // They are good until then at least, and so nobody else may hold them.
                let shadows = guards.guards().iter().zip([0, 1]);
                let shadows: Vec<_> =
                    shadows.map(|(guard, lock)| self.entered_as(lock, guard)).collect();
                sleep(self.dice.time(1, 5_000)).await;
                drop(shadows);
                let released = guards.release().await;
                self.note(
                    if released.is_ok() { "released both" } else { "not released" },
                    first,
                    0,
                );
            }
            Err(error) => {
                self.refused(first, &error, error.lock().is_some_and(|lock| *lock == last));
            }
        }
    }

    /// Takes a second lock while the first is held, in any order: this may end in a deadlock.
    async fn out_of_order(&mut self, first: usize, second: usize) {
        let outer = self.wish(first);
        let request = self.request(outer);
        let Some(held) = self.acquire(outer, request, false).await else { return };
        let inner = self.wish(second);
        let request = self.request(inner);
        if let Some(both) = self.acquire(inner, request, true).await {
            self.work(&both, inner).await;
            self.give_back(&both, inner).await;
        }
        self.still_valid(&held, outer);
        self.give_back(&held, outer).await;
    }

    /// Takes a lock and sends it to whoever finds it.
    pub(super) async fn send_ticket(&mut self) {
        let lock = self.dice.index(self.sim.setting.locks.len());
        let wish = Wish { renewed: true, max_hold: None, ..self.wish(lock) };
        // The holder's name stays on it when it is somebody else's; so it is nobody's.
        let request = self.request(wish).holder(Holder::new("ticket", "simulation"));
        let Some(held) = self.acquire(wish, request, false).await else { return };
        if !self.hold(&held, wish, Duration::from_millis(50)).await {
            return;
        }
        let Some(guard) = held.give_back() else { return };
        match guard.into_ticket().await {
            Ok(ticket) => {
                self.note("sent ticket", lock, ticket.fence().get());
                self.sim.post().push(ticket);
            }
            Err(_) => self.note("no ticket", lock, 0),
        }
    }

    /// Goes on with a lock that another process took.
    pub(super) async fn receive_ticket(&mut self) {
        let Some(ticket) = self.sim.post().pop() else { return };
        let lock = self.sim.setting.locks.iter().position(|lock| lock.name == *ticket.name());
        let Some(lock) = lock else { return };
        match self.client.adopt(ticket).await {
            Ok(guard) => {
                let (mode, ttl) = (guard.mode(), guard.ttl());
                let wish = Wish { lock, mode, ttl, renewed: true, max_hold: None };
                self.note("adopted", lock, guard.fence().get());
                let held = self.entered(lock, guard);
                self.work(&held, wish).await;
                self.give_back(&held, wish).await;
            }
            Err(_) => self.note("not adopted", lock, 0),
        }
    }

    /// Looks at the locks as an operator does, and breaks one where that is part of the game.
    pub(super) async fn look_around(&mut self) {
        let lock = self.dice.index(self.sim.setting.locks.len());
        let name = self.sim.setting.locks[lock].name.clone();
        let Ok(view) = self.client.inspect(&name).await else { return };
        self.note("looked", lock, view.fence.get());
        if let Some(holder) = view.holders.first()
            && self.sim.setting.rough
        {
            let broken = self.client.evict(&name, holder.fence, "hangs").await;
            self.note(
                if broken.is_ok() { "broken" } else { "not broken" },
                lock,
                holder.fence.get(),
            );
        }
    }
}
