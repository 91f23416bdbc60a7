//! [`Advert`]: what a server says about itself before it is asked anything.

use std::io::{self, Read};

use sprag_ledger::Oid;

use super::limit::{ABILITIES, REFERENCES, too_large};
use super::{Packet, Service, line, next};
use crate::object::Format;

/// What a server can do, and with the old protocol which references it has.
#[derive(Debug, Default)]
pub(crate) struct Advert {
    /// Whether it speaks version 2, in which one asks for the references one wants to see.
    pub(crate) is_v2: bool,
    pub(crate) format: Format,
    abilities: Vec<String>,
    /// Which references there are; empty in version 2, and for those who want to write.
    pub(crate) refs: Vec<(String, Oid)>,
}

impl Advert {
    pub(crate) fn read(stream: &mut dyn Read, service: Service) -> io::Result<Self> {
        let mut advert = Self::default();
        // Servers list all references to those who want to write, who have no use for them.
        let keeps = service == Service::UploadPack;
        let mut first = true;
        loop {
            let data = match next(stream)? {
                Some(Packet::Data(data)) => data,
                // Over HTTP the service is named first, as a message of its own.
                Some(Packet::Flush) if first => continue,
                Some(Packet::Flush) => break,
                Some(Packet::Delimiter) => continue,
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            };
            let text = line(&data);
            if let Some(said) = text.strip_prefix("ERR ") {
                return Err(io::Error::other(said.to_owned()));
            }
            if text.starts_with("# service=") || text == "version 1" {
                continue;
            }
            if first && text == "version 2" {
                advert.is_v2 = true;
            } else if advert.is_v2 {
                advert.abilities.push(text);
            } else {
                advert.add_reference(&text, keeps);
            }
            first = false;
            if advert.abilities.len() > ABILITIES {
                return Err(too_large(format!("it names more than {ABILITIES} abilities")));
            }
            if advert.refs.len() > REFERENCES {
                return Err(too_large(format!("it lists more than {REFERENCES} references")));
            }
        }
        if advert.abilities.iter().any(|ability| ability == "object-format=sha256") {
            advert.format = Format::Sha256;
        }
        Ok(advert)
    }

    fn add_reference(&mut self, text: &str, keeps: bool) {
        let (reference, abilities) = text.split_once('\0').unwrap_or((text, ""));
        self.abilities.extend(abilities.split_whitespace().map(str::to_owned));
        if keeps
            && let Some((oid, name)) = reference.split_once(' ')
            && let Some(oid) = Oid::new(oid)
        {
            self.refs.push((name.to_owned(), oid));
        }
    }

    /// Whether it can do this.
    pub(crate) fn can(&self, ability: &str) -> bool {
        self.abilities.iter().any(|known| known == ability)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{put, put_flush};

    fn read(lines: &[&str]) -> Advert {
        let mut message = Vec::new();
        for line in lines {
            match *line {
                "" => put_flush(&mut message),
                line => put(&mut message, line),
            }
        }
        Advert::read(&mut &message[..], Service::UploadPack).unwrap()
    }

    #[test]
    fn both_versions_are_understood() {
        let new = read(&["version 2\n", "ls-refs=unborn\n", "object-format=sha256\n", ""]);
        assert!(new.is_v2 && new.format == Format::Sha256 && new.refs.is_empty());
        let oid = "a".repeat(40);
        let first = format!("{oid} refs/heads/x\0report-status atomic\n");
        let old =
            read(&["# service=git-receive-pack\n", "", &first, &format!("{oid} refs/y\n"), ""]);
        assert!(!old.is_v2 && old.can("atomic") && !old.can("quiet"));
        assert_eq!(
            old.refs.iter().map(|(name, _)| &name[..]).collect::<Vec<_>>(),
            ["refs/heads/x", "refs/y"]
        );
        let zeros = "0".repeat(40);
        let empty = read(&[&format!("{zeros} capabilities^{{}}\0atomic\n"), ""]);
        assert!(empty.refs.is_empty() && empty.can("atomic"));
    }

    #[test]
    fn what_the_server_objects_to_is_told() {
        let mut message = Vec::new();
        put(&mut message, "ERR access denied or repository not exported: /x\n");
        let error = Advert::read(&mut &message[..], Service::UploadPack).unwrap_err();
        assert!(error.to_string().contains("not exported"));
    }

    #[test]
    fn what_nobody_needs_is_not_kept() {
        let mut message = Vec::new();
        put(&mut message, "version 2\n");
        (0..=ABILITIES).for_each(|_| put(&mut message, ""));
        let error = Advert::read(&mut &message[..], Service::UploadPack).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        let mut message = Vec::new();
        let oid = "a".repeat(40);
        (0..1_000).for_each(|at| put(&mut message, format!("{oid} refs/heads/{at}\n")));
        put_flush(&mut message);
        let advert = |service| Advert::read(&mut &message[..], service).unwrap().refs.len();
        assert_eq!((advert(Service::UploadPack), advert(Service::ReceivePack)), (1_000, 0));
    }
}
