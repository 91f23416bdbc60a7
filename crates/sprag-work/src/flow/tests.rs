use proptest::prelude::*;

use super::*;

const ROOT: &str = "docs/work";

fn item(text: &str) -> ItemName {
    ItemName::new(text).unwrap()
}

fn rule(from: &str, claim: &str, to: &str) -> StepRule {
    StepRule { from: from.into(), claim: claim.into(), to: to.into(), stamp: false }
}

fn refused(rules: &[StepRule], last: &[&str]) -> String {
    let last: Vec<_> = last.iter().map(|state| State::new(*state).unwrap()).collect();
    let error = Flow::new(rules, &last).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Flow);
    error.to_string()
}

fn locate(path: &str) -> Option<(Place, String)> {
    let parts: Vec<_> = path.split('/').collect();
    let (place, item, _) = Flow::standard().locate(&parts)?;
    Some((place, item.to_owned()))
}

#[test]
fn every_row_of_the_table_works() {
    let flow = Flow::standard();
    let rows = [
        ("new", "stamp", "stamped"),
        ("stamped", "triaging", "bugs/next"),
        ("next", "readyforanalysis", "inanalysis"),
        ("readyforanalysis", "inanalysis", "readyfordevelopment"),
        ("inanalysis", "inanalysis", "readyfordevelopment"),
        ("readyfordevelopment", "indevelopment", "readyfortesting"),
        ("readyfortesting", "intesting", "signedoff"),
        ("signedoff", "production", "archive/production"),
    ];
    for (from, claim, to) in rows {
        let place = Place::plain(from);
        assert_eq!(flow.claim_word(&place.state), Some(claim));
        let category = (from == "stamped").then_some("bugs");
        assert_eq!(flow.advance(&place, category).unwrap().to_string(), to);
    }
    let pending = Place::plain("stamped").pending();
    assert_eq!(flow.claim_word(&pending.state), Some("triaging"));
    assert_eq!(pending.path(ROOT, &item("x-00000001")), "docs/work/pending-x-00000001");
    let back = flow.resume(&pending, Some(&State::known("stamped")), Some("bugs")).unwrap();
    assert_eq!(back, Place::in_category("bugs", "next"));
}

#[test]
fn a_category_is_kept_on_the_way_and_asked_for_where_it_is_given() {
    let flow = Flow::standard();
    let mut place = Place::in_category("bugs", "next");
    let mut way = Vec::new();
    while !flow.is_last(&place.state) {
        place = flow.advance(&place, None).unwrap();
        way.push(place.to_string());
    }
    assert_eq!(way.last().unwrap(), "bugs/archive/production");
    let error = flow.advance(&Place::plain("stamped"), None).unwrap_err();
    assert!(error.nexts()[0].command.contains("--category"));
    for bad in ["next", "archive", "pending", "pending-x", "a/b", "", ".git", "-x"] {
        assert!(flow.advance(&Place::plain("stamped"), Some(bad)).is_err(), "{bad:?}");
    }
}

#[test]
fn paths_tell_where_an_item_is() {
    let found = |path: &str| locate(path).map(|(place, item)| (place.to_string(), item));
    let at = |place: &str, item: &str| Some((place.to_owned(), item.to_owned()));
    assert_eq!(found("new/x/README.md"), at("new", "x"));
    assert_eq!(found("bugs/next/x/README.md"), at("bugs/next", "x"));
    assert_eq!(found("bugs/archive/production/x/a"), at("bugs/archive/production", "x"));
    assert_eq!(found("archive/production/x/a"), at("archive/production", "x"));
    assert_eq!(found("pending-x/a"), at("pending", "x"));
    assert_eq!(found("bugs/pending-x/a"), at("bugs/pending", "x"));
    for none in ["README.md", "bugs/x", "a/b/next/x/y", "archive/x/y/z"] {
        assert_eq!(found(none), None, "{none}");
    }
}

#[test]
fn a_branch_names_its_item_whatever_the_item_is_called() {
    let flow = Flow::standard();
    let claims = |branch: &str| -> Vec<String> {
        flow.claims_of(branch).map(|item| item.to_string()).collect()
    };
    assert_eq!(claims("indevelopment-userauth-b5c6d7e8"), ["userauth-b5c6d7e8"]);
    assert_eq!(claims("pending-x"), ["x"]);
    assert_eq!(claims("main"), [""; 0]);
    assert_eq!(claims("indevelopment-"), [""; 0]);
}

#[test]
fn a_circle_an_unknown_state_and_two_ways_are_refused() {
    let circle = [rule("a", "a", "b"), rule("b", "b", "c"), rule("c", "c", "a")];
    assert!(refused(&circle, &[]).contains("a -> b -> c -> a"));
    assert!(refused(&[rule("a", "a", "a")], &[]).contains("a -> a"));
    assert!(refused(&[rule("a", "a", "done")], &["dnoe"]).contains("\"done\", which is unknown"));
    let two = [rule("a", "a", "b"), rule("a", "x", "c")];
    assert!(refused(&two, &["b", "c"]).contains("a has two steps"));
    assert!(refused(&[rule("a", "in", "b"), rule("b", "in-dev", "c")], &["c"]).contains("in-dev"));
    assert!(refused(&[], &["a"]).contains("no steps"));
    assert!(refused(&[rule("pending", "p", "b")], &["b"]).contains("pending"));
    assert!(refused(&[rule("a b", "p", "b")], &["b"]).contains("a b"));
}

#[test]
fn a_flow_can_be_written_down() {
    let text = r#"
        root = "/tasks/"
        last = ["done"]
        [[step]]
        from = "todo"
        claim = "doing"
        to = "{category}/review"
        [[step]]
        from = "review"
        claim = "reviewing"
        to = "done"
    "#;
    let rules: Rules = toml::from_str(text).unwrap();
    let flow = rules.flow().unwrap();
    assert_eq!(rules.root(), "tasks");
    assert!(flow.step(&State::known("todo")).unwrap().sorts);
    assert!(flow.state("review/").is_ok() && flow.state("pending").is_ok());
    assert!(flow.state("reviw").unwrap_err().to_string().contains("review"));
    assert!(toml::from_str::<Rules>("rot = 'x'").is_err());
}

fn places() -> impl Strategy<Value = Place> {
    let flow = Flow::standard();
    let mut states: Vec<_> = flow.states().cloned().collect();
    states.push(State::pending());
    let category = proptest::option::of("[a-z]{1,6}");
    let place = (category, proptest::sample::select(states));
    place
        .prop_map(|(category, state)| Place { category, state })
        .prop_filter("no category is a state", move |place| {
            place.category.as_deref().is_none_or(|name| flow.check_category(name).is_ok())
        })
}

proptest! {
    #[test]
    fn the_path_of_an_item_leads_back_to_it(place in places(), name in "[a-zA-Zäöü_.+]{1,12}") {
        prop_assume!(ItemName::new(name.as_str()).is_ok());
        let path = place.path(ROOT, &item(&name));
        let below = path.strip_prefix("docs/work/").unwrap();
        prop_assert_eq!(locate(&format!("{below}/file")), Some((place, name)));
    }

    #[test]
    fn whoever_was_pending_is_back_where_it_was(place in places()) {
        prop_assume!(!place.state.is_pending());
        let flow = Flow::standard();
        let back = flow.resume(&place.pending(), Some(&place.state), None).unwrap();
        prop_assert_eq!(back, place);
    }

    #[test]
    fn every_item_is_done_some_day(place in places()) {
        prop_assume!(!place.state.is_pending());
        let flow = Flow::standard();
        let mut place = place;
        for _ in 0..flow.steps().len() {
            if flow.is_last(&place.state) {
                break;
            }
            place = flow.advance(&place, Some("bugs")).unwrap();
        }
        prop_assert!(flow.is_last(&place.state));
    }

    #[test]
    fn no_flow_that_is_taken_has_a_circle(
        edges in proptest::collection::vec((0..6_u8, 0..6_u8), 1..7)
    ) {
        let state = |number: u8| format!("s{number}");
        let rules: Vec<_> =
            edges.iter().map(|(a, b)| rule(&state(*a), &state(*a), &state(*b))).collect();
        let last: Vec<_> = (0..6)
            .filter(|n| !edges.iter().any(|(from, _)| from == n))
            .map(|n| State::new(state(n)).unwrap())
            .collect();
        if let Ok(flow) = Flow::new(&rules, &last) {
            for step in flow.steps() {
                let mut at = step.from.clone();
                for _ in 0..6 {
                    at = flow.step(&at).map_or(at, |step| step.to.clone());
                }
                prop_assert!(flow.is_last(&at));
            }
        }
    }
}
