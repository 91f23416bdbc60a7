use std::process::Command;

use super::support::{Home, commands};

fn complete(home: &Home, words: &[&str]) -> Vec<String> {
    let answer = home.sprag(&[&["__complete", "--"], words].concat()).ok();
    assert_eq!(answer.err, "");
    answer.out.lines().map(str::to_owned).collect()
}

#[test]
fn commands_flags_values_locks_and_stores_are_completed() {
    let home = Home::new();
    home.write("work/sprag.toml", "[stores.prod]\nurl = \"sqlite:prod.db\"\n");
    for name in ["deploy", "db", "report"] {
        home.acquire(name);
    }
    for (words, expected) in [
        (&["re"][..], &["renew", "release"][..]),
        (&["show", "de"], &["deploy"]),
        (&["show", "d"], &["db", "deploy"]),
        (&["show", "deploy", ""], &[]),
        (&["run", "-n", "rep"], &["report"]),
        (&["run", "db,d"], &["db,db", "db,deploy"]),
        (&["run", "db", "--", "d"], &[]),
        (&["run", "-w", ""], &[]),
        (&["-S", "re"], &["redis:", "redlock:"]),
        (&["-S", "git"], &["git:", "github:"]),
        (&["-S", "p"], &["prod", "postgres:"]),
        (&["ls", "--store", "pr"], &["prod"]),
        (&["ls", "-o", "h"], &["holder", "held", "host"]),
        (&["ls", "--w"], &["--watch"]),
        (&["completions", ""], &["bash", "zsh", "fish"]),
        (&["man", "sto"], &["stores"]),
    ] {
        assert_eq!(complete(&home, words), expected, "{words:?}");
    }
    let all = complete(&home, &[""]);
    assert!(commands(&home).iter().all(|command| all.contains(command)), "{all:?}");
    assert!(!all.iter().any(|command| command.starts_with("__")), "{all:?}");
}

#[test]
fn completing_never_complains() {
    let home = Home::new();
    home.write("work/sprag.toml", "store = \"sqlite:/proc/none/x.db\"\n");
    assert_eq!(complete(&home, &["show", ""]), [""; 0]);
    assert_eq!(complete(&home, &[]), [""; 0]);
}

#[test]
fn the_script_for_bash_works_in_bash() {
    let home = Home::new();
    home.acquire("deploy:prod");
    let line = "sprag show deploy:p";
    let script = format!(
        "source <(sprag completions bash); COMP_LINE='{line}'; COMP_POINT={}; _sprag; \
         echo \"${{COMPREPLY[@]}}\"",
        line.len()
    );
    let mut bash = Command::new("bash");
    home.dress(&mut bash);
    let folder = std::path::Path::new(env!("CARGO_BIN_EXE_sprag")).parent().unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let output = bash.env("PATH", path).args(["--norc", "-c", &script]).output().unwrap();
    // bash splits words at the colon and gets the part behind it.
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "prod\n");
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}

/// The name of a lock is written by others, and Enter is pressed soon.
#[test]
fn a_name_that_is_a_command_is_completed_as_one_word() {
    let home = Home::new();
    home.acquire("x;touch hooked");
    home.acquire("y\u{202e}z");
    assert_eq!(complete(&home, &["show", "y"]), [""; 0]);
    let script = "source <(sprag completions bash); COMP_LINE='sprag show x'; COMP_POINT=12; \
                  _sprag; eval \"printf '<%s>' ${COMPREPLY[0]}\"";
    let mut bash = Command::new("bash");
    home.dress(&mut bash);
    let folder = std::path::Path::new(env!("CARGO_BIN_EXE_sprag")).parent().unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let output = bash.env("PATH", path).args(["--norc", "-c", script]).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "<x;touch hooked>");
    let zsh = home.sprag(&["completions", "zsh"]).ok().out;
    assert!(!zsh.contains("compadd -Q"), "zsh would not quote: {zsh}");
}

#[test]
fn each_shell_has_a_script() {
    let home = Home::new();
    for (shell, word) in [("bash", "complete -o"), ("zsh", "#compdef sprag"), ("fish", "-c sprag")]
    {
        let script = home.sprag(&["completions", shell]).ok().out;
        assert!(script.contains(word) && script.contains("sprag __complete --"), "{shell}");
    }
    home.sprag(&["completions", "tcsh"]).exits(64);
}

#[test]
fn every_command_has_a_manual_page() {
    let home = Home::new();
    let folder = home.path("man1");
    home.sprag(&["man", "--directory", folder.to_str().unwrap()]).ok();
    for command in commands(&home) {
        let page = std::fs::read_to_string(folder.join(format!("sprag-{command}.1"))).unwrap();
        assert!(page.contains(&format!(".TH sprag-{command} 1")), "{page}");
        assert!(page.contains(&format!("sprag\\-{command} \\- ")), "{command}: {page}");
        assert_eq!(home.sprag(&["man", &command]).ok().out.trim_end(), page.trim_end());
    }
    let main = std::fs::read_to_string(folder.join("sprag.1")).unwrap();
    assert!(main.contains("sprag\\-run(1)"), "{main}");
    assert!(!main.contains("__"), "{main}");
}
