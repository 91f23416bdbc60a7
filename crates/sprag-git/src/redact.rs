//! What nobody may see in a message.

/// The text with the users and passwords of its URLs taken out. The user alone is shown where it
/// can be no secret: `ssh://git@host`.
pub(crate) fn redact(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        shown.push_str(before);
        rest = after;
        let end = after.find(|c: char| c.is_whitespace() || "/'\"".contains(c));
        let authority = &after[..end.unwrap_or(after.len())];
        if let Some(at) = authority.rfind('@') {
            let (login, host) = authority.split_at(at);
            let harmless = before.ends_with("ssh://") && !login.contains(':');
            shown.push_str(if harmless { login } else { "***" });
            shown.push_str(host);
            rest = &after[authority.len()..];
        }
    }
    shown.push_str(rest);
    shown
}

#[cfg(test)]
mod tests {
    use super::redact;

    #[test]
    fn logins_are_taken_out_of_urls() {
        for (text, shown) in [
            ("https://me:hunter2@host/x", "https://***@host/x"),
            ("a 'https://token@host/x/': no", "a 'https://***@host/x/': no"),
            ("ssh://git@host/x", "ssh://git@host/x"),
            ("ssh://git:pw@host/x", "ssh://***@host/x"),
            ("x https://a@b y http://c:d@e", "x https://***@b y http://***@e"),
            ("file:///a@b", "file:///a@b"),
            ("https://host/a@b", "https://host/a@b"),
        ] {
            assert_eq!(redact(text), shown);
        }
    }
}
