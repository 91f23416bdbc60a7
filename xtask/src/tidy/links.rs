//! Links from Markdown to files of the project have to lead somewhere.

use super::Finding;
use super::files::Files;

pub(super) fn check(files: &Files, findings: &mut Vec<Finding>) {
    for (path, text) in files.texts().filter(|(path, _)| path.ends_with(".md")) {
        for (line, target) in targets(text) {
            let Some(file) = resolve(path, target) else { continue };
            if !files.has(&file) {
                findings.push(Finding::new(
                    path,
                    line,
                    format!("leads to no file in git: `{target}`"),
                ));
            }
        }
    }
}

/// The targets of all links and images outside of code, with their lines.
fn targets(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut fence: Option<&str> = None;
    for (index, line) in text.lines().enumerate() {
        let start = line.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|mark| start.starts_with(mark));
        match (fence, mark) {
            (None, Some(mark)) => fence = Some(mark),
            (Some(open), Some(mark)) if open == mark => fence = None,
            (Some(_), _) => {}
            (None, None) => in_line(line, |target| found.push((index + 1, target))),
        }
    }
    found
}

/// `[text](target "title")` and `[label]: target`.
fn in_line<'a>(line: &'a str, mut found: impl FnMut(&'a str)) {
    let mut rest = line;
    if line.starts_with('[')
        && let Some((label, target)) = line.split_once("]: ")
        && !label.contains(']')
    {
        found(first_word(target));
        return;
    }
    while let Some(at) = rest.find(['`', ']']) {
        let tail = &rest[at..];
        if tail.starts_with('`') {
            // Code: up to the same number of ticks, or to the end of the line.
            let ticks = &tail[..tail.len() - tail.trim_start_matches('`').len()];
            let code = &tail[ticks.len()..];
            rest = code.find(ticks).map_or("", |end| &code[end + ticks.len()..]);
        } else if let Some(link) = tail.strip_prefix("](") {
            let end = link.find(')').unwrap_or(link.len());
            found(first_word(&link[..end]));
            rest = &link[end..];
        } else {
            rest = &tail[1..];
        }
    }
}

fn first_word(target: &str) -> &str {
    let target = target.split_whitespace().next().unwrap_or_default();
    target.trim_start_matches('<').trim_end_matches('>')
}

/// The path from the root that `target` means in the file `from`; `None` if it is elsewhere.
fn resolve(from: &str, target: &str) -> Option<String> {
    let path = target.split(['#', '?']).next().unwrap_or_default();
    let outside = target.contains("://") || target.starts_with("mailto:");
    if outside || path.is_empty() {
        return None;
    }
    let mut parts: Vec<&str> = match path.strip_prefix('/') {
        Some(_) => Vec::new(),
        None => from.split('/').collect(),
    };
    parts.pop();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.pop().is_none() => return Some(target.to_owned()),
            ".." => {}
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::{Files, resolve, targets};

    fn findings(text: &str) -> Vec<String> {
        let files =
            Files::made_of(&[("docs/a.md", text), ("docs/deep/b.md", ""), ("README.md", "")]);
        let mut findings = Vec::new();
        super::check(&files, &mut findings);
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn links_that_lead_somewhere_are_fine() {
        let text = "[b](deep/b.md#part) ![r](../README.md \"title\") [d](deep/) [x](/README.md)\n\
                    [web](https://example.org/none.md) [here](#part) [m](mailto:a@example.org)\n\
                    [label]: ./deep/b.md\n";
        assert_eq!(findings(text), [""; 0]);
        assert_eq!(targets(text).len(), 8);
    }

    #[test]
    fn links_that_lead_nowhere_are_found_with_their_line() {
        let text = "x\n[c](c.md) and [again](deep/c.md)\n[label]: ../c.md\n";
        assert_eq!(
            findings(text),
            [
                "docs/a.md:2: leads to no file in git: `c.md`",
                "docs/a.md:2: leads to no file in git: `deep/c.md`",
                "docs/a.md:3: leads to no file in git: `../c.md`"
            ]
        );
    }

    #[test]
    fn code_has_no_links() {
        let text = "`[a](c.md)` ``x ` [a](c.md)``\n```text\n[a](c.md)\n```\n~~~\n[a](c.md)\n~~~\n";
        assert_eq!(findings(text), [""; 0]);
    }

    #[test]
    fn a_link_out_of_the_project_leads_nowhere() {
        assert_eq!(findings("[a](../../x.md)").len(), 1);
        assert_eq!(resolve("docs/a.md", "../README.md").as_deref(), Some("README.md"));
        assert_eq!(resolve("a.md", "b.md").as_deref(), Some("b.md"));
    }
}
