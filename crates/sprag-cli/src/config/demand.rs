//! [`Demand`]: a line of a project's file that counts only after `sprag config trust`.
//!
//! The file may come with a clone or an archive of somebody else. It may say where the locks are and
//! how long to wait, but nothing that sends a secret somewhere, names a file with one, or runs a
//! program.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::code::Code;
use crate::failure::Failure;
use crate::output::plain::shell_word;

/// The variables that any file may read; `sprag explain config` lists them.
const OPEN_VARIABLES: &[&str] =
    &["HOME", "USER", "LOGNAME", "HOSTNAME", "TMPDIR", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"];

/// The parameters of URLs that name no file, no secret and no other address. What is not listed
/// needs trust, also what a later version adds.
const OPEN_PARAMETERS: &[&str] = &[
    "abandoned",
    "allow_eviction",
    "busy_timeout_ms",
    "by_git",
    "fences",
    "group",
    "human_override",
    "limits",
    "longest_ttl_ms",
    "max_free_records",
    "max_locks",
    "min_replicas",
    "mirror",
    "mode",
    "namespace",
    "node_timeout_ms",
    "notes",
    "poll_max_ms",
    "poll_min_ms",
    "poll_ms",
    "port",
    "prefix",
    "queue",
    "restart_quarantine",
    "settle_ms",
    "sslmode",
    "timeout_ms",
    "tls",
    "user",
];

/// The variables with a secret that a store of this scheme is given, wherever it is.
const SECRETS: &[(&str, &[&str])] = &[
    ("redis", &["REDISCLI_AUTH"]),
    ("rediss", &["REDISCLI_AUTH"]),
    ("redlock", &["REDISCLI_AUTH"]),
    ("postgres", &["PGPASSWORD"]),
    ("postgresql", &["PGPASSWORD"]),
];

/// A line of a file that counts only when the user trusts the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Demand {
    /// The setting: `store`, `stores.prod`, `work.github.api`.
    pub(crate) key: String,
    pub(crate) path: PathBuf,
    pub(crate) line: usize,
    /// What in it needs trust, to be read after the key.
    pub(crate) what: String,
}

impl Demand {
    /// Why a command that needs this setting is not done.
    pub(crate) fn failure(&self) -> Failure {
        let Self { key, path, line, what } = self;
        let path = path.display();
        let message = format!("{path}:{line}: {key} {what}, and you have not trusted this file");
        Failure::new(Code::Untrusted, message)
            .hint("see what it says", "sprag config")
            .hint(
                "if you trust it",
                format!("sprag config trust {}", shell_word(&path.to_string())),
            )
            .detail("file", self.path.display().to_string())
            .detail("line", *line)
    }
}

/// What in the URL of a store, as it is written in a file, needs trust.
pub(super) fn of_url(text: &str, env: &impl Fn(&str) -> Option<String>) -> Option<String> {
    let names = text.split("${").skip(1).map(|part| part.split('}').next().unwrap_or_default());
    if let Some(closed) = names.into_iter().find(|name| !OPEN_VARIABLES.contains(name)) {
        return Some(format!("reads the variable {closed}"));
    }
    let text = super::expand(text, env).ok()?;
    // A name of another entry.
    let (scheme, after) = text.split_once(':')?;
    let scheme = scheme.to_ascii_lowercase();
    let (rest, query) = after.split_once('?').unwrap_or((after, ""));
    let parameters = query.split('&').filter(|pair| !pair.is_empty());
    for parameter in parameters {
        let name = parameter.split('=').next().unwrap_or_default();
        // A host of PostgreSQL that is a folder with a socket, and nothing else.
        let socket = name == "host" && parameter.starts_with("host=/");
        if !socket && !OPEN_PARAMETERS.contains(&name) {
            return Some(shown_parameter(name));
        }
    }
    let login = rest.rsplit_once('@').map_or("", |(login, _)| login);
    if login.trim_start_matches('/').contains(':') {
        return Some("has a password".to_owned());
    }
    let family = scheme.split('+').next().unwrap_or_default();
    let secrets = SECRETS.iter().find(|(known, _)| *known == family);
    let is_set = |name: &&&str| env(name).is_some_and(|value| !value.is_empty());
    if let Some(secret) = secrets.and_then(|(_, names)| names.iter().find(is_set)) {
        return Some(format!("would be sent the secret in {secret}"));
    }
    if family.starts_with("postgres") && has_password_for_all(env) {
        return Some("would be sent a password that ~/.pgpass has for every host".to_owned());
    }
    match scheme.as_str() {
        "github" => of_repository(rest.trim_matches('/')),
        "git+file" => of_repository_here(Path::new(rest.strip_prefix("//")?)),
        "git" if !rest.starts_with("//") => of_remote(rest),
        _ => None,
    }
}

/// Whether the file with passwords for PostgreSQL has one for whichever host asks.
fn has_password_for_all(env: &impl Fn(&str) -> Option<String>) -> bool {
    let named = env("PGPASSFILE").filter(|path| !path.is_empty());
    let usual = || env("HOME").map(|home| format!("{home}/.pgpass"));
    let file = named.or_else(usual).filter(|path| Path::new(path).is_file());
    let text = file.and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
    text.lines().any(|line| line.starts_with("*:"))
}

/// A password with an ampersand in it looks like a parameter, and is not shown.
fn shown_parameter(name: &str) -> String {
    const KNOWN: &[&str] = &[
        "api",
        "insecure",
        "password",
        "password_file",
        "sentinel_password",
        "service",
        "show_node",
        "sslrootcert",
        "state",
        "tls_ca",
        "tls_cert",
        "tls_key",
        "token_file",
    ];
    match KNOWN.contains(&name) {
        true => format!("has the parameter {name}"),
        false => "has a parameter that needs trust".to_owned(),
    }
}

/// What in the name of a repository on GitHub needs trust: a server that would be sent the token of
/// servers of one's own.
pub(super) fn of_repository(repository: &str) -> Option<String> {
    let parts: Vec<_> = repository.split('/').collect();
    let [host, _, _] = parts[..] else { return None };
    let plain = host.eq_ignore_ascii_case("github.com");
    (!plain).then(|| "names a server that would be sent a token".to_owned())
}

/// What in a folder for worktrees needs trust: a place outside of where worktrees are made.
pub(super) fn of_folder(folder: &str) -> Option<String> {
    let path = Path::new(folder);
    let outside = path.is_absolute() || path.components().any(|part| part.as_os_str() == "..");
    outside.then(|| "names a folder outside of the repository".to_owned())
}

fn of_remote(name: &str) -> Option<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if !name.chars().all(plain) || name.starts_with(['-', '.']) {
        return Some("names a remote by a path".to_owned());
    }
    let url = git(&["remote", "get-url", "--push", name])?;
    let path = url.strip_prefix("file://").unwrap_or(&url);
    // As git tells them apart: a colon before the first slash is a host.
    let colon = path.find(':').unwrap_or(usize::MAX);
    if path.is_empty() || colon < path.find('/').unwrap_or(path.len()) {
        return None;
    }
    // A relative one begins at the top of the worktree, or at the repository without one.
    let top = ["--show-toplevel", "--absolute-git-dir"].map(|what| git(&["rev-parse", what]));
    let top = top.into_iter().flatten().find(|top| !top.is_empty()).unwrap_or_default();
    of_repository_here(&Path::new(&top).join(path))
}

/// What git says, if it says anything.
fn git(args: &[&str]) -> Option<String> {
    let mut git = Command::new("git");
    git.args(args).stdin(Stdio::null()).stderr(Stdio::null());
    let output = git.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim_end_matches('\n').to_owned())
}

/// What in a repository on this machine needs trust: a push runs its hooks, as us.
fn of_repository_here(path: &Path) -> Option<String> {
    let with_suffix = |suffix: &str| {
        let mut path = path.as_os_str().to_owned();
        path.push(suffix);
        PathBuf::from(path)
    };
    let forms = [path.to_owned(), path.join(".git"), with_suffix(".git"), with_suffix(".git/.git")];
    let runs = forms.iter().any(|repository| has_hooks(repository) || has_programs(repository));
    // A path with an encoded part, or with a file that points elsewhere, is not looked into.
    let unclear = path.as_os_str().as_encoded_bytes().contains(&b'%') || forms[1].is_file();
    (runs || unclear).then(|| "names a repository on this machine that runs hooks".to_owned())
}

fn has_hooks(repository: &Path) -> bool {
    let Ok(hooks) = repository.join("hooks").read_dir() else { return false };
    hooks.flatten().any(|hook| !hook.file_name().as_encoded_bytes().ends_with(b".sample"))
}

/// Settings of a repository that name programs, or other files with settings.
fn has_programs(repository: &Path) -> bool {
    const PROGRAMS: [&str; 6] =
        ["hookspath", "command", "include", "fsmonitor", "program", "worktreeconfig"];
    let Ok(config) = std::fs::read(repository.join("config")) else { return false };
    let config = String::from_utf8_lossy(&config).to_ascii_lowercase();
    PROGRAMS.iter().any(|setting| config.contains(setting))
}

#[cfg(test)]
mod tests {
    use super::{of_folder, of_repository, of_url};

    fn needs(url: &str) -> Option<String> {
        let set = |name: &str| match name {
            "HOME" => Some("/users/me".to_owned()),
            "PGPASSWORD" => Some("hunter2".to_owned()),
            _ => None,
        };
        of_url(url, &set)
    }

    #[test]
    fn stores_and_their_manners_need_no_trust() {
        for url in [
            "prod",
            "sqlite:./locks.db?busy_timeout_ms=5",
            "sqlite:${HOME}/locks.db",
            "memory:x",
            "redis://me@db:6379/2?prefix=a&timeout_ms=9",
            "redlock://a:1,b:2,c:3",
            "rediss://db",
            "git+ssh://git@host:22/locks.git",
            "git+https://host/locks.git",
            "git:no-remote-of-this-name",
            "github://acme/app?queue=true",
            "github://github.com/acme/app",
        ] {
            assert_eq!(needs(url), None, "{url}");
        }
    }

    #[test]
    fn what_sends_or_names_a_secret_needs_trust_and_shows_none() {
        for (url, what) in [
            ("redis://${AWS_SECRET_ACCESS_KEY}.example", "the variable AWS_SECRET_ACCESS_KEY"),
            ("sqlite:${HOME}/${X}", "the variable X"),
            ("redis://me:hunter2@db", "a password"),
            ("redis://:hunter2@db", "a password"),
            ("postgres://db/app", "the secret in PGPASSWORD"),
            ("postgresql://db/app?password=hunter2", "the parameter password"),
            ("postgres://db/app?host=example.com", "a parameter"),
            ("redis://db?hunter2", "a parameter that needs trust"),
            ("GitHub://acme/app?api=https://example.com", "the parameter api"),
            ("github://acme/app?queue=true&token_file=/etc/shadow", "the parameter token_file"),
            ("github://acme/app?state=/users/me", "the parameter state"),
            ("github://example.com/acme/app", "a server"),
            ("git+http://host/a?insecure=true", "the parameter insecure"),
            ("git+https://me:hunter2@host/a", "a password"),
            ("git+file:///a%2fb", "runs hooks"),
            ("git:./evil.git", "a remote by a path"),
            ("git:..", "a remote by a path"),
        ] {
            let said = needs(url).unwrap_or_else(|| panic!("{url} needs no trust"));
            assert!(said.contains(what) && !said.contains("hunter2"), "{url}: {said}");
        }
    }

    #[test]
    fn servers_and_folders_of_others_need_trust() {
        assert_eq!(of_repository("acme/app"), None);
        assert!(of_repository("ghe.corp/acme/app").is_some());
        assert_eq!(of_folder("trees"), None);
        assert!(of_folder("/users/me/.config").is_some() && of_folder("a/../../b").is_some());
    }
}
