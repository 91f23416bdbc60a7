//! A lock that goes from one task of a process to the next before that is written: what is to hold on
//! every server where it does, and what else its tests are made of.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use sprag_core::store::{Attempt, Bind, Released as Freed, Renewal, Renewed, Request};
use sprag_core::{Client, Fence, LockGuard, Released, Store};
use tokio::task::JoinHandle;

use crate::proxy::{Direction, Fault, Flow, Proxy};
use crate::support::{
    LONG, eventually, look, name, request, spawn_acquire, until_unused, until_waiters, within,
};

/// The lock that all of this is about.
pub const NAME: &str = "report";

/// One that waits for the lock.
pub type Waiting = JoinHandle<sprag_core::Result<LockGuard>>;
/// One that gives it back.
pub type Releasing = JoinHandle<sprag_core::Result<Released>>;

/// A server with a network before it that can be broken, and a client behind that.
#[derive(Clone, Copy, Debug)]
pub struct Scene<'a> {
    /// A way past the network, to look at the lock.
    pub store: &'a Arc<dyn Store>,
    /// The network.
    pub proxy: &'a Proxy,
    /// The process that passes the lock on.
    pub client: &'a Client,
}

impl Scene<'_> {
    /// A task that was let in by another one, with two that wait behind it: it knows its heir.
    ///
    /// # Panics
    ///
    /// If the lock is not handed over.
    pub async fn promised(&self) -> (LockGuard, Waiting, Waiting) {
        let wish = || self.client.lock(NAME).ttl(LONG);
        let first = wish().acquire().await.unwrap();
        let mut waiting = Vec::new();
        for count in 1..=3 {
            waiting.push(spawn_acquire(wish()));
            until_waiters(self.store, NAME, count).await;
        }
        first.release().await.unwrap();
        let mut waiting = waiting.into_iter();
        let holder = within("handed over", waiting.next().unwrap()).await.unwrap().unwrap();
        (holder, waiting.next().unwrap(), waiting.next().unwrap())
    }

    /// Stops what is sent, lets `holder` give the lock back, and gives out the guard of its heir, which
    /// the server has not heard of.
    ///
    /// # Panics
    ///
    /// If the heir is not let in, or the server has heard of it.
    pub async fn pass_on(&self, holder: LockGuard, heir: Waiting) -> (Releasing, LockGuard) {
        let lease = holder.lease();
        self.proxy.set(Direction::Request, Flow::Frozen);
        let releasing = tokio::spawn(holder.release());
        let heir = within("let in", heir).await.unwrap().unwrap();
        let holders = look(self.store, NAME).await.holders;
        assert_eq!(holders[0].lease, lease, "the server does not know yet");
        (releasing, heir)
    }

    /// Until the server knows that `guard` has the lock.
    pub async fn is_held_by(&self, guard: &LockGuard) {
        let holds = || async {
            let holders = look(self.store, NAME).await.holders;
            holders.len() == 1
                && (holders[0].lease, holders[0].fence) == (guard.lease(), guard.fence())
        };
        eventually("the server knows it", holds).await;
    }

    /// The last one gets the lock, gives it back, and nobody has it any more.
    ///
    /// # Panics
    ///
    /// If it does not get it.
    pub async fn ends_with(&self, last: Waiting) {
        within("handed over", last).await.unwrap().unwrap().release().await.unwrap();
        until_unused(self.store, NAME).await;
    }

    /// F07, F08: the connection is cut between the two, in every way, at a request that has `word` in it:
    /// the release is repeated, the heir is let in once and stays inside, and the next one comes after it.
    ///
    /// # Panics
    ///
    /// If that is not so.
    pub async fn a_release_that_is_cut_off_is_done(&self, word: &str) {
        for cut in Fault::CUTS {
            let (holder, heir, last) = self.promised().await;
            let fence = holder.fence();
            self.proxy.once(word, cut);
            let releasing = tokio::spawn(holder.release());
            let heir = within("let in", heir).await.unwrap().unwrap();
            assert!(heir.fence() > fence, "{cut:?}");
            let released = within("released", releasing).await.unwrap().unwrap();
            assert_eq!(released, Released::Freed, "{cut:?}");
            self.is_held_by(&heir).await;
            assert!(!last.is_finished() && heir.is_valid(), "{cut:?}");
            let fence = heir.fence();
            assert_eq!(heir.release().await.unwrap(), Released::Freed, "{cut:?}");
            let last = within("handed over", last).await.unwrap().unwrap();
            assert!(last.fence() > fence, "{cut:?}");
            last.release().await.unwrap();
            until_unused(self.store, NAME).await;
            self.proxy.heal();
        }
    }

    /// F08: all connections end while the release is on its way, and the heir, which is inside, is
    /// renewed.
    ///
    /// # Panics
    ///
    /// If it is not.
    pub async fn an_heir_whose_predecessor_was_cut_off_is_renewed(&self) {
        let (holder, heir, last) = self.promised().await;
        let (releasing, mut heir) = self.pass_on(holder, heir).await;
        self.proxy.reset_all();
        self.proxy.heal();
        // What was asked while the connection ended is asked again.
        let renewed = async {
            while heir.extend(LONG).await.is_err() {
                assert!(heir.is_valid());
            }
        };
        within("renewed", renewed).await;
        self.is_held_by(&heir).await;
        assert_eq!(within("released", releasing).await.unwrap().unwrap(), Released::Freed);
        heir.release().await.unwrap();
        self.ends_with(last).await;
    }

    /// A release whose caller goes away when the heir was let in is done all the same.
    ///
    /// # Panics
    ///
    /// If it is not.
    pub async fn a_release_that_is_cancelled_is_done(&self) {
        let (holder, heir, last) = self.promised().await;
        // It lets its heir in, and lets it run before it sends anything.
        assert!(holder.release().now_or_never().is_none());
        let heir = within("let in", heir).await.unwrap().unwrap();
        self.is_held_by(&heir).await;
        assert!(!last.is_finished());
        // An heir that leaves while its predecessor's release is on the way comes right behind it.
        heir.release().await.unwrap();
        self.ends_with(last).await;
    }
}

/// What an heir asks first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// To give the lock back.
    Release,
    /// To outlive its process.
    Detach,
    /// Not to be let in, which it is.
    Withdraw,
}

/// What the leases of one process ask of its store.
#[derive(Debug)]
pub struct Process {
    /// Its store.
    pub store: Arc<dyn Store>,
    /// Who was let in, its heir, and one more.
    pub requests: [Request; 3],
}

impl Process {
    /// Its leases live for so long. The first one was let in.
    ///
    /// # Panics
    ///
    /// If it is not.
    pub async fn new(store: Arc<dyn Store>, ttls: [Duration; 3]) -> Self {
        let first = request(NAME);
        let requests = ttls.map(|ttl| Request { ttl, queue: true, ..request(NAME) });
        assert!(matches!(store.try_acquire(&first).await.unwrap(), Attempt::Granted(_)));
        for request in &requests {
            assert!(matches!(store.try_acquire(request).await.unwrap(), Attempt::Queued(_)));
        }
        assert_eq!(store.release(&name(NAME), first.lease).await.unwrap(), Freed::Freed);
        let process = Self { store, requests };
        process.enter(0).await;
        process
    }

    /// Lets one in, with this fence.
    ///
    /// # Panics
    ///
    /// If it is not let in.
    pub async fn enter(&self, index: usize) -> Fence {
        match self.store.try_acquire(&self.requests[index]).await.unwrap() {
            Attempt::Granted(grant) => grant.fence,
            other => panic!("not let in: {other:?}"),
        }
    }

    /// The first one lets its heir in, and is gone before its release is sent. Gives out the fence of
    /// the heir.
    ///
    /// # Panics
    ///
    /// If the heir is not let in.
    pub async fn pass_on_only(&self) -> Fence {
        let lease = self.requests[0].lease;
        assert!(self.store.release(&name(NAME), lease).now_or_never().is_none());
        self.enter(1).await
    }

    /// Gives the lock back for one of them.
    ///
    /// # Panics
    ///
    /// If the store cannot be asked.
    pub async fn release(&self, index: usize) -> Freed {
        self.store.release(&name(NAME), self.requests[index].lease).await.unwrap()
    }

    /// Renews one of them.
    ///
    /// # Panics
    ///
    /// If the store cannot be asked.
    pub async fn renew(&self, index: usize, bind: Bind) -> Renewed {
        let Request { name, lease, ttl, .. } = self.requests[index].clone();
        let mut renewed = self.store.renew(&[Renewal { name, lease, ttl, bind }]).await.unwrap();
        renewed.pop().unwrap()
    }

    /// The heir holds the lock, with this fence.
    ///
    /// # Panics
    ///
    /// If it does not.
    pub async fn is_inside(&self, fence: Fence) {
        match self.renew(1, Bind::Keep).await {
            Renewed::Held(grant) => assert_eq!(grant.fence, fence),
            other => panic!("{other:?}"),
        }
    }

    /// Whatever is asked for an heir, or for whom, first: the record comes to the same, and nobody else
    /// is let in. `looks` is another process.
    ///
    /// # Panics
    ///
    /// If that is not so.
    pub async fn an_heir_may_be_faster(&self, first: First, looks: &Arc<dyn Store>) {
        let fence = self.pass_on_only().await;
        match first {
            First::Release => assert_eq!(self.release(1).await, Freed::Freed),
            First::Detach => match self.renew(1, Bind::Detach).await {
                Renewed::Held(grant) => assert_eq!(grant.fence, fence),
                other => panic!("{other:?}"),
            },
            First::Withdraw => {
                self.store.withdraw(&name(NAME), self.requests[1].lease).await.unwrap();
            }
        }
        let view = look(looks, NAME).await;
        assert_eq!(view.holders.len(), 1, "{first:?}");
        if first != First::Release {
            assert_eq!(view.holders[0].lease, self.requests[1].lease, "{first:?}");
        }
        self.release(0).await;
        if first != First::Release {
            assert_eq!(self.release(1).await, Freed::Freed, "{first:?}");
        }
        assert!(self.enter(2).await > fence, "{first:?}");
        assert_eq!(self.release(2).await, Freed::Freed, "{first:?}");
        until_unused(looks, NAME).await;
    }
}
