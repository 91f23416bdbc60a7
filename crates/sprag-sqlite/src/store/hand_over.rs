//! Between the baton and the release that is written, anything may happen.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::executor::block_on;
use sprag_core::audit::{AuditKind, AuditQuery};
use sprag_core::entropy::OsEntropy;
use sprag_core::store::{
    Attempt, Bind, Conversion, Converted, Grant, Released, Renewal, Renewed, Request, Takeover,
};
use sprag_core::{Holder, LeaseId, LockName, Loss, Mode, PartyId, Store};

use super::SqliteStore;

/// Four processes: the first one let the second in, to whom the third is the heir.
struct Scene {
    _folder: tempfile::TempDir,
    path: PathBuf,
    holder: Process,
    heir: Process,
    last: Process,
}

struct Process {
    store: SqliteStore,
    request: Request,
}

impl Process {
    fn new(path: &Path) -> Self {
        let lease = LeaseId::random(&OsEntropy);
        let request = Request {
            name: LockName::new("job").unwrap(),
            lease,
            party: PartyId::from_u128(lease.as_u128()),
            mode: Mode::Exclusive,
            ttl: Duration::from_secs(30),
            queue: true,
            priority: 0,
            holder: Holder::default(),
            detached: false,
            fixed: false,
            takeover: Takeover::No,
            resize: false,
        };
        Self { store: SqliteStore::open(path).unwrap(), request }
    }

    fn ask(&self) -> Attempt {
        block_on(self.store.try_acquire(&self.request)).unwrap()
    }

    /// Asks, and is let in.
    fn enter(&self) -> Grant {
        match self.ask() {
            Attempt::Granted(grant) => grant,
            other => panic!("not let in: {other:?}"),
        }
    }

    /// Asks, and is not let in.
    fn waits(&self) {
        assert!(matches!(self.ask(), Attempt::Queued(_)));
    }

    /// Enters as soon as something is heard.
    fn enter_when_told(&self) -> Grant {
        block_on(self.store.changed(&self.request.name, self.request.lease));
        self.enter()
    }

    /// The first half of a release: the heir is told, nothing is written.
    fn pass_on(&self) {
        let tenure = self.store.inner.shared.wakeups.pass_on(self.request.lease);
        assert!(tenure.heir.is_some(), "there is an heir");
    }

    fn release(&self) -> Released {
        block_on(self.store.release(&self.request.name, self.request.lease)).unwrap()
    }

    fn renew(&self) -> Renewed {
        let Request { name, lease, ttl, .. } = self.request.clone();
        let renewal = Renewal { name, lease, ttl, bind: Bind::Keep };
        block_on(self.store.renew(&[renewal])).unwrap().remove(0)
    }

    /// The fences of those who hold the lock, as it is written.
    fn written(&self) -> Vec<u64> {
        let view = block_on(self.store.inspect(&self.request.name)).unwrap();
        view.holders.iter().map(|holder| holder.fence.get()).collect()
    }
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sprag.db");
        let [first, holder, heir, last] = [(); 4].map(|()| Process::new(&path));
        first.enter();
        [&holder, &heir, &last].into_iter().for_each(Process::waits);
        assert_eq!(first.release(), Released::Freed);
        holder.enter_when_told();
        Self { _folder: folder, path, holder, heir, last }
    }

    /// The holder has passed the lock on, and died or was stopped before it was written.
    fn passed_on(self) -> (Self, Grant) {
        let before = self.holder.written();
        self.holder.pass_on();
        let grant = self.heir.enter_when_told();
        assert_eq!(self.last.written(), before, "nothing is written yet");
        assert!(grant.fence.get() > before[0]);
        (self, grant)
    }

    fn forced(&self) -> Process {
        let mut robber = Process::new(&self.path);
        robber.request.takeover = Takeover::Force;
        robber.enter();
        robber
    }
}

#[test]
fn nobody_else_is_let_in_while_the_release_is_not_written() {
    let (scene, grant) = Scene::new().passed_on();
    let mut urgent = Process::new(&scene.path);
    urgent.request.priority = 8;
    urgent.waits();
    scene.last.waits();
    // The holder ends without having written it.
    drop(scene.holder);
    urgent.waits();
    assert_eq!(urgent.written(), [grant.fence.get()], "the heir has what it was told");
    assert_eq!(scene.heir.renew(), Renewed::Held(grant));
    scene.heir.release();
    urgent.enter_when_told();
    scene.last.waits();
}

#[test]
fn an_heir_that_is_faster_writes_the_release_of_the_one_before() {
    let (scene, grant) = Scene::new().passed_on();
    assert_eq!(scene.heir.release(), Released::Freed);
    scene.last.enter_when_told();
    assert_eq!(scene.holder.release(), Released::AlreadyGone(Loss::Released));
    assert_eq!(scene.heir.release(), Released::AlreadyGone(Loss::Released));
    // Both of its steps are in the trail, in order.
    let trail = block_on(scene.last.store.audit(&AuditQuery::default())).unwrap();
    let of_heir = trail.iter().filter(|entry| entry.fence == grant.fence);
    let kinds: Vec<_> = of_heir.map(|entry| entry.kind).collect();
    assert!(matches!(kinds[..], [AuditKind::Acquired, AuditKind::Released]), "{kinds:?}");
}

#[test]
fn who_gives_its_lease_away_lets_nobody_in() {
    let scene = Scene::new();
    let Request { name, lease, ttl, .. } = scene.holder.request.clone();
    let renewal = Renewal { name, lease, ttl, bind: Bind::Detach };
    let renewed = block_on(scene.holder.store.renew(&[renewal])).unwrap().remove(0);
    assert!(matches!(renewed, Renewed::Held(_)));
    let tenure = scene.holder.store.inner.shared.wakeups.pass_on(lease);
    assert_eq!(tenure.heir, None, "whoever has the ticket decides when it ends");
    scene.heir.waits();
}

#[test]
fn an_heir_can_renew_and_convert_what_is_not_written_yet() {
    let (scene, grant) = Scene::new().passed_on();
    assert_eq!(scene.heir.renew(), Renewed::Held(grant));
    let (scene, grant) = Scene::new().passed_on();
    let Request { name, lease, .. } = scene.heir.request.clone();
    let conversion = Conversion { name, lease, fence: grant.fence, to: Mode::Shared, queue: false };
    let converted = block_on(scene.heir.store.convert(&conversion)).unwrap();
    assert!(matches!(converted, Converted::Done(done) if done.mode == Mode::Shared));
}

#[test]
fn an_heir_that_went_away_leaves_the_lock_to_the_next() {
    let scene = Scene::new();
    drop(scene.heir);
    scene.holder.release();
    scene.last.enter_when_told();
    // It had entered already.
    let (scene, _) = Scene::new().passed_on();
    drop(scene.heir);
    scene.last.waits();
    scene.holder.release();
    scene.last.enter_when_told();
}

#[test]
fn who_was_robbed_by_force_lets_nobody_in() {
    let scene = Scene::new();
    let robber = scene.forced();
    // It was stopped meanwhile, and has not heard of it.
    scene.holder.store.inner.shared.wakeups.pass_on(scene.holder.request.lease);
    assert!(!matches!(scene.heir.ask(), Attempt::Granted(_)));
    scene.last.waits();
    assert!(matches!(robber.renew(), Renewed::Held(_)));
}

#[test]
fn a_baton_from_before_force_does_not_count_after_it() {
    let scene = Scene::new();
    scene.holder.pass_on();
    block_on(scene.heir.store.changed(&scene.heir.request.name, scene.heir.request.lease));
    let robber = scene.forced();
    assert!(!matches!(scene.heir.ask(), Attempt::Granted(_)), "it came too late");
    assert!(matches!(robber.renew(), Renewed::Held(_)));
}

#[test]
fn force_robs_an_heir_that_is_inside() {
    let (scene, _) = Scene::new().passed_on();
    let robber = scene.forced();
    let lost = scene.heir.renew();
    assert!(matches!(lost, Renewed::Lost(Loss::Stolen { forced: true, .. })), "{lost:?}");
    scene.last.waits();
    assert!(matches!(robber.renew(), Renewed::Held(_)));
}
