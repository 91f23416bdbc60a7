//! Variables that look like ours and are not. Nobody would notice that `SPRAG_STROE` was not read:
//! the locks would only be somewhere else.

use std::ffi::OsString;

use crate::nearest::within;

/// What the name of every variable of ours begins with.
const FRONT: &str = "SPRAG_";
/// The variables that are read, behind that.
const READ: &[&str] = &[
    "STORE",
    "WAIT",
    "TTL",
    "KILL_AFTER",
    "HOLDER",
    "CONFIG",
    "COLOR",
    "LOCK",
    "LEASE",
    "RESULT_FILE",
];
/// What the variables of each of several locks begin with.
const OF_LOCKS: &[&str] = &["SPRAG_TOKEN_", "SPRAG_LEASE_"];
/// What speaks of all that are read or set.
const TOPIC: &str = include_str!("../topics/environment.txt");

/// The variables that are misspelt, each with the one that was meant.
pub(crate) fn slips(
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Vec<(String, String)> {
    let names = environment.into_iter().filter_map(|(name, _)| name.into_string().ok());
    let ours = |name: &String| {
        let mut words = TOPIC.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        words.any(|word| word == name) || OF_LOCKS.iter().any(|front| name.starts_with(front))
    };
    let strange = names.filter(|name| !ours(name));
    let meant = |name: String| {
        let word = name.strip_prefix(FRONT)?;
        // Other people's variables may have such names too, so a slip has to be a small one.
        let meant = within(1 + word.len() / 6, word, READ.iter().copied())?;
        Some((name, format!("{FRONT}{meant}")))
    };
    strange.filter_map(meant).collect()
}

#[cfg(test)]
mod tests {
    use super::slips;

    fn found(name: &str) -> Option<String> {
        slips([(name.into(), "x".into())]).pop().map(|(_, meant)| meant)
    }

    #[test]
    fn a_slip_is_noticed_and_other_variables_are_not() {
        assert_eq!(found("SPRAG_STROE").as_deref(), Some("SPRAG_STORE"));
        assert_eq!(found("SPRAG_STORE_").as_deref(), Some("SPRAG_STORE"));
        assert_eq!(found("SPRAG_TTLS").as_deref(), Some("SPRAG_TTL"));
        for fine in ["SPRAG_STORE", "SPRAG_SLOT", "SPRAG_HELD", "SPRAG_SKIP", "SPRAG_TOKEN_DB"] {
            assert_eq!(found(fine), None, "{fine}");
        }
        for fine in ["SPRAG_FLEET", "SPRAG", "STROE", "SPRAG_LEASE_B", "SPRAG_WORK"] {
            assert_eq!(found(fine), None, "{fine}");
        }
    }
}
