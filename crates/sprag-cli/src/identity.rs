//! Who we are: the holder that others see.

use std::env;

use sprag::Holder;

use crate::config::Settings;

/// The holder that locks are taken for: `SPRAG_HOLDER` or `user@host#pid`, with the CI job where
/// there is one.
pub(crate) fn holder(settings: &Settings) -> Holder {
    let host = host();
    match &settings.holder.value {
        Some(name) => Holder::new(name.clone(), host),
        None => {
            let job = job().map(|job| format!(" ({job})")).unwrap_or_default();
            let process = std::process::id();
            Holder::new(format!("{}@{host}#{process}{job}", user()), host)
        }
    }
}

/// Whether a holder is this user on this machine, or has the name that we were given.
pub(crate) fn is_own(holder: &Holder, settings: &Settings) -> bool {
    let (name, worker) = match &settings.holder.value {
        Some(name) => (name.clone(), Some(holder.worker_id.as_str())),
        None => (format!("{}@{}", user(), host()), holder.worker_id.split('#').next()),
    };
    // In public places it has no names of users and machines in it.
    let public = sprag::sprag_github::public_holder(&Holder::new(name.clone(), host()));
    worker.is_some_and(|worker| worker == name || worker == public.worker_id)
}

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn user() -> String {
    let named = ["USER", "LOGNAME"].into_iter().filter_map(|name| env::var(name).ok());
    let mut named = named.filter(|user| !user.is_empty());
    let uid = rustix::process::getuid().as_raw();
    named.next().or_else(|| listed(uid)).unwrap_or_else(|| format!("uid{uid}"))
}

/// The user's name in the system's list, for daemons that have no USER.
fn listed(uid: u32) -> Option<String> {
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    let mut fields = users.lines().map(|line| line.split(':'));
    fields.find_map(|mut fields| {
        let (name, _password, number) = (fields.next()?, fields.next()?, fields.next()?);
        (number.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

/// The CI job or the pod that we run in, in a few words.
fn job() -> Option<String> {
    let get = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    if let Some(run) = get("GITHUB_RUN_ID") {
        let job = get("GITHUB_JOB").map(|job| format!(", job {job}")).unwrap_or_default();
        return Some(format!("GitHub Actions run {run}{job}"));
    }
    if let Some(job) = get("CI_JOB_ID") {
        return Some(format!("GitLab job {job}"));
    }
    if let Some(build) = get("BUILDKITE_BUILD_NUMBER") {
        return Some(format!("Buildkite build {build}"));
    }
    let pod = get("POD_NAME").or_else(|| get("KUBERNETES_SERVICE_HOST").map(|_| host()))?;
    Some(format!("pod {pod}"))
}
