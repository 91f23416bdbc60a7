//! Passwords that stand outside of URLs: in files with nothing else, and in `.pgpass`.

#[cfg(feature = "postgres")]
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
#[cfg(feature = "postgres")]
use std::os::unix::fs::MetadataExt;
use std::path::Path;
#[cfg(feature = "postgres")]
use std::path::PathBuf;

use sprag_core::{Error, ErrorKind, Operation, Result};

/// The largest file that is read.
const LARGEST: u64 = 1 << 20;

/// The password in a file of its own, as `password_file` names it: its first line.
pub(super) fn of_file(path: &Path) -> Result<String> {
    let refused = |why: String| {
        let message = format!("the password_file {} {why}", path.display());
        Error::new(ErrorKind::Refused, Operation::Open, message)
    };
    let text = read(path).map_err(|cause| refused(format!("cannot be read: {cause}")))?;
    match text.lines().next() {
        Some(line) if !line.is_empty() => Ok(line.to_owned()),
        _ => Err(refused("has no password in its first line".to_owned())),
    }
}

fn read(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(LARGEST).read_to_string(&mut text)?;
    Ok(text)
}

/// What a password of PostgreSQL is for.
#[cfg(feature = "postgres")]
#[derive(Clone, Copy, Debug)]
pub(super) struct Login<'a> {
    pub(super) host: &'a str,
    pub(super) port: u16,
    pub(super) database: &'a str,
    pub(super) user: &'a str,
}

/// The password in the file that libpq reads: the one that `PGPASSFILE` names, else `~/.pgpass`.
///
/// # Errors
///
/// Refused if others can read the file and it has this password.
#[cfg(feature = "postgres")]
pub(super) fn of_pgpass(
    login: Login<'_>,
    env: impl Fn(&str) -> Option<OsString>,
) -> Result<Option<String>> {
    let set = |name: &str| env(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let Some(path) = set("PGPASSFILE").or_else(|| Some(set("HOME")?.join(".pgpass"))) else {
        return Ok(None);
    };
    // A file that is not there, or a device such as /dev/null, is no file of passwords.
    let Some(metadata) = path.metadata().ok().filter(std::fs::Metadata::is_file) else {
        return Ok(None);
    };
    let text = read(&path).unwrap_or_default();
    let found = text.lines().find_map(|line| password_in(line, login));
    if found.is_some() && metadata.mode() & 0o077 != 0 {
        let path = path.display();
        let message = format!(
            "{path} has the password, and others can read it (mode {:03o}): type chmod 600 {path}",
            metadata.mode() & 0o777
        );
        return Err(Error::new(ErrorKind::Refused, Operation::Open, message));
    }
    Ok(found)
}

/// The password of a line `host:port:database:user:password`, if it is for this login.
#[cfg(feature = "postgres")]
fn password_in(line: &str, login: Login<'_>) -> Option<String> {
    if line.starts_with('#') {
        return None;
    }
    let mut rest = line;
    for wanted in [login.host, &login.port.to_string(), login.database, login.user] {
        let (field, behind) = field(rest)?;
        if rest.starts_with("*:") || field == wanted {
            rest = behind;
        } else {
            return None;
        }
    }
    // The password goes to the end of the line, also over colons that are not escaped.
    let mut password = String::new();
    let mut characters = rest.chars();
    while let Some(c) = characters.next() {
        password.push(if c == '\\' { characters.next().unwrap_or(c) } else { c });
    }
    Some(password).filter(|password| !password.is_empty())
}

/// The first field, with its escapes undone, and what is behind its colon.
#[cfg(feature = "postgres")]
fn field(line: &str) -> Option<(String, &str)> {
    let mut text = String::new();
    let mut characters = line.char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            ':' => return Some((text, &line[at + 1..])),
            '\\' => text.push(characters.next()?.1),
            c => text.push(c),
        }
    }
    None
}

#[cfg(all(test, feature = "postgres"))]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::{Login, of_file, of_pgpass, password_in};

    const LOGIN: Login<'_> = Login { host: "db", port: 5432, database: "app", user: "me" };

    #[test]
    fn lines_of_pgpass_are_read_as_libpq_reads_them() {
        for (line, password) in [
            ("db:5432:app:me:hunter2", Some("hunter2")),
            ("*:*:*:*:a:b\\:c\\\\", Some("a:b:c\\")),
            ("db:*:app:me:x", Some("x")),
            ("#db:5432:app:me:hunter2", None),
            ("other:5432:app:me:hunter2", None),
            ("db:5433:app:me:hunter2", None),
            ("db:5432:app:you:hunter2", None),
            ("db:5432:app:me:", None),
            ("db:5432:app", None),
            ("", None),
        ] {
            assert_eq!(password_in(line, LOGIN).as_deref(), password, "{line}");
        }
        let login = Login { host: "/run/a:b", ..LOGIN };
        assert_eq!(password_in("/run/a\\:b:5432:app:me:x", login).as_deref(), Some("x"));
    }

    #[test]
    fn a_pgpass_that_others_can_read_is_refused_if_it_matters() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(".pgpass");
        std::fs::write(&file, "# ours\ndb:5432:app:me:hunter2\n").unwrap();
        let mode = |mode| std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
        let home = |name: &str| (name == "HOME").then(|| folder.path().into());
        let named = |name: &str| (name == "PGPASSFILE").then(|| file.clone().into());
        mode(0o600);
        assert_eq!(of_pgpass(LOGIN, home).unwrap().as_deref(), Some("hunter2"));
        assert_eq!(of_pgpass(LOGIN, named).unwrap().as_deref(), Some("hunter2"));
        mode(0o640);
        let error = of_pgpass(LOGIN, home).unwrap_err();
        assert!(error.is_refused() && error.to_string().contains("chmod 600 "), "{error}");
        assert!(!error.to_string().contains("hunter2"));
        assert_eq!(of_pgpass(Login { user: "you", ..LOGIN }, home).unwrap(), None);
        assert_eq!(of_pgpass(LOGIN, |_| None).unwrap(), None);
    }

    #[test]
    fn a_file_has_its_password_in_the_first_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        std::fs::write(&file, "hunter2\r\nnot this\n").unwrap();
        assert_eq!(of_file(&file).unwrap(), "hunter2");
        std::fs::write(&file, "\nhunter2\n").unwrap();
        let error = of_file(&file).unwrap_err();
        assert!(error.is_refused() && !error.to_string().contains("hunter2"), "{error}");
        assert!(of_file(&folder.path().join("none")).unwrap_err().is_refused());
    }
}
