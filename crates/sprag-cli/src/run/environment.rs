//! What the command learns from its environment, and what an inner `sprag run` reads there.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use sprag::entropy::OsEntropy;
use sprag::{LockName, Mode, PartyId};

use super::holding::Holding;
use super::outer::OUTER;
use super::plan::Plan;
use super::socket;
use crate::config::environment as variable;
use crate::lease_text::LeaseText;
use crate::output::time;
use crate::store;

/// What is about one lock and must not be inherited from a run around this one.
const OWN: [&str; 9] = [
    "SPRAG_LOCK",
    "SPRAG_PARTY",
    "SPRAG_TOKEN",
    "SPRAG_LEASE",
    "SPRAG_MODE",
    "SPRAG_SLOT",
    "SPRAG_SOCKET",
    "SPRAG_DEADLINE",
    "SPRAG_RESULT_FILE",
];

/// How many runs inside of each other are asked.
const DEEPEST: usize = 64;

/// The names that an inner command must not see.
pub(crate) fn without(taken: &dyn Holding) -> Vec<String> {
    let names = if taken.guards().is_empty() { &OWN[OWN.len() - 1..] } else { &OWN[..] };
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// The variables of UX: what is held, with which fence, by whom, where.
pub(crate) fn variables(
    plan: &Plan,
    taken: &dyn Holding,
    holder: &str,
    socket: Option<&Path>,
) -> Vec<(String, OsString)> {
    let mut set: Vec<(String, OsString)> = Vec::new();
    if taken.guards().is_empty() {
        // The locks are those of the run around this one, which has told of them.
        set.extend(plan.slot.map(|slot| ("SPRAG_SLOT".to_owned(), slot.to_string().into())));
        return set;
    }
    let mut put = |name: &str, value: OsString| set.push((name.to_owned(), value));
    let names: Vec<_> = taken.guards().iter().map(|guard| guard.name().as_str()).collect();
    put("SPRAG_LOCK", names.join(",").into());
    for guard in taken.guards() {
        let token = guard.fence().to_string();
        let lease = LeaseText::new(guard.lease(), &plan.store).to_string();
        if names.len() == 1 {
            put("SPRAG_TOKEN", token.into());
            put("SPRAG_LEASE", lease.into());
        } else {
            let suffix = suffix(guard.name());
            put(&format!("SPRAG_TOKEN_{suffix}"), token.into());
            put(&format!("SPRAG_LEASE_{suffix}"), lease.into());
        }
    }
    put("SPRAG_HOLDER", holder.into());
    put("SPRAG_MODE", plan.mode.as_str().into());
    if let Some(slot) = taken.slot() {
        put("SPRAG_SLOT", slot.to_string().into());
    }
    put("SPRAG_TTL", plan.ttl.as_secs_f64().to_string().into());
    let left = u64::try_from(plan.ttl.as_millis()).unwrap_or(u64::MAX);
    put("SPRAG_DEADLINE", time::rfc3339(time::now().saturating_add(left)).into());
    if let Some(socket) = socket {
        put("SPRAG_SOCKET", socket.into());
    }
    let mut held: Vec<_> = plan.around.held.iter().map(Outer::text).collect();
    held.extend(taken.guards().iter().map(|guard| format!("{}:{}", guard.name(), guard.fence())));
    put("SPRAG_HELD", held.join(",").into());
    put("SPRAG_PARTY", plan.party.to_string().into());
    // A URL with a secret in it is not written where every child can read it, unless it came from
    // there: the inner sprag asks us for it.
    let store = plan.store.as_str();
    if variable("SPRAG_STORE").as_deref() != Some(store) {
        put("SPRAG_STORE", if store::is_public(store) { store } else { OUTER }.into());
    }
    set
}

/// The name of a lock as part of the name of a variable.
pub(crate) fn suffix(name: &LockName) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    name.as_str().chars().map(plain).collect()
}

/// A lock that a run around this one holds, as that run has said just now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outer {
    pub(crate) name: String,
    pub(crate) token: u64,
    /// How it is held, if the run says so.
    pub(crate) mode: Option<Mode>,
    /// The slot that goes with it.
    pub(crate) slot: Option<u32>,
    /// Whether the run waits for this process before it gives the lock back.
    pub(crate) waits_for_us: bool,
}

impl Outer {
    fn text(&self) -> String {
        format!("{}:{}", self.name, self.token)
    }
}

/// The runs around this one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Around {
    /// What they hold in this store, as far as they are still there.
    pub(crate) held: Vec<Outer>,
    /// Where the nearest of them is asked, if it is there.
    pub(crate) socket: Option<PathBuf>,
    /// Who the nearest of them is in deadlocks.
    party: Option<PartyId>,
}

impl Around {
    /// What is around this process and in the same store. Each run is asked: one that is over
    /// holds nothing, whatever the environment says, and we may be a daemon that it left behind.
    pub(crate) fn here(store: &str) -> Self {
        let (store, session) = (socket::store_mark(store), session());
        let nearest = std::env::var_os("SPRAG_SOCKET").map(PathBuf::from);
        let mut around = Self::default();
        let mut next = nearest;
        for depth in 0..DEEPEST {
            let Some(path) = next else { break };
            let Ok(told) = socket::ask(&path) else { break };
            let same = told.store == store;
            if depth == 0 {
                around.socket = Some(path);
                around.party = variable("SPRAG_PARTY")
                    .filter(|_| same && told.locks.iter().any(|one| one.safe_for.is_some()))
                    .and_then(|party| party.parse().ok());
            }
            let held = told.locks.into_iter().filter(|one| same && one.safe_for.is_some());
            // The outermost first, as they were taken.
            let mut held: Vec<_> = held
                .map(|one| Outer {
                    name: one.lock,
                    token: one.token,
                    mode: told.mode,
                    slot: told.slot,
                    waits_for_us: told.session == session,
                })
                .collect();
            held.append(&mut around.held);
            around.held = held;
            next = told.outer;
        }
        around
    }

    /// Who we are in deadlocks: somebody inside of the run around this one, which waits for us.
    pub(crate) fn inner_party(&self) -> PartyId {
        let inner = self.party.and_then(|outer| outer.inner(&OsEntropy));
        inner.unwrap_or_else(|| PartyId::outermost(&OsEntropy))
    }
}

/// The session of this process; 0 if its leader is outside of our pid namespace.
pub(crate) fn session() -> i32 {
    nix::unistd::getsid(None).map_or(0, nix::unistd::Pid::as_raw)
}

/// The store's URL as it is written in the environment: good in every working directory.
pub(crate) fn store_url(url: &str) -> String {
    match std::env::current_dir() {
        Ok(here) => store::absolute(url, &here),
        Err(_) => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{store_url, suffix};
    use sprag::LockName;

    #[test]
    fn names_of_locks_fit_into_names_of_variables() {
        assert_eq!(suffix(&LockName::new("db/main-é").unwrap()), "DB_MAIN__");
    }

    #[test]
    fn a_relative_store_is_found_from_everywhere() {
        let here = std::env::current_dir().unwrap();
        let here = here.to_str().unwrap();
        assert_eq!(store_url("sqlite:./locks.db"), format!("sqlite://{here}/./locks.db"));
        for url in ["sqlite:///x/y.db", "sqlite:/x/y.db", "memory:x", "git+file:///x"] {
            assert_eq!(store_url(url), url);
        }
        assert!(store_url("sqlite:").starts_with("sqlite:/"), "the default without HOME");
    }
}
