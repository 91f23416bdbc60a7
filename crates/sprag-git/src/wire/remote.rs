//! [`Remote`]: the way to a server.

use std::path::PathBuf;
use std::process::Command;

use rustix::fs::{Access, access};

use super::stream::{Socket, converse};
use super::{Advert, Failure, Http, Reply, Service, broken};
use crate::error::{GitError, Trouble};
use crate::git::{Git, clean};
use crate::url::SshUrl;

/// The way to a server that is spoken to without git's help.
#[derive(Debug)]
pub(crate) enum Remote {
    /// A repository on this machine.
    Local(Git, PathBuf),
    /// By ssh, with the user's command for it if there is one.
    Ssh { git: Git, url: SshUrl, command: Option<String> },
    /// A `git daemon`.
    Daemon { git: Git, host: String, port: u16, path: String },
    /// By HTTP.
    Http(Http),
}

impl Remote {
    /// Whether we may write, as far as it is known without doing it.
    pub(crate) fn check_rights(&self) -> Result<(), GitError> {
        let Self::Local(_, path) = self else { return Ok(()) };
        let mut places = [path.join(".git"), path.clone()].into_iter();
        let place = places.find(|place| place.join("objects").is_dir());
        let refused = |e| {
            let message = format!("{} is not ours to write to: {e}", path.display());
            GitError::new(Trouble::Forbidden, message)
        };
        place.map_or(Ok(()), |place| access(&place, Access::WRITE_OK).map_err(refused))
    }

    /// Asks once. What is asked may depend on what the server says about itself.
    pub(crate) fn ask(
        &self,
        service: Service,
        request: &mut dyn FnMut(&Advert) -> Result<Vec<u8>, GitError>,
    ) -> Result<Reply, Failure> {
        let what = match service {
            Service::UploadPack => "git fetch",
            Service::ReceivePack => "git push",
        };
        match self {
            Self::Local(git, path) => {
                let verb = service.name().trim_start_matches("git-");
                let mut command = git.command([verb]);
                command.arg(path);
                with_version(&mut command, service);
                converse(&mut git.start(&mut command)?, service, what, git.timeout, request)
            }
            Self::Ssh { git, url, command } => {
                let mut command = ssh(url, command.as_deref(), service);
                with_version(&mut command, service);
                converse(&mut git.start(&mut command)?, service, what, git.timeout, request)
            }
            Self::Daemon { git, host, port, path } => {
                let mut socket = Socket::connect(host, *port, git.timeout)
                    .map_err(|e| broken(what, &e, "", git.timeout))?;
                let version = match service {
                    Service::UploadPack => "\0version=2\0",
                    Service::ReceivePack => "",
                };
                let mut hello = Vec::new();
                let name = service.name();
                super::put(&mut hello, format!("{name} {path}\0host={host}:{port}\0{version}"));
                std::io::Write::write_all(&mut socket, &hello)
                    .map_err(|e| broken(what, &e, "", git.timeout))?;
                converse(&mut socket, service, what, git.timeout, request)
            }
            Self::Http(http) => http.ask(service, what, request),
        }
    }
}

/// Version 2 is for reading alone; a server that is to be written to would not know it.
fn with_version(command: &mut Command, service: Service) {
    match service {
        Service::UploadPack => command.env("GIT_PROTOCOL", "version=2"),
        Service::ReceivePack => command.env_remove("GIT_PROTOCOL"),
    };
}

fn ssh(url: &SshUrl, own: Option<&str>, service: Service) -> Command {
    let mut command = match own {
        // As git does it: what the user set is for a shell.
        Some(own) => {
            let mut shell = Command::new("sh");
            shell.arg("-c").arg(format!("{own} \"$@\"")).arg(own);
            shell
        }
        None => Command::new("ssh"),
    };
    clean(&mut command);
    command.args(["-o", "SendEnv=GIT_PROTOCOL"]);
    if let Some(port) = url.port {
        command.arg("-p").arg(port.to_string());
    }
    let host = match &url.user {
        Some(user) => format!("{user}@{}", url.host),
        None => url.host.clone(),
    };
    let path = url.path.replace('\'', r"'\''").replace('!', r"'\!'");
    command.arg(host).arg(format!("{} '{path}'", service.name()));
    command
}
