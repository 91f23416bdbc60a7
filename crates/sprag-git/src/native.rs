//! [`Native`]: a remote that is spoken to in git's own protocol.

use std::collections::HashMap;
use std::io;

use sprag_ledger::{Oid, RefName};

use crate::draft::Draft;
use crate::error::{GitError, Trouble};
use crate::object::{Commit, Format, Kind, read_pack, write_pack};
use crate::push::{Pushed, RefChange, settle};
use crate::wire::{
    Advert, Failure, Packet, REFERENCES, Remote, Reply, Service, line, next, put, put_delimiter,
    put_flush, too_large,
};

const AGENT: &str = concat!("agent=sprag/", env!("CARGO_PKG_VERSION"));

/// What became of each change, and where its reference is to point.
pub(crate) type Outcomes = Vec<(Pushed, Option<Oid>)>;

/// What a ledger asks of a remote, whoever does the talking.
pub(crate) trait Wire: Send + Sync + std::fmt::Debug {
    /// The references that begin with one of these.
    fn refs(&self, prefixes: &[&str]) -> Result<Vec<(RefName, Oid)>, GitError>;

    /// These commits and those before them, so many in all from each.
    fn commits(&self, wanted: &[Oid], depth: usize) -> Result<HashMap<Oid, Commit>, GitError>;

    /// Changes references.
    fn push(&self, draft: &Draft<'_>, atomic: bool) -> Result<Outcomes, GitError>;

    /// Whether several references can be changed at once, all or none. Fails if we may not write.
    fn knows_atomic(&self) -> Result<bool, GitError>;
}

/// A remote that is spoken to in git's own protocol.
#[derive(Debug)]
pub(crate) struct Native {
    pub(crate) remote: Remote,
}

impl Wire for Native {
    fn refs(&self, prefixes: &[&str]) -> Result<Vec<(RefName, Oid)>, GitError> {
        let mut ask = |advert: &Advert| {
            let mut request = Vec::new();
            if advert.is_v2 {
                put(&mut request, "command=ls-refs\n");
                put_abilities(&mut request, advert);
                put_delimiter(&mut request);
                for prefix in prefixes {
                    put(&mut request, format!("ref-prefix {prefix}\n"));
                }
            }
            // In version 0 that says good-bye: the references were in the advert.
            put_flush(&mut request);
            Ok(request)
        };
        let reply =
            self.remote.ask(Service::UploadPack, &mut ask).map_err(|failure| failure.error)?;
        let all = if reply.advert.is_v2 { listed(&reply.body)? } else { reply.advert.refs.clone() };
        let wanted = |name: &str| prefixes.iter().any(|prefix| name.starts_with(prefix));
        let found = all.into_iter().filter(|(name, _)| wanted(name));
        Ok(found.filter_map(|(name, oid)| Some((RefName::new(name)?, oid))).collect())
    }

    fn commits(&self, wanted: &[Oid], depth: usize) -> Result<HashMap<Oid, Commit>, GitError> {
        let mut ask = |advert: &Advert| Ok(fetch_request(advert, wanted, depth));
        let reply =
            self.remote.ask(Service::UploadPack, &mut ask).map_err(|failure| failure.error)?;
        let pack = packed(&reply)?;
        let objects = read_pack(&pack, reply.advert.format).map_err(|e| strange(&e))?;
        let commits = objects.into_iter().filter(|(_, object)| object.kind == Kind::Commit);
        Ok(commits
            .filter_map(|(oid, object)| Some((Oid::new(oid)?, Commit::decode(&object.data))))
            .collect())
    }

    fn push(&self, draft: &Draft<'_>, atomic: bool) -> Result<Outcomes, GitError> {
        let mut changes = Vec::new();
        let mut ask = |advert: &Advert| {
            let (drafted, objects) = draft.finish(advert.format)?;
            changes = drafted;
            if atomic && !advert.can("atomic") {
                let message = "the server does not support atomic pushes, so only one lock can be \
                               taken at a time: take them one by one, or set \
                               receive.advertiseAtomic on the server";
                return Err(GitError::new(Trouble::Unsupported, message));
            }
            let mut request = push_request(&changes, advert, atomic);
            if changes.iter().any(|change| change.new.is_some()) {
                request.extend(write_pack(&objects, advert.format).map_err(|e| strange(&e))?);
            }
            Ok(request)
        };
        let asked = self.remote.ask(Service::ReceivePack, &mut ask);
        let said = match asked {
            Ok(reply) => report(&reply.body, &changes),
            // Whoever was never asked for what to send has sent nothing.
            Err(Failure { error, sent: true }) if !changes.is_empty() => {
                changes.iter().map(|_| Said::Nothing(error.clone())).collect()
            }
            Err(Failure { error, .. }) => return Err(error),
        };
        let pushed = self.settle(&changes, said, atomic);
        Ok(pushed.into_iter().zip(changes).map(|(pushed, change)| (pushed, change.new)).collect())
    }

    fn knows_atomic(&self) -> Result<bool, GitError> {
        self.remote.check_rights()?;
        let mut atomic = false;
        let mut ask = |advert: &Advert| {
            atomic = advert.can("atomic");
            Ok(b"0000".to_vec())
        };
        match self.remote.ask(Service::ReceivePack, &mut ask) {
            Ok(_) | Err(Failure { sent: true, .. }) => Ok(atomic),
            Err(failure) => Err(failure.error),
        }
    }
}

impl Native {
    /// What became of each change. All but a plain yes is read back.
    fn settle(&self, changes: &[RefChange], said: Vec<Said>, atomic: bool) -> Vec<Pushed> {
        if said.iter().all(|said| matches!(said, Said::Yes)) {
            return said.into_iter().map(|_| Pushed::Done).collect();
        }
        let said: Vec<Pushed> = said.into_iter().map(Said::unread).collect();
        let names: Vec<&str> = changes.iter().map(|change| change.name.as_str()).collect();
        let Ok(found) = self.refs(&names) else {
            // A plain yes and a plain no stay what they are.
            return said;
        };
        let mut found: HashMap<RefName, Oid> = found.into_iter().collect();
        let tips: Vec<_> = changes.iter().map(|change| found.remove(&change.name)).collect();
        settle(changes, said, &tips, atomic)
    }
}

/// What the server says about one change.
#[derive(Debug)]
enum Said {
    Yes,
    No(GitError),
    Nothing(GitError),
}

impl Said {
    fn unread(self) -> Pushed {
        match self {
            Self::Yes => Pushed::Done,
            Self::No(error) => Pushed::Failed(error),
            Self::Nothing(error) => Pushed::Unknown(error),
        }
    }
}

fn put_abilities(request: &mut Vec<u8>, advert: &Advert) {
    put(request, AGENT);
    put(request, format!("object-format={}", advert.format.name()));
}

fn fetch_request(advert: &Advert, wanted: &[Oid], depth: usize) -> Vec<u8> {
    let mut request = Vec::new();
    if advert.is_v2 {
        put(&mut request, "command=fetch");
        put_abilities(&mut request, advert);
        put_delimiter(&mut request);
        put(&mut request, "no-progress");
        put(&mut request, format!("deepen {depth}"));
        for oid in wanted {
            put(&mut request, format!("want {oid}\n"));
        }
        put(&mut request, "done\n");
        put_flush(&mut request);
    } else {
        for (index, oid) in wanted.iter().enumerate() {
            let abilities = if index == 0 {
                let format = advert.format.name();
                format!(" side-band-64k no-progress object-format={format} {AGENT}")
            } else {
                String::new()
            };
            put(&mut request, format!("want {oid}{abilities}\n"));
        }
        put(&mut request, format!("deepen {depth}"));
        put_flush(&mut request);
        put(&mut request, "done\n");
    }
    request
}

/// The pack in an answer. What comes before it, in both versions, is a few lines of no interest.
fn packed(reply: &Reply) -> Result<Vec<u8>, GitError> {
    let mut stream = &reply.body[..];
    let mut pack = Vec::new();
    while let Some(packet) = next(&mut stream).map_err(|e| strange(&e))? {
        let Packet::Data(data) = packet else { continue };
        match data.split_first() {
            Some((1, bytes)) => pack.extend(bytes),
            Some((2, _)) => {}
            Some((3, said)) => return Err(GitError::said("git fetch", &line(said))),
            _ => {
                if let Some(said) = line(&data).strip_prefix("ERR ") {
                    return Err(GitError::said("git fetch", said));
                }
            }
        }
    }
    if pack.is_empty() {
        return Err(GitError::new(Trouble::Damaged, "git fetch: the server sent no objects"));
    }
    Ok(pack)
}

fn listed(body: &[u8]) -> Result<Vec<(String, Oid)>, GitError> {
    let mut stream = body;
    let mut found = Vec::new();
    while let Some(packet) = next(&mut stream).map_err(|e| strange(&e))? {
        let Packet::Data(data) = packet else { return Ok(found) };
        let text = line(&data);
        if let Some(said) = text.strip_prefix("ERR ") {
            return Err(GitError::said("git ls-remote", said));
        }
        if let Some((oid, name)) = text.split_once(' ')
            && let Some(oid) = Oid::new(oid)
        {
            found.push((name.to_owned(), oid));
        }
        if found.len() > REFERENCES {
            let why = format!("it lists more than {REFERENCES} references");
            return Err(strange(&too_large(why)));
        }
    }
    // The list may be cut off, and what is missing would look free.
    Err(strange(&io::ErrorKind::UnexpectedEof.into()))
}

fn push_request(changes: &[RefChange], advert: &Advert, atomic: bool) -> Vec<u8> {
    let mut request = Vec::new();
    let zeros = advert.format.zeros();
    let text = |oid: &Option<Oid>| oid.as_ref().map_or_else(|| zeros.clone(), ToString::to_string);
    for (index, change) in changes.iter().enumerate() {
        let mut command = format!("{} {} {}", text(&change.old), text(&change.new), change.name);
        if index == 0 {
            command.push_str("\0 report-status");
            if atomic {
                command.push_str(" atomic");
            }
            if advert.can("side-band-64k") {
                command.push_str(" side-band-64k");
            }
            if advert.can("quiet") {
                command.push_str(" quiet");
            }
            if advert.format != Format::Sha1 {
                command.push_str(" object-format=");
                command.push_str(advert.format.name());
            }
            command.push(' ');
            command.push_str(AGENT);
        }
        put(&mut request, command);
    }
    put_flush(&mut request);
    request
}

/// What the server says about each change. Nothing but its `ok` is a yes.
fn report(body: &[u8], changes: &[RefChange]) -> Vec<Said> {
    let (lines, talk) = unwrap_bands(body);
    let unpacked = lines.iter().find_map(|line| line.strip_prefix("unpack "));
    let say = |change: &RefChange| {
        let name = change.name.as_str();
        let no = |line: &String| {
            let (refused, reason) = line.strip_prefix("ng ")?.split_once(' ')?;
            (refused == name).then(|| reason.to_owned())
        };
        if unpacked == Some("ok") && lines.iter().any(|line| line.strip_prefix("ok ") == Some(name))
        {
            return Said::Yes;
        }
        let unpacked = unpacked.filter(|unpacked| *unpacked != "ok");
        let reason = lines.iter().find_map(no);
        match (reason, unpacked) {
            (Some(reason), None) => {
                Said::No(GitError::said("git push", &format!("{talk}\nerror: {reason}")))
            }
            (_, Some(unpacked)) => Said::No(GitError::said(
                "git push",
                &format!("{talk}\nerror: unpack failed: {unpacked}"),
            )),
            (None, None) => Said::Nothing(GitError::said(
                "git push",
                &format!("{talk}\nerror: the remote end hung up without a report"),
            )),
        }
    };
    changes.iter().map(say).collect()
}

/// The lines of the report, and what hooks and errors say beside it. As much as there is.
fn unwrap_bands(body: &[u8]) -> (Vec<String>, String) {
    let (mut main, mut talk) = (Vec::new(), Vec::new());
    let mut stream = body;
    let mut lines = Vec::new();
    while let Ok(Some(packet)) = next(&mut stream) {
        let Packet::Data(data) = packet else { continue };
        match data.split_first() {
            Some((1, bytes)) => main.extend(bytes),
            Some((2 | 3, bytes)) => talk.extend(bytes),
            Some(_) => lines.push(line(&data)),
            None => {}
        }
    }
    let mut stream = &main[..];
    while let Ok(Some(packet)) = next(&mut stream) {
        if let Packet::Data(data) = packet {
            lines.push(line(&data));
        }
    }
    (lines, String::from_utf8_lossy(&talk).into_owned())
}

fn strange(e: &io::Error) -> GitError {
    if e.kind() == io::ErrorKind::FileTooLarge {
        return GitError::too_large("git fetch", e);
    }
    GitError::new(Trouble::Failed, format!("the server's answer is not understood: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(name: &str) -> RefChange {
        RefChange { name: RefName::new(name).unwrap(), old: None, new: None, unique: true }
    }

    fn reported(lines: &[&str], banded: bool) -> Vec<Said> {
        let mut inner = Vec::new();
        lines.iter().for_each(|line| put(&mut inner, format!("{line}\n")));
        put_flush(&mut inner);
        let body = if banded {
            let mut outer = Vec::new();
            put(&mut outer, b"\x02remote: the hook says no\n");
            put(&mut outer, [&[1], &inner[..]].concat());
            put_flush(&mut outer);
            outer
        } else {
            inner
        };
        report(&body, &[change("refs/a"), change("refs/b")])
    }

    #[test]
    fn only_ok_is_a_yes() {
        for banded in [false, true] {
            let said = reported(&["unpack ok", "ok refs/a", "ng refs/b hook declined"], banded);
            assert!(matches!(said[0], Said::Yes));
            let Said::No(error) = &said[1] else { panic!("{said:?}") };
            assert_eq!(error.trouble(), Trouble::HookRefused);
        }
        let said = reported(&["unpack ok", "ok refs/a"], true);
        assert!(matches!(said[1], Said::Nothing(_)));
        let said = reported(&["unpack No space left on device", "ok refs/a"], true);
        assert!(matches!(&said[0], Said::No(error) if error.trouble() == Trouble::DiskFull));
    }

    #[test]
    fn a_report_that_is_cut_off_says_nothing() {
        let mut body = Vec::new();
        put(&mut body, "unpack ok\n");
        put(&mut body, "ok refs/a\n");
        let whole = report(&body, &[change("refs/a")]);
        assert!(matches!(whole[0], Said::Yes));
        for end in 0..body.len() - 1 {
            let said = report(&body[..end], &[change("refs/a")]);
            assert!(matches!(said[0], Said::Nothing(_)), "{end}: {said:?}");
        }
    }

    #[test]
    fn a_list_that_is_cut_off_is_no_list() {
        let mut body = Vec::new();
        put(&mut body, format!("{} refs/a\n", "a".repeat(40)));
        assert!(listed(&body).is_err());
        put_flush(&mut body);
        assert_eq!(listed(&body).unwrap().len(), 1);
    }
}
