//! Where a user's programs keep what they remember.

use std::ffi::OsString;
use std::path::PathBuf;

/// The folder of this user for what sprag remembers: `$XDG_STATE_HOME/sprag`, else
/// `$HOME/.local/state/sprag`; none if neither variable has an absolute path. A relative one would
/// be another folder in each working directory. `env` looks up a variable.
///
/// # Examples
///
/// ```
/// let folder = sprag_core::home::state_folder(|name| (name == "HOME").then(|| "/users/ada".into()));
/// assert_eq!(folder, Some("/users/ada/.local/state/sprag".into()));
/// ```
pub fn state_folder(env: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |name| env(name).map(PathBuf::from).filter(|path: &PathBuf| path.is_absolute());
    let state =
        absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(state.join("sprag"))
}
