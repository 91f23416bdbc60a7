//! Every crate says what it is and obeys the lints of the workspace; the licences are there.

use super::Finding;
use super::files::Files;

pub(super) fn check(files: &Files, findings: &mut Vec<Finding>) {
    for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
        if !files.has(licence) {
            findings.push(Finding::new(licence, 0, "is missing"));
        }
    }
    for (path, text) in files.texts().filter(|(path, _)| is_manifest_of_crate(path)) {
        if value(text, "lints", "workspace") != Some("true") {
            let message = "does not obey the workspace: `[lints] workspace = true` is missing";
            findings.push(Finding::new(path, 0, message));
        }
        if value(text, "package", "description")
            .is_none_or(|text| text.trim_matches('"').is_empty())
        {
            findings.push(Finding::new(path, 0, "has no description"));
        }
    }
}

fn is_manifest_of_crate(path: &str) -> bool {
    let folder = path.strip_suffix("/Cargo.toml");
    folder == Some("xtask")
        || folder
            .and_then(|folder| folder.strip_prefix("crates/"))
            .is_some_and(|f| !f.contains('/'))
}

/// The raw value of a key in a `[section]`. As much of TOML as manifests use for these keys.
fn value<'a>(text: &'a str, section: &str, key: &str) -> Option<&'a str> {
    let mut current = "";
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[') {
            current = name.trim_end_matches(']');
        } else if current == section
            && let Some((name, value)) = line.split_once('=')
            && name.trim() == key
        {
            return Some(value.trim());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::Files;

    const GOOD: &str =
        "[package]\ndescription = \"good\"\n[dependencies]\n[lints]\nworkspace = true";

    fn findings(files: &[(&str, &str)]) -> Vec<String> {
        let licences = [("LICENSE-APACHE", ""), ("LICENSE-MIT", "")];
        let files = Files::made_of(&[&licences[..], files].concat());
        let mut findings = Vec::new();
        super::check(&files, &mut findings);
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_good_crate_passes() {
        assert_eq!(findings(&[("crates/a/Cargo.toml", GOOD), ("Cargo.toml", "")]), [""; 0]);
    }

    #[test]
    fn a_crate_without_lints_or_description_is_found() {
        let bare = "[package]\nname = \"a\"\n[lints.rust]\nworkspace = true";
        assert_eq!(findings(&[("crates/a/Cargo.toml", bare)]).len(), 2);
        assert_eq!(findings(&[("xtask/Cargo.toml", bare)]).len(), 2);
        let empty = GOOD.replace("good", "");
        assert_eq!(findings(&[("crates/a/Cargo.toml", &empty)]).len(), 1);
    }

    #[test]
    fn missing_licences_are_found() {
        let mut findings = Vec::new();
        super::check(&Files::made_of(&[("LICENSE-MIT", "")]), &mut findings);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].to_string(), "LICENSE-APACHE: is missing");
    }
}
