//! Users and groups by name.

use nix::unistd::{Gid, Group, Uid, User};
use sprag_core::{ErrorKind, Result};

use crate::error::error;

/// The number of a group that is named, or given by its number.
pub(crate) fn group_number(name: &str) -> Result<u32> {
    if let Ok(Some(group)) = Group::from_name(name) {
        return Ok(group.gid.as_raw());
    }
    name.parse().map_err(|_| {
        let message =
            format!("there is no group {name:?} here: type sudo groupadd --system {name}");
        error(ErrorKind::Refused, message)
    })
}

/// The name of a group; its number if it has none.
pub(crate) fn group_name(number: u32) -> String {
    let found = Group::from_gid(Gid::from_raw(number)).ok().flatten();
    found.map_or_else(|| number.to_string(), |group| group.name)
}

/// The name of a user; the number if there is none.
pub(crate) fn user_name(number: u32) -> String {
    let found = User::from_uid(Uid::from_raw(number)).ok().flatten();
    found.map_or_else(|| number.to_string(), |user| user.name)
}

/// Whether a user is in a group, as far as the lists of this machine say.
pub(crate) fn is_member(user: u32, group: u32) -> bool {
    let Ok(Some(user)) = User::from_uid(Uid::from_raw(user)) else { return false };
    let listed = Group::from_gid(Gid::from_raw(group)).ok().flatten();
    user.gid.as_raw() == group || listed.is_some_and(|group| group.mem.contains(&user.name))
}
