use super::support::Home;

#[test]
fn the_demonstration_keeps_its_promises_and_leaves_nothing_behind() {
    let home = Home::new();
    let answer = home.sprag(&["demo", "--json"]).ok();
    let json = answer.json();
    let claims = json["claims"].as_array().unwrap();
    assert_eq!(claims.len(), 4);
    assert!(claims.iter().all(|claim| claim["kept"] == true), "{claims:?}");
    assert_eq!(claims[1]["seen"], "8000 of 8000");
    assert_eq!(std::fs::read_dir(home.path("tmp")).unwrap().count(), 0);
    // Not a word about it among the locks of the user.
    assert!(!home.path(".local").exists());
}

#[test]
fn the_demonstration_runs_on_the_store_that_is_named() {
    let home = Home::new();
    let answer = home.sprag(&["demo", "-S", "sqlite:mine.db"]).ok();
    assert!(answer.out.contains("[4/4]"), "{answer:?}");
    assert!(answer.out.contains("store: sqlite:mine.db"), "{answer:?}");
    assert!(home.path("work/mine.db").is_file());
    let left = home.sprag(&["ls", "-S", "sqlite:mine.db", "--json"]).ok().json();
    assert_eq!(left["locks"], serde_json::json!([]));
}

/// Where the lock of a dead holder stays until somebody takes it over.
#[test]
fn the_demonstration_runs_on_a_git_remote() {
    let home = Home::new();
    let url = home.git_store() + "?poll_ms=50";
    let answer = home.sprag_with(&[("SPRAG_STORE", &url)], &["demo"]).ok();
    assert!(answer.out.contains("the old command was already dead"), "{answer:?}");
    assert!(answer.out.contains("was refused"), "{answer:?}");
}
