//! [`Certificates`]: an authority of our own, and what it signed.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use tempfile::TempDir;

/// Keys and certificates in a temporary folder, made by `openssl`.
#[derive(Clone, Debug)]
pub struct Certificates {
    folder: Arc<TempDir>,
    /// Whether clients have to show theirs.
    mutual: bool,
}

impl Certificates {
    /// Makes them: an authority, a server on this machine, and a client.
    ///
    /// # Panics
    ///
    /// If `openssl` is missing.
    pub fn make() -> Self {
        let folder = Arc::new(tempfile::tempdir().expect("there is room for temporary files"));
        let made = Self { folder, mutual: false };
        made.sign("authority", "basicConstraints=critical,CA:TRUE", None);
        made.sign("server", "subjectAltName=DNS:localhost,IP:127.0.0.1", Some("authority"));
        made.sign("client", "extendedKeyUsage=clientAuth", Some("authority"));
        made
    }

    /// The same, where clients have to show their certificate.
    #[must_use]
    pub fn mutual(&self) -> Self {
        Self { folder: Arc::clone(&self.folder), mutual: true }
    }

    /// The certificate of the authority.
    pub fn authority(&self) -> PathBuf {
        self.file("authority.crt")
    }

    /// The certificate and the key of the client.
    pub fn client(&self) -> (PathBuf, PathBuf) {
        (self.file("client.crt"), self.file("client.key"))
    }

    /// The certificate and the key of the server.
    pub fn server(&self) -> (PathBuf, PathBuf) {
        (self.file("server.crt"), self.file("server.key"))
    }

    /// What `redis-server` is told.
    pub(super) fn options(&self) -> Vec<OsString> {
        let auth = if self.mutual { "yes" } else { "no" };
        vec![
            "--tls-cert-file".into(),
            self.file("server.crt").into(),
            "--tls-key-file".into(),
            self.file("server.key").into(),
            "--tls-ca-cert-file".into(),
            self.authority().into(),
            "--tls-auth-clients".into(),
            auth.into(),
        ]
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Makes a key and a certificate, signed by itself or by another.
    fn sign(&self, name: &str, extension: &str, signer: Option<&str>) {
        let mut openssl = Command::new("openssl");
        openssl.args(["req", "-x509", "-nodes", "-newkey", "ec", "-days", "2"]);
        openssl.args(["-pkeyopt", "ec_paramgen_curve:prime256v1"]);
        openssl.args(["-subj", &format!("/CN=sprag test {name}"), "-addext", extension]);
        if signer.is_some() {
            openssl.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
        }
        let mut path = |option: &str, file: &Path| {
            openssl.arg(option).arg(file);
        };
        path("-keyout", &self.file(&format!("{name}.key")));
        path("-out", &self.file(&format!("{name}.crt")));
        if let Some(signer) = signer {
            path("-CA", &self.file(&format!("{signer}.crt")));
            path("-CAkey", &self.file(&format!("{signer}.key")));
        }
        match openssl.output() {
            Ok(output) if output.status.success() => {}
            Ok(output) => panic!("openssl: {}", String::from_utf8_lossy(&output.stderr)),
            Err(_) => panic!(
                "`openssl` is missing; please type:\n  sudo apt-get install -y openssl\n\
                 or leave out the tests with SPRAG_SKIP=redis"
            ),
        }
    }
}
