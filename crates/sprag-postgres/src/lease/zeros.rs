//! [`without_zeros`]: JSON that PostgreSQL can keep, whatever people write into their texts.

/// JSON without zeros. A text of PostgreSQL cannot have one in it, and what people write into a reason
/// may: they see a symbol for it then. Everything else stays as it is.
pub(crate) fn without_zeros(json: String) -> String {
    const ZERO: &str = "\\u0000";
    if !json.contains(ZERO) {
        return json;
    }
    let mut clean = String::with_capacity(json.len());
    let mut rest = json.as_str();
    while let Some(place) = rest.find('\\') {
        clean.push_str(&rest[..place]);
        rest = &rest[place..];
        // A backslash and what it is for go together: behind another one, `u0000` are letters.
        if let Some(behind) = rest.strip_prefix(ZERO) {
            clean.push('\u{2400}');
            rest = behind;
        } else {
            let end = rest.char_indices().nth(2).map_or(rest.len(), |(end, _)| end);
            clean.push_str(&rest[..end]);
            rest = &rest[end..];
        }
    }
    clean.push_str(rest);
    clean
}

#[cfg(test)]
mod tests {
    use super::without_zeros;

    #[test]
    fn only_zeros_are_replaced() {
        for (text, kept) in [
            ("plain", "plain"),
            ("a\0b\0", "a\u{2400}b\u{2400}"),
            ("a\\u0000b", "a\\u0000b"),
            ("\\\0\\\\u0000\\", "\\\u{2400}\\\\u0000\\"),
            ("\"\n\u{1f}\u{7f}\0é\u{10ffff}", "\"\n\u{1f}\u{7f}\u{2400}é\u{10ffff}"),
        ] {
            let clean = without_zeros(serde_json::to_string(text).unwrap());
            assert!(!clean.contains('\0'));
            let read: String = serde_json::from_str(&clean).unwrap();
            assert_eq!(read, kept, "{clean}");
        }
    }
}
