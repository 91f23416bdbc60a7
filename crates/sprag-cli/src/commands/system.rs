//! `sprag stores --make-system`: the store of all users of a machine.

use std::process::Command;

use nix::unistd::Group;
use serde_json::json;

use super::Outcome;
use crate::code::Code;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::plain::shell_word;

/// Makes the store and the group for which it is, where they are missing.
pub(crate) fn make(group: &str, context: &Context) -> Outcome {
    // Without the right to make the folder, a group would be left over.
    if rustix::process::geteuid().is_root() {
        make_group(group)?;
    }
    let made = sprag::make_system_store(group)?;
    let path = made.path.display().to_string();
    let output = &context.output;
    if output.json {
        output.answer(json!({"changed": made.changed, "path": path, "group": made.group}));
    } else if !output.quiet {
        let done = if made.changed { "made" } else { "there is already" };
        output.line(&format!("{done} {path} for the group {}", made.group));
        let word = shell_word(&made.group);
        output.line(&format!("who may use it:          sudo usermod -aG {word} USER"));
        output.line("use it once:             sprag --system run NAME -- ...");
        output.line("use it with nothing set: write store = \"system:\" to /etc/sprag/config.toml");
    }
    Ok(Exit::OK)
}

fn make_group(name: &str) -> Result<(), Failure> {
    if name.parse::<u32>().is_ok() || matches!(Group::from_name(name), Ok(Some(_))) {
        return Ok(());
    }
    let made = Command::new("groupadd").arg("--system").arg("--").arg(name).output();
    let why = match made {
        Ok(output) if output.status.success() => return Ok(()),
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => format!("groupadd: {error}"),
    };
    let message = format!("cannot make the group {name:?}: {why}");
    Err(Failure::new(Code::System, message)
        .hint("use a group that is there", "sudo sprag stores --make-system --group NAME"))
}
