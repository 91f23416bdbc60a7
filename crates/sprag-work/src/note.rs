//! [`Note`]: what `item.toml` in an item's folder says. A folder without one is an item too.

use serde::Deserialize;

use crate::error::{Error, Result};
use crate::flow::State;

/// What is written about an item in its folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Note {
    /// Higher goes first; 0 for everybody else.
    #[serde(default)]
    pub priority: i64,
    /// The state that a pending item was in before.
    pub left: Option<State>,
}

impl Note {
    /// The name of the file.
    pub const FILE: &'static str = "item.toml";

    /// Reads the file; what else is in it is left alone.
    ///
    /// # Errors
    ///
    /// Input if it cannot be read.
    pub fn read(text: &str) -> Result<Self> {
        toml::from_str(text).map_err(|error: toml::de::Error| {
            let what = error.message().lines().collect::<Vec<_>>().join(", ");
            Error::input(format!("its {} cannot be read: {what}", Self::FILE))
        })
    }

    /// The text of the file with another `left`; the rest of it stays as it is. `None` if nothing
    /// is left of it.
    pub fn with_left(text: &str, left: Option<&State>) -> Option<String> {
        let is_left = |line: &&str| {
            let after = line.trim_start().strip_prefix("left");
            after.is_some_and(|after| after.trim_start().starts_with('='))
        };
        // Before the first table, a key belongs to the file.
        let top = text.lines().take_while(|line| !line.trim_start().starts_with('[')).count();
        let kept =
            text.lines().enumerate().filter(|(number, line)| *number >= top || !is_left(line));
        let mut lines: Vec<String> =
            left.map(|left| format!("left = \"{left}\"")).into_iter().collect();
        lines.extend(kept.map(|(_, line)| line.to_owned()));
        let text = lines.join("\n");
        (!text.trim().is_empty()).then(|| text + "\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_sprag_writes_leaves_the_rest_alone() {
        let state = State::try_from("indevelopment".to_owned()).unwrap();
        let text = "# mine\npriority = 3\n[more]\nleft = 1\n";
        let pending = Note::with_left(text, Some(&state)).unwrap();
        let note = Note::read(&pending).unwrap();
        assert_eq!((note.priority, note.left), (3, Some(state.clone())));
        assert_eq!(Note::with_left(&pending, None).unwrap(), text);
        let only = Note::with_left("", Some(&state)).unwrap();
        assert_eq!(Note::with_left(&only, None), None);
        assert_eq!(Note::with_left(&pending, Some(&state)).unwrap(), pending);
    }

    #[test]
    fn what_is_no_note_is_said_to_be_none() {
        assert!(Note::read("priority = 'high'").unwrap_err().to_string().contains("item.toml"));
        assert_eq!(Note::read("").unwrap(), Note::default());
    }
}
