//! [`Service`]: a section of `pg_service.conf`, which names a server of PostgreSQL.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

/// What a section says, by the names of libpq.
#[derive(Debug, Default)]
pub(super) struct Service(BTreeMap<String, String>);

impl Service {
    /// The section of this name in the files that libpq reads: the one that `PGSERVICEFILE` names,
    /// else `~/.pg_service.conf`; then `pg_service.conf` in `PGSYSCONFDIR`, else in
    /// `/etc/postgresql-common`. `Err` names the files.
    pub(super) fn find(
        name: &str,
        env: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, Vec<PathBuf>> {
        let set = |name: &str| env(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let own = set("PGSERVICEFILE").or_else(|| Some(set("HOME")?.join(".pg_service.conf")));
        let system = set("PGSYSCONFDIR").unwrap_or_else(|| "/etc/postgresql-common".into());
        let files: Vec<_> = own.into_iter().chain([system.join("pg_service.conf")]).collect();
        let found = files.iter().filter_map(|file| std::fs::read_to_string(file).ok());
        found.into_iter().find_map(|text| Self::read(&text, name)).ok_or(files)
    }

    fn read(text: &str, name: &str) -> Option<Self> {
        let mut lines = text.lines().map(str::trim);
        lines.by_ref().find(|line| {
            line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) == Some(name)
        })?;
        let lines = lines.take_while(|line| !line.starts_with('['));
        let pair = |line: &str| {
            let (key, value) = line.split_once('=').filter(|_| !line.starts_with('#'))?;
            Some((key.trim().to_owned(), value.trim().to_owned()))
        };
        // As in libpq, the first line with a key counts.
        let mut known = BTreeMap::new();
        for (key, value) in lines.filter_map(pair) {
            known.entry(key).or_insert(value);
        }
        Some(Self(known))
    }

    /// What it says under a key.
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::Service;

    #[test]
    fn a_section_ends_where_the_next_one_begins() {
        let text =
            "# ours\n[dev]\nhost=a\n[prod]\n host = b \n#port=1\nport=2\nport=3\n[x]\nuser=c\n";
        let prod = Service::read(text, "prod").unwrap();
        assert_eq!(
            (prod.get("host"), prod.get("port"), prod.get("user")),
            (Some("b"), Some("2"), None)
        );
        assert!(Service::read(text, "other").is_none());
    }

    #[test]
    fn the_files_of_libpq_are_read_in_its_order() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, host: &str| {
            std::fs::write(folder.path().join(name), format!("[prod]\nhost={host}\n")).unwrap();
        };
        let env = |name: &str| match name {
            "HOME" | "PGSYSCONFDIR" => Some(folder.path().into()),
            _ => None,
        };
        assert_eq!(Service::find("prod", env).unwrap_err().len(), 2);
        write("pg_service.conf", "system");
        assert_eq!(Service::find("prod", env).unwrap().get("host"), Some("system"));
        write(".pg_service.conf", "own");
        assert_eq!(Service::find("prod", env).unwrap().get("host"), Some("own"));
    }
}
