//! [`Git::push`]: references that change only if they are what they have to be.

use std::collections::HashMap;

use sprag_ledger::{Oid, RefName};

use crate::error::{GitError, Trouble};
use crate::git::{Git, Output};

/// What the server means by a reference that is not what it had to be.
const LOST: &[&str] = &[
    "stale info",
    "fetch first",
    "non-fast-forward",
    "already exists",
    "incorrect old value",
    "but expected",
    "needs force",
];
/// What it means by a change that was given up because of another one.
const ABORTED: &[&str] =
    &["atomic push failed", "atomic transaction failed", "transaction aborted"];

/// One reference to be changed by a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefChange {
    /// The reference.
    pub name: RefName,
    /// Where it has to point now; `None` if it must not exist.
    pub old: Option<Oid>,
    /// Where it is to point; `None` to delete it.
    pub new: Option<Oid>,
    /// Whether nobody else can have made `new`, as it is with a commit that has a random number in
    /// it. Only then a reference that is found there was put there by this push.
    pub unique: bool,
}

/// What became of one [`RefChange`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// It was done, by this push.
    Done,
    /// It is there already, put there by somebody else perhaps. Never to be taken for a win.
    UpToDate,
    /// It was not and will not be done: the reference is not what it had to be.
    Refused,
    /// It was not and will not be done, because of another change of the same push.
    Aborted,
    /// It was not done, and who asks again gets the same answer until something is changed.
    Failed(GitError),
    /// It may have been done, or may yet be.
    Unknown(GitError),
}

impl Git {
    /// Changes references of a remote, each only if it is what it has to be: all or none of them
    /// if it is to be `atomic`, which only some servers can. Never forces anything.
    ///
    /// The objects have to be in this repository. One answer for each change, in order. Whatever
    /// the server did not plainly say is read back from it.
    ///
    /// # Errors
    ///
    /// If nothing was sent.
    pub fn push(
        &self,
        remote: &str,
        changes: &[RefChange],
        atomic: bool,
    ) -> Result<Vec<Pushed>, GitError> {
        if changes.is_empty() {
            return Ok(Vec::new());
        }
        let ended = self.run(arguments(remote, changes, atomic));
        let said = match ended {
            Ok(output) => report(&output, changes)?,
            Err(error) if error.trouble() == Trouble::TimedOut => {
                changes.iter().map(|_| Pushed::Unknown(error.clone())).collect()
            }
            Err(error) => return Err(error),
        };
        let in_doubt = |said: &Pushed| matches!(said, Pushed::Failed(_) | Pushed::Unknown(_));
        if !said.iter().any(in_doubt) {
            return Ok(said);
        }
        let names: Vec<RefName> = changes.iter().map(|change| change.name.clone()).collect();
        match self.tips(remote, &names) {
            Ok(tips) => Ok(settle(changes, said, &tips, atomic)),
            // What the server refused stays refused, the rest stays unknown.
            Err(_) => Ok(said),
        }
    }

    /// Where these references of a remote point, in order.
    ///
    /// # Errors
    ///
    /// If the remote cannot be read.
    pub fn tips(&self, remote: &str, names: &[RefName]) -> Result<Vec<Option<Oid>>, GitError> {
        let patterns = names.iter().map(RefName::as_str);
        let output = self.ok(["ls-remote", "--", remote].into_iter().chain(patterns))?;
        let text = output.text();
        let tips: HashMap<&str, &str> = text
            .lines()
            .filter_map(|line| line.split_once('\t'))
            .map(|(oid, name)| (name, oid))
            .collect();
        Ok(names
            .iter()
            .map(|name| tips.get(name.as_str()).and_then(|oid| Oid::new(*oid)))
            .collect())
    }
}

fn arguments(remote: &str, changes: &[RefChange], atomic: bool) -> Vec<String> {
    let text = |oid: &Option<Oid>| oid.as_ref().map_or_else(String::new, ToString::to_string);
    // Hooks, tags and signatures of the user are about the user's own pushes.
    let mut args: Vec<String> = ["-c", "core.hooksPath=/dev/null", "push", "--porcelain"]
        .into_iter()
        .chain(["--no-verify", "--no-follow-tags", "--no-signed", "--recurse-submodules=no"])
        .map(String::from)
        .collect();
    if atomic {
        args.push("--atomic".into());
    }
    let lease =
        |change: &RefChange| format!("--force-with-lease={}:{}", change.name, text(&change.old));
    args.extend(changes.iter().map(lease));
    args.extend(["--".into(), remote.into()]);
    // No plus sign: it would switch the lease off.
    args.extend(changes.iter().map(|change| format!("{}:{}", text(&change.new), change.name)));
    args
}

/// What git says about each change. Its exit code says nothing: it is 0 for those who came late.
fn report(output: &Output, changes: &[RefChange]) -> Result<Vec<Pushed>, GitError> {
    let mut said = HashMap::new();
    let text = output.text();
    for line in text.lines() {
        let mut parts = line.split('\t');
        let (Some(flag), Some(pair), Some(summary)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let Some((_, name)) = pair.rsplit_once(':') else { continue };
        said.insert(name.to_owned(), meaning(flag, summary, &output.stderr));
    }
    let silent = || GitError::said("git push", &output.stderr);
    if said.is_empty() && !may_have_been_sent(silent().trouble()) {
        return Err(silent());
    }
    let answer = |change: &RefChange| {
        said.get(change.name.as_str()).cloned().unwrap_or_else(|| Pushed::Unknown(silent()))
    };
    Ok(changes.iter().map(answer).collect())
}

/// Whether a push that ended like this may have been received.
const fn may_have_been_sent(trouble: Trouble) -> bool {
    !matches!(
        trouble,
        Trouble::AuthRefused | Trouble::NotFound | Trouble::Forbidden | Trouble::Unsupported
    )
}

fn meaning(flag: &str, summary: &str, stderr: &str) -> Pushed {
    let has = |words: &[&str]| words.iter().any(|word| summary.contains(word));
    let error = || GitError::said("git push", &format!("{stderr}\nerror: {summary}"));
    match flag {
        "*" | " " | "+" | "-" => Pushed::Done,
        "=" => Pushed::UpToDate,
        // Git itself saw it and sent nothing.
        "!" if summary.starts_with("[rejected]") && has(LOST) => Pushed::Refused,
        "!" if summary.starts_with("[rejected]") && has(ABORTED) => Pushed::Aborted,
        // What the server refused may be the second try of a push whose first was done: whoever
        // carries it repeats it when the connection breaks.
        "!" if summary.starts_with("[remote rejected]") => Pushed::Failed(error()),
        _ => Pushed::Unknown(error()),
    }
}

/// What is known after the references were read: where they are now.
pub(crate) fn settle(
    changes: &[RefChange],
    said: Vec<Pushed>,
    tips: &[Option<Oid>],
    atomic: bool,
) -> Vec<Pushed> {
    let mut won = false;
    let mut settled: Vec<Pushed> = said
        .into_iter()
        .zip(changes.iter().zip(tips))
        .map(|(said, (change, tip))| match said {
            Pushed::Failed(_) | Pushed::Unknown(_) => {
                let decided = decide(said, change, tip.as_ref());
                won |= decided == Pushed::Done;
                decided
            }
            certain => certain,
        })
        .collect();
    if atomic && won {
        // All or none: what is not there any more has been changed by somebody else since.
        settled.fill(Pushed::Done);
    }
    if atomic && settled.iter().any(|one| matches!(one, Pushed::Refused | Pushed::UpToDate)) {
        let failed = settled.iter_mut().filter(|one| matches!(one, Pushed::Failed(_)));
        failed.for_each(|one| *one = Pushed::Aborted);
    }
    settled
}

fn decide(said: Pushed, change: &RefChange, tip: Option<&Oid>) -> Pushed {
    if tip == change.new.as_ref() && tip != change.old.as_ref() {
        // Nobody knows who deleted what is not there.
        let ours = change.unique && change.new.is_some();
        return match said {
            _ if ours => Pushed::Done,
            Pushed::Unknown(_) if change.new.is_none() => Pushed::Done,
            _ => Pushed::UpToDate,
        };
    }
    // It can never happen any more: no reference comes back to what it was.
    if tip != change.old.as_ref() { Pushed::Refused } else { said }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn oid(digit: char) -> Oid {
        Oid::new(digit.to_string().repeat(40)).unwrap()
    }

    fn change(old: Option<char>, new: Option<char>) -> RefChange {
        let name = RefName::new("refs/sprag/locks/a").unwrap();
        RefChange { name, old: old.map(oid), new: new.map(oid), unique: true }
    }

    fn said(line: &str, stderr: &str) -> Result<Pushed, GitError> {
        let stdout = format!("To file:///x\n{line}\nDone\n").into_bytes();
        let output = Output { code: Some(0), stdout, stderr: stderr.into() };
        report(&output, &[change(None, Some('a'))]).map(|said| said[0].clone())
    }

    #[test]
    fn the_flag_says_what_became_of_it() {
        let pair = format!("{}:refs/sprag/locks/a", oid('a'));
        let of =
            |flag: &str, summary: &str| said(&format!("{flag}\t{pair}\t{summary}"), "").unwrap();
        assert_eq!(of("*", "[new reference]"), Pushed::Done);
        assert_eq!(of(" ", "a..b"), Pushed::Done);
        assert_eq!(of("=", "[up to date]"), Pushed::UpToDate);
        assert_eq!(of("!", "[rejected] (stale info)"), Pushed::Refused);
        assert_eq!(of("!", "[rejected] (fetch first)"), Pushed::Refused);
        assert_eq!(of("!", "[rejected] (atomic push failed)"), Pushed::Aborted);
        let of_server = of("!", "[remote rejected] (reference already exists)");
        assert!(matches!(of_server, Pushed::Failed(_)), "{of_server:?} is not read back");
        let Pushed::Failed(error) = of("!", "[remote rejected] (pre-receive hook declined)") else {
            panic!("a hook's refusal is final");
        };
        assert_eq!(error.trouble(), Trouble::HookRefused);
        let of = of("!", "[remote failure] (remote failed to report status)");
        assert!(matches!(of, Pushed::Unknown(_)), "{of:?}");
    }

    #[test]
    fn silence_is_unknown_unless_nothing_can_have_been_sent() {
        let hung_up = said("", "fatal: the remote end hung up unexpectedly").unwrap();
        assert!(matches!(hung_up, Pushed::Unknown(_)), "{hung_up:?}");
        let error = said("", "fatal: '/x' does not appear to be a git repository").unwrap_err();
        assert_eq!(error.trouble(), Trouble::NotFound);
    }

    #[test]
    fn what_is_read_back_decides_by_the_unique_oid() {
        let unknown = || Pushed::Unknown(GitError::new(Trouble::Failed, "x"));
        let swap = change(Some('a'), Some('b'));
        assert_eq!(decide(unknown(), &swap, Some(&oid('b'))), Pushed::Done);
        assert_eq!(decide(unknown(), &swap, Some(&oid('c'))), Pushed::Refused);
        assert_eq!(decide(unknown(), &swap, None), Pushed::Refused);
        assert_eq!(decide(unknown(), &swap, Some(&oid('a'))), unknown());
        let same = RefChange { unique: false, ..swap };
        assert_eq!(decide(unknown(), &same, Some(&oid('b'))), Pushed::UpToDate);
    }

    #[test]
    fn all_or_none_were_done() {
        let failed = || Pushed::Failed(GitError::new(Trouble::Failed, "x"));
        let changes = [change(None, Some('a')), change(None, Some('b'))];
        let settled =
            |tips: [Option<Oid>; 2]| settle(&changes, vec![failed(), failed()], &tips, true);
        assert_eq!(settled([Some(oid('a')), Some(oid('c'))]), [Pushed::Done, Pushed::Done]);
        assert_eq!(settled([None, Some(oid('c'))]), [Pushed::Aborted, Pushed::Refused]);
        assert_eq!(settled([None, None]), [failed(), failed()]);
    }

    #[test]
    fn nothing_is_ever_forced() {
        let args = arguments("url", &[change(None, Some('a')), change(Some('a'), None)], true);
        assert!(args.iter().all(|arg| !arg.starts_with('+') && arg != "--force"), "{args:?}");
        assert!(args.contains(&"--force-with-lease=refs/sprag/locks/a:".to_owned()));
        assert!(args.contains(&":refs/sprag/locks/a".to_owned()));
    }
}
