//! What is known about the machine and this process.

use std::path::Path;

use anyhow::{Context as _, Result};

/// Lines for the head of a report.
pub(crate) fn describe(folder: &Path) -> Vec<String> {
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    vec![
        format!("cores: {cores}"),
        format!("load before: {} (should be near 0)", load.split(' ').next().unwrap_or_default()),
        format!("kernel: {}", kernel.trim()),
        format!("file system: {}", file_system(folder).unwrap_or_else(|| "unknown".to_owned())),
        format!("SQLite: {}", rusqlite::version()),
    ]
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

/// The resident memory of this process in KiB.
pub(crate) fn resident_kib() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|rest| rest.trim().split(' ').next()).context("no VmRSS")?;
    Ok(number.parse()?)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_process_has_some_memory() {
        assert!(super::resident_kib().unwrap() > 100);
    }

    #[test]
    fn the_root_is_on_a_file_system() {
        assert!(super::file_system("/".as_ref()).is_some());
    }
}
