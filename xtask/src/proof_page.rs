//! docs/proof.md: the results of long runs, each with the date and the commit it was seen on.

#![expect(clippy::print_stdout, reason = "people want to know what was written")]

use crate::failure::{Failure, Outcome};
use crate::shell::Shell;

const PAGE: &str = "docs/proof.md";

/// Writes `result` into the part of the page that belongs to `run`.
pub(crate) fn write(shell: &Shell, run: &str, result: &str) -> Outcome {
    let path = shell.root().join(PAGE);
    let failed = |error: std::io::Error| Failure::failed(format!("{PAGE}: {error}"));
    let page = std::fs::read_to_string(&path).map_err(failed)?;
    let seen = format!("{}, on {}", first_line(shell, "date", &["-u", "+%Y-%m-%d"]), commit(shell));
    let page = with(&page, run, &format!("{seen}:\n\n```text\n{}\n```", result.trim_end()))
        .ok_or_else(|| Failure::failed(format!("{PAGE} has no part for `{run}`")))?;
    std::fs::write(&path, page).map_err(failed)?;
    println!("written to {PAGE}");
    Ok(())
}

/// The commit that was tested, and whether there was more than that.
fn commit(shell: &Shell) -> String {
    let commit = first_line(shell, "git", &["rev-parse", "--short", "HEAD"]);
    let changes = ["status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs/proof.md"];
    let clean = first_line(shell, "git", &changes).is_empty();
    if clean { commit } else { format!("{commit} with changes") }
}

fn first_line(shell: &Shell, program: &str, arguments: &[&str]) -> String {
    let output = shell.command(program).args(arguments).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.unwrap_or_default().lines().next().unwrap_or_default().to_owned()
}

/// The page with another text between the marks of `run`.
fn with(page: &str, run: &str, text: &str) -> Option<String> {
    let (begin, end) = (format!("<!-- {run}: begin -->\n"), format!("<!-- {run}: end -->"));
    let (before, rest) = page.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}{text}\n{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::with;

    #[test]
    fn only_the_part_of_the_run_is_replaced() {
        let page = "a\n<!-- full: begin -->\nold\n<!-- full: end -->\nb\n";
        let new = with(page, "full", "new").unwrap();
        assert_eq!(new, "a\n<!-- full: begin -->\nnew\n<!-- full: end -->\nb\n");
        assert_eq!(with(page, "mutants", "new"), None);
    }
}
