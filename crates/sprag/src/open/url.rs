//! [`StoreUrl`]: a URL taken apart, without the parts that nobody may see when it is shown.

use std::fmt;

use sprag_core::{Error, Operation, Result};

/// What stands between a URL and its parameters, here or in the URLs of other programs.
const PARAMETERS: [char; 6] = ['?', '#', ';', '=', '&', ' '];

/// The parts of a store URL: `scheme:rest?query`.
#[derive(Debug)]
pub(super) struct StoreUrl<'a> {
    pub(super) scheme: &'a str,
    /// Between the scheme's colon and the query, as written.
    pub(super) rest: &'a str,
    query: Option<&'a str>,
    whole: &'a str,
}

impl<'a> StoreUrl<'a> {
    pub(super) fn parse(whole: &'a str) -> Result<Self> {
        let (scheme, after) = whole.split_once(':').ok_or_else(|| {
            bad("a store is named by a URL, such as sqlite: or sqlite:./locks.db; this has no colon")
        })?;
        let well_formed = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
        if !well_formed {
            return Err(bad("a store's URL begins with a scheme, such as sqlite:"));
        }
        let (rest, query) = match after.split_once('?') {
            Some((rest, query)) => (rest, Some(query)),
            None => (after, None),
        };
        Ok(Self { scheme, rest, query, whole })
    }

    /// The parameters, as written.
    pub(super) fn parameters(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let pairs = self.query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
    }

    /// Refuses all parameters.
    pub(super) fn no_parameters(&self) -> Result<()> {
        match self.parameters().next() {
            None => Ok(()),
            Some(_) => Err(self.unknown_parameter(&[])),
        }
    }

    /// A parameter is none of `known`. What it is called is not repeated: a password with an
    /// ampersand in it looks like a parameter.
    pub(super) fn unknown_parameter(&self, known: &[&str]) -> Error {
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        self.bad(&format!("has an unknown parameter; this store has: {known}"))
    }

    /// The rest with its percent signs decoded.
    pub(super) fn decoded(&self) -> Result<Vec<u8>> {
        self.decode(self.rest)
    }

    /// A part of the URL with its percent signs decoded.
    pub(super) fn decode(&self, part: &str) -> Result<Vec<u8>> {
        if part.contains('#') {
            return Err(self.bad("has a #, which means nothing in a store's URL: write it as %23"));
        }
        let mut bytes = part.bytes();
        let mut decoded = Vec::with_capacity(part.len());
        while let Some(byte) = bytes.next() {
            decoded.push(if byte == b'%' {
                let digits = bytes.next().zip(bytes.next());
                digits
                    .and_then(|(high, low)| Some(hex(high)? << 4 | hex(low)?))
                    .ok_or_else(|| self.bad("has a % without two hex digits: write % as %25"))?
            } else {
                byte
            });
        }
        if decoded.contains(&0) {
            return Err(self.bad("has a zero byte"));
        }
        Ok(decoded)
    }

    /// An error about this URL; `what` goes on where the URL ends.
    pub(super) fn bad(&self, what: &str) -> Error {
        bad(format!("the URL \"{self}\" {what}"))
    }
}

fn bad(message: impl Into<String>) -> Error {
    Error::bad_input(Operation::Open, message)
}

const fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// Shows the URL without user, password and parameters.
///
/// It may be any text that somebody took for a store's URL, with special characters in its
/// password; so it rather hides too much.
impl fmt::Display for StoreUrl<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let after = &self.whole[self.scheme.len() + 1..];
        let (slashes, after) = match after.strip_prefix("//") {
            Some(after) => ("//", after),
            None => ("", after),
        };
        let credentials = after.rfind('@');
        let parameters = after.find(PARAMETERS);
        write!(f, "{}:{slashes}", self.scheme)?;
        match (credentials, parameters) {
            (Some(at), Some(from)) if at > from => f.write_str("..."),
            // A colon may stand before a port, but also before a password whose @ is missing.
            (None, Some(_)) if after.contains(':') => f.write_str("..."),
            (at, from) => {
                let shown = &after[at.map_or(0, |at| at + 1)..from.unwrap_or(after.len())];
                let before = if at.is_some() { "***@" } else { "" };
                let behind = if from.is_some() { "..." } else { "" };
                write!(f, "{before}{shown}{behind}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::StoreUrl;

    fn shown(url: &str) -> String {
        StoreUrl::parse(url).unwrap().to_string()
    }

    #[test]
    fn a_url_is_shown_without_what_is_secret() {
        assert_eq!(shown("sqlite:./locks.db"), "sqlite:./locks.db");
        assert_eq!(shown("redis://localhost:6379/1"), "redis://localhost:6379/1");
        assert_eq!(shown("redis://user:pass@host:6379/1"), "redis://***@host:6379/1");
        assert_eq!(shown("mysql://host/db?password=x"), "mysql://host/db...");
        assert_eq!(shown("mysql://host:1/db?password=x"), "mysql://...");
        assert_eq!(shown("mysql://host/db?password=x@y"), "mysql://...");
    }

    #[test]
    fn percent_signs_are_decoded() {
        let decoded = |url| StoreUrl::parse(url).unwrap().decoded();
        assert_eq!(decoded("sqlite:/a%20b%2Fc%c3%A9").unwrap(), "/a b/cé".as_bytes());
        for url in ["sqlite:100%", "sqlite:%4", "sqlite:%zz", "sqlite:%+1", "sqlite:a%00b"] {
            assert!(decoded(url).unwrap_err().is_bad_input(), "{url}");
        }
    }

    #[test]
    fn what_is_no_url_is_refused() {
        for text in ["", "locks.db", ":x", "./a:b", "1a:b", "ä:b", "a b:c"] {
            assert!(StoreUrl::parse(text).unwrap_err().is_bad_input(), "{text}");
        }
    }
}
