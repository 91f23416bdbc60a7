//! The docs say what is true: commands, metrics, tests and the first program.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn pages() -> Vec<(String, String)> {
    let mut files = vec!["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"];
    files.extend(["docs/guarantees.md", "docs/best-practices.md", "docs/troubleshooting.md"]);
    files.extend(["docs/migration.md", "docs/metrics.md", "docs/faults.md", "docs/proof.md"]);
    files.extend(["docs/stores/sqlite.md", "docs/stores/memory.md", "docs/compare.md"]);
    files.into_iter().map(|file| (file.to_owned(), read(file))).collect()
}

#[test]
fn the_program_in_the_readme_is_the_example() {
    let readme = read("README.md");
    let program = readme.split("```rust,no_run\n").nth(1).unwrap().split("```").next().unwrap();
    assert!(read("crates/sprag/examples/quickstart.rs").contains(program));
}

#[test]
fn the_comparison_in_the_readme_is_what_the_script_saw() {
    let table = |text: &str| -> Vec<String> {
        let lines = text.lines().skip_while(|line| !line.starts_with("| | sprag"));
        lines.take_while(|line| line.starts_with('|')).map(str::to_owned).collect()
    };
    let seen = table(&read("docs/compare.md"));
    assert!(seen.len() > 8);
    assert_eq!(table(&read("README.md")), seen);
}

#[test]
fn every_command_on_a_page_exists() {
    let verbs = read("xtask/src/main.rs");
    for (file, text) in pages() {
        for line in text.lines().filter_map(|line| line.strip_prefix("$ ")) {
            let words: Vec<_> = line.split(' ').collect();
            let known = match &words[..] {
                ["cargo", "xtask", verb, rest @ ..] => {
                    verbs.contains(&format!("\n  {verb} "))
                        && rest.iter().all(|word| verbs.contains(&format!("  {word} ")))
                }
                ["cargo", "run", "--release", "-p", "sprag", "--example", example] => {
                    root().join(format!("crates/sprag/examples/{example}.rs")).is_file()
                }
                // What the command prints is compared by the tests of its crate.
                ["cargo", "run", "--release", "--", ..] | ["sprag" | "eval", ..] => true,
                ["cargo", "install", "--path", folder, "--profile", "dist"] => {
                    root().join(folder).is_dir()
                }
                _ => false,
            };
            assert!(known, "{file}: {line}");
        }
    }
}

/// Names in backticks that begin with `sprag_` and are not crates.
fn metrics_in(text: &str, quote: char) -> BTreeSet<String> {
    let names = text.split(quote).filter(|word| word.starts_with("sprag_"));
    names.filter(|word| !word.contains(char::is_whitespace)).map(str::to_owned).collect()
}

#[test]
fn exactly_the_metrics_that_exist_are_documented() {
    let places = [
        "crates/sprag-core/src/client/telemetry.rs",
        "crates/sprag-redis/src/link/server.rs",
        "crates/sprag-work/src/telemetry.rs",
    ];
    let emitted: BTreeSet<_> =
        places.iter().flat_map(|file| metrics_in(&read(file), '"')).collect();
    assert!(emitted.len() > 10);
    assert_eq!(metrics_in(&read("docs/metrics.md"), '`'), emitted);
    let mentioned: BTreeSet<_> =
        pages().iter().flat_map(|(_, text)| metrics_in(text, '`')).collect();
    assert!(mentioned.is_subset(&emitted), "{mentioned:?}");
}

/// All Rust code of the project.
fn sources(folder: &Path, into: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push_str(&std::fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn every_test_that_the_list_of_faults_names_exists() {
    let mut code = String::new();
    sources(&root().join("crates"), &mut code);
    let page = read("docs/faults.md");
    let rows = page.lines().filter(|line| line.starts_with("| F"));
    let cells: Vec<_> = rows.filter_map(|row| row.rsplit(" | ").next()).collect();
    assert!(cells.len() > 50);
    for name in cells.iter().flat_map(|cell| cell.split('`').skip(1).step_by(2)) {
        let name = name.rsplit("::").next().unwrap_or(name);
        assert!(code.contains(&format!("fn {name}(")), "there is no test {name}");
    }
}
