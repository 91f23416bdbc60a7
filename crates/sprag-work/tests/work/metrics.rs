//! What workers count.

use std::collections::BTreeMap;

use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use sprag_work::{Claim, How, Outcome};

use crate::support::*;

#[test]
fn claims_ends_and_what_is_open_are_counted() {
    let world = World::new();
    let clone = world.clone_named("a");
    for item in ["x-00000001", "y-00000002"] {
        place_item(&clone, &format!("bugs/next/{item}"));
    }
    let recorder = DebuggingRecorder::new();
    let counted = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        let source = world.source(&clone, "agent-1");
        let claim = |item: &str| Box::new(source.claim_named(item, &How::default()).unwrap());
        claim("x").finish(done()).unwrap();
        claim("x").finish(Outcome::Released).unwrap();
        let open = claim("y");
        source.stats().unwrap();
        drop(open);
    });
    let number = |value: DebugValue| match value {
        DebugValue::Counter(count) => count.to_string(),
        DebugValue::Gauge(gauge) => gauge.to_string(),
        DebugValue::Histogram(_) => String::new(),
    };
    let seen: BTreeMap<String, String> = counted
        .snapshot()
        .into_vec()
        .into_iter()
        .map(|(key, _, _, value)| {
            let labels = key.key().labels().map(|label| label.value().to_owned());
            let name = [key.key().name().to_owned()].into_iter().chain(labels);
            (name.collect::<Vec<_>>().join(" "), number(value))
        })
        .filter(|(name, _)| name.starts_with("sprag_work_"))
        .collect();
    let expected = [
        ("sprag_work_active_claims", "1"),
        ("sprag_work_claims_total won", "3"),
        ("sprag_work_ends_total moved", "1"),
        ("sprag_work_ends_total released", "1"),
        ("sprag_work_moved_in_a_day", "1"),
        ("sprag_work_stale_claims", "0"),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(seen, BTreeMap::from(expected));
}
