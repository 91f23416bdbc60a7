//! What is known about the machine and this process.

use std::path::Path;

use anyhow::{Context as _, Result};

/// Lines for the head of a report.
pub(crate) fn describe(folder: &Path) -> Vec<String> {
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    vec![
        format!("cores: {cores}"),
        format!("kernel: {}", kernel.trim()),
        format!("file system: {}", file_system(folder).unwrap_or_else(|| "unknown".to_owned())),
        format!("SQLite: {}", rusqlite::version()),
    ]
}

/// How much of the machine went to others while something ran here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// Ticks of all cores: doing nothing, and doing anything.
    idle: u64,
    busy: u64,
    /// Ticks of this process and of its children that have ended.
    own: u64,
}

impl Usage {
    /// Since the machine and this process were started.
    pub(crate) fn now() -> Result<Self> {
        let machine = std::fs::read_to_string("/proc/stat")?;
        let process = std::fs::read_to_string("/proc/self/stat")?;
        Self::parse(&machine, &process).context("/proc is not as expected")
    }

    fn parse(machine: &str, process: &str) -> Option<Self> {
        let cores: Vec<u64> = numbers(machine.lines().next()?.strip_prefix("cpu")?);
        // user nice system idle iowait irq softirq steal; then parts of user and nice again.
        let [user, nice, system, idle, iowait, irq, softirq, steal] = *cores.first_chunk()?;
        // After the name, which may hold anything, utime is the 12th word.
        let words: Vec<&str> = process.rsplit(')').next()?.split_whitespace().collect();
        let own = numbers(&words.get(11..15)?.join(" ")).iter().sum();
        let busy = user + nice + system + irq + softirq + steal;
        Some(Self { idle: idle + iowait, busy, own })
    }

    /// What others took since `before`, in percent of all cores.
    pub(crate) fn others_percent(self, before: Self) -> u64 {
        let busy = self.busy.saturating_sub(before.busy);
        let total = busy + self.idle.saturating_sub(before.idle);
        let others = busy.saturating_sub(self.own.saturating_sub(before.own));
        others * 100 / total.max(1)
    }
}

fn numbers(words: &str) -> Vec<u64> {
    words.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// The type of the file system that a folder is on.
fn file_system(folder: &Path) -> Option<String> {
    let folder = folder.canonicalize().ok()?;
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    let longest = mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            Some((words.next()?, words.next()?))
        })
        .filter(|(mount, _)| folder.starts_with(mount))
        .max_by_key(|(mount, _)| mount.len());
    longest.map(|(_, kind)| kind.to_owned())
}

/// The resident memory of a process in KiB.
pub(crate) fn resident_kib(process: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|rest| rest.trim().split(' ').next()).context("no VmRSS")?;
    Ok(number.parse()?)
}

#[cfg(test)]
mod tests {
    use super::Usage;

    #[test]
    fn what_others_did_is_what_this_process_did_not() {
        let process = |ticks| format!("7 (a b) c) S 1 2 3 4 5 6 7 8 9 10 {ticks} 5 3 2 20 0");
        let usage = |machine, own| Usage::parse(machine, &process(own)).unwrap();
        let before = usage("cpu  100 0 50 1000 10 0 0 0 0 0\ncpu0 1 2", 0);
        let after = usage("cpu  140 0 60 1140 20 0 0 0 0 0\ncpu0 1 2", 30);
        // 50 ticks of work, 30 of them here; 150 of rest.
        assert_eq!(after.others_percent(before), 10);
        assert_eq!((before.own, after.own), (10, 40));
        assert!(Usage::now().is_ok());
    }

    #[test]
    fn a_process_has_some_memory() {
        assert!(super::resident_kib(std::process::id()).unwrap() > 100);
    }

    #[test]
    fn the_root_is_on_a_file_system() {
        assert!(super::file_system("/".as_ref()).is_some());
    }
}
