//! [`Opened`]: the store that the settings name.

use std::ops::Deref;
use std::path::Path;

use sprag::{Locks, LocksBuilder};

use crate::code::Code;
use crate::config::Settings;
use crate::failure::Failure;
use crate::identity;
use crate::run::outer::{self, OUTER};

/// The parameter that names the repository of a remote.
const DIRECTORY: &str = "directory=";

/// An open store and how it is shown.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) locks: Locks,
    /// Its URL without secrets.
    pub(crate) shown: String,
}

impl Opened {
    /// Opens the store that the settings name, with this process's identity.
    pub(crate) fn open(settings: &Settings) -> Result<Self, Failure> {
        Self::open_with(settings, |locks| locks)
    }

    /// As `open`, with more options.
    pub(crate) fn open_with(
        settings: &Settings,
        options: impl Fn(LocksBuilder<'_>) -> LocksBuilder<'_>,
    ) -> Result<Self, Failure> {
        Self::open_patiently(settings, options, |_| false)
    }

    /// As `open_with`, again and again as long as `patient` says so.
    pub(crate) fn open_patiently(
        settings: &Settings,
        options: impl Fn(LocksBuilder<'_>) -> LocksBuilder<'_>,
        patient: impl Fn(&sprag::Error) -> bool,
    ) -> Result<Self, Failure> {
        let url = settings.store.value.as_str();
        if url == OUTER {
            // It could not be asked when the settings were read; now it says why.
            outer::store()?;
        }
        loop {
            let builder = Locks::builder(url).holder(identity::holder(settings));
            match options(builder).open() {
                Ok(locks) => return Ok(Self { locks, shown: shown(settings) }),
                Err(error) if patient(&error) => {}
                Err(error) => return Err(failure(error, settings)),
            }
        }
    }
}

impl Deref for Opened {
    type Target = Locks;

    fn deref(&self) -> &Locks {
        &self.locks
    }
}

/// The store's URL without secrets.
pub(crate) fn shown(settings: &Settings) -> String {
    sprag::redact(&settings.store.value)
}

fn failure(error: sprag::Error, settings: &Settings) -> Failure {
    let url = &settings.store.value;
    let scheme = url.split(':').next().unwrap_or_default();
    let known = sprag::stores().iter().any(|store| store.scheme.eq_ignore_ascii_case(scheme));
    let failure = if error.is_bad_input() && !known && url.contains(':') {
        Failure::new(Code::UnknownStore, error.to_string()).hint("see the stores", "sprag stores")
    } else {
        Failure::from(error)
    };
    failure
        .fact("store", format!("{} (from {})", shown(settings), settings.store.origin))
        .detail("store", shown(settings))
}

/// The URL of the same file from everywhere, if it names one relative to `folder`.
pub(crate) fn anchored(url: &str, folder: &Path) -> String {
    let relative = url.strip_prefix("sqlite:");
    let relative = relative.filter(|path| !path.is_empty() && !path.starts_with(['/', '?']));
    match (relative, folder.to_str()) {
        (Some(path), Some(folder)) => {
            format!("sqlite://{}/{path}", encoded(folder).trim_end_matches('/'))
        }
        _ => url.to_owned(),
    }
}

/// The URL that means in every working directory, and with every `HOME`, what `url` means in
/// `folder`: it is for the commands inside of a run.
pub(crate) fn absolute(url: &str, folder: &Path) -> String {
    let (rest, query) = match url.split_once('?') {
        Some((rest, query)) => (rest, format!("?{query}")),
        None => (url, String::new()),
    };
    if rest.eq_ignore_ascii_case("sqlite:") {
        let state = sprag::home::state_folder(|name| std::env::var_os(name));
        let file = state.map(|state| state.join("sprag.db"));
        return match file.as_deref().and_then(Path::to_str) {
            Some(file) => format!("sqlite:{}{query}", encoded(file)),
            None => url.to_owned(),
        };
    }
    // A remote by its name, in the repository that one is in.
    let is_remote = rest.starts_with("git:") && !rest.starts_with("git://");
    let repository = folder.ancestors().find(|folder| folder.join(".git").exists());
    match repository.and_then(Path::to_str).filter(|_| is_remote && !query.contains(DIRECTORY)) {
        Some(repository) => {
            let joint = if query.is_empty() { "?" } else { "&" };
            format!("{url}{joint}{DIRECTORY}{}", encoded(repository).replace('&', "%26"))
        }
        None => anchored(url, folder),
    }
}

/// Whether everybody may see the URL. What is not understood may be a secret.
pub(crate) fn is_public(url: &str) -> bool {
    let shown = match url.split_once('?') {
        Some((rest, query)) if rest.starts_with("git:") && !query.contains(['@', '#']) => rest,
        _ => url,
    };
    shown.starts_with("sqlite:") || sprag::redact(shown) == shown
}

/// A path as a part of a URL.
fn encoded(path: &str) -> String {
    path.replace('%', "%25").replace('?', "%3F").replace('#', "%23")
}
