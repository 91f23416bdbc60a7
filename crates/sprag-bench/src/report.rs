//! The table of results, for the terminal and for `docs/`.

use std::fmt::Write as _;

use crate::stats::{Spread, short};

/// What a result has to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

impl Goal {
    fn met_by(self, value: f64) -> bool {
        match self {
            Self::AtLeast(limit) => value >= limit,
            Self::AtMost(limit) => value <= limit,
        }
    }

    fn text(self) -> String {
        match self {
            Self::AtLeast(limit) => format!("≥ {limit}"),
            Self::AtMost(limit) => format!("≤ {limit}"),
        }
    }
}

/// One line of the table.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) ours: String,
    pub(crate) reference: String,
    /// The value the goal is about: mostly a ratio.
    pub(crate) value: Option<Spread>,
    pub(crate) goal: Option<Goal>,
}

impl Row {
    /// Ours against theirs, measured in pairs.
    pub(crate) fn pairs(
        what: &str,
        ours: &[f64],
        theirs: (&str, &[f64]),
        goal: Option<Goal>,
    ) -> Self {
        Self {
            what: what.to_owned(),
            ours: Spread::of(ours).to_string(),
            reference: format!("{} {}", theirs.0, Spread::of(theirs.1)),
            value: Some(Spread::of_ratios(ours, theirs.1)),
            goal,
        }
    }

    /// Ours alone, with a goal of its own; what others do stands beside it.
    pub(crate) fn absolute(
        what: &str,
        ours: &[f64],
        reference: String,
        goal: Option<Goal>,
    ) -> Self {
        let spread = Spread::of(ours);
        Self {
            what: what.to_owned(),
            ours: spread.to_string(),
            reference,
            value: goal.is_some().then_some(spread),
            goal,
        }
    }

    fn missed(&self) -> bool {
        match (self.goal, self.value) {
            (Some(goal), Some(value)) => !goal.met_by(value.median),
            _ => false,
        }
    }

    fn cells(&self) -> [String; 6] {
        let result = match (self.goal, self.missed()) {
            (None, _) => "",
            (Some(_), true) => "MISSED",
            (Some(_), false) => "ok",
        };
        [
            self.what.clone(),
            self.ours.clone(),
            self.reference.clone(),
            self.value.map(|value| value.to_string()).unwrap_or_default(),
            self.goal.map(Goal::text).unwrap_or_default(),
            result.to_owned(),
        ]
    }
}

/// Everything one run has to say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    pub(crate) machine: Vec<String>,
    pub(crate) rows: Vec<Row>,
}

impl Report {
    /// The goals that were missed.
    pub(crate) fn missed(&self) -> Vec<&str> {
        self.rows.iter().filter(|row| row.missed()).map(|row| row.what.as_str()).collect()
    }

    /// A table that reads well as text and as Markdown.
    pub(crate) fn table(&self) -> String {
        let head = ["what", "sprag", "reference", "ratio or value", "goal", "result"];
        let mut rows = vec![head.map(str::to_owned)];
        rows.extend(self.rows.iter().map(Row::cells));
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
        let widths: Vec<usize> = (0..head.len()).map(|c| width(c).unwrap_or(0)).collect();
        let mut text = String::new();
        for (index, row) in rows.iter().enumerate() {
            push_line(&mut text, row, &widths);
            if index == 0 {
                let dashes: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
                push_line(&mut text, &dashes, &widths);
            }
        }
        text
    }
}

fn push_line(text: &mut String, cells: &[String], widths: &[usize]) {
    for (cell, width) in cells.iter().zip(widths) {
        text.push_str("| ");
        text.push_str(cell);
        text.extend(std::iter::repeat_n(' ', width - cell.chars().count() + 1));
    }
    text.push_str("|\n");
}

/// What a page in `docs/` says beside the figures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page {
    pub(crate) title: &'static str,
    /// How to repeat it.
    pub(crate) command: &'static str,
    /// What is measured.
    pub(crate) notes: &'static str,
}

/// `docs/bench-*.md`.
pub(crate) fn markdown(report: &Report, page: Page, pairs: usize) -> String {
    let Page { title, command, notes } = page;
    let mut text = format!("# {title}\n\n");
    text.push_str("<!-- Written by the benchmark itself; to change it, run it again. -->\n\n");
    for line in &report.machine {
        writeln!(text, "- {line}").unwrap_or_default();
    }
    write!(
        text,
        "\nRepeat it with:\n\n```sh\n{command}\n```\n\n\
         Figures are medians of {pairs} pairs with the range in brackets. sprag and its reference\n\
         were measured alternately, in the same run on the same machine: a ratio is the median of\n\
         the ratios of the pairs. Only ratios carry over to other machines.\n\n{}",
        report.table()
    )
    .unwrap_or_default();
    text.push_str(notes);
    text
}

/// A line of progress.
#[expect(clippy::print_stdout, reason = "a benchmark that is silent for a minute looks stuck")]
pub(crate) fn progress(line: &str) {
    println!("{line}");
}

/// The figures of a set of durations in microseconds.
pub(crate) fn latency(sorted_micros: &[u64]) -> String {
    let at = |percent| short(crate::stats::percentile(sorted_micros, percent) as f64 / 1000.0);
    format!("p50 {} p99 {} max {}", at(50), at(99), at(100))
}

#[cfg(test)]
mod tests {
    use super::{Goal, Page, Report, Row, markdown};

    fn report(ours: f64) -> Report {
        let row = Row::pairs("speed", &[ours], ("raw", &[2.0]), Some(Goal::AtLeast(0.5)));
        let other = Row::absolute("longest", &[3.0], String::new(), None);
        Report { machine: vec!["cores: 2".to_owned()], rows: vec![row, other] }
    }

    #[test]
    fn a_missed_goal_is_named() {
        assert!(report(1.0).missed().is_empty());
        assert_eq!(report(0.9).missed(), ["speed"]);
        assert!(report(0.9).table().contains("MISSED"));
        assert!(!report(1.0).table().contains("MISSED"));
    }

    #[test]
    fn the_lines_of_a_table_are_of_one_length() {
        let table = report(1.0).table();
        let lengths: Vec<_> = table.lines().map(|line| line.chars().count()).collect();
        assert_eq!(lengths.len(), 4);
        assert!(lengths.iter().all(|length| *length == lengths[0]), "{table}");
    }

    #[test]
    fn the_page_says_how_to_repeat_it() {
        let page = Page { title: "Title", command: "cargo xtask bench local", notes: "The notes." };
        let page = markdown(&report(1.0), page, 5);
        for part in ["# Title\n", "cargo xtask bench local", "cores: 2", "The notes."] {
            assert!(page.contains(part), "{page}");
        }
    }
}
