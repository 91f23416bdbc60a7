//! How connections are encrypted.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use sprag_core::{Error, Operation, Result};

use crate::config::{PostgresConfig, TlsMode};
use crate::error::STORE;

/// What TLS is told.
pub(super) fn config(config: &PostgresConfig) -> Result<ClientConfig> {
    let bad = |message: String| Error::bad_input(Operation::Open, message).at(STORE);
    // A provider of our own: the process may have another one, or none.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions();
    let builder = builder.map_err(|e| bad(format!("TLS cannot be used: {e}")))?;
    let verifies = config.tls == TlsMode::VerifyFull || config.root_certificate.is_some();
    if !verifies {
        // What `prefer` and `require` mean in PostgreSQL: nobody can listen, but who answers is
        // not known.
        let anybody = Arc::new(Anybody(provider));
        return Ok(builder
            .dangerous()
            .with_custom_certificate_verifier(anybody)
            .with_no_client_auth());
    }
    let roots = match &config.root_certificate {
        Some(file) => read(file).map_err(|e| {
            bad(format!("the certificates in {} cannot be read: {e}", file.display()))
        })?,
        None => system(),
    };
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

fn read(file: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(file).map_err(|e| e.to_string())?;
    for certificate in certificates {
        let certificate = certificate.map_err(|e| e.to_string())?;
        roots.add(certificate).map_err(|e| e.to_string())?;
    }
    if roots.is_empty() { Err("there is none".into()) } else { Ok(roots) }
}

fn system() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

/// Accepts every certificate, but not a forged signature.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
