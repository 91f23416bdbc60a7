//! `github://owner/repo`, `github://host/owner/repo`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

use sprag_core::{ErrorKind, Operation, Result};
use sprag_github::{Abandoned, Decides, GitHubConfig, GitHubStore, Token};

use super::StoreKind;
use super::url::StoreUrl;

pub(super) const KIND: StoreKind = StoreKind {
    scheme: "github",
    also: &[],
    forms: &[
        ("github://OWNER/REPO", "refs and issues of a repository on github.com"),
        ("github://HOST/OWNER/REPO", "on a GitHub Enterprise server"),
        ("github://OWNER/REPO?queue=true", "with a queue, shared locks and semaphores"),
        ("github://OWNER/REPO?mode=assignment", "by comments alone, without contents:write: L1"),
    ],
    between: "all who may write to one GitHub repository",
    broken_by: &[
        "somebody who deletes or rewinds refs/sprag/...",
        "clocks that differ in speed by more than 5 %",
        "mode=assignment, which is only L1: two may hold a lock while GitHub's lists are late",
    ],
    sql: None,
    capability: GitHubStore::ability,
    open: |url| sprag_github::open(&config(url)?),
};

const PARAMETERS: &[&str] = &[
    "api",
    "mode",
    "token_file",
    "human_override",
    "show_node",
    "mirror",
    "queue",
    "notes",
    "limits",
    "abandoned",
    "timeout_ms",
    "settle_ms",
    "poll_min_ms",
    "poll_max_ms",
    "state",
];

fn config(url: &StoreUrl<'_>) -> Result<GitHubConfig> {
    let repository = url.rest.strip_prefix("//").map(|rest| rest.trim_end_matches('/'));
    let repository = repository.filter(|repository| !repository.contains('@'));
    let named = repository.ok_or_else(|| url.bad(FORM))?;
    let mut config = GitHubConfig::parse(named).map_err(|_| url.bad(FORM))?;
    let (mut least, mut most) = (Duration::from_secs(1), Duration::from_secs(16));
    for (name, value) in url.parameters() {
        config = match name {
            "api" => config.api(&text(url, value)?)?,
            "mode" => config.decides(match value {
                "refs" => Decides::Refs,
                "assignment" => Decides::Assignment,
                _ => return Err(url.bad("has none of refs and assignment in mode")),
            }),
            "token_file" => config.token(token(&path(url, value)?)?),
            "human_override" => config.human_override(yes_or_no(url, name, value)?),
            "show_node" => config.show_node(yes_or_no(url, name, value)?),
            "mirror" => config.mirror(yes_or_no(url, name, value)?),
            "queue" => config.queue(yes_or_no(url, name, value)?),
            "notes" => config.notes(yes_or_no(url, name, value)?),
            "limits" => config.limits(yes_or_no(url, name, value)?),
            "abandoned" => config.abandoned(match value {
                "stays" => Abandoned::Stays,
                "freed" => Abandoned::Freed,
                _ => return Err(url.bad("has none of stays and freed in abandoned")),
            }),
            "timeout_ms" => config.timeout(millis(url, name, value)?),
            "settle_ms" => config.settle(millis(url, name, value)?),
            "poll_min_ms" => {
                least = millis(url, name, value)?;
                config
            }
            "poll_max_ms" => {
                most = millis(url, name, value)?;
                config
            }
            "state" => config.state(Some(path(url, value)?)),
            _ => return Err(url.unknown_parameter(PARAMETERS)),
        };
    }
    Ok(config.poll(least..=most.max(least)))
}

const FORM: &str = "names no repository; write github://OWNER/REPO, or github://HOST/OWNER/REPO \
                    for a server of your own; the token comes from GH_TOKEN, GH_ENTERPRISE_TOKEN or `gh`";

fn token(file: &std::path::Path) -> Result<Token> {
    let text = std::fs::read_to_string(file).map_err(|cause| {
        let message = format!("the token_file {} cannot be read: {cause}", file.display());
        sprag_core::Error::new(ErrorKind::Refused, Operation::Open, message)
    })?;
    Token::new(text)
}

fn text(url: &StoreUrl<'_>, part: &str) -> Result<String> {
    String::from_utf8(url.decode(part)?).map_err(|_| url.bad("has bytes that are not UTF-8"))
}

fn path(url: &StoreUrl<'_>, part: &str) -> Result<PathBuf> {
    Ok(OsString::from_vec(url.decode(part)?).into())
}

fn yes_or_no(url: &StoreUrl<'_>, name: &str, value: &str) -> Result<bool> {
    match value {
        "true" | "1" | "yes" => Ok(true),
        "false" | "0" | "no" => Ok(false),
        _ => Err(url.bad(&format!("has neither true nor false in {name}"))),
    }
}

fn millis(url: &StoreUrl<'_>, name: &str, value: &str) -> Result<Duration> {
    let bad = |_| url.bad(&format!("has no number from 0 to {} in {name}", u32::MAX));
    value.parse::<u32>().map(|millis| Duration::from_millis(millis.into())).map_err(bad)
}

#[cfg(test)]
mod tests {
    use super::{StoreUrl, config};

    fn shown(url: &str) -> sprag_core::Result<String> {
        config(&StoreUrl::parse(url)?).map(|config| format!("{config:?}"))
    }

    #[test]
    fn each_form_means_one_repository() {
        for (url, means) in [
            ("github://acme/app", r#""acme/app", api: "https://api.github.com", decides: Refs"#),
            ("github://acme/app.git/", r#""acme/app""#),
            ("github://ghe.corp/acme/app", r#"api: "https://ghe.corp/api/v3""#),
            ("github://acme/app?api=http://127.0.0.1:1234", r#"api: "http://127.0.0.1:1234""#),
            ("github://acme/app?mode=assignment", "decides: Assignment"),
            ("github://acme/app?human_override=true", "human_override: true"),
        ] {
            let shown = shown(url).unwrap();
            assert!(shown.contains(means), "{url}: {shown}");
        }
    }

    #[test]
    fn what_is_missing_or_not_understood_is_told() {
        for (url, told) in [
            ("github:acme/app", "names no repository"),
            ("github://acme", "names no repository"),
            ("github://hunter2@acme/app", "names no repository"),
            ("github://acme/app?api=http://example.com", "in the clear"),
            ("github://acme/app?mode=labels", "refs and assignment"),
            ("github://acme/app?token=hunter2", "unknown parameter"),
            ("github://acme/app?queue=maybe", "neither true nor false"),
            ("github://acme/app?timeout_ms=soon", "no number"),
        ] {
            let error = shown(url).unwrap_err();
            assert!(error.is_bad_input() && error.to_string().contains(told), "{url}: {error}");
            assert!(!error.to_string().contains("hunter2"));
        }
        let error = shown("github://acme/app?token_file=/nowhere/at/all").unwrap_err();
        assert!(error.is_refused(), "{error}");
    }
}
