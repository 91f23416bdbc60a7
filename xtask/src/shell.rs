//! [`Shell`]: runs other programs at the root of the repository, in plain sight.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::failure::{Failure, Outcome};

/// Where the repository is, and which cargo to use.
#[derive(Debug)]
pub(crate) struct Shell {
    root: PathBuf,
    cargo: OsString,
}

impl Shell {
    pub(crate) fn new() -> Self {
        // At run time first: a build folder shared by two checkouts must not mix them up.
        let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        Self {
            root: manifest.parent().map_or_else(|| manifest.clone(), Path::to_path_buf),
            cargo: std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()),
        }
    }

    /// The root of the repository.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The same cargo that runs this program, as if typed at the root.
    pub(crate) fn cargo(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(&self.cargo);
        command.args(arguments);
        // `cargo run` describes this package in the environment. Build scripts may look at such
        // variables, and would run again for each of the two ways to start the same command.
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
                command.env_remove(&name);
            }
        }
        command
    }

    /// Any program, started at the root.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root).stdin(Stdio::null());
        command
    }

    /// Where builds go that must not share artefacts with the everyday ones.
    pub(crate) fn target(&self, name: &str) -> PathBuf {
        std::env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| PathBuf::from("target"), PathBuf::from)
            .join(name)
    }
}

/// Prints the command, runs it with the terminal as its output, and expects success.
#[expect(clippy::print_stdout, reason = "people want to see what is run")]
pub(crate) fn run(command: &mut Command) -> Outcome {
    let line = describe(command);
    println!("$ {line}");
    let status = command
        .status()
        .map_err(|error| Failure::failed(format!("cannot run `{line}`: {error}")))?;
    if status.success() {
        Ok(())
    } else {
        Err(Failure::failed(format!("`{line}` failed: {status}")))
    }
}

/// The same, and returns what it printed as well.
#[expect(clippy::print_stdout, reason = "people want to see what is run")]
pub(crate) fn run_and_read(command: &mut Command) -> Outcome<String> {
    let line = describe(command);
    println!("$ {line}");
    let failed = |why: String| Failure::failed(format!("`{line}`: {why}"));
    let mut child =
        command.stdout(Stdio::piped()).spawn().map_err(|error| failed(error.to_string()))?;
    let mut printed = String::new();
    for line in child.stdout.take().into_iter().flat_map(|stdout| BufReader::new(stdout).lines()) {
        let line = line.map_err(|error| failed(error.to_string()))?;
        println!("{line}");
        printed.push_str(&line);
        printed.push('\n');
    }
    let status = child.wait().map_err(|error| failed(error.to_string()))?;
    if status.success() { Ok(printed) } else { Err(failed(status.to_string())) }
}

/// Whether the command can be run and succeeds; its output is dropped.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// The command as one would type it.
fn describe(command: &Command) -> String {
    let mut words = Vec::new();
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            words.push(format!("{}={}", name.to_string_lossy(), quoted(value)));
        }
    }
    let program = Path::new(command.get_program());
    words.push(quoted(program.file_name().unwrap_or(program.as_os_str())));
    words.extend(command.get_args().map(quoted));
    words.join(" ")
}

fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    if word.is_empty() || word.contains([' ', '\'', '"', '$', '*']) {
        format!("'{}'", word.replace('\'', r"'\''"))
    } else {
        word.into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::{Command, describe};

    #[test]
    fn a_command_is_shown_as_one_would_type_it() {
        let mut command = Command::new("/somewhere/bin/cargo");
        command.env("RUSTFLAGS", "--cfg x").env_remove("CARGO_PKG_NAME").args(["run", "it's"]);
        assert_eq!(describe(&command), r"RUSTFLAGS='--cfg x' cargo run 'it'\''s'");
    }
}
