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

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::inotify::Reader;
use sprag_core::mailbox::Mailboxes;
use sprag_core::record::{Event, EventKind, Record};
use sprag_core::thread::{self, Lookout};
use sprag_core::{Fence, LeaseId, SessionId};

use crate::queue::Place;
use crate::session::Session;
use crate::watch::Watches;

/// The longest path that fits into a socket address.
const MAX_SOCKET_PATH: usize = 107;
/// A datagram: the lease, and the fence of its grant; zero if it was not granted.
const DATAGRAM: usize = 16 + 8;
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
    /// The leases that wait in a queue.
    awaited: Mutex<HashMap<LeaseId, Awaited>>,
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

/// What is known about a lease that waits in a queue.
#[derive(Debug)]
struct Awaited {
    /// Where it waits.
    place: Place,
    /// The fence with which it was granted since.
    granted: Option<Fence>,
}

impl Wakeups {
    pub(crate) fn new(session: Arc<Session>) -> io::Result<Self> {
        let sender = UnixDatagram::unbound()?;
        sender.set_nonblocking(true)?;
        let hub = Hub {
            mailboxes: Mailboxes::default(),
            awaited: Mutex::default(),
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
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
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

    /// Tells the process of `event` about it.
    pub(crate) fn send(&self, event: &Event) {
        let hub = &self.hub;
        match event.session {
            Some(session) if session != hub.session.id => hub.send_to(session, event),
            Some(_) => hub.deliver(event.lease, granted(event)),
            // A detached lease does not say where its waiter is.
            None => {
                hub.deliver(event.lease, granted(event));
                if event.kind == EventKind::Granted {
                    hub.broadcast(event);
                }
            }
        }
    }

    /// From now on a grant to `lease`, which waits in the queue, is kept for it.
    pub(crate) fn await_grant(&self, lease: LeaseId, place: Place) {
        self.hub.awaited().entry(lease).or_insert(Awaited { place, granted: None });
    }

    /// Where `lease` waits.
    pub(crate) fn place_of(&self, lease: LeaseId) -> Option<Place> {
        self.hub.awaited().get(&lease).map(|awaited| awaited.place)
    }

    /// The fence with which `lease` was granted since it waits, if that was told.
    pub(crate) fn take_grant(&self, lease: LeaseId) -> Option<Fence> {
        let mut awaited = self.hub.awaited();
        let fence = awaited.get(&lease)?.granted?;
        awaited.remove(&lease);
        Some(fence)
    }

    /// Watches the processes whose death would let `lease` move on.
    pub(crate) fn watch(&self, record: &Record, before: &[SessionId], lease: LeaseId) {
        if self.hub.watches.watch(record, before, lease) {
            self.hub.mailboxes.notify(lease);
        }
    }

    /// Stops watching for `lease` and forgets what came for it.
    pub(crate) fn unwatch(&self, lease: LeaseId) {
        self.hub.mailboxes.close(lease);
        self.hub.awaited().remove(&lease);
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

    fn awaited(&self) -> MutexGuard<'_, HashMap<LeaseId, Awaited>> {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes a waiter of this process.
    fn deliver(&self, lease: LeaseId, grant: Option<Fence>) {
        if let Some(fence) = grant
            && let Some(awaited) = self.awaited().get_mut(&lease)
        {
            awaited.granted = Some(fence);
        }
        self.mailboxes.notify(lease);
    }

    fn send_to(&self, session: SessionId, event: &Event) {
        let path = self.socket_path(session);
        let mut datagram = [0; DATAGRAM];
        datagram[..16].copy_from_slice(&event.lease.as_u128().to_be_bytes());
        let fence = granted(event).unwrap_or(Fence::ZERO);
        datagram[16..].copy_from_slice(&fence.get().to_be_bytes());
        if let Err(error) = self.sender.send_to(&datagram, &path) {
            tracing::debug!(%error, ?session, "a wake-up was not delivered; a timer covers it");
        }
    }

    fn broadcast(&self, event: &Event) {
        let Ok(entries) = std::fs::read_dir(&self.session.directory) else { return };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let sessions = names.filter_map(|name| name.strip_suffix(".sock")?.parse().ok());
        let others = sessions.filter(|session| *session != self.session.id);
        others.take(MAX_BROADCAST).for_each(|session| self.send_to(session, event));
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

    /// The thread: sleeps until a datagram comes or a watched process ends.
    fn receive(&self, receiver: &UnixDatagram) {
        let mut buffer = [MaybeUninit::uninit(); 1024];
        let (_, mut patience) = self.watches.examine();
        while !self.stopped.load(Ordering::Acquire) {
            let events = if self.attends() { PollFlags::IN } else { PollFlags::empty() };
            let mut sources =
                vec![PollFd::new(receiver, events), PollFd::new(&self.nudge, PollFlags::IN)];
            sources.extend(
                self.watches.source().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)),
            );
            let timeout = patience.and_then(|pause: Duration| Timespec::try_from(pause).ok());
            match poll(&mut sources, timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    tracing::error!(%error, "the wake-up thread ends; timers take over");
                    return;
                }
            }
            // Who was woken wants this core: nothing is asked that was not reported.
            let reported =
                |source: Option<&PollFd<'_>>| source.is_some_and(|s| !s.revents().is_empty());
            let [woken, nudged, ended] = [0, 1, 2].map(|index| reported(sources.get(index)));
            if nudged && let Err(error) = rustix::io::read(&self.nudge, &mut [0; 8]) {
                tracing::trace!(%error, "the nudge of the wake-up thread is gone");
            }
            if woken {
                self.read_datagrams(receiver);
            }
            if (woken || nudged) && !ended && patience.is_none() {
                continue;
            }
            if let Some(source) = self.watches.source() {
                let mut events = Reader::new(source.as_fd(), &mut buffer);
                while let Ok(event) = events.next() {
                    self.watches.suspect(event.wd());
                }
            }
            let (released, pause) = self.watches.examine();
            released.into_iter().for_each(|lease| self.mailboxes.notify(lease));
            patience = pause;
        }
    }

    fn read_datagrams(&self, receiver: &UnixDatagram) {
        // One byte more, to see whether a datagram is too long to be one of ours.
        let mut datagram = [0; DATAGRAM + 1];
        while let Ok(length) = receiver.recv(&mut datagram) {
            if let Some((lease, grant)) = read(&datagram[..length]) {
                self.deliver(lease, grant);
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

/// The fence, if the event is a grant.
fn granted(event: &Event) -> Option<Fence> {
    (event.kind == EventKind::Granted).then_some(event.fence)
}

fn read(datagram: &[u8]) -> Option<(LeaseId, Option<Fence>)> {
    let (lease, fence) = datagram.split_at_checked(16)?;
    let lease = LeaseId::from_u128(u128::from_be_bytes(lease.try_into().ok()?));
    let fence = Fence::new(u64::from_be_bytes(fence.try_into().ok()?))?;
    Some((lease, (fence > Fence::ZERO).then_some(fence)))
}
