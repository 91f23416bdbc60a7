//! What a command under `sprag run` asks its wrapper, without the store.
//!
//! Whoever connects gets one line of JSON and the end: nothing has to be asked.

use std::fs::{self, DirBuilder};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sprag::entropy::{Entropy, OsEntropy};

/// How long the wrapper has to answer; a stopped one does not.
const PATIENCE: Duration = Duration::from_secs(1);

/// What the wrapper says about one of its locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    /// The lock's name.
    pub(crate) lock: String,
    /// Its fence.
    pub(crate) token: u64,
    /// For how long it is surely held; `None` if it is lost.
    pub(crate) safe_for: Option<Duration>,
}

/// As it goes over the socket.
#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    schema: u32,
    locks: Vec<Line>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Line {
    lock: String,
    token: u64,
    held: bool,
    safe_for_ms: u64,
}

/// Asks the wrapper behind `SPRAG_SOCKET`.
pub(crate) fn ask(socket: &Path) -> io::Result<Vec<Held>> {
    let mut wrapper = UnixStream::connect(socket)?;
    wrapper.set_read_timeout(Some(PATIENCE))?;
    let mut text = Vec::new();
    wrapper.read_to_end(&mut text)?;
    let answer: Answer = serde_json::from_slice(&text)?;
    let held = |line: Line| Held {
        lock: line.lock,
        token: line.token,
        safe_for: line.held.then(|| Duration::from_millis(line.safe_for_ms)),
    };
    Ok(answer.locks.into_iter().map(held).collect())
}

/// The wrapper's end; its file is removed when it is dropped.
#[derive(Debug)]
pub(crate) struct Desk {
    listener: UnixListener,
    path: PathBuf,
}

impl Desk {
    /// Opens a socket that only this user can reach.
    pub(crate) fn open() -> io::Result<Self> {
        // Processes of two containers may have the same number.
        let random = OsEntropy.next_u128() >> 96;
        let path = folder()?.join(format!("{}-{random:08x}.sock", std::process::id()));
        let listener = UnixListener::bind(&path)?;
        let desk = Self { listener, path };
        fs::set_permissions(&desk.path, fs::Permissions::from_mode(0o600))?;
        desk.listener.set_nonblocking(true)?;
        Ok(desk)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Answers everybody who has asked.
    pub(crate) fn serve(&self, held: impl Fn() -> Vec<Held>) {
        while let Ok((mut client, _)) = self.listener.accept() {
            let line = |held: Held| Line {
                lock: held.lock,
                token: held.token,
                held: held.safe_for.is_some(),
                safe_for_ms: held.safe_for.map_or(0, crate::output::view::millis),
            };
            let locks = held().into_iter().map(line).collect();
            let answer = serde_json::to_vec(&Answer { schema: crate::output::SCHEMA, locks });
            // Who does not read the answer does not want it; it must not keep us waiting.
            if let (Ok(answer), Ok(())) = (answer, client.set_nonblocking(true)) {
                drop(client.write_all(&answer));
            }
        }
    }
}

impl AsFd for Desk {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.path));
    }
}

/// A folder that only this user can enter.
fn folder() -> io::Result<PathBuf> {
    let user = rustix::process::getuid().as_raw();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let path = match runtime.filter(|path| path.is_absolute() && path.is_dir()) {
        Some(runtime) => runtime.join("sprag"),
        None => std::env::temp_dir().join(format!("sprag-{user}")),
    };
    match DirBuilder::new().mode(0o700).create(&path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = fs::symlink_metadata(&path)?;
    if found.is_dir() && found.uid() == user && found.mode() & 0o077 == 0 {
        return Ok(path);
    }
    let message = format!("{} is not a folder of yours alone", path.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
}

#[cfg(test)]
mod tests {
    use super::{Desk, Held, ask};
    use std::time::Duration;

    #[test]
    fn who_connects_is_told_and_the_file_goes_with_the_desk() {
        let desk = Desk::open().unwrap();
        let path = desk.path().to_owned();
        let held = vec![
            Held { lock: "a".into(), token: 41, safe_for: Some(Duration::from_millis(1500)) },
            Held { lock: "b".into(), token: 7, safe_for: None },
        ];
        let asker = std::thread::spawn({
            let path = path.clone();
            move || ask(&path).unwrap()
        });
        while !asker.is_finished() {
            desk.serve(|| held.clone());
        }
        assert_eq!(asker.join().unwrap(), held);
        drop(desk);
        assert!(!path.exists());
        assert!(ask(&path).is_err());
    }
}
