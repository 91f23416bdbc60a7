//! The slowest tests of a run, from the report that nextest leaves behind.

use crate::table;

/// How many are shown.
const SHOWN: usize = 10;

/// One test of the report.
#[derive(Debug, PartialEq)]
struct Timing {
    name: String,
    seconds: f64,
}

/// The ten slowest tests in a JUnit report, as a table; nothing if there are none in it.
pub(crate) fn table(report: &str) -> Option<String> {
    let mut timings: Vec<_> = report.split("<testcase ").skip(1).filter_map(timing).collect();
    if timings.is_empty() {
        return None;
    }
    timings.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
    let mut rows = vec![vec!["slowest tests".to_owned(), "seconds".to_owned()]];
    rows.extend(
        timings.into_iter().take(SHOWN).map(|it| vec![it.name, format!("{:.1}", it.seconds)]),
    );
    Some(table::render(&rows))
}

/// Reads the attributes of one `<testcase>`.
fn timing(element: &str) -> Option<Timing> {
    let tag = element.split('>').next()?;
    let attribute = |name: &str| tag.split_once(&format!(" {name}=\""))?.1.split('"').next();
    // The first attribute has no space before it.
    let test = tag.strip_prefix("name=\"")?.split('"').next()?;
    let program = attribute("classname")?;
    let seconds = attribute("time")?.parse().ok()?;
    Some(Timing { name: format!("{program} {test}"), seconds })
}

#[cfg(test)]
mod tests {
    use super::table;

    #[test]
    fn the_slowest_comes_first() {
        let report = r#"<testsuites name="nextest-run" tests="2" time="9">
            <testsuite name="kit::redis" tests="2">
                <testcase name="queue::a_release_hands_over" classname="kit::redis" timestamp="x" time="0.250">
                </testcase>
                <testcase name="death::dead_waiters_are_skipped" classname="kit::redis" timestamp="x" time="3.000">
                </testcase>"#;
        let table = table(report).unwrap();
        let lines: Vec<_> = table.lines().collect();
        assert!(lines[1].starts_with("kit::redis death::dead_waiters_are_skipped"), "{table}");
        assert!(lines[1].ends_with("3.0"), "{table}");
        assert_eq!(lines.len(), 3);
    }

    #[test]
    fn a_report_without_tests_has_no_slowest() {
        assert_eq!(table("<testsuites></testsuites>"), None);
    }
}
