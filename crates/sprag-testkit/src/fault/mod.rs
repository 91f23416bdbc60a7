//! [`FaultStore`]: a store whose requests and answers get lost, late or doubled, as the test says.
//!
//! ```text
//!   client --> FaultStore --+--> store
//!      ^         script     |
//!      `-- answer or fault -'      every request is written down in `calls`
//! ```

mod call;
mod gate;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use sprag_core::diagnosis::Finding;
use sprag_core::evictions::Evictions;
use sprag_core::store::{
    Attempt, Conversion, Converted, Evicted, Eviction, Listing, Page, Released, Renewal, Renewed,
    Request,
};
use sprag_core::{
    AuditEntry, AuditQuery, Capability, Client, Error, ErrorKind, LeaseId, LockName, LockView,
    Operation, Result, Store,
};
use tokio::sync::Notify;

pub use call::{Call, Op};
pub use gate::Gate;

/// What happens to one request.
#[derive(Clone, Debug)]
pub enum Fault {
    /// It is lost on its way there: nothing is done, and the answer is unavailable.
    LoseRequest,
    /// It is done, but its answer is lost on the way back: unavailable.
    LoseReply,
    /// The store refuses it with an error of this kind; nothing is done.
    Refuse(ErrorKind),
    /// Nothing is done and no answer ever comes.
    Hang,
    /// It is done and no answer ever comes.
    HangReply,
    /// It is held up on its way there until the gate opens.
    Delay(Gate),
    /// It is done at once, but its answer is held up until the gate opens.
    DelayReply(Gate),
}

#[derive(Debug)]
struct Rule {
    /// Any, if none is named.
    op: Option<Op>,
    fault: Fault,
    /// How many requests it is still for.
    left: usize,
}

/// Any store, with faults between it and the client.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use std::sync::Arc;
/// use sprag_core::{Client, MemoryStore};
/// use sprag_testkit::fault::{Fault, FaultStore, Op};
///
/// let faults = FaultStore::new(Arc::new(MemoryStore::new()));
/// faults.once(Op::TryAcquire, Fault::LoseReply);
/// let guard = Client::new(faults.clone()).lock("report").acquire().await?;
/// // The same lease asked twice and was recognised.
/// assert_eq!(faults.count(Op::TryAcquire), 2);
/// # drop(guard);
/// # Ok::<(), sprag_core::Error>(()) }).unwrap();
/// ```
#[derive(Debug)]
pub struct FaultStore {
    inner: Arc<dyn Store>,
    rules: Mutex<Vec<Rule>>,
    calls: Mutex<Vec<Call>>,
    hints_lost: AtomicBool,
    cut: AtomicBool,
    severed: Notify,
    yields: AtomicUsize,
}

impl FaultStore {
    /// Puts a script, empty at first, between `store` and whoever uses this.
    pub fn new(store: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            inner: store,
            rules: Mutex::default(),
            calls: Mutex::default(),
            hints_lost: AtomicBool::new(false),
            cut: AtomicBool::new(false),
            severed: Notify::new(),
            yields: AtomicUsize::new(0),
        })
    }

    /// A client that talks through this store.
    pub fn client(self: &Arc<Self>) -> Client {
        Client::new(Arc::clone(self) as Arc<dyn Store>)
    }

    /// The session of the store ends, and all that is held with it.
    pub fn sever(&self) {
        self.cut.store(true, Ordering::SeqCst);
        self.severed.notify_one();
    }

    /// The next request of this kind meets the fault, after those scripted before.
    pub fn once(&self, op: Op, fault: Fault) {
        self.times(1, op, fault);
    }

    /// The next `times` requests of this kind meet the fault, after those scripted before.
    pub fn times(&self, times: usize, op: Op, fault: Fault) {
        self.rules().push(Rule { op: Some(op), fault, left: times });
    }

    /// All further requests of this kind meet the fault.
    pub fn always(&self, op: Op, fault: Fault) {
        self.times(usize::MAX, op, fault);
    }

    /// All further requests meet the fault, whatever was scripted before.
    pub fn everything(&self, fault: Fault) {
        *self.rules() = vec![Rule { op: None, fault, left: usize::MAX }];
    }

    /// Forgets the script; requests that hang go on hanging.
    pub fn heal(&self) {
        self.rules().clear();
        self.lose_hints(false);
    }

    /// Whether hints are lost: `changed` then never resolves.
    pub fn lose_hints(&self, lost: bool) {
        self.hints_lost.store(lost, Ordering::SeqCst);
    }

    /// Gives way so many times before and after each request, so that there are as many points at
    /// which a caller can be cancelled.
    pub fn give_way(&self, times: usize) {
        self.yields.store(times, Ordering::SeqCst);
    }

    /// Every request so far, in order.
    pub fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many requests of this kind there were so far.
    pub fn count(&self, op: Op) -> usize {
        self.calls().iter().filter(|call| call.op() == op).count()
    }

    /// Sends a request again, as a network that doubles packets would; its answer is dropped.
    pub async fn replay(&self, call: &Call) {
        call.send_to(&*self.inner).await;
    }

    /// The store behind the faults.
    pub fn inner(&self) -> &Arc<dyn Store> {
        &self.inner
    }

    fn rules(&self) -> MutexGuard<'_, Vec<Rule>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_fault(&self, op: Op) -> Option<Fault> {
        let mut rules = self.rules();
        let matches = |rule: &Rule| rule.op.is_none_or(|meant| meant == op);
        let index = rules.iter().position(matches)?;
        let fault = rules[index].fault.clone();
        if rules[index].left != usize::MAX {
            rules[index].left -= 1;
        }
        if rules[index].left == 0 {
            rules.remove(index);
        }
        Some(fault)
    }

    async fn yielding(&self) {
        for _ in 0..self.yields.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
    }

    /// Sends one request through the script.
    async fn send<T: Send>(
        &self,
        call: Call,
        operation: Operation,
        request: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        let op = call.op();
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(call);
        let lost = |what| Err(Error::new(ErrorKind::Unavailable, operation, what));
        self.yielding().await;
        let answer = match self.next_fault(op) {
            None => request.await,
            Some(Fault::LoseRequest) => lost("the request was lost"),
            Some(Fault::LoseReply) => {
                drop(request.await);
                lost("the reply was lost")
            }
            Some(Fault::Refuse(kind)) => Err(Error::new(kind, operation, "refused by the script")),
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::HangReply) => {
                drop(request.await);
                std::future::pending().await
            }
            Some(Fault::Delay(gate)) => {
                gate.pass().await;
                request.await
            }
            Some(Fault::DelayReply(gate)) => {
                let answer = request.await;
                gate.pass().await;
                answer
            }
        };
        self.yielding().await;
        answer
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Store for FaultStore {
    fn capability(&self) -> &Capability {
        self.inner.capability()
    }

    async fn try_acquire(&self, request: &Request) -> Result<Attempt> {
        let call = Call::TryAcquire(Box::new(request.clone()));
        self.send(call, Operation::Acquire, self.inner.try_acquire(request)).await
    }

    async fn renew(&self, leases: &[Renewal]) -> Result<Vec<Renewed>> {
        let call = Call::Renew(leases.to_vec());
        self.send(call, Operation::Renew, self.inner.renew(leases)).await
    }

    async fn convert(&self, conversion: &Conversion) -> Result<Converted> {
        let call = Call::Convert(conversion.clone());
        self.send(call, Operation::Convert, self.inner.convert(conversion)).await
    }

    async fn release(&self, name: &LockName, lease: LeaseId) -> Result<Released> {
        let call = Call::Release(name.clone(), lease);
        self.send(call, Operation::Release, self.inner.release(name, lease)).await
    }

    async fn withdraw(&self, name: &LockName, lease: LeaseId) -> Result<()> {
        let call = Call::Withdraw(name.clone(), lease);
        self.send(call, Operation::Release, self.inner.withdraw(name, lease)).await
    }

    async fn inspect(&self, name: &LockName) -> Result<LockView> {
        let call = Call::Inspect(name.clone());
        self.send(call, Operation::Inspect, self.inner.inspect(name)).await
    }

    async fn list(&self, listing: &Listing) -> Result<Page> {
        let call = Call::List(listing.clone());
        self.send(call, Operation::List, self.inner.list(listing)).await
    }

    async fn evict(&self, eviction: &Eviction) -> Result<Evicted> {
        let call = Call::Evict(eviction.clone());
        self.send(call, Operation::Evict, self.inner.evict(eviction)).await
    }

    async fn changed(&self, name: &LockName, lease: LeaseId) {
        if self.hints_lost.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        self.inner.changed(name, lease).await;
    }

    fn lifeline(&self) -> Option<std::os::fd::OwnedFd> {
        self.inner.lifeline()
    }

    fn is_severed(&self, lease: LeaseId) -> bool {
        self.cut.load(Ordering::SeqCst) || self.inner.is_severed(lease)
    }

    async fn severed(&self) {
        tokio::select! {
            () = self.inner.severed() => {}
            () = self.severed.notified() => {}
        }
    }

    fn evictions(&self) -> Option<Evictions> {
        self.inner.evictions()
    }

    async fn audit(&self, query: &AuditQuery) -> Result<Vec<AuditEntry>> {
        let call = Call::Audit(query.clone());
        self.send(call, Operation::Audit, self.inner.audit(query)).await
    }

    async fn note(&self, entries: &[AuditEntry]) -> Result<()> {
        let call = Call::Note(entries.to_vec());
        self.send(call, Operation::Audit, self.inner.note(entries)).await
    }

    async fn diagnose(&self) -> Result<Vec<Finding>> {
        self.inner.diagnose().await
    }
}
