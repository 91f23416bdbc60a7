//! [`Home`]: a user with nothing but a temporary directory.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use regex_lite::Regex;
use serde_json::Value;
use tempfile::TempDir;

/// A home without settings, and a place for locks that nobody else uses.
pub(crate) struct Home {
    folder: TempDir,
}

/// What a command answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Home {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["work", "tmp", "run"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        Self { folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file and the folders above it.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        // Whatever the umask of these tests is: what others can change is not read.
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        std::fs::set_permissions(&path, permissions).unwrap();
        path
    }

    /// The URL of a store on a git repository.
    pub(crate) fn git_store(&self) -> String {
        let bare = self.path("locks.git");
        let made = Command::new("git").args(["init", "-q", "--bare"]).arg(&bare).status();
        assert!(made.unwrap().success());
        format!("git+file://{}", bare.display())
    }

    /// The command with these arguments, in the directory `work`.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sprag"));
        self.dress(&mut command);
        command.args(args);
        command
    }

    /// Gives a command this home and nothing else.
    pub(crate) fn dress(&self, command: &mut Command) {
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.folder.path())
            .env("USER", "tester")
            // Wherever the tests run, they are in no container.
            .env("container", "")
            .env("TMPDIR", self.path("tmp"))
            .env("XDG_RUNTIME_DIR", self.path("run"))
            .current_dir(self.path("work"))
            .stdin(Stdio::null());
    }

    /// Runs `sprag` with these arguments.
    pub(crate) fn sprag(&self, args: &[&str]) -> Answer {
        Answer::of(self.command(args).output().unwrap())
    }

    /// As `sprag`, with more in the environment.
    pub(crate) fn sprag_with(&self, env: &[(&str, &str)], args: &[&str]) -> Answer {
        let env = env.iter().copied();
        Answer::of(self.command(args).envs(env).output().unwrap())
    }

    /// Starts `sprag` with its output in a pipe.
    pub(crate) fn start(&self, args: &[&str]) -> Child {
        let mut command = self.command(args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Takes a lease of a lock; what `acquire --json` says.
    pub(crate) fn acquire(&self, name: &str) -> Value {
        self.sprag(&["acquire", name, "--ttl", "10m", "--json"]).ok().json()
    }

    /// Waits until somebody waits for the lock.
    pub(crate) fn until_queued(&self, name: &str) {
        for _ in 0..2000 {
            let seen = self.sprag(&["show", name, "--json"]).ok().json();
            if !seen["waiters"].as_array().unwrap().is_empty() {
                return;
            }
        }
        panic!("nobody waits for {name}");
    }

    /// A text without what is different each time.
    pub(crate) fn mask(&self, text: &str) -> String {
        let text = text.replace(&self.folder.path().display().to_string(), "HOME");
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let text = text.replace(&format!("@{host}#"), "@HOST#");
        let mut text = text.replace(&format!("\"{host}\""), "\"HOST\"");
        for (pattern, mask) in [
            (r"[0-9a-f]{32}(@[a-z]+(-[0-9a-f]{8})?)?", "LEASE"),
            (r"@HOST#\d+", "@HOST#PID"),
            (r"\b\d{16}\b", "TOKEN"),
            (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d( UTC|Z)", "TIME"),
            (r"\d\d:\d\d:\d\dZ", "TIME"),
            (r"\b(\d+(\.\d+)?(ms|[smhd]))+\b", "SPAN"),
        ] {
            text = Regex::new(pattern).unwrap().replace_all(&text, mask).into_owned();
        }
        text
    }
}

impl Answer {
    fn of(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Self {
            code: output.status.code().unwrap_or(-1),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }

    /// It has to have worked.
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }

    /// It has to have ended with this code.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        self
    }

    /// The JSON on stdout.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The JSON on stderr, without the schema.
    #[track_caller]
    pub(crate) fn error(&self) -> Value {
        let said: Value =
            serde_json::from_str(&self.err).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        assert_eq!(said["schema"], 1);
        said["error"].clone()
    }
}

/// The names of all commands, from the help.
pub(crate) fn commands(home: &Home) -> Vec<String> {
    let help = home.sprag(&["--help"]).ok().out;
    let list = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let names = list.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names: Vec<_> =
        names.map(|line| line.split_whitespace().next().unwrap().to_owned()).collect();
    assert!(names.len() > 15, "{names:?}");
    names.into_iter().filter(|name| name != "help").collect()
}

/// A path as text.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
