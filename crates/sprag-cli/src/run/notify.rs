//! What systemd is told with `--sd-notify`.

use std::ffi::OsString;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Where systemd listens, if it does.
#[derive(Clone, Debug)]
pub(crate) struct Notify(Option<OsString>);

impl Notify {
    pub(crate) fn new(wanted: bool) -> Self {
        Self(std::env::var_os("NOTIFY_SOCKET").filter(|_| wanted))
    }

    /// Says what goes on.
    pub(crate) fn status(&self, text: &str) {
        self.send(&format!("STATUS={text}"));
    }

    /// Says that the lock is held and the command runs.
    pub(crate) fn ready(&self, text: &str) {
        self.send(&format!("READY=1\nSTATUS={text}"));
    }

    /// Says that it ends.
    pub(crate) fn stopping(&self) {
        self.send("STOPPING=1");
    }

    fn send(&self, text: &str) {
        let Some(path) = &self.0 else { return };
        let address = match path.as_bytes().strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name),
            None => SocketAddr::from_pathname(path),
        };
        // Nobody to tell it to that it could not be told.
        if let (Ok(address), Ok(socket)) = (address, UnixDatagram::unbound()) {
            drop(socket.send_to_addr(text.as_bytes(), &address));
        }
    }
}
