//! The message for those who would wait for each other for ever.

use serde_json::{Value, json};
use sprag::LockName;
use sprag::policy::deadlock::Deadlock;

use crate::code::Code;
use crate::failure::Failure;
use crate::output::plain::shell_word;
use crate::output::table::Table;
use crate::output::time;
use crate::output::view::millis;

/// One of them.
struct Member<'a> {
    you: bool,
    who: &'a str,
    /// What it has that the one before wants; `false` if it only waits before that one.
    has: (&'a LockName, bool),
    wants: &'a LockName,
    since: u64,
}

impl Member<'_> {
    fn who(&self) -> String {
        if self.you { format!("you ({})", self.who) } else { self.who.to_owned() }
    }

    fn has(&self) -> String {
        let ending = if self.you { "" } else { "s" };
        match self.has {
            (lock, true) => format!("hold{ending} {lock:?}"),
            (lock, false) => format!("wait{ending} before that for {lock:?}"),
        }
    }

    fn wants(&self) -> String {
        match self.you {
            true => format!("want {:?}", self.wants),
            false => format!("wants {:?} (since {})", self.wants, time::short(self.since)),
        }
    }

    fn to_json(&self) -> Value {
        let has = if self.has.1 { "holds" } else { "waits_before_for" };
        json!({"holder": self.who, has: self.has.0.as_str(), "wants": self.wants.as_str()})
    }
}

/// The failure for a lock that would be waited for for ever.
pub(crate) fn describe(lock: &LockName, deadlock: &Deadlock) -> Failure {
    let message = format!("waiting for {lock:?} would never end");
    let mut failure = Failure::new(Code::Deadlock, message).detail("lock", lock.as_str());
    let members = members(deadlock);
    let mut table = Table::default();
    for member in &members {
        table.row(vec![member.who(), member.has(), member.wants()]);
    }
    failure = table.lines().into_iter().fold(failure, Failure::line);
    if let Some(you) = members.iter().find(|member| member.you) {
        let mut names = [you.has.0, you.wants].map(|name| shell_word(name.as_str()));
        names.sort();
        failure =
            failure.hint("take both at once", format!("sprag run {} -- ...", names.join(",")));
    }
    failure.detail("circle", members.iter().map(Member::to_json).collect::<Vec<_>>())
}

fn members(deadlock: &Deadlock) -> Vec<Member<'_>> {
    let circle = deadlock.circle();
    let before = circle.iter().cycle().skip(circle.len().saturating_sub(1));
    circle
        .iter()
        .zip(before)
        .map(|(&(edge, _), &(wish, blocker))| Member {
            you: edge.waiter == deadlock.victim,
            who: &edge.worker,
            has: (&wish.lock, blocker.fence.is_some()),
            wants: &edge.lock,
            since: time::now().saturating_sub(millis(edge.waiting)),
        })
        .collect()
}
