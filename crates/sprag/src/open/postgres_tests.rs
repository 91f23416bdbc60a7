use std::ffi::OsString;

use super::{StoreUrl, config_in};

fn shown(url: &str) -> sprag_core::Result<String> {
    shown_in(url, |_| None)
}

fn shown_in(url: &str, env: impl Fn(&str) -> Option<OsString>) -> sprag_core::Result<String> {
    config_in(&StoreUrl::parse(url)?, env).map(|config| format!("{config:?}"))
}

#[test]
fn each_form_means_one_database() {
    for (url, means) in [
        ("postgres://db/app", r#"Tcp("db", 5432), database: "app", namespace: "default""#),
        ("postgresql://me:pw@db:5/app", r#"Tcp("db", 5), database: "app""#),
        ("postgres://[::1]:5/app", r#"Tcp("::1", 5)"#),
        ("postgres:///app?host=/run/pg&port=7", r#"Unix("/run/pg", 7)"#),
        ("postgres://%2Frun%2Fpg:7/app", r#"Unix("/run/pg", 7)"#),
        ("postgres://db/app?mode=lease&namespace=a%20b", r#"namespace: "a b", kind: Lease"#),
        ("postgres://db/app?sslmode=verify-full", "tls: VerifyFull"),
        ("postgres://db/app?timeout_ms=100", "Prefer"),
    ] {
        let shown = shown(url).unwrap();
        assert!(shown.contains(means), "{url}: {shown}");
    }
}

#[test]
fn what_is_missing_or_not_understood_is_told() {
    for (url, told) in [
        ("postgres:app", "names no database"),
        ("postgres://db", "names no database"),
        ("postgres:///app", "names no host"),
        ("postgres://a,b/app", "several hosts"),
        ("postgres://db:0/app", "no port"),
        ("postgres://db/app?sslmode=verify-ca", "verify-full"),
        ("postgres://db/app?mode=row", "lease and advisory"),
        ("postgres://db/app?pool=3", "unknown parameter"),
    ] {
        let error = shown(url).unwrap_err();
        assert!(error.is_bad_input() && error.to_string().contains(told), "{url}: {error}");
    }
    let advisory = shown("postgres://db/app?mode=advisory&max_locks=5").unwrap();
    assert!(advisory.contains("kind: Advisory"), "{advisory}");
    assert!(shown("postgres://db/app?max_locks=0").unwrap_err().is_bad_input());
}

#[test]
fn no_password_is_ever_shown() {
    for url in ["postgres://me:hunter2@db/app", "postgres://db/app?password=hunter2"] {
        assert!(!shown(url).unwrap().contains("hunter2"));
    }
}

/// A service has a server, a login and a password for that server only.
#[test]
fn a_service_fills_in_what_the_url_leaves_out() {
    let folder = tempfile::tempdir().unwrap();
    let text = "[prod]\nhost=db\nport=7\nuser=me\ndbname=app\npassword=hunter2\nsslmode=require\n";
    std::fs::write(folder.path().join(".pg_service.conf"), text).unwrap();
    let env = |service: bool| {
        let home = folder.path().to_owned();
        move |name: &str| match name {
            "HOME" | "PGSYSCONFDIR" => Some(home.clone().into()),
            "PGSERVICE" if service => Some("prod".into()),
            _ => None,
        }
    };
    for (url, service, means) in [
        ("postgres:///?service=prod", false, r#"Tcp("db", 7), database: "app""#),
        ("postgres:///", true, r#"Tcp("db", 7), database: "app""#),
        ("postgres:///mine?port=9", true, r#"Tcp("db", 9), database: "mine""#),
        ("postgres://other/mine", true, r#"Tcp("other", 5432), database: "mine""#),
    ] {
        let shown = shown_in(url, env(service)).unwrap();
        assert!(shown.contains(means) && shown.contains("Require"), "{url}: {shown}");
        assert!(!shown.contains("hunter2"), "{shown}");
        let has = shown.contains("has_password: true");
        assert_eq!(has, !url.contains("other"), "{url}: {shown}");
    }
    let error = shown_in("postgres:///?service=none", env(false)).unwrap_err();
    assert!(error.is_bad_input() && error.to_string().contains(".pg_service.conf"), "{error}");
}

#[test]
fn a_password_is_looked_for_where_libpq_looks() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&path, private).unwrap();
        path.display().to_string()
    };
    let file = write("password", "hunter2\n");
    let has = |url: &str, variable: Option<&str>| {
        let env = |name: &str| match name {
            "HOME" => Some(folder.path().into()),
            "USER" => Some("me".into()),
            name if Some(name) == variable => Some("hunter2".into()),
            _ => None,
        };
        shown_in(url, env).unwrap().contains("has_password: true")
    };
    assert!(!has("postgres://db/app", None));
    assert!(has("postgres://db/app", Some("PGPASSWORD")));
    assert!(has(&format!("postgres://db/app?password_file={file}"), None));
    write(".pgpass", "db:5432:app:me:hunter2\nlocalhost:5432:app:me:hunter2\n");
    assert!(has("postgres://db/app", None) && has("postgres://me@db/app", None));
    assert!(has("postgres:///app?host=/run/postgresql", None));
    assert!(!has("postgres://you@db/app", None) && !has("postgres://other/app", None));
    let both = format!("postgres://me:x@db/app?password_file={file}");
    assert!(shown(&both).unwrap_err().is_bad_input());
}
