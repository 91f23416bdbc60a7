//! Proof that the lock machine and the client keep their promises.
//!
//! # Models
//!
//! [`models`] calls, in all but the last two models, the production [`apply`](sprag_core::record::apply) from small worlds in which
//! every order of events is tried: requests that are slow, lost, done although the answer is lost,
//! or done when nobody expects it any more; processes that pause and crash; clocks that differ.
//! There is no limit on the length of a run: numbers that only grow are replaced by their ranks
//! after each step ([`models::normal`]), so each world has finitely many states, and
//! all of them are looked at. Only [`baton`](models::baton) limits how often clients ask, and how
//! many accidents there are.
//!
//! | model | world | what is proven |
//! |---|---|---|
//! | [`observed`](models::observed) | one record, compare-and-swap, no clock | at most one client believes to hold the lock, and the record agrees; a guarded resource never goes back to an older holder |
//! | [`sessions`](models::sessions) | locks whose holders live by a session | nobody is taken over before its session is dead, and by then its owner has stopped to believe; a detached lease is not taken by the death of a session |
//! | [`queue`](models::queue) | one record, a store with a clock | who believes to hold the lock may do so beside all others who do: writers, readers, an upgrader, permits |
//! | [`baton`](models::baton) | one record, messages between the clients; a lock that is passed on before that is written | at most one client believes to hold the lock unless it is robbed when it is inside, and fences grow in the order in which clients enter |
//! | [`redlock`](models::redlock) | three nodes of which a majority decides; its protocol, not the machine | at most one client believes to hold the lock, and fences grow in the order of grants, also when nodes restart empty |
//! | [`ledger`](models::ledger) | references that are compared and swapped; the protocol of signs of life and takeovers | at most one client believes to hold the lock, also when swaps are done late and locks are handed over |
//!
//! Each single step of the machine is checked as well ([`models::judge`]): the record is sound,
//! fences grow in the order of grants, answers are true, who is gone does not come back, nobody is
//! overtaken by an equal, no lock is left idle while somebody waits, no command hits a lease that
//! it does not name.
//!
//! Each rule that a client has to keep exists in a wrong form, too, and a test asks that the
//! violation is found. And whatever the worlds are made for has to happen in them.
//!
//! # What is not proven
//!
//! * Anything beyond the bounds: two or three clients, leases of two or three ticks, one late
//!   request at a time, two leases of one client known at once.
//! * Two locks under one session whose processes take over from each other both ways: the model of
//!   sessions can do that, but has too many states then. With two locks one process takes over.
//! * That somebody gets the lock in the end. The models show that a step leaves no waiter behind
//!   who could have had the lock, not that steps are taken.
//! * The memory of lost leases is bounded (eight for each lock) and the models stay below that. An
//!   acquire that is repeated by the network after eight others were lost may be granted to
//!   nobody, until its TTL ends.
//! * That a store does not do a conversion after a following request for the same lease; the
//!   machine relies on it, and a test shows what happens otherwise.
//! * That stores do what they promise: that is for the conformance tests. That the client keeps
//!   the rules: that is for [`simulation`] and the client's own tests.
//!
//! # Mutants
//!
//! [`hunt`] switches on one seeded bug after the other and asks that a test finds it.

pub mod hunt;
pub mod models;
pub mod simulation;
