//! The command line.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// What this process is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// The benchmark of the store on one machine.
    Local(Options),
    /// The benchmark of the `sprag` command.
    Cli(Options),
    /// The benchmark of the Redis store.
    Redis(Options),
    /// The benchmark of the PostgreSQL store.
    Postgres(Options),
    /// The benchmark of locks on a git remote.
    Git(Options),
    /// One process of the crowd, started by the benchmark.
    Member(PathBuf),
    /// The process that holds many locks, started by the benchmark.
    Holder(PathBuf),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// How often each side is measured.
    pub(crate) pairs: usize,
    /// How many processes want the same lock.
    pub(crate) processes: usize,
    /// How long a closed loop lasts.
    pub(crate) length: Duration,
    /// Whether a missed goal is a failure.
    pub(crate) check: bool,
    /// Where the results go.
    pub(crate) page: Option<PathBuf>,
    /// The only part that is measured, if not all are.
    pub(crate) only: Option<String>,
}

impl Options {
    /// The defaults of a benchmark.
    fn of(benchmark: &str) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
        Self {
            pairs: if matches!(benchmark, "redis" | "postgres" | "git") { 5 } else { 7 },
            processes: 64,
            length: Duration::from_secs(3),
            check: false,
            page: root.map(|root| root.join(format!("docs/bench-{benchmark}.md"))),
            only: None,
        }
    }

    /// Whether a part of the benchmark is to be measured.
    pub(crate) fn wants(&self, part: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only == part)
    }

    /// How long one side is measured each time where nobody waits.
    #[cfg(feature = "peers")]
    pub(crate) fn turn(&self) -> Duration {
        self.length / 4
    }
}

/// What a benchmark can measure alone.
fn parts(benchmark: &str) -> &'static [&'static str] {
    match benchmark {
        "local" => &["uncontended", "crowd", "memory"],
        "redis" => &["uncontended", "tasks", "crowd", "quorum", "held"],
        "postgres" => &["uncontended", "crowd", "held"],
        "git" => &["claims", "batch", "refs", "work", "idle"],
        _ => &[],
    }
}

const FLAGS: &str = "
  --check        exit with 1 if a goal is missed
  --pairs N      measure each side N times; 7 by default
  --processes N  for contention; 64 by default
  --only PART    measure one part, no page
  --no-page      do not write the page in docs
  --quick        one short pair, no page: only to see that it runs";

/// Reads the command line; the error is for the person who typed it.
pub(crate) fn parse(arguments: &[String]) -> Result<Verb, String> {
    let mut words = arguments.iter().map(String::as_str);
    let mut folder = || words.next().map(PathBuf::from).ok_or("no folder".to_owned());
    match arguments.first().map(String::as_str) {
        Some("local" | "cli" | "redis" | "postgres" | "git") => {}
        Some("crowd-member") => {
            folder()?;
            return folder().map(Verb::Member);
        }
        Some("many-holder") => {
            folder()?;
            return folder().map(Verb::Holder);
        }
        other => {
            let other = other.unwrap_or_default();
            let all = "local, cli, redis, postgres, git";
            return Err(format!("there is no benchmark `{other}`; there are: {all}"));
        }
    }
    let benchmark = arguments[0].as_str();
    let mut options = Options::of(benchmark);
    let mut flags = arguments.iter().skip(1).map(String::as_str);
    while let Some(flag) = flags.next() {
        match flag {
            "--check" => options.check = true,
            "--no-page" => options.page = None,
            "--quick" => {
                options.pairs = 1;
                options.length = Duration::from_millis(300);
                options.page = None;
            }
            "--only" => {
                let (part, known) = (flags.next().unwrap_or_default(), parts(benchmark));
                if !known.contains(&part) {
                    let known = known.join(", ");
                    return Err(format!("`{benchmark}` has no part `{part}`; there are: {known}"));
                }
                (options.only, options.page) = (Some(part.to_owned()), None);
            }
            "--pairs" => options.pairs = number(flag, flags.next())?,
            "--processes" => options.processes = number(flag, flags.next())?,
            other => return Err(format!("`{benchmark}` takes no `{other}`; there are:{FLAGS}")),
        }
    }
    Ok(match benchmark {
        "cli" => Verb::Cli(options),
        "redis" => Verb::Redis(options),
        "postgres" => Verb::Postgres(options),
        "git" => Verb::Git(options),
        _ => Verb::Local(options),
    })
}

fn number(flag: &str, word: Option<&str>) -> Result<usize, String> {
    let number = word.and_then(|word| word.parse().ok());
    number.filter(|number| *number > 0).ok_or_else(|| format!("{flag} needs a number above 0"))
}

#[cfg(test)]
mod tests {
    use super::{Options, Verb, parse};

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn flags_change_the_options() {
        assert_eq!(parse(&words("local")), Ok(Verb::Local(Options::of("local"))));
        assert_eq!(parse(&words("cli")), Ok(Verb::Cli(Options::of("cli"))));
        let Ok(Verb::Local(options)) = parse(&words("local --check --pairs 9 --no-page")) else {
            panic!("not accepted");
        };
        assert!(options.check && options.page.is_none());
        assert_eq!(options.pairs, 9);
        assert!(options.wants("crowd") && options.wants("memory"));
        let Ok(Verb::Redis(options)) = parse(&words("redis --only crowd")) else {
            panic!("not accepted");
        };
        assert!(options.wants("crowd") && !options.wants("held") && options.page.is_none());
    }

    #[test]
    fn nonsense_is_refused() {
        for line in [
            "",
            "moon",
            "local --fast",
            "local --only quorum",
            "local --only",
            "local --pairs",
            "local --pairs 0",
            "local --processes x",
        ] {
            assert!(parse(&words(line)).is_err(), "{line}");
        }
    }

    #[test]
    fn the_page_is_in_the_repository() {
        let page = Options::of("cli").page.unwrap();
        assert!(page.parent().unwrap().parent().unwrap().join("Cargo.lock").exists());
    }
}
