//! [`CATALOGUE`]: where each known fault is tested.

mod table;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::CASES;

pub use table::CATALOGUE;

/// Where one fault of the catalogue is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tested {
    /// Its id: F01 to F77 for single faults, FAULTS 1 to 25 for classes of bugs.
    pub id: &'static str,
    /// The conformance cases that name it, by file and function.
    pub cases: &'static [&'static str],
    /// Where else it is tested, or why it cannot be.
    pub elsewhere: &'static str,
}

const fn tested(
    id: &'static str,
    cases: &'static [&'static str],
    elsewhere: &'static str,
) -> Tested {
    Tested { id, cases, elsewhere }
}

/// A case as it stands in its file: `file::name`, and the ids that its description names.
type Found = (String, BTreeSet<String>);

/// Reads the case files.
fn cases_in_files() -> Vec<Found> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cases");
    let mut found = Vec::new();
    for entry in fs::read_dir(&folder).expect("the case files are where they were built from") {
        let path = entry.expect("the folder can be read").path();
        let file = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if ["mod", "catalogue", "journal"].contains(&file.as_str()) {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a case file can be read");
        let mut description = String::new();
        for line in text.lines() {
            if let Some(doc) = line.strip_prefix("///") {
                description.push_str(doc);
            } else if let Some(rest) = line.strip_prefix("pub async fn ") {
                let name = rest.split('(').next().unwrap_or_default();
                found.push((format!("{file}::{name}"), ids(&description)));
                description.clear();
            } else {
                description.clear();
            }
        }
    }
    found
}

/// The ids in front of a description.
fn ids(description: &str) -> BTreeSet<String> {
    let head = description.split(':').next().unwrap_or_default();
    let parts = head.split(',').map(|part| part.trim().to_owned());
    let all: BTreeSet<String> = parts.collect();
    if all.iter().all(|part| is_id(part)) { all } else { BTreeSet::new() }
}

fn is_id(text: &str) -> bool {
    let number = text.strip_prefix("FAULTS ").or_else(|| text.strip_prefix('F'));
    number.is_some_and(|number| number.parse::<u8>().is_ok())
}

/// Checks that the list of cases and the case files are the same, so that no case is forgotten.
///
/// # Panics
///
/// If they are not.
pub fn assert_every_case_is_listed() {
    let listed = CASES
        .iter()
        .flat_map(|(file, cases)| cases.iter().map(move |case| format!("{file}::{case}")));
    let listed: BTreeSet<String> = listed.collect();
    let there: BTreeSet<String> = cases_in_files().into_iter().map(|(case, _)| case).collect();
    let missing: Vec<_> = there.symmetric_difference(&listed).collect();
    assert!(missing.is_empty(), "in the list or in a file, but not in both: {missing:?}");
}

#[cfg(test)]
mod tests {
    use super::{CATALOGUE, cases_in_files};
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn every_case_is_listed() {
        super::assert_every_case_is_listed();
    }

    #[test]
    fn every_fault_is_tested_or_says_where() {
        let expected = (1..=77).map(|number| format!("F{number:02}"));
        let expected: Vec<_> = expected.chain((1..=25).map(|n| format!("FAULTS {n}"))).collect();
        let ids: Vec<_> = CATALOGUE.iter().map(|entry| entry.id).collect();
        assert_eq!(ids, expected);
        for entry in CATALOGUE {
            assert!(!entry.cases.is_empty() || !entry.elsewhere.is_empty(), "{entry:?}");
        }
    }

    #[test]
    fn the_catalogue_and_the_descriptions_of_the_cases_agree() {
        let mut named: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (case, ids) in cases_in_files() {
            for id in ids {
                named.entry(id).or_default().insert(case.clone());
            }
        }
        for entry in CATALOGUE {
            let here: BTreeSet<String> = entry.cases.iter().map(|&case| case.into()).collect();
            assert_eq!(named.remove(entry.id).unwrap_or_default(), here, "{}", entry.id);
        }
        assert!(named.is_empty(), "not in the catalogue: {named:?}");
    }
}
