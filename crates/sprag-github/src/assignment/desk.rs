//! [`Desk`]: what is done about claims, one question at a time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sprag_core::clock::{Clock, Moment};
use sprag_core::store::{
    Attempt, Contention, Evicted, Eviction, Grant, Released, Renewal, Renewed, Request, Takeover,
};
use sprag_core::{ErrorKind, Fence, Holder, LeaseId, LockName, LockView, Loss, Mode, Result};
use sprag_ledger::Abandoned;

use super::claim::{Claim, tag};
use crate::client::GitHubClient;
use crate::config::GitHubConfig;
use crate::error::error;
use crate::mirror::LockNote;
use crate::{issue_of, time};

/// How long one question waits for claims to settle; then it is asked again.
const PATIENCE: Duration = Duration::from_secs(4);

#[derive(Debug)]
pub(super) struct Desk {
    client: Arc<dyn GitHubClient>,
    clock: Arc<dyn Clock>,
    settle: Duration,
    abandoned: Abandoned,
    show_node: bool,
    /// Our own claims: which comment, since when, and whether it has won.
    own: Mutex<HashMap<LeaseId, Own>>,
    /// One change of a claim at a time: a late renewal must not bring back what was released.
    changing: Mutex<Vec<LeaseId>>,
}

/// How many leases are remembered as given back.
const REMEMBERED: usize = 1024;

#[derive(Clone, Copy, Debug)]
struct Own {
    comment: u64,
    since: Moment,
    won: bool,
}

impl Desk {
    pub(super) fn new(config: &GitHubConfig, client: Arc<dyn GitHubClient>) -> Self {
        Self {
            client,
            clock: Arc::clone(&config.clock),
            settle: config.settle,
            abandoned: config.abandoned,
            show_node: config.show_node,
            own: Mutex::default(),
            changing: Mutex::default(),
        }
    }

    pub(super) fn acquire(&self, request: &Request) -> Result<Attempt> {
        let (issue, lease) = (issue(&request.name)?, request.lease);
        let claims = self.claims(issue)?;
        let mine = claims.iter().find(|claim| claim.is_of(lease)).map(|claim| claim.comment);
        let known = self.own().get(&lease).copied();
        let own = match (known, mine) {
            (Some(own), Some(comment)) if own.won => return Ok(granted(comment, false)),
            (Some(_), None) if known.is_some_and(|own| own.won) => {
                self.own().remove(&lease);
                return Ok(Attempt::Gone(Loss::StateLost));
            }
            (Some(own), _) => own,
            (None, Some(comment)) => self.remember(lease, comment),
            (None, None) => {
                let rivals = self.in_the_way(&claims, lease, request.takeover);
                if !rivals.is_empty() {
                    return Ok(held(&rivals));
                }
                let dead = claims.iter().filter(|claim| !claim.is_of(lease));
                dead.into_iter().try_for_each(|claim| self.push_aside(claim, request))?;
                self.write(issue, request)?
            }
        };
        self.wait_until_settled(own)?;
        let stolen = claims.iter().any(|claim| !claim.is_of(lease));
        self.decide(issue, request, own, stolen)
    }

    /// Two lists have to agree that ours is the oldest.
    fn decide(&self, issue: u64, request: &Request, own: Own, stolen: bool) -> Result<Attempt> {
        for _ in 0..2 {
            let claims = self.claims(issue)?;
            if !claims.iter().any(|claim| claim.comment == own.comment) {
                let message = "GitHub does not show our claim yet (mode=assignment, L1)";
                return Err(error(ErrorKind::Unavailable, message));
            }
            let alive = self.in_the_way(&claims, request.lease, request.takeover);
            let older: Vec<_> =
                alive.into_iter().filter(|claim| claim.comment < own.comment).collect();
            if !older.is_empty() {
                self.client.delete_comment(own.comment)?;
                self.own().remove(&request.lease);
                return Ok(held(&older));
            }
        }
        self.own().insert(request.lease, Own { won: true, ..own });
        if let Err(error) = self.assign(issue) {
            tracing::warn!(target: "sprag::github", issue, %error, "the assignee is not shown");
        }
        Ok(granted(own.comment, stolen && request.takeover != Takeover::No))
    }

    pub(super) fn renew(&self, renewal: &Renewal) -> Result<Renewed> {
        let issue = issue(&renewal.name)?;
        let gone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        if gone.contains(&renewal.lease) {
            return Ok(Renewed::Lost(Loss::Released));
        }
        let Some(claim) = self.find(issue, renewal.lease)? else {
            self.own().remove(&renewal.lease);
            return Ok(Renewed::Lost(Loss::StateLost));
        };
        let mut note = claim.note.clone();
        note.heartbeat_last = self.wall_clock();
        // As on every store, a renewal to less does not end it earlier.
        note.ttl_ms = note.ttl_ms.max(Some(millis(renewal.ttl)));
        self.client.edit_comment(claim.comment, &note.to_comment())?;
        let fence = Fence::new(claim.comment).unwrap_or(Fence::ZERO);
        Ok(Renewed::Held(Grant { fence, mode: Mode::Exclusive, took_over: false }))
    }

    pub(super) fn release(&self, name: &LockName, lease: LeaseId) -> Result<Released> {
        let issue = issue(name)?;
        let mut gone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        gone.truncate(REMEMBERED);
        gone.insert(0, lease);
        let won = self.own().get(&lease).is_none_or(|own| own.won);
        let Some(claim) = self.find(issue, lease)? else {
            self.own().remove(&lease);
            return Ok(Released::AlreadyGone(Loss::StateLost));
        };
        if won {
            let mut note = claim.note.clone();
            note.released_at = Some(self.wall_clock());
            self.client.edit_comment(claim.comment, &note.to_comment())?;
            if let Some(account) = self.client.account()? {
                self.client.unassign_issue(issue, &account)?;
            }
        } else {
            self.client.delete_comment(claim.comment)?;
        }
        self.own().remove(&lease);
        Ok(Released::Freed)
    }

    /// Takes a claim back that has not won.
    pub(super) fn withdraw(&self, name: &LockName, lease: LeaseId) -> Result<()> {
        let waits = self.own().get(&lease).is_some_and(|own| !own.won);
        if waits {
            self.release(name, lease)?;
        }
        Ok(())
    }

    pub(super) fn inspect(&self, name: &LockName) -> Result<LockView> {
        let claims = self.claims(issue(name)?)?;
        let mut view = LockView::free(name.clone());
        let holder = claims.iter().find(|claim| !self.is_over(claim));
        view.holders = holder.map(Claim::view).into_iter().collect();
        view.fence = view.holders.first().map_or(Fence::ZERO, |holder| holder.fence);
        Ok(view)
    }

    pub(super) fn evict(&self, eviction: &Eviction) -> Result<Evicted> {
        let claims = self.claims(issue(&eviction.name)?)?;
        let named = claims.iter().find(|claim| claim.comment == eviction.fence.get());
        let Some(claim) = named else { return Ok(Evicted::NotHeld) };
        let mut note = claim.note.clone();
        note.released_at = Some(self.wall_clock());
        note.broken_by = Some(format!("{}: {}", eviction.by, eviction.reason));
        self.client.edit_comment(claim.comment, &note.to_comment())?;
        Ok(Evicted::Broken(vec![claim.view().holder]))
    }

    fn claims(&self, issue: u64) -> Result<Vec<Claim>> {
        let (comments, date) = self.client.list_comments(issue)?;
        Ok(Claim::all(&comments, date))
    }

    /// The claim of a lease as it is now: of the comment itself where we know it, because lists
    /// are late.
    fn find(&self, issue: u64, lease: LeaseId) -> Result<Option<Claim>> {
        let known = self.own().get(&lease).map(|own| own.comment);
        let found = match known {
            Some(id) => {
                let comment = self.client.get_comment(id)?;
                comment.and_then(|comment| Claim::read(&comment, 0))
            }
            None => self.claims(issue)?.into_iter().find(|claim| claim.is_of(lease)),
        };
        Ok(found.filter(|claim| claim.is_of(lease)))
    }

    /// Claims of others that count.
    fn in_the_way<'a>(
        &self,
        claims: &'a [Claim],
        lease: LeaseId,
        takeover: Takeover,
    ) -> Vec<&'a Claim> {
        let counts = |claim: &&Claim| match takeover {
            Takeover::No => !self.is_over(claim),
            Takeover::Overdue(after) => !claim.is_stale(after),
            Takeover::Force => false,
        };
        claims.iter().filter(|claim| !claim.is_of(lease)).filter(counts).collect()
    }

    fn is_over(&self, claim: &Claim) -> bool {
        self.abandoned == Abandoned::Freed && claim.is_stale(Duration::ZERO)
    }

    /// Says on the claim of somebody who is gone that it is over.
    fn push_aside(&self, claim: &Claim, request: &Request) -> Result<()> {
        let taker = self.note(&request.holder).worker_id;
        let mut note = claim.note.clone();
        note.released_at = Some(self.wall_clock());
        note.broken_by = Some(match request.takeover {
            Takeover::Force => format!("{taker}: taken by force"),
            _ => format!("{taker}: it gave no sign of life"),
        });
        self.client.edit_comment(claim.comment, &note.to_comment()).map(drop)
    }

    fn write(&self, issue: u64, request: &Request) -> Result<Own> {
        let mut note = self.note(&request.holder);
        note.claim = Some(tag(request.lease));
        note.ttl_ms = Some(millis(request.ttl));
        let comment = self.client.add_comment(issue, &note.to_comment())?;
        Ok(self.remember(request.lease, comment.id))
    }

    fn note(&self, holder: &Holder) -> LockNote {
        let now = self.clock.unix_micros() / 1_000_000;
        let mut note = LockNote::new(holder, Fence::ZERO, now, self.show_node);
        note.fence = None;
        note
    }

    fn remember(&self, lease: LeaseId, comment: u64) -> Own {
        let own = Own { comment, since: self.clock.now(), won: false };
        self.own().insert(lease, own);
        own
    }

    fn assign(&self, issue: u64) -> Result<()> {
        if let Some(account) = self.client.account()? {
            self.client.assign_issue(issue, &account)?;
        }
        Ok(())
    }

    fn wait_until_settled(&self, own: Own) -> Result<()> {
        let settled = own.since.plus(self.settle);
        let give_up = self.clock.now().plus(PATIENCE);
        while self.clock.now() < settled {
            if self.clock.now() >= give_up {
                let message = "our claim has to settle first (mode=assignment, L1): ask again";
                return Err(error(ErrorKind::Unavailable, message));
            }
            std::thread::park_timeout(settled.min(give_up).since(self.clock.now()));
        }
        Ok(())
    }

    fn wall_clock(&self) -> String {
        time::format(self.clock.unix_micros() / 1_000_000)
    }

    fn own(&self) -> MutexGuard<'_, HashMap<LeaseId, Own>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn issue(name: &LockName) -> Result<u64> {
    issue_of(name).ok_or_else(|| {
        let message = "mode=assignment (L1) locks issues only: name the lock issue-123, or use \
                       github://OWNER/REPO with a token that has contents:write";
        error(ErrorKind::Unsupported, message)
    })
}

fn granted(comment: u64, took_over: bool) -> Attempt {
    let fence = Fence::new(comment).unwrap_or(Fence::ZERO);
    Attempt::Granted(Grant { fence, mode: Mode::Exclusive, took_over })
}

fn held(claims: &[&Claim]) -> Attempt {
    Attempt::Held(Contention {
        ahead: 0,
        holders: claims.iter().map(|claim| claim.view()).collect(),
    })
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
