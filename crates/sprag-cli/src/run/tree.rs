//! The processes below another one, as the kernel lists them.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, kill_process, kill_process_group,
    pidfd_open, pidfd_send_signal, waitid,
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
    /// When it was started, in ticks since the boot; 0 where that is not listed, and then it is a child
    /// of this process, whose number is its own until we have reaped it.
    started: u64,
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

/// Sends a signal to each; who is gone meanwhile does not need it, and nor does a stranger that has its
/// number by now.
pub(crate) fn send<'a>(to: impl IntoIterator<Item = &'a Process>, signal: Signal) {
    for process in to {
        match pidfd_open(process.pid, PidfdFlags::empty()) {
            Ok(handle) if process.is_still_there() => pidfd_send_signal(&handle, signal).ok(),
            Ok(_) | Err(Errno::SRCH) => None,
            // An old kernel, or what keeps us from asking a new one.
            Err(_) => kill_process(process.pid, signal).ok(),
        };
    }
}

impl Process {
    /// Whether its number is not somebody else's. Asked once there is a handle, which stays with the
    /// process that has the number then.
    fn is_still_there(self) -> bool {
        self.started == 0 || one(self.pid).is_some_and(|found| found.started == self.started)
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
        Process { pid, parent, group: number(group), session: number(session), started: 0 }
    };
    numbers.filter_map(Pid::from_raw).filter(alive).map(process).collect()
}

fn all() -> impl Iterator<Item = Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter_map(|name| one(Pid::from_raw(name.parse().ok()?)?))
}

fn one(pid: Pid) -> Option<Process> {
    parse(&std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?)
}

/// Reads `pid (name) state parent group session ...`, where the start is the 22nd; the name may have any
/// character in it.
fn parse(stat: &str) -> Option<Process> {
    let (front, back) = stat.rsplit_once(')')?;
    let pid = Pid::from_raw(front.split(' ').next()?.parse().ok()?)?;
    let mut fields = back.split_ascii_whitespace();
    // A zombie has ended; its parent is to reap it.
    fields.next().filter(|state| !matches!(*state, "Z" | "X"))?;
    let mut number = || fields.next()?.parse().ok();
    let (parent, group, session) = (number()?, number()?, number()?);
    let started = fields.nth(15)?.parse().ok()?;
    Some(Process { pid, parent, group, session, started })
}

#[cfg(test)]
mod tests {
    use super::{Process, Signal, below, children, is_listed, one, parse, send};
    use rustix::process::{Pid, getpid};
    use std::process::{Command, Stdio};

    #[test]
    fn names_with_spaces_and_brackets_do_not_confuse() {
        let rest = "0 -1 4194560 9 0 0 0 1 2 3 4 20 0 1 0 8412 99";
        let process = parse(&format!("77 (a) R 1) S 5 6 7 {rest}\n")).unwrap();
        assert_eq!(process.pid, Pid::from_raw(77).unwrap());
        assert_eq!((process.parent, process.group, process.session), (5, 6, 7));
        assert_eq!(process.started, 8412);
        assert_eq!(parse("77 (a) Z 5 6 7"), None);
        assert_eq!(parse("nonsense"), None);
    }

    /// As if its number had gone to another process since it was listed.
    #[test]
    fn a_stranger_with_the_number_of_one_that_ended_gets_no_signal() {
        let mut stranger = Command::new("sleep").arg("60").spawn().unwrap();
        let listed = one(Pid::from_child(&stranger)).unwrap();
        let earlier = Process { started: listed.started - 1, ..listed };
        send(&[earlier], Signal::KILL);
        assert_eq!(stranger.try_wait().unwrap(), None);
        send(&[listed], Signal::TERM);
        assert!(!stranger.wait().unwrap().success());
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
        assert!(below(getpid()).iter().any(|one| one.pid == child.pid), "{child:?}");
        assert!(found.iter().all(|one| one.pid.as_raw_pid() != sleep), "not a child: {found:?}");
        super::kill_process(Pid::from_raw(sleep).unwrap(), super::Signal::KILL).ok();
        shell.wait().unwrap();
    }
}
