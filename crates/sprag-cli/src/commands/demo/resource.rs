//! What the processes of the demonstration work on.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, Read, Seek, Write};
use std::path::Path;

/// Adds 1 to the number in a file, the careless way: read, add, write.
pub(super) fn add(file: &Path, times: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().read(true).write(true).open(file)?;
    for _ in 0..times {
        let number = read_number(&mut file)? + 1;
        file.rewind()?;
        // Always the same length, so that nobody reads half a number.
        file.write_all(format!("{number:08}").as_bytes())?;
    }
    Ok(())
}

/// The number in a file.
pub(super) fn number(file: &Path) -> io::Result<u64> {
    read_number(&mut File::open(file)?)
}

fn read_number(file: &mut File) -> io::Result<u64> {
    let mut text = String::new();
    file.rewind()?;
    file.read_to_string(&mut text)?;
    text.trim().parse().map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Whether a process runs; one that is dead and waits to be collected does not.
pub(super) fn is_there(pid: i32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

/// Waits for a line on stdin.
pub(super) fn wait_for_a_line() -> io::Result<()> {
    io::stdin().lock().read_line(&mut String::new()).map(drop)
}

/// Writes to a resource that remembers the largest token and refuses smaller ones.
pub(super) fn write(file: &Path, token: u64) -> io::Result<bool> {
    let allowed = number(file)? <= token;
    if allowed {
        std::fs::write(file, format!("{token:08}"))?;
    }
    Ok(allowed)
}
