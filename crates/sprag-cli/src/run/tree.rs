//! The processes below another one, as the kernel lists them.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpid, kill_process, kill_process_group, waitid,
};

/// The largest number that a process can have, on any Linux.
const LARGEST: i32 = 4 << 20;

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
/// Complete where `root` is a subreaper: nobody below it can get out by losing its parent. Without a
/// `/proc` that has our numbers only the children of this process are found. Their own become
/// children when they die.
pub(crate) fn below(root: Pid) -> Vec<Process> {
    if !is_listed() {
        return if root == getpid() { children() } else { Vec::new() };
    }
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

/// Asks those below this process to end, and the group of the first of them as well where it cannot
/// be seen who is in it. Who is stopped has to go on to hear it.
pub(crate) fn ask_below(group: Option<Pid>, signal: Signal) {
    let below = below(getpid());
    for signal in [signal, Signal::CONT] {
        match group.filter(|_| !is_listed()) {
            Some(group) => {
                kill_process_group(group, signal).ok();
                send(below.iter().filter(|one| one.group != group.as_raw_pid()), signal);
            }
            None => send(&below, signal),
        }
    }
}

/// Whether `/proc` has the numbers of our pid namespace. That of another one is to be seen where a
/// container was made without mounting its own, and its numbers are other processes here.
fn is_listed() -> bool {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return false };
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    // From that of `/proc` down to ours; an old kernel tells only the first.
    let numbers = field("NSpid:").or_else(|| field("Pid:")).unwrap_or_default();
    numbers.trim() == getpid().as_raw_pid().to_string()
}

/// The children of this process that have not ended, by asking for each number whether it is one.
fn children() -> Vec<Process> {
    // Numbers are given out in turn, so those after ours up to the last one are likely. It takes
    // seconds to ask for all of them.
    let own = getpid().as_raw_pid();
    let last = std::thread::Builder::new().spawn(|| nix::unistd::gettid().as_raw());
    let last = last.ok().and_then(|thread| thread.join().ok());
    let likely = last.filter(|last| *last > own).map_or(0..=0, |last| own..=last);
    let found = children_among(likely);
    if found.is_empty() { children_among(1..=LARGEST) } else { found }
}

fn children_among(numbers: RangeInclusive<i32>) -> Vec<Process> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let alive = |pid: &Pid| matches!(waitid(WaitId::Pid(*pid), options), Ok(None));
    let process = |pid: Pid| {
        let raw = nix::unistd::Pid::from_raw(pid.as_raw_pid());
        let number = |id: nix::Result<nix::unistd::Pid>| id.map_or(0, nix::unistd::Pid::as_raw);
        let (group, session) = (nix::unistd::getpgid(Some(raw)), nix::unistd::getsid(Some(raw)));
        let parent = getpid().as_raw_pid();
        Process { pid, parent, group: number(group), session: number(session) }
    };
    numbers.filter_map(Pid::from_raw).filter(alive).map(process).collect()
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
    use super::{below, children, is_listed, parse};
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
        // The same without the list, as far as that goes.
        assert!(is_listed());
        let found = children();
        let shell_pid = Pid::from_child(&shell);
        let child = found.iter().find(|one| one.pid == shell_pid).unwrap();
        assert!(below(getpid()).contains(child), "{child:?}");
        assert!(found.iter().all(|one| one.pid.as_raw_pid() != sleep), "not a child: {found:?}");
        super::kill_process(Pid::from_raw(sleep).unwrap(), super::Signal::KILL).ok();
        shell.wait().unwrap();
    }
}
