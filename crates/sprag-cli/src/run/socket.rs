//! What a command under `sprag run` asks its wrapper, without the store.
//!
//! Whoever connects gets one line of JSON and the end: nothing has to be asked.

use std::fs::{self, DirBuilder};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sprag::Mode;
use sprag::entropy::{Entropy, OsEntropy};

/// How long the wrapper has to answer; a stopped one does not.
const PATIENCE: Duration = Duration::from_secs(3);

/// What a run says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    /// Which store its locks are in; see [`store_mark`].
    pub(crate) store: String,
    /// The session of its processes. What leaves it is a daemon, which the run does not wait for.
    pub(crate) session: i32,
    /// The socket of the run around it.
    pub(crate) outer: Option<PathBuf>,
    /// How it holds its locks.
    pub(crate) mode: Option<Mode>,
    /// Which of the slots it has.
    pub(crate) slot: Option<u32>,
    pub(crate) locks: Vec<Held>,
}

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

/// As it goes over the socket. What an older sprag does not say covers nothing.
#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    schema: u32,
    #[serde(default)]
    store: String,
    #[serde(default)]
    session: i32,
    #[serde(default)]
    outer: Option<PathBuf>,
    #[serde(default)]
    mode: Option<Mode>,
    #[serde(default)]
    slot: Option<u32>,
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
pub(crate) fn ask(socket: &Path) -> io::Result<Told> {
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
    Ok(Told {
        store: answer.store,
        session: answer.session,
        outer: answer.outer,
        mode: answer.mode,
        slot: answer.slot,
        locks: answer.locks.into_iter().map(held).collect(),
    })
}

/// A short text that two runs on one store have in common, without the secrets of its URL.
pub(crate) fn store_mark(url: &str) -> String {
    let mut hasher = DefaultHasher::new();
    url.hash(&mut hasher);
    // What else says where it is: these URLs mean another place in other surroundings.
    if url == "sqlite:" || url.starts_with("sqlite:?") {
        ["XDG_STATE_HOME", "HOME"].map(std::env::var_os).hash(&mut hasher);
    } else if url.starts_with("git:") {
        let here = std::env::current_dir().unwrap_or_default();
        here.ancestors().find(|folder| folder.join(".git").exists()).hash(&mut hasher);
    }
    format!("{:016x}", hasher.finish())
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
    pub(crate) fn serve(&self, told: impl Fn() -> Told) {
        while let Ok((mut client, _)) = self.listener.accept() {
            let line = |held: Held| Line {
                lock: held.lock,
                token: held.token,
                held: held.safe_for.is_some(),
                safe_for_ms: held.safe_for.map_or(0, crate::output::view::millis),
            };
            let Told { store, session, outer, mode, slot, locks } = told();
            let answer = serde_json::to_vec(&Answer {
                schema: crate::output::SCHEMA,
                store,
                session,
                outer,
                mode,
                slot,
                locks: locks.into_iter().map(line).collect(),
            });
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
    use super::{Desk, Held, Told, ask};
    use sprag::Mode;
    use std::time::Duration;

    #[test]
    fn who_connects_is_told_and_the_file_goes_with_the_desk() {
        let desk = Desk::open().unwrap();
        let path = desk.path().to_owned();
        let told = Told {
            store: "0f".into(),
            session: 7,
            outer: Some("/run/outer.sock".into()),
            mode: Some(Mode::Permits { count: 1, of: 3 }),
            slot: Some(2),
            locks: vec![
                Held { lock: "a".into(), token: 41, safe_for: Some(Duration::from_millis(1500)) },
                Held { lock: "b".into(), token: 7, safe_for: None },
            ],
        };
        let asker = std::thread::spawn({
            let path = path.clone();
            move || ask(&path).unwrap()
        });
        while !asker.is_finished() {
            desk.serve(|| told.clone());
        }
        assert_eq!(asker.join().unwrap(), told);
        drop(desk);
        assert!(!path.exists());
        assert!(ask(&path).is_err());
    }
}
