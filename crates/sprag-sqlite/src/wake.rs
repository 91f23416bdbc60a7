//! [`Wakeups`]: datagrams between the processes, one socket each.
//!
//! A wake-up may be lost, because the receiver's buffer is full or the sender died after its
//! commit; then the waiter's own timer finds out.
//!
//! A wake-up for a grant carries the fence, and the waiter enters without reading what was just
//! committed. It may come late, even after the lease has ended. That is as safe as an answer of
//! the database that comes late: the waiter counts its lease from its last question that was
//! answered "not yet", which was before the grant.
//!
//! A thread reads the socket. A waiter that lends its own thread reads it instead, and that thread
//! steps back: it is one wake-up less for each grant.

use std::fs::File;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use sprag_core::evictions::{EvictionFeed, Evictions};
use sprag_core::mailbox::Mailboxes;
use sprag_core::record::{Event, EventKind, Record};
use sprag_core::thread::{self, Lookout};
use sprag_core::{Fence, LeaseId, SessionId};

use crate::baton::{ForceCount, Heir};
use crate::leases::{Leases, Tenure};
use crate::message::{LONGEST, Message};
use crate::queue::Place;
use crate::session::Session;
use crate::watch::{Ended, Watches};

/// The longest path that fits into a socket address.
const MAX_SOCKET_PATH: usize = 107;
/// How many processes are told about a grant to a waiter of unknown process.
const MAX_BROADCAST: usize = 256;

/// The mailboxes of this process and what fills them.
#[derive(Debug)]
pub(crate) struct Wakeups {
    hub: Arc<Hub>,
    listening: Mutex<bool>,
}

#[derive(Debug)]
struct Hub {
    mailboxes: Mailboxes,
    evictions: EvictionFeed,
    leases: Mutex<Leases>,
    watches: Watches,
    session: Arc<Session>,
    /// Keeps the folder reachable by a short path.
    folder: File,
    sender: UnixDatagram,
    receiver: Mutex<Option<Arc<UnixDatagram>>>,
    /// How many waiters read the socket on their own threads.
    lookouts: AtomicUsize,
    /// Whether the thread reads the socket.
    attended: AtomicBool,
    /// Tells the thread to look again who reads the socket.
    nudge: OwnedFd,
    stopped: AtomicBool,
}

impl Wakeups {
    pub(crate) fn new(session: Arc<Session>) -> io::Result<Self> {
        let sender = UnixDatagram::unbound()?;
        sender.set_nonblocking(true)?;
        let hub = Hub {
            mailboxes: Mailboxes::default(),
            evictions: EvictionFeed::default(),
            leases: Mutex::default(),
            watches: Watches::new(Arc::clone(&session)),
            folder: File::open(&session.directory)?,
            session,
            sender,
            receiver: Mutex::default(),
            lookouts: AtomicUsize::new(0),
            attended: AtomicBool::new(true),
            nudge: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            stopped: AtomicBool::new(false),
        };
        Ok(Self { hub: Arc::new(hub), listening: Mutex::default() })
    }

    /// The mailboxes of this process.
    pub(crate) fn mailboxes(&self) -> &Mailboxes {
        &self.hub.mailboxes
    }

    /// The hints that locks of this process were taken away.
    pub(crate) fn evictions(&self) -> Evictions {
        if let Err(error) = self.listen() {
            tracing::warn!(%error, "no wake-ups for this process; renewals do it");
        }
        self.hub.evictions.subscribe()
    }

    /// Starts listening, unless it does already. Returns whether it just started: then a wake-up
    /// may have been missed, and the caller has to look again.
    pub(crate) fn listen(&self) -> io::Result<bool> {
        let mut listening = self.listening.lock().unwrap_or_else(PoisonError::into_inner);
        if *listening {
            return Ok(false);
        }
        let hub = Arc::clone(&self.hub);
        let path = hub.socket_path(hub.session.id);
        let receiver = UnixDatagram::bind(&path)?;
        hub.session.sharing.admit(&path)?;
        receiver.set_nonblocking(true)?;
        let receiver = Arc::new(receiver);
        *hub.receiver.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&receiver));
        let thread = std::thread::Builder::new().name("sprag-wake".into());
        thread.spawn(move || hub.receive(&receiver))?;
        *listening = true;
        Ok(true)
    }

    /// Sees to it that somebody reads the socket: the thread that asks, if it can be borrowed. The
    /// mailbox of who asks is open.
    pub(crate) fn attend(&self) {
        let hub = &self.hub;
        let lent = thread::borrow(|| Arc::clone(hub) as Arc<dyn Lookout>);
        if !lent && !hub.attended.load(Ordering::SeqCst) {
            hub.nudge();
        }
    }

    /// Tells the process of `event` about it, and about its heir.
    pub(crate) fn send(&self, event: &Event, heir: Option<Heir>) {
        let grant = (event.kind == EventKind::Granted).then_some(event.fence);
        let heir = heir.filter(|_| grant.is_some());
        let message = Message::Told { lease: event.lease, grant, heir };
        match event.session {
            Some(session) => self.hub.tell(session, message),
            // A detached lease does not say where its waiter is.
            None => {
                self.hub.hear(message);
                if grant.is_some() || event.is_eviction() {
                    self.hub.broadcast(message);
                }
            }
        }
    }

    /// From now on a grant to `lease`, which waits in the queue, is kept for it.
    pub(crate) fn await_grant(&self, lease: LeaseId, place: Place) {
        self.hub.leases().await_grant(lease, place);
    }

    /// Where `lease` waits.
    pub(crate) fn place_of(&self, lease: LeaseId) -> Option<Place> {
        self.hub.leases().place_of(lease)
    }

    /// The fence with which `lease` was granted since it waits, if that was told and counts.
    pub(crate) fn enter(&self, lease: LeaseId, force: &ForceCount) -> Option<Fence> {
        self.hub.leases().enter(lease, || force.mark())
    }

    /// Who let `lease` in and may not have written it yet.
    pub(crate) fn predecessor_of(&self, lease: LeaseId) -> Option<LeaseId> {
        self.hub.leases().predecessor_of(lease)?;
        self.hub.catch_up();
        self.hub.leases().predecessor_of(lease)
    }

    /// What `lease` was let in by is written.
    pub(crate) fn confirm(&self, lease: LeaseId) {
        self.hub.leases().confirm(lease);
    }

    /// From now on `lease` lets in nobody by itself.
    pub(crate) fn leave(&self, lease: LeaseId) {
        self.hub.leases().leave(lease);
    }

    /// Whether `lease` was let in by a message, and may have to let in its heir.
    pub(crate) fn holds(&self, lease: LeaseId) -> bool {
        self.hub.leases().holds(lease)
    }

    /// Lets in the heir of `lease`, which gives its lock back; returns what is known about it.
    pub(crate) fn pass_on(&self, lease: LeaseId) -> Tenure {
        // The heir was told after we were let in: mostly nobody has read that yet.
        self.hub.catch_up();
        let tenure = self.hub.leases().leave(lease);
        if let Some(Heir { lease: heir, session, fence, mark }) = tenure.heir {
            self.hub.tell(session, Message::Baton { lease: heir, fence, from: lease, mark });
            // The kernel likes to wake who is told something on the core of who tells it.
            std::thread::yield_now();
        }
        tenure
    }

    /// Watches the processes whose death would let `lease` move on.
    pub(crate) fn watch(&self, record: &Record, before: &[SessionId], lease: LeaseId) {
        if self.hub.watches.watch(record, before, lease, || ended(&self.hub)) {
            self.hub.mailboxes.notify(lease);
        }
    }

    /// Stops watching for `lease` and forgets what came for it.
    pub(crate) fn unwatch(&self, lease: LeaseId) {
        self.hub.mailboxes.close(lease);
        self.hub.leases().forget(lease);
        self.hub.watches.unwatch(lease);
    }

    /// Ends the thread, without waiting for it.
    pub(crate) fn stop(&self) {
        self.hub.stopped.store(true, Ordering::Release);
        let receiver = self.hub.receiver.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(receiver) = receiver
            && let Err(error) = receiver.shutdown(Shutdown::Both)
        {
            tracing::warn!(%error, "the wake-up thread could not be stopped");
        }
        self.hub.nudge();
    }
}

/// What a thread does when the session that it watches has ended. It may outlive the store.
fn ended(hub: &Arc<Hub>) -> Ended {
    let hub = Arc::downgrade(hub);
    Box::new(move |session| {
        let Some(hub) = hub.upgrade() else { return };
        hub.watches.ended(session).into_iter().for_each(|lease| hub.mailboxes.notify(lease));
    })
}

impl Hub {
    /// Where a session listens, by a path that fits into an address.
    fn socket_path(&self, session: SessionId) -> PathBuf {
        let name = Session::socket_name(session);
        let path = self.session.directory.join(&name);
        if path.as_os_str().len() <= MAX_SOCKET_PATH {
            return path;
        }
        PathBuf::from(format!("/proc/self/fd/{}", self.folder.as_raw_fd())).join(name)
    }

    fn leases(&self) -> MutexGuard<'_, Leases> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in what a waiter of this process is told, and wakes it.
    fn hear(&self, message: Message) {
        self.leases().hear(message);
        let (Message::Told { lease, .. } | Message::Baton { lease, .. }) = message;
        if matches!(message, Message::Told { grant: None, .. }) {
            self.evictions.tell(lease);
        }
        self.mailboxes.notify(lease);
    }

    fn tell(&self, session: SessionId, message: Message) {
        if session == self.session.id {
            return self.hear(message);
        }
        let path = self.socket_path(session);
        if let Err(error) = self.sender.send_to(message.write(&mut [0; LONGEST]), &path) {
            tracing::debug!(%error, ?session, "a wake-up was not delivered; a timer covers it");
        }
    }

    fn broadcast(&self, message: Message) {
        let Ok(entries) = std::fs::read_dir(&self.session.directory) else { return };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let sessions = names.filter_map(|name| name.strip_suffix(".sock")?.parse().ok());
        let others = sessions.filter(|session| *session != self.session.id);
        others.take(MAX_BROADCAST).for_each(|session| self.tell(session, message));
    }

    /// Reads what has come so far.
    fn catch_up(&self) {
        let receiver = self.receiver.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(receiver) = receiver {
            self.read_datagrams(&receiver);
        }
    }

    /// Whether the thread has to read the socket, which it also says. Who comes and sees that it
    /// was said wrongly nudges the thread; so it is said first, and looked at once more.
    fn attends(&self) -> bool {
        let alone = || self.lookouts.load(Ordering::SeqCst) == 0;
        loop {
            let attends = alone();
            self.attended.store(attends, Ordering::SeqCst);
            if attends == alone() {
                return attends;
            }
        }
    }

    fn nudge(&self) {
        if let Err(error) = rustix::io::write(&self.nudge, &1_u64.to_ne_bytes()) {
            tracing::debug!(%error, "the wake-up thread was not nudged; timers cover it");
        }
    }

    /// The thread: sleeps until a datagram comes.
    fn receive(&self, receiver: &UnixDatagram) {
        while !self.stopped.load(Ordering::Acquire) {
            let events = if self.attends() { PollFlags::IN } else { PollFlags::empty() };
            let mut sources =
                [PollFd::new(receiver, events), PollFd::new(&self.nudge, PollFlags::IN)];
            match poll(&mut sources, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    tracing::error!(%error, "the wake-up thread ends; timers take over");
                    return;
                }
            }
            // The waiter that was woken wants this core: nothing is read that was not reported.
            let [woken, nudged] = sources.map(|source| !source.revents().is_empty());
            if nudged && let Err(error) = rustix::io::read(&self.nudge, &mut [0; 8]) {
                tracing::trace!(%error, "the nudge of the wake-up thread is gone");
            }
            if woken {
                self.read_datagrams(receiver);
            }
        }
    }

    fn read_datagrams(&self, receiver: &UnixDatagram) {
        // One byte more, to see whether a datagram is too long to be one of ours.
        let mut datagram = [0; LONGEST + 1];
        while let Ok(length) = receiver.recv(&mut datagram) {
            if let Some(message) = Message::read(&datagram[..length]) {
                self.hear(message);
            }
            if self.stopped.load(Ordering::Acquire) {
                return;
            }
        }
    }
}

impl Lookout for Hub {
    fn look_out(&self, bell: BorrowedFd<'_>) {
        let receiver = self.receiver.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut sources = vec![PollFd::from_borrowed_fd(bell, PollFlags::IN)];
        sources.extend(receiver.as_deref().map(|receiver| PollFd::new(receiver, PollFlags::IN)));
        self.lookouts.fetch_add(1, Ordering::SeqCst);
        if self.attended.load(Ordering::SeqCst) {
            // Otherwise each grant would wake both.
            self.nudge();
        }
        // An interruption is an early return, and the caller polls again.
        let polled = poll(&mut sources, None);
        if let (Ok(_), Some(receiver)) = (polled, &receiver) {
            self.read_datagrams(receiver);
        }
        // Others of this process may wait, too.
        if self.lookouts.fetch_sub(1, Ordering::SeqCst) == 1 && self.mailboxes.count() > 1 {
            self.nudge();
        }
    }
}
