//! Many sessions at once, with a history that is checked afterwards.
#![expect(clippy::unwrap_used, reason = "a case fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use sprag_core::{Client, LockRequest, Store};

use super::journal::{ENOUGH, Journal};
use super::permits::has_permits;
use super::queue::has_queue;
use super::rw::has_readers;
use crate::fault::{Fault, FaultStore};
use crate::harness::Harness;
use crate::history::{Recorder, Rules};
use crate::support::{LONG, let_time_pass, now, times, within};

/// How long a worker stays in the lock where nothing is to happen to it.
const BRIEFLY: Duration = Duration::from_micros(300);

/// Lets `sessions` workers visit the lock eight times each, with what `ask` says for the worker
/// and the round, and checks the history.
async fn crowd(
    harness: &dyn Harness,
    lock: &'static str,
    sessions: u32,
    count: Option<u64>,
    ask: fn(LockRequest, u32, u32) -> LockRequest,
) {
    let journal = Journal::new(lock);
    let mut workers = Vec::new();
    for number in 0..sessions {
        let (process, journal) = (format!("worker-{number}"), journal.clone());
        let client = journal.client(harness.store().await, &process);
        workers.push(tokio::spawn(async move {
            for round in 0..8 {
                let request = ask(client.lock(lock).ttl(LONG), number, round);
                journal.visit(&process, request, BRIEFLY).await.unwrap();
            }
        }));
    }
    for worker in workers {
        within("the worker is done", worker).await.unwrap();
    }
    let client = harness.client().await;
    let fifo = has_queue(&client).await;
    let rules = Rules { fifo, sections: true, ..Rules::default() };
    journal.finish(&client, count, &rules).await;
}

/// F20: eight sessions that increment one counter under one lock lose no increment, never
/// overlap, and come in order.
pub async fn eight_sessions_exclude_each_other(harness: &dyn Harness) {
    crowd(harness, "report", 8, Some(64), |request, _, _| request).await;
}

/// F20: many tasks of one client lose no increment, never overlap and come in order, although the
/// lock may go from one to the next before the store has heard of that.
pub async fn tasks_of_one_client_exclude_each_other(harness: &dyn Harness) {
    let journal = Journal::new("report");
    let client = journal.client(harness.store().await, "worker");
    let (tasks, rounds) = if client.capability().notify { (times(32, 64), 6) } else { (4, 2) };
    let mut workers = Vec::new();
    for _ in 0..tasks {
        let (journal, client) = (journal.clone(), client.clone());
        workers.push(tokio::spawn(async move {
            for _ in 0..rounds {
                let request = client.lock("report").ttl(LONG);
                journal.visit("worker", request, BRIEFLY).await.unwrap();
            }
        }));
    }
    for worker in workers {
        within("the worker is done", worker).await.unwrap();
    }
    let fifo = has_queue(&client).await;
    let rules = Rules { fifo, sections: true, ..Rules::default() };
    journal.finish(&client, Some(u64::from(tasks * rounds)), &rules).await;
}

/// F20, FAULTS 22: readers and writers mixed: a writer is always alone.
pub async fn readers_and_writers_mixed(harness: &dyn Harness) {
    if has_readers(&harness.client().await).await {
        let writers = 6 * 8 / 3;
        crowd(harness, "config", 6, Some(writers), |request, number, round| {
            if (number + round) % 3 == 0 { request } else { request.shared() }
        })
        .await;
    }
}

/// F20, F65: permits of different counts: never more than there are.
pub async fn permits_mixed(harness: &dyn Harness) {
    if has_permits(&harness.client().await).await {
        crowd(harness, "builds", 6, None, |request, number, round| {
            request.permits(1 + (number + round) % 3, 4)
        })
        .await;
    }
}

/// F61: the connections of several clients are clogged one after the other and unclogged in
/// another order while all of them work: nobody ever believes in a lock that another one has,
/// and when it is over everybody gets it.
pub async fn swizzled_connections(harness: &dyn Harness) {
    let ttl = harness.ttl();
    let journal = Journal::new("report");
    let (mut workers, mut stores) = (Vec::new(), Vec::new());
    let end = now().plus(ttl * 5);
    for number in 0..5 {
        let faults = FaultStore::new(harness.store().await);
        stores.push(Arc::clone(&faults));
        let (process, journal) = (format!("worker-{number}"), journal.clone());
        let client = journal.client(faults as Arc<dyn Store>, &process);
        workers.push(tokio::spawn(async move {
            // On a slow machine for longer, until there is something to judge.
            while now() < end || journal.grants() < ENOUGH {
                let request = client.lock("report").ttl(ttl).wait(ttl * 2);
                // Losses, timeouts and outages are what this is about; the history judges.
                drop(journal.visit(&process, request, ttl / 30).await);
            }
            client
        }));
    }
    for round in 0..2_usize {
        for (index, faults) in stores.iter().enumerate() {
            let fault = if (index + round) % 2 == 0 { Fault::Hang } else { Fault::LoseReply };
            faults.everything(fault);
            let_time_pass(ttl / 6).await;
        }
        for index in [3, 0, 4, 1, 2] {
            stores[(index + round) % 5].heal();
            let_time_pass(ttl / 6).await;
        }
    }
    let healed_at_ns = Some(Recorder::now_ns());
    let mut clients = Vec::new();
    for worker in workers {
        clients.push(within("the worker is done", worker).await.unwrap());
    }
    for (number, client) in clients.iter().enumerate() {
        let request = client.lock("report").ttl(LONG);
        let process = format!("worker-{number}");
        let visit = journal.visit(&process, request, BRIEFLY);
        within("everybody gets it when it is over", visit).await.unwrap();
    }
    let lost_slack = Some(Duration::from_secs(5));
    let rules = Rules { fifo: false, healed_at_ns, lost_slack, ..Rules::default() };
    let client: Client = harness.client().await;
    journal.finish(&client, None, &rules).await;
}
