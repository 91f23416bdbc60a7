//! Whether this process sees a machine of its own, that is soon gone: a container or a CI job.

use std::path::Path;

/// What CI systems set for their jobs.
const CI: &[&str] = &[
    "CI",
    "GITHUB_ACTIONS",
    "GITLAB_CI",
    "BUILDKITE",
    "CIRCLECI",
    "JENKINS_URL",
    "TEAMCITY_VERSION",
    "TF_BUILD",
];
/// The files that container engines make in their containers.
const FILES: &[&str] = &["/.dockerenv", "/run/.containerenv"];
/// The control groups that they put the first process of a container into.
const GROUPS: &[&str] = &["docker", "kubepods", "containerd", "libpod", "lxc"];

/// What this process is in, if others with the same locks may be outside of it.
pub(crate) fn surroundings(
    env: impl Fn(&str) -> Option<String>,
    read: impl Fn(&Path) -> Option<String>,
) -> Option<&'static str> {
    let set = |name: &str| {
        env(name).is_some_and(|value| !matches!(value.as_str(), "" | "0" | "false" | "no"))
    };
    if set("KUBERNETES_SERVICE_HOST") {
        return Some("Kubernetes pod");
    }
    if CI.iter().any(|name| set(name)) {
        return Some("CI job");
    }
    // Engines set this variable, too; systemd takes an empty one for none, and so do we.
    let contained = match env("container") {
        Some(engine) => !engine.is_empty(),
        None => {
            let made = FILES.iter().any(|file| read(Path::new(file)).is_some());
            let group = || read(Path::new("/proc/1/cgroup")).unwrap_or_default();
            made || GROUPS.iter().any(|name| group().contains(name))
        }
    };
    contained.then_some("container")
}

#[cfg(test)]
mod tests {
    use super::surroundings;
    use std::path::Path;

    fn found(env: &[(&str, &str)], files: &[(&str, &str)]) -> Option<&'static str> {
        let of = |pairs: &[(&str, &str)], key: &str| {
            pairs.iter().find(|(name, _)| *name == key).map(|(_, value)| (*value).to_owned())
        };
        surroundings(|name| of(env, name), |path: &Path| of(files, path.to_str()?))
    }

    #[test]
    fn containers_pods_and_jobs_are_recognised_and_machines_are_not() {
        let (job, pod, container) = (Some("CI job"), Some("Kubernetes pod"), Some("container"));
        assert_eq!(found(&[], &[("/proc/1/cgroup", "0::/init.scope\n")]), None);
        assert_eq!(found(&[("CI", "false"), ("container", "")], &[]), None);
        assert_eq!(found(&[], &[("/.dockerenv", "")]), container);
        assert_eq!(found(&[], &[("/run/.containerenv", "engine=\"podman\"")]), container);
        assert_eq!(found(&[], &[("/proc/1/cgroup", "4:cpu:/docker/0123\n")]), container);
        assert_eq!(found(&[("container", "podman")], &[]), container);
        assert_eq!(found(&[("container", "")], &[("/.dockerenv", "")]), None);
        assert_eq!(found(&[("KUBERNETES_SERVICE_HOST", "10.0.0.1"), ("CI", "1")], &[]), pod);
        for variable in ["CI", "GITHUB_ACTIONS", "GITLAB_CI", "JENKINS_URL"] {
            assert_eq!(found(&[(variable, "true")], &[("/.dockerenv", "")]), job);
        }
    }
}
