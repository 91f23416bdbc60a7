//! [`Sshd`]: an sshd of this user, with keys of its own.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use super::Repository;
use crate::keeper::Keeper;
use crate::redis_server::free_port;
use crate::support::eventually;

const HINT: &str = "an sshd is needed; please type:\n  \
                    sudo apt-get install -y openssh-server openssh-client\n\
                    or leave out the tests with git servers with SPRAG_SKIP=git";

/// An sshd on a free port of this machine, which lets in who has its key.
#[derive(Debug)]
pub(super) struct Sshd {
    keeper: Keeper,
    port: u16,
}

impl Sshd {
    pub(super) async fn start(repository: &Repository) -> Self {
        let port = free_port();
        // Its git has to be the one that made the repository.
        let programs = repository.run(&["--exec-path"]);
        let mut keeper = Keeper::new(|folder| {
            prepare(folder, port, &programs);
            let mut command = vec!["/usr/sbin/sshd".into()];
            command.extend(["-D", "-e", "-f"].map(Into::into));
            command.push(folder.join("config").into_os_string());
            command
        });
        keeper.start();
        eventually("the sshd listens", || async {
            assert!(!keeper.has_ended(), "{}\n{HINT}", keeper.output());
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        })
        .await;
        Self { keeper, port }
    }

    pub(super) fn url(&self, repository: &Repository) -> String {
        format!("ssh://127.0.0.1:{}{}", self.port, repository.path().display())
    }

    /// How ssh has to be called, so that it takes nothing from the user's own files.
    pub(super) fn command(&self) -> String {
        let folder = self.keeper.folder().display();
        format!(
            "ssh -F none -i {folder}/key -o IdentitiesOnly=yes -o StrictHostKeyChecking=no \
             -o UserKnownHostsFile={folder}/known_hosts -o LogLevel=ERROR"
        )
    }
}

fn prepare(folder: &Path, port: u16, programs: &str) {
    for name in ["host", "key"] {
        let mut make = Command::new("ssh-keygen");
        make.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(folder.join(name));
        let made = make.status().unwrap_or_else(|e| panic!("no ssh-keygen ({e}): {HINT}"));
        assert!(made.success(), "no key could be made");
    }
    fs::rename(folder.join("key.pub"), folder.join("authorized")).expect("a key was made");
    // Where sshd is started by root it wants this folder, and nobody else may make it.
    fs::create_dir_all("/run/sshd").ok();
    let config = format!(
        "Port {port}\nListenAddress 127.0.0.1\nHostKey {0}/host\nAuthorizedKeysFile {0}/authorized\n\
         PidFile none\nUsePAM no\nStrictModes no\nPasswordAuthentication no\nPermitRootLogin yes\n\
         AcceptEnv GIT_PROTOCOL\nMaxStartups 200\nSetEnv PATH={programs}:/usr/local/bin:/usr/bin:/bin\n",
        folder.display()
    );
    fs::write(folder.join("config"), config).expect("a configuration can be written");
}
