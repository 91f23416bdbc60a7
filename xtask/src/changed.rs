//! `cargo xtask test --changed`: which tests can see what was changed.

use std::collections::BTreeSet;

use crate::failure::{Failure, Outcome};
use crate::shell::Shell;

/// What depends on a store, besides its own package: programs of the testkit, and other packages.
/// All stores are linked into the testkit, but the tests of one store do not call another.
struct Scope {
    package: &'static str,
    programs: &'static [&'static str],
    packages: &'static [&'static str],
}

const SCOPES: &[Scope] = &[
    Scope { package: "sprag-sqlite", programs: &["local"], packages: SURFACES },
    Scope { package: "sprag-redis", programs: &["redis", "late_renewals"], packages: SURFACES },
    Scope {
        package: "sprag-postgres",
        programs: &["postgres", "late_renewals"],
        packages: SURFACES,
    },
    Scope {
        package: "sprag-git",
        programs: &["git"],
        packages: &["sprag", "sprag-cli", "sprag-work"],
    },
    Scope {
        package: "sprag-github",
        programs: &["github"],
        packages: &["sprag", "sprag-cli", "sprag-work"],
    },
    Scope { package: "sprag-work", programs: &["git"], packages: &["sprag-cli"] },
    Scope { package: "sprag-cli", programs: &[], packages: &[] },
    Scope { package: "sprag", programs: &[], packages: &["sprag-cli"] },
    Scope { package: "sprag-proof", programs: &[], packages: &[] },
    Scope { package: "sprag-bench", programs: &[], packages: &[] },
    Scope { package: "sprag-interop", programs: &[], packages: &[] },
];
const SURFACES: &[&str] = &["sprag", "sprag-cli"];

/// The tests that can see the changes, as a filter of nextest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tests {
    /// Nothing a test reads has changed.
    None,
    Filter(String),
    /// Something that everything depends on has changed: the file named.
    All(String),
}

/// The tests for what differs from `base`, whether it is committed or not.
pub(crate) fn tests(shell: &Shell, base: &str) -> Outcome<Tests> {
    let mut files = git(shell, &["diff", "--name-only", base])?;
    files.extend(git(shell, &["ls-files", "--others", "--exclude-standard"])?);
    Ok(tests_for(&files))
}

fn git(shell: &Shell, arguments: &[&str]) -> Outcome<Vec<String>> {
    let output = shell.command("git").args(arguments).output();
    let output = output.map_err(|error| Failure::failed(format!("cannot run git: {error}")))?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(Failure::failed(format!("git {}: {reason}", arguments.join(" "))));
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}

fn tests_for(files: &[String]) -> Tests {
    let mut filters = BTreeSet::new();
    for file in files {
        match filters_for(file) {
            Some(found) => filters.extend(found),
            None => return Tests::All(file.clone()),
        }
    }
    if filters.is_empty() {
        return Tests::None;
    }
    Tests::Filter(filters.into_iter().collect::<Vec<_>>().join(" + "))
}

/// The filters for one file; none if every test may depend on it.
fn filters_for(file: &str) -> Option<Vec<String>> {
    let package = |name: &str| format!("package(={name})");
    let program = |name: &str| format!("(package(=sprag-testkit) & binary(={name}))");
    let parts: Vec<_> = file.split('/').collect();
    match &parts[..] {
        ["xtask", ..] => Some(vec![package("xtask")]),
        ["crates", "sprag-testkit", "tests", name, ..] => {
            Some(vec![program(name.trim_end_matches(".rs"))])
        }
        ["crates", name, kind, ..] => {
            let scope = SCOPES.iter().find(|scope| scope.package == *name)?;
            let mut filters = vec![package(name)];
            if *kind != "tests" {
                filters.extend(scope.packages.iter().map(|name| package(name)));
                filters.extend(scope.programs.iter().map(|name| program(name)));
            }
            Some(filters)
        }
        // Tests compare the pages with what is true.
        [page] if page.ends_with(".md") => Some(vec![package("sprag"), package("sprag-cli")]),
        ["docs", ..] => Some(vec![package("sprag"), package("sprag-cli")]),
        ["scripts", ..] | [".ci", ..] | [".gitignore"] => Some(Vec::new()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{SCOPES, Shell, Tests, tests_for};

    fn of(files: &[&str]) -> Tests {
        tests_for(&files.iter().map(|&file| file.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_store_is_seen_by_its_own_tests_and_by_what_is_on_top() {
        let Tests::Filter(filter) = of(&["crates/sprag-redis/src/store.rs"]) else { panic!() };
        for part in ["=sprag-redis", "=sprag-cli", "=sprag)", "binary(=redis)"] {
            assert!(filter.contains(part), "{filter}");
        }
        assert!(!filter.contains("postgres"), "{filter}");
    }

    #[test]
    fn the_core_is_seen_by_everything() {
        let file = "crates/sprag-core/src/fence.rs";
        assert_eq!(of(&["docs/cli.md", file]), Tests::All(file.into()));
        assert_eq!(of(&["Cargo.lock"]), Tests::All("Cargo.lock".into()));
    }

    #[test]
    fn a_test_is_seen_by_its_program_alone() {
        let found = of(&["crates/sprag-testkit/tests/redis/crowd.rs"]);
        assert_eq!(found, Tests::Filter("(package(=sprag-testkit) & binary(=redis))".into()));
        assert_eq!(of(&[".ci/run"]), Tests::None);
    }

    #[test]
    fn every_name_exists() {
        let root = Shell::new().root().to_owned();
        for scope in SCOPES {
            for package in scope.packages.iter().chain([&scope.package]) {
                assert!(root.join("crates").join(package).is_dir(), "{package}");
            }
            for program in scope.programs {
                let tests = root.join("crates/sprag-testkit/tests");
                let file = tests.join(format!("{program}.rs"));
                assert!(tests.join(program).is_dir() || file.is_file(), "{program}");
            }
        }
    }
}
