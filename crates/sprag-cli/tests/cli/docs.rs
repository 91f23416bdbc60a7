//! What the docs show is what happens: every command on a page is run, and its output compared.

use std::path::{Path, PathBuf};
use std::process::Command;

use regex_lite::Regex;

use super::support::{Home, commands};

const PAGES: [&str; 3] = ["docs/work.md", "docs/cli.md", "README.md"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn read(page: &str) -> String {
    std::fs::read_to_string(root().join(page)).unwrap()
}

/// The console blocks of a page: commands, each with the lines below it.
fn blocks(page: &str) -> Vec<Vec<(String, String)>> {
    let text = read(page);
    let blocks = text.split("```console\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let block = |block: &str| {
        let commands = block.split("$ ").enumerate();
        // A dollar inside a line begins no command.
        let mut found: Vec<(String, String)> = Vec::new();
        for (index, part) in commands {
            let begins = found.last().is_none_or(|(_, out)| out.ends_with('\n') || out.is_empty());
            match (index, begins) {
                (0, _) => assert_eq!(part, "", "{page}: a block begins with a command"),
                (_, true) => {
                    let (command, out) = part.split_once('\n').unwrap();
                    found.push((command.to_owned(), out.to_owned()));
                }
                (_, false) => found.last_mut().unwrap().1 += &format!("$ {part}"),
            }
        }
        found
    };
    blocks.map(block).collect()
}

/// Whether a test can run it here: building takes too long.
fn runs(command: &str) -> Option<String> {
    if let Some(rest) = command.strip_prefix("cargo run --release -- ") {
        return Some(format!("sprag {rest}"));
    }
    if let Some(folder) = command.strip_prefix("cargo install --path ") {
        let (folder, profile) = folder.split_once(" --profile ").unwrap_or((folder, "release"));
        assert!(root().join(folder).join("Cargo.toml").is_file(), "{command}");
        assert!(read("Cargo.toml").contains(&format!("\n[profile.{profile}]\n")), "{command}");
        return None;
    }
    (!command.starts_with("cargo ")).then(|| command.to_owned())
}

/// A text without what is different each time or on each machine.
fn mask(text: &str, home: &Home) -> String {
    let mut text = text.replace(&home.path("").display().to_string(), "/users/me/");
    for (pattern, mask) in [
        (r"[\w.-]+@[\w.-]+#\d+", "WHO"),
        (r"[0-9a-f]{32}(@[a-z]+(-[0-9a-f]{8})?)?", "LEASE"),
        (r"\d+ of 8000   \([^)]*\)", "SOME"),
        (r"sprag-demo-\d+-\d+", "DEMO"),
        (r"\b\d{16}\b", "TOKEN"),
        (r"-[0-9a-f]{8}\b", "-STAMP"),
        (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d( UTC|Z)", "TIME"),
        (r"(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\dZ", "TIME"),
        (r"(\d{4}-\d\d-\d\d )?\d\d:\d\d(-(\d{4}-\d\d-\d\d )?\d\d:\d\d)?", "WHEN"),
        (r"\b(\d+(\.\d+)?(ms|[smhd]))+\b", "SPAN"),
        (r"\d+\.\d+ ms|\d+ MiB|SQLite [\d.]+", "NUMBER"),
        (r#""waited_ms":\d+"#, "WAITED"),
        (" +", " "),
    ] {
        text = Regex::new(pattern).unwrap().replace_all(&text, mask).into_owned();
    }
    let lines = text.lines().map(str::trim_end);
    lines.collect::<Vec<_>>().join("\n").trim_end().to_owned()
}

#[test]
fn what_the_pages_show_is_what_happens() {
    let folder = Path::new(env!("CARGO_BIN_EXE_sprag")).parent().unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    for page in PAGES {
        let home = Home::new();
        for block in blocks(page) {
            let block: Vec<_> =
                block.iter().filter_map(|(command, out)| Some((runs(command)?, out))).collect();
            let script: Vec<_> = block.iter().map(|(command, _)| command.as_str()).collect();
            // One shell for a block, so that variables last; a mark between the outputs.
            let script = format!("exec 2>&1\n{}", script.join("\nprintf '\\001'\n"));
            let mut bash = Command::new("bash");
            home.dress(&mut bash);
            let output = bash.env("PATH", &path).args(["-c", &script]).output().unwrap();
            let output = String::from_utf8(output.stdout).unwrap();
            for ((command, expected), seen) in block.iter().zip(output.split('\x01')) {
                let (expected, seen) = (mask(expected, &home), mask(seen, &home));
                assert!(seen == expected, "{page}: {command}\n{seen}\nis not\n{expected}");
            }
            assert_eq!(block.len().max(1), output.split('\x01').count(), "{page}: {script}");
        }
    }
}

#[test]
fn every_command_has_a_place_in_the_docs() {
    let page = read("docs/cli.md");
    for command in commands(&Home::new()) {
        assert!(page.contains(&format!("`{command}`")), "{command}");
    }
}

#[test]
fn cargo_run_at_the_root_runs_sprag() {
    let manifest = std::fs::read_to_string(root().join("crates/sprag-cli/Cargo.toml")).unwrap();
    assert!(manifest.contains("default-run = \"sprag\""));
}
