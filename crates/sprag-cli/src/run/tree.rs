//! The processes below another one, as the kernel lists them.

use std::collections::HashMap;

use rustix::process::{Pid, Signal, kill_process};

/// One process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: Pid,
    parent: i32,
    pub(crate) group: i32,
    pub(crate) session: i32,
}

/// All processes that descend from `root`, without itself and without those that have ended.
///
/// Complete where `root` is a subreaper: nobody below it can get out by losing its parent.
pub(crate) fn below(root: Pid) -> Vec<Process> {
    let mut children: HashMap<i32, Vec<Process>> = HashMap::new();
    for process in all() {
        children.entry(process.parent).or_default().push(process);
    }
    let mut found = children.remove(&root.as_raw_pid()).unwrap_or_default();
    let mut next = 0;
    while let Some(process) = found.get(next) {
        let more = children.remove(&process.pid.as_raw_pid()).unwrap_or_default();
        found.extend(more);
        next += 1;
    }
    found
}

/// Sends a signal to each; who is gone meanwhile does not need it.
pub(crate) fn send<'a>(to: impl IntoIterator<Item = &'a Process>, signal: Signal) {
    for process in to {
        kill_process(process.pid, signal).ok();
    }
}

fn all() -> impl Iterator<Item = Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let pids = names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    pids.filter_map(|pid| parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?))
}

/// Reads `pid (name) state parent group session ...`; the name may have any character in it.
fn parse(stat: &str) -> Option<Process> {
    let (front, back) = stat.rsplit_once(')')?;
    let pid = Pid::from_raw(front.split(' ').next()?.parse().ok()?)?;
    let mut fields = back.split_ascii_whitespace();
    // A zombie has ended; its parent is to reap it.
    fields.next().filter(|state| !matches!(*state, "Z" | "X"))?;
    let mut number = || fields.next()?.parse().ok();
    Some(Process { pid, parent: number()?, group: number()?, session: number()? })
}

#[cfg(test)]
mod tests {
    use super::{below, parse};
    use rustix::process::{Pid, getpid};
    use std::process::{Command, Stdio};

    #[test]
    fn names_with_spaces_and_brackets_do_not_confuse() {
        let process = parse("77 (a) R 1) S 5 6 7 0 -1\n").unwrap();
        assert_eq!(process.pid, Pid::from_raw(77).unwrap());
        assert_eq!((process.parent, process.group, process.session), (5, 6, 7));
        assert_eq!(parse("77 (a) Z 5 6 7"), None);
        assert_eq!(parse("nonsense"), None);
    }

    #[test]
    fn a_grandchild_is_below() {
        let mut shell = Command::new("sh")
            .args(["-c", "sleep 60 & echo $!; wait"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut out = std::io::BufReader::new(shell.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut out, &mut line).unwrap();
        let found: Vec<_> = below(getpid()).iter().map(|one| one.pid.as_raw_pid()).collect();
        let sleep: i32 = line.trim().parse().unwrap();
        assert!(found.contains(&sleep) && !found.contains(&getpid().as_raw_pid()));
        super::kill_process(Pid::from_raw(sleep).unwrap(), super::Signal::KILL).ok();
        shell.wait().unwrap();
    }
}
