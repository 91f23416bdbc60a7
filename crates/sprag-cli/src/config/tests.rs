use std::path::Path;
use std::time::Duration;

use sprag::Wait;

use super::file::File;
use super::trust::Standing;
use super::{Origin, Settings};
use crate::args::Global;
use crate::failure::Failure;

fn load(
    global: &Global,
    env: &[(&str, &str)],
    files: &[(&str, &str)],
) -> Result<Settings, Failure> {
    load_as(Standing::Own, global, env, files)
}

fn load_as(
    standing: Standing,
    global: &Global,
    env: &[(&str, &str)],
    files: &[(&str, &str)],
) -> Result<Settings, Failure> {
    let env =
        |name: &str| env.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
    let files: Result<Vec<_>, _> =
        files.iter().map(|(path, text)| File::parse(text, Path::new(path), standing)).collect();
    Settings::from_layers(global, env, &files?, None)
}

#[test]
fn each_layer_goes_before_the_next() {
    let files = [
        ("/p/sprag.toml", "# ours\nstore = \"memory:project\"\nwait = 5\n"),
        ("/u/config.toml", "store = \"memory:user\"\nttl = \"1m\"\nwait = \"1h\"\n"),
        ("/s/config.toml", "store = \"memory:system\"\nttl = 9\nkill_after = 1.5\n"),
    ];
    let env = [("SPRAG_STORE", "memory:env")];
    let flags = Global { store: Some("memory:flag".into()), ..Global::default() };
    let none = Global::default();
    let store = |global: &Global, env: &[(&str, &str)], skip: usize| {
        let store = load(global, env, &files[skip..]).unwrap().store;
        (store.value, store.origin)
    };
    let file = |path: &str, line| Origin::File(path.into(), line);
    assert_eq!(store(&flags, &env, 0), ("memory:flag".into(), Origin::Flag("--store")));
    assert_eq!(store(&none, &env, 0), ("memory:env".into(), Origin::Environment("SPRAG_STORE")));
    assert_eq!(store(&none, &[], 0), ("memory:project".into(), file("/p/sprag.toml", 2)));
    assert_eq!(store(&none, &[], 1), ("memory:user".into(), file("/u/config.toml", 1)));
    assert_eq!(store(&none, &[], 2), ("memory:system".into(), file("/s/config.toml", 1)));
    assert_eq!(store(&none, &[], 3), ("sqlite:".into(), Origin::Default));

    let settings = load(&none, &[], &files).unwrap();
    assert_eq!(settings.wait.value, Wait::AtMost(Duration::from_secs(5)));
    assert_eq!(settings.ttl.value, Duration::from_secs(60));
    assert_eq!(settings.kill_after.value, Duration::from_millis(1500));
    assert_eq!(settings.kill_after.origin, file("/s/config.toml", 3));
}

#[test]
fn a_name_stands_for_a_url_and_a_variable_for_a_secret() {
    let files = [(
        "/p/sprag.toml",
        "store = \"prod\"\n[stores.prod]\nurl = \"redis://${WHO}:${WORD}@db:6379\"\n",
    )];
    let env = [("WHO", "me"), ("WORD", "hunter2")];
    let settings = load(&Global::default(), &env, &files).unwrap();
    assert_eq!(settings.store.value, "redis://me:hunter2@db:6379");
    let shown = format!("{:?}", settings.rows());
    assert!(shown.contains("redis://***@db:6379") && !shown.contains("hunter2"), "{shown}");

    let unset = load(&Global::default(), &[], &files).unwrap_err();
    assert_eq!(unset.message(), "/p/sprag.toml:3: the variable WHO is not set");
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    for (text, message) in [
        ("\nwait = \"soon\"", "/p/sprag.toml:2: \"soon\" is no duration"),
        ("ttl = true", "/p/sprag.toml:1: expected a text or a number"),
        ("stor = \"x\"", "/p/sprag.toml:1: unknown field `stor`, expected one of `store`"),
        ("[stores.a]\nurl = 'x:'\npassword = 'hunter2'", "/p/sprag.toml:3: unknown field `pass"),
        ("x = \"hunter2", "/p/sprag.toml:1: "),
        ("color = \"blue\"", "/p/sprag.toml:1: \"blue\" is not auto, always or never"),
        ("store = \"a\"", "/p/sprag.toml:1 names no store"),
    ] {
        let failure = load(&Global::default(), &[], &[("/p/sprag.toml", text)]).unwrap_err();
        let said = failure.message();
        assert!(said.starts_with(message) && !said.contains("hunter2"), "{text:?}: {said}");
        assert_eq!(failure.exit().number(), 78);
    }
    let bad = load(&Global::default(), &[("SPRAG_TTL", "1x")], &[]).unwrap_err();
    assert!(bad.message().starts_with("SPRAG_TTL: \"1x\" is no duration"));
}

#[test]
fn a_file_without_trust_bars_only_the_commands_that_need_its_lines() {
    let load = |text: &str, store: Option<&str>| {
        let global = Global { store: store.map(str::to_owned), ..Global::default() };
        let files = [("/p/sprag.toml", text)];
        load_as(Standing::Untrusted, &global, &[("WORD", "hunter2")], &files).unwrap()
    };
    let named =
        "store = \"a\"\n[stores.a]\nurl = \"memory:\"\n[stores.b]\nurl = \"redis://${WORD}\"";
    assert!(load(named, None).project.check_store().is_ok());
    assert!(!load(named, None).project.may_be_contacted());
    assert!(load(named, Some("memory:")).project.may_be_contacted());
    let barred = load(named, Some("b"));
    let said = barred.project.check_store().unwrap_err();
    assert!(said.message().starts_with("/p/sprag.toml:5: stores.b reads the variable WORD"));
    assert!(!format!("{:?}", barred.rows()).contains("hunter2"));
    let barred = load("store = \"git+https://a:b@c/d\"", None);
    assert!(barred.project.check_store().unwrap_err().message().contains(":1: store has a pass"));
    assert!(barred.project.check_work().is_ok());
    for (rules, line) in [
        ("[work]\nworktrees = \"/home\"", ":2: work.worktrees "),
        ("[work.github]\nrepo = \"a/b\"\napi = \"https://c\"", ":3: work.github.api "),
        ("[work.github]\nrepo = \"c/a/b\"", ":2: work.github.repo "),
    ] {
        let said = load(rules, None).project.check_work().unwrap_err();
        assert!(said.message().contains(line), "{}", said.message());
    }
    assert!(load("reason = \"command\"", None).project.check_reason().is_err());
    assert!(load("reason = \"program\"", None).project.check_reason().is_ok());
}
