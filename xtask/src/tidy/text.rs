//! Words that must not stay behind in any file, and files that grew too long.

use super::Finding;
use super::files::Files;

/// A Rust file of more lines than this wants to be two.
const LONGEST: usize = 800;

/// Registries are the business of whoever builds, and a mirror's name is nobody else's.
const REGISTRIES: &[&str] = &[
    concat!("crates", ".io"),
    concat!("npm", "js."),
    concat!("py", "pi.org"),
    concat!("python", "hosted.org"),
    concat!("proxy.", "golang.org"),
    concat!("ruby", "gems.org"),
];

/// Where Cargo.lock takes everything from.
const INDEX: &str = concat!("registry+https://github.com/rust-lang/", "crates", ".io-index");

/// Paths that exist on one machine only.
const HOMES: &[&str] = &[concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/Us", "ers/")];

/// Marks of unfinished work.
const LEFTOVERS: &[&str] = &[
    concat!("to", "do!("),
    concat!("unimpl", "emented!("),
    concat!("FIX", "ME"),
    concat!("#[ig", "nore"),
    concat!("d", "bg!("),
];

pub(super) fn check(files: &Files, findings: &mut Vec<Finding>) {
    for (path, text) in files.texts() {
        let mut lines = 0;
        for (index, line) in text.lines().enumerate() {
            lines = index + 1;
            if let Some(message) = complaint(path, line) {
                findings.push(Finding::new(path, lines, message));
            }
        }
        if path.ends_with(".rs") && lines > LONGEST {
            let message = format!("{lines} lines, at most {LONGEST} are allowed: split it");
            findings.push(Finding::new(path, 0, message));
        }
    }
}

fn complaint(path: &str, line: &str) -> Option<String> {
    if path.ends_with("Cargo.lock") {
        let source = line.strip_prefix("source = \"")?.trim_end_matches('"');
        return (source != INDEX).then(|| format!("comes from `{source}`, not the public index"));
    }
    if let Some(host) = REGISTRIES.iter().find(|host| line.contains(**host)) {
        return Some(format!("names a package registry (`{host}`)"));
    }
    if let Some(home) = HOMES.iter().find(|home| starts_path(line, home)) {
        return Some(format!("has a path of somebody's machine (`{home}`)"));
    }
    let leftover = LEFTOVERS.iter().find(|leftover| line.contains(**leftover))?;
    Some(format!("has a leftover `{leftover}`"))
}

/// Whether a path in the line begins with `home`, rather than having it in its middle.
fn starts_path(line: &str, home: &str) -> bool {
    line.match_indices(home).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "_-./}".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::{Files, HOMES, INDEX, LEFTOVERS, LONGEST, REGISTRIES};

    fn findings(path: &str, text: &str) -> Vec<String> {
        let mut findings = Vec::new();
        super::check(&Files::made_of(&[(path, text)]), &mut findings);
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn forbidden_words_are_found_with_their_line() {
        for word in REGISTRIES.iter().chain(HOMES).chain(LEFTOVERS) {
            let found = findings("docs/a.md", &format!("fine\n see {word}x here"));
            assert_eq!(found.len(), 1, "{word}");
            assert!(found[0].starts_with("docs/a.md:2: "), "{found:?}");
            assert!(found[0].contains(word), "{found:?}");
        }
    }

    #[test]
    fn a_folder_called_like_a_home_is_no_home() {
        for home in HOMES {
            assert_eq!(findings("a.md", &format!("docs{home}x, {{base}}{home}x")), [""; 0]);
        }
    }

    #[test]
    fn the_lock_file_takes_from_the_public_index_only() {
        assert_eq!(findings("Cargo.lock", &format!("source = \"{INDEX}\"\n")), [""; 0]);
        let mirror = "source = \"sparse+https://mirror.example/index/\"\n";
        assert_eq!(findings("Cargo.lock", mirror).len(), 1);
    }

    #[test]
    fn only_rust_files_that_are_too_long_are_reported() {
        assert_eq!(findings("a.rs", &"x\n".repeat(LONGEST)), [""; 0]);
        assert_eq!(findings("a.md", &"x\n".repeat(LONGEST + 1)), [""; 0]);
        let found = findings("a.rs", &"x\n".repeat(LONGEST + 1));
        assert_eq!(found, ["a.rs: 801 lines, at most 800 are allowed: split it"]);
    }
}
