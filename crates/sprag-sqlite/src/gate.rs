//! [`Gate`]: the file lock in front of every write.
//!
//! The gate is for patience and order: who waits for it sleeps in the kernel, instead of in
//! SQLite's busy handler, which lets single commits wait for seconds. It is not what makes a
//! write safe; that is the transaction behind it. If somebody deletes the gate file, two
//! processes may be inside at once and one of them starts its transaction again.
//!
//! In front of the gate is the lobby, a second file of the same kind, for those who want a lock.
//! One of them at a time stands at the gate, so that who gives a lock back waits for one request
//! and not for a crowd. It is good manners, too: who sees that nobody has come through the lobby
//! for a while, and that the gate is free, goes around it. Who comes through it counts up a number
//! in its file.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use crate::place::Place;
use crate::sharing::Sharing;

/// One open file description of the gate. Two of them exclude each other, also in one process.
#[derive(Debug)]
pub(crate) struct Gate(File);

/// Being inside; dropped to leave.
#[derive(Debug)]
pub(crate) struct Inside<'a>(&'a File);

impl Gate {
    pub(crate) fn open(path: &Path, sharing: Sharing) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).truncate(false);
        sharing.open(path, &options).map(Self)
    }

    /// Enters if nobody is inside.
    pub(crate) fn try_enter(&self) -> io::Result<Option<Inside<'_>>> {
        match self.0.try_lock() {
            Ok(()) => Ok(Some(Inside(&self.0))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Waits until it is inside, which may be never: a stopped process keeps the gate.
    pub(crate) fn enter(&self) -> io::Result<Inside<'_>> {
        loop {
            match self.0.lock() {
                Ok(()) => return Ok(Inside(&self.0)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits until it is called, and counts.
    pub(crate) fn be_called(&self) -> io::Result<Inside<'_>> {
        let inside = self.enter()?;
        self.0.write_all_at(&self.calls().wrapping_add(1).to_ne_bytes(), 0)?;
        Ok(inside)
    }

    /// How many have come through; zero if that cannot be read.
    pub(crate) fn calls(&self) -> u64 {
        let mut number = [0; 8];
        self.0.read_exact_at(&mut number, 0).map_or(0, |()| u64::from_ne_bytes(number))
    }

    /// Waits in the lobby and at the gate like everybody else, but at most for `patience`; for
    /// opening, where there is no worker yet. Asking again and again instead would never meet a
    /// gate at which others always stand.
    pub(crate) fn enter_within(place: &Place, patience: Duration) -> io::Result<Option<Entered>> {
        let gate = Self::open(&place.gate, place.sharing)?;
        if gate.0.try_lock().is_ok() {
            return Ok(Some(Entered(gate.0)));
        }
        let lobby = Self::open(&place.lobby, place.sharing)?;
        let (sender, receiver) = mpsc::sync_channel(0);
        let wait = move || {
            let entered = lobby.be_called().and_then(|called| {
                gate.0.lock()?;
                drop(called);
                Ok(Entered(gate.0))
            });
            // If nobody is there to take it any more, it is left at once.
            drop(sender.send(entered));
        };
        std::thread::Builder::new().name("sprag-gate".into()).spawn(wait)?;
        match receiver.recv_timeout(patience) {
            Ok(entered) => entered.map(Some),
            Err(_) => Ok(None),
        }
    }
}

/// Being inside, with a description of one's own; dropped to leave.
#[derive(Debug)]
pub(crate) struct Entered(File);

impl Drop for Entered {
    fn drop(&mut self) {
        leave(&self.0);
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        leave(self.0);
    }
}

fn leave(file: &File) {
    if let Err(error) = file.unlock() {
        tracing::error!(%error, "the gate of the lock database could not be unlocked");
    }
}

#[cfg(test)]
mod tests {
    use super::Gate;
    use crate::place::Place;
    use crate::sharing::Sharing;
    use std::time::Duration;

    #[test]
    fn one_at_a_time_also_within_a_process() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::prepare(&dir.path().join("locks.db"), Sharing::User).unwrap();
        let (one, two) = (
            Gate::open(&place.gate, place.sharing).unwrap(),
            Gate::open(&place.gate, place.sharing).unwrap(),
        );
        let within = |millis| Gate::enter_within(&place, Duration::from_millis(millis)).unwrap();
        let inside = one.try_enter().unwrap().unwrap();
        assert!(two.try_enter().unwrap().is_none());
        assert!(within(3).is_none());
        drop(inside);
        // Whoever gave up leaves as soon as it gets in.
        let inside = within(10_000).unwrap();
        assert!(two.try_enter().unwrap().is_none());
        drop(inside);
        drop(two.enter().unwrap());
    }

    #[test]
    fn who_opens_gets_in_although_others_always_stand_at_the_gate() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::prepare(&dir.path().join("locks.db"), Sharing::User).unwrap();
        let over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let gate = Gate::open(&place.gate, place.sharing).unwrap();
                    while !over.load(std::sync::atomic::Ordering::Relaxed) {
                        let _inside = gate.enter().unwrap();
                        std::thread::yield_now();
                    }
                });
            }
            for _ in 0..20 {
                assert!(Gate::enter_within(&place, Duration::from_secs(20)).unwrap().is_some());
            }
            over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }
}
