//! [`Desk`]: what a clone remembers between commands, in `.git/sprag`; or a machine, of issues.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sprag_core::clock::{BootClock, Clock};
use sprag_core::{Fence, Holder, LeaseId};
use sprag_ledger::Oid;

use crate::error::{Error, Result};
use crate::name::ItemName;

/// The folder with what is remembered here. Everything in it can be lost: then claims that were
/// made here are freed as those of other machines are.
#[derive(Clone, Debug)]
pub(crate) struct Desk(PathBuf);

/// A claim that was made here, as it is written down: before it is made, so that it is known
/// whenever its process dies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClaimNote {
    /// What tells it from every other claim, in the holder's reason.
    pub(crate) id: String,
    pub(crate) item: ItemName,
    /// The item's folder.
    pub(crate) path: String,
    pub(crate) branch: String,
    /// The commit of main that the work began with.
    pub(crate) base: Oid,
    /// Where the remote's branch was made.
    pub(crate) at: Oid,
    pub(crate) lease: LeaseId,
    pub(crate) fence: Fence,
    pub(crate) worktree: Option<PathBuf>,
    /// Whether the claim outlives the process that made it.
    pub(crate) detached: bool,
    /// Whose claim it is, for people.
    #[serde(default)]
    pub(crate) worker: Option<String>,
}

/// A claim's file. Whoever works under the claim has it locked; the lock ends with the process and
/// with all that it was handed to.
#[derive(Debug)]
pub(crate) struct Slip {
    path: PathBuf,
    file: File,
}

impl Desk {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self(folder)
    }

    /// A folder in the folder.
    pub(crate) fn folder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.0.join(name);
        let failed = |error| Error::system(format!("cannot make {}", folder.display()), &error);
        std::fs::create_dir_all(&folder).map_err(failed)?;
        Ok(folder)
    }

    /// A folder for what is needed for a moment.
    pub(crate) fn temporary(&self) -> Result<PathBuf> {
        self.folder("tmp")
    }

    /// The path of a file in the folder.
    pub(crate) fn file(&self, name: &str) -> Result<PathBuf> {
        Ok(self.folder("")?.join(name))
    }

    /// Replaces a file as a whole.
    pub(crate) fn write(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let made = self.temporary()?.join(format!("file-{}-{number}", std::process::id()));
        let failed = |error| Error::system(format!("cannot write {}", path.display()), &error);
        std::fs::write(&made, bytes).and_then(|()| std::fs::rename(&made, path)).map_err(|error| {
            std::fs::remove_file(&made).ok();
            failed(error)
        })
    }

    /// Waits for one's turn among those who have this folder; it is over when the file is closed.
    /// Whoever waits for too long goes on without: the one before may be stopped.
    pub(crate) fn turn(&self, name: &str, patience: Duration) -> Result<Option<File>> {
        let path = self.file(&format!("{name}.lock"))?;
        let failed = |error| Error::system(format!("cannot lock {}", path.display()), &error);
        let file = open(&path).map_err(failed)?;
        let give_up = BootClock.now().plus(patience);
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Some(file)),
                Err(TryLockError::Error(error)) => return Err(failed(error)),
                Err(TryLockError::WouldBlock) if BootClock.now() >= give_up => return Ok(None),
                Err(TryLockError::WouldBlock) => {
                    std::thread::park_timeout(Duration::from_millis(10));
                }
            }
        }
    }

    /// Removes what processes left behind that are gone.
    pub(crate) fn tidy(&self) -> Result<()> {
        let folder = self.temporary()?;
        let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        for entry in entries {
            let name = entry.file_name().to_string_lossy().into_owned();
            let process = name.split('-').nth(1).unwrap_or_default().to_owned();
            if !Path::new("/proc").join(process).exists() {
                std::fs::remove_file(entry.path()).ok();
            }
        }
        Ok(())
    }

    fn slip_path(&self, item: &ItemName) -> Result<PathBuf> {
        Ok(self.folder("claims")?.join(format!("{item}.json")))
    }

    /// Opens the file for a claim on an item and locks it; `None` if another process has.
    pub(crate) fn slip(&self, item: &ItemName) -> Result<Option<Slip>> {
        let path = self.slip_path(item)?;
        let failed = |error| Error::system(format!("cannot open {}", path.display()), &error);
        loop {
            let file = open(&path).map_err(failed)?;
            match file.try_lock() {
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(failed(error)),
                Ok(()) => {}
            }
            // It may have been removed between the two.
            if is_at(&file, &path) {
                return Ok(Some(Slip { path, file }));
            }
        }
    }

    /// The claims that are written down here.
    pub(crate) fn notes<N: DeserializeOwned>(&self) -> Result<Vec<N>> {
        let entries = std::fs::read_dir(self.folder("claims")?).into_iter().flatten().flatten();
        let texts = entries.filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
        Ok(texts.filter_map(|text| serde_json::from_str(&text).ok()).collect())
    }
}

impl ClaimNote {
    /// What the holder says about itself.
    pub(crate) fn reason(&self) -> String {
        format!("{} (claim {})", self.branch, self.id)
    }

    /// Whether a holder is this claim.
    pub(crate) fn is_about(&self, holder: &Holder) -> bool {
        holder.reason.as_deref() == Some(self.reason().as_str())
    }
}

impl Slip {
    /// Writes the claim down.
    pub(crate) fn write(&mut self, note: &impl Serialize) -> Result<()> {
        let failed = |error| Error::system(format!("cannot write {}", self.path.display()), &error);
        let text = serde_json::to_string(note).unwrap_or_default();
        let write = |file: &mut File| {
            file.set_len(0)?;
            file.rewind()?;
            file.write_all(text.as_bytes())
        };
        write(&mut self.file).map_err(failed)
    }

    /// The claim that is written down.
    pub(crate) fn read<N: DeserializeOwned>(&mut self) -> Option<N> {
        let mut text = String::new();
        self.file.rewind().ok()?;
        self.file.read_to_string(&mut text).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// The claim is over.
    pub(crate) fn remove(self) {
        self.erase();
    }

    /// As [`remove`](Self::remove), for whoever only borrowed it.
    pub(crate) fn erase(&self) {
        // Left behind, it says that nobody works under it, as the lock is free.
        std::fs::remove_file(&self.path).ok();
    }

    /// A second handle: the claim is alive as long as one of them is open.
    pub(crate) fn lifeline(&self) -> Option<std::os::fd::OwnedFd> {
        self.file.try_clone().ok().map(Into::into)
    }
}

fn open(path: &Path) -> std::io::Result<File> {
    // Whoever can read a claim can use it.
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Whether a file is the one that is at its path now.
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let same = |one: &std::fs::Metadata, two: &std::fs::Metadata| one.ino() == two.ino();
    matches!((file.metadata(), std::fs::metadata(path)), (Ok(one), Ok(two)) if same(&one, &two))
}
