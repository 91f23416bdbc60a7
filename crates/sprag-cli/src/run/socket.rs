//! What a command under `sprag run` asks its wrapper, without the store.
//!
//! Whoever connects gets one line of JSON and the end: nothing has to be asked.

use std::fs::{self, DirBuilder, File, Metadata};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::process::getuid;
use serde::{Deserialize, Serialize};
use sprag::Mode;
use sprag::entropy::{Entropy, OsEntropy};

use crate::code::Code;
use crate::failure::Failure;

/// How long the wrapper has to answer; a stopped one does not.
const PATIENCE: Duration = Duration::from_secs(3);
/// The longest answer that is read, and the longest URL.
const LONGEST_ANSWER: usize = 1 << 20;
const LONGEST_URL: usize = 64 << 10;

/// What a run says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    /// Which store its locks are in; see [`store_mark`].
    pub(crate) store: String,
    /// The URL of that store, which may have a secret in it. Only for processes of this user that ask
    /// with [`ask_for_store`], and never in the text that scripts read.
    pub(crate) url: Option<String>,
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
    let wrapper = UnixStream::connect(socket)?;
    let (told, _) = receive(&wrapper)?;
    Ok(told)
}

/// Asks the wrapper behind `SPRAG_SOCKET` for the URL of its store; `None` if it does not tell, as one of
/// an older sprag.
pub(crate) fn ask_for_store(socket: &Path) -> io::Result<Option<String>> {
    let wrapper = UnixStream::connect(socket)?;
    if !is_ours(&wrapper) {
        let message = "it belongs to another user";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    let (_, descriptor) = receive(&wrapper)?;
    let Some(descriptor) = descriptor else { return Ok(None) };
    let mut text = vec![0; LONGEST_URL];
    let length = File::from(descriptor).read_at(&mut text, 0)?;
    text.truncate(length);
    let text = String::from_utf8(text).map_err(|_| io::ErrorKind::InvalidData)?;
    Ok(Some(text))
}

/// Whether the other end is a process of this user.
fn is_ours(peer: &UnixStream) -> bool {
    socket_peercred(peer).is_ok_and(|peer| peer.uid == getuid())
}

/// Reads the answer, and the descriptor that comes with it.
fn receive(wrapper: &UnixStream) -> io::Result<(Told, Option<OwnedFd>)> {
    wrapper.set_read_timeout(Some(PATIENCE))?;
    let (mut text, mut descriptor) = (Vec::new(), None);
    let mut bytes = [0; 4096];
    while text.len() < LONGEST_ANSWER {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let read = match recvmsg(wrapper, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => continue,
            other => other?.bytes,
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                descriptor = descriptors.into_iter().next().or(descriptor);
            }
        }
        if read == 0 {
            break;
        }
        text.extend_from_slice(&bytes[..read]);
    }
    Ok((read_answer(&text)?, descriptor))
}

fn read_answer(text: &[u8]) -> io::Result<Told> {
    let answer: Answer = serde_json::from_slice(text)?;
    let held = |line: Line| Held {
        lock: line.lock,
        token: line.token,
        safe_for: line.held.then(|| Duration::from_millis(line.safe_for_ms)),
    };
    Ok(Told {
        store: answer.store,
        url: None,
        session: answer.session,
        outer: answer.outer,
        mode: answer.mode,
        slot: answer.slot,
        locks: answer.locks.into_iter().map(held).collect(),
    })
}

/// A short text that two runs on one store have in common, without the secrets of its URL. That is
/// [absolute](crate::store::absolute).
pub(crate) fn store_mark(url: &str) -> String {
    let mut hasher = DefaultHasher::new();
    url.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// The wrapper's end; its file is removed when it is dropped.
#[derive(Debug)]
pub(crate) struct Desk {
    listener: UnixListener,
    path: PathBuf,
}

impl Desk {
    /// Opens a socket that only this user can reach; `None` where none can be made, and then no
    /// command inside can ask.
    ///
    /// # Errors
    ///
    /// If its folder is not safe: others could answer in our place.
    pub(crate) fn open() -> Result<Option<Self>, Failure> {
        Self::check_folder()?;
        Ok(Self::bind().ok())
    }

    /// Refuses a folder of sockets that is not safe, before anything is waited for.
    pub(crate) fn check_folder() -> Result<(), Failure> {
        match folder() {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let message = format!("no socket can be made for the command: {error}");
                let advice = "remove it, or set XDG_RUNTIME_DIR or TMPDIR to a folder of yours";
                Err(Failure::new(Code::Config, message).advice(advice))
            }
            _ => Ok(()),
        }
    }

    fn bind() -> io::Result<Self> {
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
        while let Ok((client, _)) = self.listener.accept() {
            let line = |held: Held| Line {
                lock: held.lock,
                token: held.token,
                held: held.safe_for.is_some(),
                safe_for_ms: held.safe_for.map_or(0, crate::output::view::millis),
            };
            let Told { store, url, session, outer, mode, slot, locks } = told();
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
                let url = url.filter(|_| is_ours(&client));
                drop(send(&client, &answer, url.as_deref()));
            }
        }
    }
}

/// Sends the answer, and with it a descriptor from which the URL can be read.
fn send(mut client: &UnixStream, answer: &[u8], url: Option<&str>) -> io::Result<()> {
    let descriptor = url.map(in_memory).transpose()?;
    let descriptors: Vec<_> = descriptor.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
    }
    let parts = [IoSlice::new(answer)];
    let sent = sendmsg(client, &parts, &mut control, SendFlags::NOSIGNAL)?;
    client.write_all(&answer[sent..])
}

fn in_memory(text: &str) -> io::Result<File> {
    let file = File::from(memfd_create("sprag-store", MemfdFlags::CLOEXEC)?);
    file.write_all_at(text.as_bytes(), 0)?;
    Ok(file)
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

/// A folder that only this user can enter, in one where nobody else can put another in its place.
fn folder() -> io::Result<PathBuf> {
    let user = getuid().as_raw();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let path = match runtime.filter(|path| path.is_absolute() && path.is_dir()) {
        Some(runtime) => runtime.join("sprag"),
        None => std::env::temp_dir().join(format!("sprag-{user}")),
    };
    match DirBuilder::new().mode(0o700).create(&path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let unsafe_because = |why: &str| {
        let message = format!("{} {why}", path.display());
        Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
    };
    let found = fs::symlink_metadata(&path)?;
    if !found.is_dir() {
        return unsafe_because("is not a folder, which may be somebody's trap");
    }
    if found.uid() != user {
        return unsafe_because("belongs to another user");
    }
    if found.mode() & 0o077 != 0 {
        return unsafe_because("is open to other users");
    }
    let around = path.parent().unwrap_or(Path::new("/"));
    if !keeps_what_is_in_it(&fs::metadata(around)?, user) {
        return unsafe_because("is in a folder where other users can replace it");
    }
    Ok(path)
}

/// Whether only this user and root can remove what this user has in a folder.
fn keeps_what_is_in_it(folder: &Metadata, user: u32) -> bool {
    let sticky = folder.mode() & 0o1000 != 0;
    [0, user].contains(&folder.uid()) && (folder.mode() & 0o022 == 0 || sticky)
}

#[cfg(test)]
mod tests {
    use super::{Desk, Held, Told, ask, ask_for_store};
    use sprag::Mode;
    use std::time::Duration;

    #[test]
    fn who_connects_is_told_and_the_file_goes_with_the_desk() {
        let desk = Desk::open().unwrap().unwrap();
        let path = desk.path().to_owned();
        let told = Told {
            store: "0f".into(),
            url: Some("redis://:secret@host".into()),
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
        let said = asker.join().unwrap();
        assert_eq!(said, Told { url: None, ..told.clone() }, "a secret is not for everybody");
        let asker = std::thread::spawn({
            let path = path.clone();
            move || ask_for_store(&path).unwrap()
        });
        while !asker.is_finished() {
            desk.serve(|| told.clone());
        }
        assert_eq!(asker.join().unwrap(), told.url);
        drop(desk);
        assert!(!path.exists());
        assert!(ask(&path).is_err());
    }
}
