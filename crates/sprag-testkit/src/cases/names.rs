//! Names: every one is a lock of its own.
#![expect(clippy::unwrap_used, reason = "a case fails by panicking")]

use sprag_core::LockName;
use sprag_core::store::Listing;

use crate::fault::FaultStore;
use crate::harness::Harness;
use crate::support::{LONG, look, request, times};

/// FAULTS 21: two thousand names exclude only themselves.
pub async fn thousands_of_names_do_not_collide(harness: &dyn Harness) {
    let (store, other) = (harness.store().await, harness.store().await);
    let few = u32::try_from(harness.times(500)).unwrap();
    let count = times(few, few * 50);
    let names = (0..count).flat_map(|number| {
        // Different lengths, common prefixes, and numbers that differ in one place only.
        let hex = format!("{:08x}", number.wrapping_mul(0x9e37_79b1));
        [format!("job-{number}"), format!("job/{number}"), format!("{number}"), hex]
    });
    let mut held = Vec::new();
    for name in names {
        let asked = request(&name);
        let answer = store.try_acquire(&asked).await.unwrap();
        let granted = matches!(answer, sprag_core::store::Attempt::Granted(_));
        assert!(granted, "{name:?} is excluded by another name: {answer:?}");
        held.push(asked);
    }
    for asked in held.iter().step_by(97) {
        let answer = other.try_acquire(&request(asked.name.as_str())).await.unwrap();
        assert!(matches!(answer, sprag_core::store::Attempt::Held(_)), "{answer:?}");
        assert_eq!(look(&other, asked.name.as_str()).await.holders[0].lease, asked.lease);
    }
}

/// Names that look alike, in twos and threes, and everything that needs quoting somewhere.
const LOOK_ALIKES: [&str; 40] = [
    "job", "job/1", "job/", "/job", "job/1/2", "job.lock", "job ", " job", "Job", "JOB",
    // The same letters composed and decomposed, and from another alphabet.
    "caf\u{e9}", "cafe\u{301}", "cafe", "а", "a", "ß", "ss", "名前", "🔒", "🔓", ".", "..", "~",
    "^", ":", "?", "*", "[", "\\", "@{", "-", "--", "%2F", "%", "'", "\"", "`$(x)`", "{tag}",
    "a{b}c", "_",
];

/// FAULTS 21, F50: names are compared as bytes: case, prefixes, spaces and the ways to write an
/// accent all count, and none of them is changed on the way.
pub async fn names_that_look_alike_are_different(harness: &dyn Harness) {
    let (client, other) = (harness.client().await, harness.client().await);
    let mut held = Vec::new();
    for name in LOOK_ALIKES {
        let guard = client.lock(name).ttl(LONG).try_acquire().await.unwrap();
        held.push(guard.unwrap_or_else(|| panic!("{name:?} is excluded by another name")));
    }
    for name in LOOK_ALIKES {
        assert!(other.lock(name).try_acquire().await.unwrap().is_none(), "{name:?} is not held");
    }
    let listed = other.list(&Listing::default()).await.unwrap();
    let listed: Vec<_> = listed.locks.iter().map(|lock| lock.name.as_str()).collect();
    let mut expected = LOOK_ALIKES;
    expected.sort_unstable();
    assert_eq!(listed, expected, "not the same names, in the order of their bytes");
}

/// FAULTS 18: the longest name works, and keeps apart names that differ in their last byte.
pub async fn the_longest_names_work(harness: &dyn Harness) {
    let client = harness.client().await;
    let long = |end: &str| "x".repeat(LockName::MAX_BYTES - end.len()) + end;
    let one = client.lock(long("a")).ttl(LONG).acquire().await.unwrap();
    let two = client.lock(long("b")).ttl(LONG).acquire().await.unwrap();
    let wide = client.lock(long("é")).ttl(LONG).acquire().await.unwrap();
    assert!(client.lock(long("a")).try_acquire().await.unwrap().is_none());
    for guard in [one, two, wide] {
        guard.release().await.unwrap();
    }
}

/// FAULTS 18: names that cannot be are refused with the reason, before the store is asked.
pub async fn bad_names_are_refused(harness: &dyn Harness) {
    let faults = FaultStore::new(harness.store().await);
    let client = faults.client();
    let cases = [
        (String::new(), "empty"),
        ("x".repeat(10_240), "10240 bytes"),
        ("x".repeat(LockName::MAX_BYTES + 1), "256 bytes"),
        ("a\nb".into(), "'\\n'"),
        ("a\0b".into(), "'\\0'"),
        ("a\u{85}b".into(), "control"),
    ];
    for (name, why) in cases {
        let error = client.lock(&name).acquire().await.unwrap_err();
        assert!(error.is_bad_input() && error.to_string().contains(why), "{error:?}: no {why}");
        assert!(client.lock(&name).try_acquire().await.unwrap_err().is_bad_input());
        assert!(client.inspect(&name).await.unwrap_err().is_bad_input());
        assert!(client.acquire_many([&name], |lock| lock).await.unwrap_err().is_bad_input());
    }
    assert_eq!(faults.calls().len(), 0, "the store was asked");
}

/// FAULTS 21: lists come in pages, in order, without gaps or repeats, and by prefix.
pub async fn lists_come_in_pages(harness: &dyn Harness) {
    let (client, store) = (harness.client().await, harness.store().await);
    let mut expected = Vec::new();
    for number in 0..25 {
        let name = format!("page/{number:02}");
        store.try_acquire(&request(&name)).await.unwrap();
        expected.push(name);
    }
    store.try_acquire(&request("other")).await.unwrap();
    let mut listing = Listing { prefix: "page/".into(), limit: 10, ..Listing::default() };
    let mut seen = Vec::new();
    loop {
        let page = client.list(&listing).await.unwrap();
        assert!(page.locks.len() <= 10);
        seen.extend(page.locks.iter().map(|lock| lock.name.as_str().to_owned()));
        listing.after = page.next;
        if listing.after.is_none() {
            break;
        }
    }
    assert_eq!(seen, expected);
    let contended = Listing { contended: true, ..Listing::default() };
    assert!(client.list(&contended).await.unwrap().locks.is_empty(), "nobody waits");
}
