//! [`Tenure`]: what one lease believes about itself. Pure: time comes in with each call.
//!
//! ```text
//!   Asking --granted--> Holding --deadline, or the store says so--> Lost
//!                          `------------release-----------------> Ended
//! ```
//!
//! Two rules keep it from believing too much. The lease is good for a TTL from the moment its
//! request was *sent*, which is before the store began to count. And Lost is final: an answer
//! that comes after the deadline revives nothing, because the user may have been told.

use std::time::Duration;

use crate::clock::Moment;
use crate::fence::Fence;
use crate::loss::Loss;
use crate::mode::Mode;
use crate::mutant::mutant;
use crate::store::{Grant, Renewed};

/// The difference in clock speed that validity allows for, and the least that makes sense.
const MARGIN_PERCENT: u32 = 1;
const MIN_MARGIN: Duration = Duration::from_millis(5);

/// How much earlier than the store a holder considers its lease to be over.
pub fn margin(ttl: Duration) -> Duration {
    (ttl / 100 * MARGIN_PERCENT).max(MIN_MARGIN)
}

fn end_of(anchor: Moment, ttl: Duration) -> Moment {
    anchor.plus(ttl).minus(margin(ttl))
}

/// Whether `to` leaves room for others where `from` does not.
const fn is_step_down(from: Mode, to: Mode) -> bool {
    matches!(
        (from, to),
        (Mode::Exclusive, Mode::Upgradable | Mode::Shared) | (Mode::Upgradable, Mode::Shared)
    )
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Asking,
    Holding,
    Lost(Loss),
    Ended,
}

#[derive(Debug)]
pub(crate) struct Tenure {
    phase: Phase,
    ttl: Duration,
    /// Whether it is renewed by itself while it is held. Waiters always are.
    auto_renew: bool,
    max_hold: Option<Duration>,
    held_since: Moment,
    /// The store counts the current TTL from this moment or from a later one.
    anchor: Option<Moment>,
    /// The end that an earlier renewal was good for. A shorter one leaves it as it is.
    good_until: Moment,
    /// The longest that the store was ever asked for, answered or not.
    longest: Duration,
    /// The store counts the life of a waiter from this moment or from a later one. Asking again
    /// writes nothing there, so it moves the anchor but not this.
    alive: Option<Moment>,
    /// Whether the store has answered that the lease waits.
    queued: bool,
    /// When to try again after a failed renewal.
    retry_at: Option<Moment>,
    /// A renewal or extension is under way; a second one could overtake it.
    renewing: bool,
    /// The lock may have been taken away since the last renewal was sent.
    in_doubt: bool,
    grant: Option<Grant>,
    /// The weakest mode that the lease with this fence was asked to become. Nobody knows whether
    /// and when the store does it, until the fence is another one.
    stepping_down: Option<(Fence, Mode)>,
    /// When the grant was told.
    offered: Option<Moment>,
    /// When the last conversion was answered.
    converted: Option<Moment>,
    /// It could not be released; the store frees it by then.
    left_until: Option<Moment>,
}

impl Tenure {
    pub(crate) fn new(ttl: Duration, auto_renew: bool, max_hold: Option<Duration>) -> Self {
        Self {
            phase: Phase::Asking,
            ttl,
            auto_renew,
            max_hold,
            held_since: Moment::START,
            anchor: None,
            good_until: Moment::START,
            longest: ttl,
            alive: None,
            queued: false,
            retry_at: None,
            renewing: false,
            in_doubt: false,
            grant: None,
            stepping_down: None,
            offered: None,
            converted: None,
            left_until: None,
        }
    }

    pub(crate) fn phase(&self) -> &Phase {
        &self.phase
    }

    pub(crate) fn ttl(&self) -> Duration {
        self.ttl
    }

    /// How long the store may keep it at most, from its last renewal on.
    pub(crate) fn longest(&self) -> Duration {
        self.longest
    }

    /// What may be believed to be held.
    pub(crate) fn grant(&self) -> Option<Grant> {
        let grant = self.grant?;
        Some(Grant { mode: self.open_step_down().unwrap_or(grant.mode), ..grant })
    }

    /// The weaker mode that was asked for, if the store has not told that it is done.
    pub(crate) fn open_step_down(&self) -> Option<Mode> {
        let (grant, (fence, to)) = (self.grant?, self.stepping_down?);
        (fence == grant.fence && is_step_down(grant.mode, to)).then_some(to)
    }

    pub(crate) fn held_since(&self) -> Moment {
        self.held_since
    }

    pub(crate) fn is_suspect(&self) -> bool {
        self.phase == Phase::Holding && self.retry_at.is_some()
    }

    pub(crate) fn deadline(&self) -> Moment {
        end_of(self.anchor.unwrap_or(Moment::START), self.ttl).max(self.good_until)
    }

    // ---- asking -----------------------------------------------------------------------------

    /// A request is about to be sent. Only the first counts: if its answer is lost it may still
    /// be the one that is applied.
    pub(crate) fn asked(&mut self, sent: Moment) {
        self.anchor.get_or_insert(sent);
        self.alive.get_or_insert(sent);
    }

    /// The store answered a request sent at `sent` with "not yet": if the lock is granted, then
    /// after that.
    pub(crate) fn not_granted(&mut self, sent: Moment, queued: bool) {
        self.anchor = self.anchor.max(Some(sent));
        self.queued = queued;
        if mutant!("asking_counts_as_renewal") {
            self.alive = self.anchor;
        }
    }

    /// The store has granted the lock; the lease is not entered yet.
    pub(crate) fn offered(&mut self, grant: Grant, replied: Moment) {
        self.grant = Some(grant);
        self.offered = Some(replied);
        if mutant!("deadline_from_reply") {
            self.anchor = Some(replied);
        }
    }

    /// Whether so much of the TTL may be gone that it is better to renew before entering.
    pub(crate) fn wants_confirmation(&self, now: Moment) -> bool {
        self.anchor.is_none_or(|anchor| now.since(anchor) > self.ttl / 10)
    }

    /// Enters the lock, if it was granted and is still good.
    pub(crate) fn enter(&mut self, now: Moment) -> Option<Grant> {
        if self.phase != Phase::Asking || now >= self.deadline() {
            return None;
        }
        let grant = self.grant?;
        self.phase = Phase::Holding;
        self.held_since = now;
        Some(grant)
    }

    // ---- holding ----------------------------------------------------------------------------

    /// What is left of the lease, or why it is lost. Passing the deadline makes it so.
    pub(crate) fn check(&mut self, now: Moment) -> Result<Duration, Loss> {
        if self.phase == Phase::Holding {
            if now >= self.deadline() {
                let unreachable = self.retry_at.is_some();
                self.lose(if unreachable { Loss::Unreachable } else { Loss::Expired });
            } else if now >= self.last_moment() {
                self.lose(Loss::MaxHold);
            }
        }
        match &self.phase {
            Phase::Holding => Ok(self.deadline().since(now)),
            Phase::Lost(loss) => Err(loss.clone()),
            Phase::Asking | Phase::Ended => Err(Loss::Released),
        }
    }

    /// Takes the lease away; the first reason stays.
    pub(crate) fn lose(&mut self, loss: Loss) {
        if self.phase == Phase::Holding && !mutant!("lost_never_told") {
            self.phase = Phase::Lost(loss);
        }
    }

    /// Ends the lease by the owner's wish; a lease that was lost before stays lost.
    pub(crate) fn end(&mut self) {
        if matches!(self.phase, Phase::Asking | Phase::Holding) {
            self.phase = Phase::Ended;
        }
    }

    /// It could not be released, so its end is left to the store, which counts from now at the
    /// latest.
    pub(crate) fn leave_to_store(&mut self, now: Moment) {
        self.left_until = Some(now.plus(self.longest));
    }

    /// Whether its end was left to the store.
    pub(crate) fn is_left(&self) -> bool {
        self.left_until.is_some()
    }

    fn last_moment(&self) -> Moment {
        self.max_hold.map_or(Moment::NEVER, |limit| self.held_since.plus(limit))
    }

    /// A conversion of what has `fence` is about to be sent. If its answer is lost it may still be
    /// done, even later, and a weaker lock lets others in at once: it counts from now on.
    pub(crate) fn asked_to_become(&mut self, to: Mode, fence: Fence) {
        if mutant!("downgrade_counts_when_answered") {
            return;
        }
        if self.grant().is_some_and(|has| has.fence == fence && is_step_down(has.mode, to)) {
            self.stepping_down = Some((fence, to));
        }
    }

    /// The store has refused to step down, so what was open before is all there is.
    pub(crate) fn refused_to_become(&mut self, before: Option<(Fence, Mode)>) {
        self.stepping_down = before;
    }

    /// What [`Tenure::refused_to_become`] goes back to.
    pub(crate) fn stepping_down(&self) -> Option<(Fence, Mode)> {
        self.stepping_down
    }

    /// The lease is held in another mode from now on.
    pub(crate) fn converted(&mut self, grant: Grant, now: Moment) {
        self.grant = Some(grant);
        self.converted = Some(now);
    }

    // ---- renewing ---------------------------------------------------------------------------

    /// When somebody has to look at this lease again.
    pub(crate) fn due(&self) -> Moment {
        let counted = if self.phase == Phase::Asking { self.alive } else { self.anchor };
        let renew = match counted {
            _ if self.renewing => Moment::NEVER,
            _ if self.in_doubt => Moment::START,
            Some(counted) => self.retry_at.unwrap_or(counted.plus(self.ttl / 3)),
            None => Moment::NEVER,
        };
        match self.phase {
            Phase::Asking if self.queued => renew,
            Phase::Holding if self.auto_renew => renew.min(self.deadline()).min(self.last_moment()),
            Phase::Holding => self.deadline().min(self.last_moment()),
            _ => self.left_until.unwrap_or(Moment::NEVER),
        }
    }

    /// The lock may have been taken away: the next renewal is due. Whether there will be one.
    pub(crate) fn doubt(&mut self) -> bool {
        self.in_doubt = self.phase == Phase::Holding && self.auto_renew;
        self.in_doubt
    }

    /// Claims the right to renew, if a renewal is wanted at `now` and none is under way.
    pub(crate) fn begin_renewal(&mut self, now: Moment) -> bool {
        let wanted = match self.phase {
            Phase::Asking => self.queued,
            Phase::Holding => self.auto_renew && now < self.last_moment(),
            _ => false,
        };
        let begin = wanted && !self.renewing && self.check_or_asking(now);
        self.renewing |= begin;
        // A renewal that is under way may have been answered before it was taken away.
        self.in_doubt &= !begin;
        begin
    }

    /// Claims the right to extend; `false` while a renewal is under way.
    pub(crate) fn begin_extension(&mut self) -> bool {
        let begin = !self.renewing;
        self.renewing = true;
        begin
    }

    /// A renewal to `ttl` is about to be sent. If its answer is lost it may still be done.
    pub(crate) fn asked_to_last(&mut self, ttl: Duration) {
        self.longest = self.longest.max(ttl);
    }

    fn check_or_asking(&mut self, now: Moment) -> bool {
        self.phase == Phase::Asking || self.check(now).is_ok()
    }

    /// A renewal sent at `sent` with `ttl` was answered at `now`.
    pub(crate) fn renewed(&mut self, answer: &Renewed, ttl: Duration, sent: Moment, now: Moment) {
        if *answer == Renewed::Unknown {
            return self.renewal_failed(now);
        }
        self.renewing = false;
        // Past its deadline the lease is lost, whatever the answer is.
        if self.phase == Phase::Holding && self.check(now).is_err() {
            return;
        }
        match (&self.phase, answer) {
            (Phase::Asking | Phase::Holding, Renewed::Held(grant)) => {
                // A renewal that was under way during a conversion may tell the mode from before.
                if self.converted.is_none_or(|converted| converted < sent)
                    || mutant!("renewal_undoes_upgrade")
                {
                    self.grant = Some(*grant);
                }
                if self.phase == Phase::Holding {
                    self.good_until = self.deadline();
                }
                self.ttl = ttl;
                self.anchor = self.anchor.max(Some(sent));
                self.alive = self.anchor;
                self.retry_at = None;
            }
            // It was under way when the lock was granted, and tells what was true before.
            (Phase::Asking | Phase::Holding, Renewed::Waiting)
                if self.offered.is_some_and(|offered| sent < offered) => {}
            (Phase::Asking, Renewed::Waiting) => {
                self.anchor = self.anchor.max(Some(sent));
                self.alive = self.alive.max(Some(sent));
                self.retry_at = None;
                self.grant = None;
            }
            (Phase::Holding, Renewed::Lost(loss)) => self.lose(loss.clone()),
            (Phase::Holding, Renewed::Waiting) => self.lose(Loss::StateLost),
            // A waiter that is gone finds out by asking again.
            (Phase::Asking, Renewed::Lost(_)) => {
                self.queued = false;
                self.grant = None;
            }
            (Phase::Lost(_) | Phase::Ended, _) | (_, Renewed::Unknown) => {}
        }
    }

    /// A renewal failed or was not answered. One failure is not a loss: the store may have
    /// renewed the lease, and there is time to ask again.
    pub(crate) fn renewal_failed(&mut self, now: Moment) {
        self.renewing = false;
        self.retry_at = Some(now.plus((self.ttl / 12).min(Duration::from_secs(1))));
    }

    /// A renewal is over, or was given up before it was answered: then nothing is known, but no
    /// renewal makes the lease end earlier.
    pub(crate) fn renewal_over(&mut self) {
        self.renewing = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(3);

    fn at(millis: u64) -> Moment {
        Moment::new(Duration::from_millis(millis))
    }

    fn grant() -> Grant {
        Grant { fence: Fence::MAX, mode: Mode::Exclusive, took_over: false }
    }

    fn held_from(sent: u64, replied: u64) -> Tenure {
        let mut tenure = Tenure::new(TTL, true, None);
        tenure.asked(at(sent));
        tenure.offered(grant(), at(replied));
        assert_eq!(tenure.enter(at(replied)), Some(grant()));
        tenure
    }

    #[test]
    fn an_unknown_renewal_neither_loses_nor_extends() {
        let mut tenure = held_from(0, 10);
        let (deadline, first) = (tenure.deadline(), tenure.due());
        assert!(tenure.begin_renewal(first));
        tenure.renewed(&Renewed::Unknown, TTL, first, first);
        assert_eq!((tenure.deadline(), tenure.check(first).is_ok()), (deadline, true));
        let again = first.plus(TTL / 12);
        assert!(tenure.begin_renewal(again), "it is asked again");
        tenure.renewed(&Renewed::Held(grant()), TTL, again, again);
        assert!(tenure.deadline() > deadline);
    }

    #[test]
    fn a_lease_in_doubt_is_renewed_at_once_and_after_what_is_under_way() {
        let mut tenure = held_from(0, 10);
        let first = tenure.due();
        assert!(tenure.begin_renewal(first));
        assert!(tenure.doubt() && tenure.due() > first, "one after the other");
        tenure.renewed(&Renewed::Held(grant()), TTL, first, first);
        assert!(tenure.due() <= first && tenure.begin_renewal(first));
        tenure.renewed(&Renewed::Held(grant()), TTL, first, first);
        assert!(tenure.due() > first, "once is enough");
        let mut fixed = Tenure::new(TTL, false, None);
        assert!(!fixed.doubt());
    }

    #[test]
    fn validity_counts_from_the_send_minus_the_margin() {
        let mut tenure = held_from(100, 900);
        assert_eq!(tenure.deadline(), at(3_070));
        assert_eq!(tenure.check(at(3_069)), Ok(Duration::from_millis(1)));
        assert_eq!(tenure.check(at(3_070)), Err(Loss::Expired));
    }

    #[test]
    fn after_a_lost_reply_the_first_send_counts() {
        let mut tenure = Tenure::new(TTL, true, None);
        tenure.asked(at(0));
        tenure.asked(at(500));
        tenure.offered(grant(), at(600));
        tenure.enter(at(600)).unwrap();
        assert_eq!(tenure.deadline(), at(2_970));
    }

    #[test]
    fn a_waiter_counts_from_the_last_request_that_was_answered_not_yet() {
        let mut tenure = Tenure::new(TTL, true, None);
        tenure.asked(at(0));
        tenure.not_granted(at(0), true);
        tenure.asked(at(800));
        tenure.not_granted(at(800), true);
        tenure.asked(at(1_000));
        tenure.offered(grant(), at(1_010));
        assert_eq!(tenure.deadline(), at(3_770));
        assert!(!tenure.wants_confirmation(at(1_010)));
        assert!(tenure.wants_confirmation(at(1_101)));
    }

    #[test]
    fn a_waiter_that_asks_often_is_renewed_all_the_same() {
        let mut tenure = Tenure::new(TTL, true, None);
        for millis in [0, 250, 500, 750, 999] {
            tenure.asked(at(millis));
            tenure.not_granted(at(millis), true);
            assert_eq!(tenure.due(), at(1_000));
        }
        assert!(tenure.begin_renewal(at(1_000)));
        tenure.renewed(&Renewed::Waiting, TTL, at(1_000), at(1_001));
        assert_eq!(tenure.due(), at(2_000));
        // Granted, and not entered yet.
        assert!(tenure.begin_renewal(at(2_000)));
        tenure.renewed(&Renewed::Held(grant()), TTL, at(2_000), at(2_001));
        assert_eq!(tenure.due(), at(3_000));
    }

    #[test]
    fn an_offer_that_comes_too_late_is_not_entered() {
        let mut tenure = Tenure::new(TTL, true, None);
        tenure.asked(at(0));
        tenure.offered(grant(), at(2_970));
        assert_eq!(tenure.enter(at(2_970)), None);
    }

    #[test]
    fn a_failed_renewal_makes_it_suspect_and_a_later_one_heals_it() {
        let mut tenure = held_from(0, 0);
        assert_eq!(tenure.due(), at(1_000));
        assert!(tenure.begin_renewal(at(1_000)));
        tenure.renewal_failed(at(1_200));
        assert!(tenure.is_suspect());
        assert_eq!(tenure.due(), at(1_450));
        assert!(tenure.begin_renewal(at(1_450)));
        tenure.renewed(&Renewed::Held(grant()), TTL, at(1_450), at(1_500));
        assert!(!tenure.is_suspect());
        assert_eq!(tenure.deadline(), at(4_420));
    }

    #[test]
    fn a_renewal_sent_before_a_conversion_does_not_undo_it() {
        let shared = Grant { fence: Fence::ZERO, mode: Mode::Shared, took_over: false };
        let mut tenure = held_from(0, 0);
        assert!(tenure.begin_renewal(at(1_000)));
        tenure.converted(grant(), at(1_005));
        tenure.renewed(&Renewed::Held(shared), TTL, at(1_000), at(1_010));
        assert_eq!(tenure.grant(), Some(grant()));
        assert_eq!(tenure.deadline(), at(3_970));
        assert!(tenure.begin_renewal(at(2_000)));
        tenure.renewed(&Renewed::Held(shared), TTL, at(2_000), at(2_010));
        assert_eq!(tenure.grant(), Some(shared));
    }

    #[test]
    fn a_shorter_renewal_leaves_the_end_where_it_is() {
        let short = Duration::from_millis(1_000);
        let mut tenure = held_from(0, 0);
        assert!(tenure.begin_extension());
        tenure.asked_to_last(short);
        tenure.renewed(&Renewed::Held(grant()), short, at(500), at(510));
        tenure.renewal_over();
        assert_eq!((tenure.deadline(), tenure.ttl()), (at(2_970), short));
        assert!(tenure.due() <= at(834), "it is renewed as often as the shorter one needs");
        assert!(tenure.begin_renewal(at(2_500)));
        tenure.renewed(&Renewed::Held(grant()), short, at(2_500), at(2_510));
        assert_eq!(tenure.deadline(), at(3_490));
        // What could not be released is over when the longest is that was asked for.
        tenure.leave_to_store(at(2_600));
        tenure.end();
        assert_eq!(tenure.due(), at(5_600));
    }

    #[test]
    fn an_unanswered_step_down_counts_until_the_fence_is_another() {
        let mut tenure = held_from(0, 0);
        tenure.asked_to_become(Mode::Shared, Fence::MAX);
        assert_eq!(tenure.grant().unwrap().mode, Mode::Shared);
        // The request may be on its way still, whatever a renewal says.
        assert!(tenure.begin_renewal(at(1_000)));
        tenure.renewed(&Renewed::Held(grant()), TTL, at(1_000), at(1_010));
        assert_eq!(tenure.grant().unwrap().mode, Mode::Shared);
        assert_eq!(tenure.open_step_down(), Some(Mode::Shared));
        // Nor does a smaller step undo it.
        tenure.asked_to_become(Mode::Upgradable, Fence::MAX);
        assert_eq!(tenure.grant().unwrap().mode, Mode::Shared);
        tenure.converted(Grant { mode: Mode::Shared, ..grant() }, at(1_100));
        assert_eq!(tenure.open_step_down(), None);
        let upgraded = Grant { fence: Fence::ZERO, ..grant() };
        tenure.converted(upgraded, at(1_200));
        assert_eq!(tenure.grant(), Some(upgraded));
    }

    #[test]
    fn a_refused_step_down_changes_nothing() {
        let mut tenure = held_from(0, 0);
        let before = tenure.stepping_down();
        tenure.asked_to_become(Mode::Shared, Fence::MAX);
        tenure.refused_to_become(before);
        assert_eq!(tenure.grant(), Some(grant()));
    }

    #[test]
    fn an_unanswered_lengthening_changes_nothing() {
        let mut tenure = held_from(0, 0);
        assert!(tenure.begin_extension());
        tenure.asked_to_last(TTL * 2);
        tenure.renewal_over();
        assert_eq!(tenure.deadline(), at(2_970));
        assert!(!tenure.is_suspect());
    }

    #[test]
    fn failing_renewals_end_in_unreachable_at_the_deadline() {
        let mut tenure = held_from(0, 0);
        assert!(tenure.begin_renewal(at(1_000)));
        tenure.renewal_failed(at(1_500));
        assert_eq!(tenure.check(at(2_970)), Err(Loss::Unreachable));
    }

    #[test]
    fn an_answer_after_the_deadline_revives_nothing() {
        let mut tenure = held_from(0, 0);
        assert!(tenure.begin_renewal(at(2_900)));
        tenure.renewed(&Renewed::Held(grant()), TTL, at(2_900), at(2_980));
        assert_eq!(tenure.check(at(2_980)), Err(Loss::Expired));
    }

    #[test]
    fn a_renewal_that_raced_the_release_is_no_loss() {
        let mut tenure = held_from(0, 0);
        assert!(tenure.begin_renewal(at(1_000)));
        tenure.end();
        tenure.renewed(&Renewed::Lost(Loss::Released), TTL, at(1_000), at(1_001));
        assert_eq!(tenure.phase(), &Phase::Ended);
        assert_eq!(tenure.due(), Moment::NEVER);
    }

    #[test]
    fn a_waiters_renewal_that_is_answered_after_the_grant_takes_nothing_away() {
        for entered_before in [true, false] {
            let mut tenure = Tenure::new(TTL, true, None);
            tenure.asked(at(0));
            tenure.not_granted(at(0), true);
            assert!(tenure.begin_renewal(at(1_000)));
            tenure.offered(grant(), at(1_010));
            let entered = entered_before.then(|| tenure.enter(at(1_011)));
            tenure.renewed(&Renewed::Waiting, TTL, at(1_000), at(1_020));
            assert_eq!(entered.unwrap_or_else(|| tenure.enter(at(1_021))), Some(grant()));
            assert!(tenure.check(at(1_030)).is_ok());
            // What is said to a later question counts.
            assert!(tenure.begin_renewal(at(1_100)));
            tenure.renewed(&Renewed::Waiting, TTL, at(1_100), at(1_110));
            assert_eq!(tenure.check(at(1_111)), Err(Loss::StateLost));
        }
    }

    #[test]
    fn only_one_renewal_is_under_way_at_a_time() {
        let mut tenure = held_from(0, 0);
        assert!(tenure.begin_renewal(at(1_000)));
        assert!(!tenure.begin_renewal(at(1_001)));
        assert!(!tenure.begin_extension());
    }

    #[test]
    fn max_hold_ends_it_although_the_lease_is_good() {
        let mut tenure = Tenure::new(TTL, true, Some(Duration::from_millis(1_500)));
        tenure.asked(at(0));
        tenure.offered(grant(), at(0));
        tenure.enter(at(0)).unwrap();
        assert!(tenure.begin_renewal(at(1_000)));
        tenure.renewed(&Renewed::Held(grant()), TTL, at(1_000), at(1_000));
        assert_eq!(tenure.due(), at(1_500));
        assert_eq!(tenure.check(at(1_500)), Err(Loss::MaxHold));
    }

    #[test]
    fn a_fixed_lease_is_not_renewed_but_its_waiting_is() {
        let mut tenure = Tenure::new(TTL, false, None);
        tenure.asked(at(0));
        tenure.not_granted(at(0), true);
        assert_eq!(tenure.due(), at(1_000));
        assert!(tenure.begin_renewal(at(1_000)));
        tenure.renewed(&Renewed::Held(grant()), TTL, at(1_000), at(1_010));
        assert_eq!(tenure.enter(at(1_020)), Some(grant()));
        assert_eq!(tenure.due(), at(3_970));
        assert!(!tenure.begin_renewal(at(2_000)));
    }
}
