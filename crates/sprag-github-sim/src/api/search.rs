//! The search for issues.

use serde_json::json;

use super::page::page;
use super::{Context, Reply, issues, render};
use crate::http::Answer;
use crate::world::issue::{Fate, Issue, IssueState};
use crate::world::{Found, Repo};

/// One word of a search: `label:bug`, `-linked:pr`.
struct Word {
    negative: bool,
    key: String,
    value: String,
}

pub(super) fn issues(context: &mut Context<'_>) -> Reply {
    let words = words(context.request.query("q").unwrap_or_default());
    let Some(name) = words.iter().find(|word| word.key == "repo" && !word.negative) else {
        return Err(Answer::invalid("Search", "q", "invalid"));
    };
    let Some(Found::Here(id)) = context.world.find(&name.value) else {
        return Err(Answer::invalid("Search", "q", "invalid"));
    };
    let repo = context.world.repos.get(&id).filter(|repo| context.permission(repo).is_some());
    let repo = repo.ok_or_else(|| Answer::invalid("Search", "q", "invalid"))?;
    let seen = repo.issues.values();
    let seen = seen.filter_map(|issue| Some((issue, issue.versions.at(context.seen)?)));
    let wanted = |issue: &Issue, state: &IssueState| {
        state.fate == Fate::Here
            && words.iter().all(|word| fits(repo, issue, state, word) != word.negative)
    };
    let mut found: Vec<_> = seen.filter(|(issue, state)| wanted(issue, state)).collect();
    let sort = context.request.query("sort").unwrap_or("created");
    issues::sort(&mut found, sort, context.request.query("order").unwrap_or("desc"));
    let mut answer = page(context, repo.id, &found, |(issue, state)| {
        let mut body = render::issue(context.world, context.base, repo, issue, state);
        body["score"] = json!(1.0);
        body
    });
    answer.body = json!({
        "total_count": found.len(),
        "incomplete_results": false,
        "items": answer.body,
        "search_type": "lexical",
    });
    Ok(answer)
}

fn fits(repo: &Repo, issue: &Issue, state: &IssueState, word: &Word) -> bool {
    let same = |other: &String| other.eq_ignore_ascii_case(&word.value);
    match (word.key.as_str(), word.value.as_str()) {
        ("repo", _) => true,
        ("is" | "type", "issue") => issue.pull.is_none(),
        ("is" | "type", "pr") => issue.pull.is_some(),
        ("is" | "state", "open") => state.open,
        ("is" | "state", "closed") => !state.open,
        ("label", _) => state.labels.iter().any(same),
        ("assignee", _) => state.assignees.iter().any(same),
        ("no", "assignee") => state.assignees.is_empty(),
        ("linked", "pr") => repo.closers(issue.number).next().is_some(),
        ("", text) => state.title.to_lowercase().contains(&text.to_lowercase()),
        _ => false,
    }
}

/// Words are parted by spaces, but not within quotes.
fn words(query: &str) -> Vec<Word> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for c in query.chars() {
        match c {
            '"' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            _ => words.last_mut().expect("there is always one").push(c),
        }
    }
    let word = |text: String| {
        let (negative, text) = text.strip_prefix('-').map_or((false, &*text), |rest| (true, rest));
        let (key, value) = text.split_once(':').unwrap_or(("", text));
        Word { negative, key: key.to_owned(), value: value.to_owned() }
    };
    words.into_iter().filter(|text| !text.is_empty()).map(word).collect()
}
