//! Other libraries for the same locks, in a folder of their own under `target/`: the tests see that
//! they and we exclude each other, and a benchmark compares their speed.

use crate::failure::{Failure, Outcome};
use crate::shell::{self, Shell};

/// One library: what is there when it is installed, and the command that installs it.
struct Library {
    name: &'static str,
    path: &'static str,
    install: &'static [&'static str],
}

/// The same versions are named where the tests miss them.
const LIBRARIES: [Library; 3] = [
    Library {
        name: "redis-py",
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
];

/// Whether all of them are installed.
pub(crate) fn are_installed(shell: &Shell) -> bool {
    LIBRARIES.iter().all(|library| shell.root().join(library.path).exists())
}

/// Installs what is missing.
pub(crate) fn install(shell: &Shell) -> Outcome {
    for library in &LIBRARIES {
        if shell.root().join(library.path).exists() {
            continue;
        }
        let (program, words) = library.install.split_first().unwrap_or((&"true", &[]));
        shell::run(shell.command(program).args(words)).map_err(|_| {
            Failure::failed(format!(
                "{} could not be installed; please type, at the root of the repository:\n  {}\n\
                 or leave out the tests with other libraries with SPRAG_SKIP=peers",
                library.name,
                library.install.join(" ")
            ))
        })?;
    }
    Ok(())
}
