//! What the page about work items says about issues is what happens.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::support::{Hub, LABEL};

/// The blocks of a kind in the part about issues.
fn blocks(kind: &str) -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/work.md");
    let page = std::fs::read_to_string(page).unwrap();
    let part = page.split("\n## Issues on GitHub\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let begin = format!("```{kind}\n");
    let blocks = part.split(&begin).skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.map(str::to_owned).collect()
}

#[test]
fn the_rules_and_the_commands_of_the_page_work() {
    let hub = Hub::new();
    let rules = blocks("toml").remove(0);
    let api = format!("api = \"{}\"\nlimits = false\n", hub.github.url());
    std::fs::write(hub.path("sprag.toml"), rules + &api).unwrap();
    assert_eq!(LABEL, "agent", "the label of the page");
    let numbers: Vec<_> = (0..3).map(|n| hub.add_issue(&format!("job {n}"))).collect();
    std::fs::create_dir(hub.path("a")).unwrap();
    let fix = hub.path("a/fix.sh");
    std::fs::write(&fix, "#!/bin/sh\necho \"$SPRAG_ITEM_NUMBER $SPRAG_ITEM_REPO\"\n").unwrap();
    std::fs::set_permissions(&fix, PermissionsExt::from_mode(0o755)).unwrap();
    let commands = blocks("sh").remove(0);
    let commands: Vec<_> = commands.lines().map(|line| line.split('#').next().unwrap()).collect();
    assert_eq!(commands.len(), 2);
    let mut seen = String::new();
    for command in commands {
        // Workers that look for more never end.
        let words = command.replace("--every 30s ", "");
        let words: Vec<_> = words.split_whitespace().skip(1).collect();
        seen += &hub.sprag(&words).exits(0).out;
    }
    for number in numbers {
        assert!(seen.contains(&format!("{number} acme/app\n")), "{seen}");
        assert!(seen.contains(&format!("done issue-{number}: open -> closed\n")), "{seen}");
        assert!(!hub.issue(number).open);
    }
}
