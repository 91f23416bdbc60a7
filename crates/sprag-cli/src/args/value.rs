//! Readers of values, with messages that name the value and the fix.

use std::time::Duration;

use sprag::LockName;

use crate::lease_text::LeaseText;
use crate::output::time;

/// A span of time.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    time::parse(text)
}

/// The name of one lock; a comma would be read as two locks by `run`.
pub(crate) fn lock_name(text: &str) -> Result<LockName, String> {
    if text.contains(',') {
        return Err("a name has no comma: it stands between the names of several locks".into());
    }
    LockName::new(text).map_err(|error| {
        let error = error.to_string();
        error.strip_prefix("cannot acquire: ").unwrap_or(&error).to_owned()
    })
}

/// The names of one lock or several, with commas between them; sorted, each once.
pub(crate) fn lock_names(text: &str) -> Result<Vec<LockName>, String> {
    let mut names = text.split(',').map(lock_name).collect::<Result<Vec<_>, _>>()?;
    names.sort();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(format!("{:?} is named twice", pair[0])),
        None => Ok(names),
    }
}

/// A lease, with its store or without.
pub(crate) fn lease(text: &str) -> Result<LeaseText, String> {
    text.parse().map_err(str::to_owned)
}

/// A number of things, of which there is one at least.
pub(crate) fn count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("expected a number from 1 on".to_owned()),
        Ok(count) => Ok(count),
    }
}
