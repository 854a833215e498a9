//! TLS for the dashboard's port: a certificate and its key, checked before the port is taken.

use std::sync::Arc;

use backstop_core::config::{Parsed, Secret, ValueKind};
use backstop_core::setting::Faults;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

backstop_core::config! {
    /// TLS with which the dashboard is served.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Tls {
        /// The certificate and those that vouch for it, as PEM, its own first; in a settings file best `file:PATH`.
        certificate: Option<Secret> = None => "certificate": one(CERTIFICATE), unset("plain HTTP");
        /// The private key of the certificate, as PEM: `file:PATH` or `env:NAME`.
        key: Option<Secret> = None => "key": one(KEY), unset("plain HTTP");
    }
    rules: fit;
}

const CERTIFICATE: ValueKind = ValueKind::Parsed(&Parsed {
    word: "PEM, or where it is kept",
    rule: "at least one certificate in PEM form, and no broken one",
    secret: true,
    check: |text| certificates(text).map(drop).ok_or_else(|| format!("must hold {}", CERTIFICATE.rule())),
});

const KEY: ValueKind = ValueKind::Parsed(&Parsed {
    word: "PEM, or where it is kept",
    rule: "a private key in PEM form, without a password",
    secret: true,
    check: |text| key(text).map(drop).ok_or_else(|| format!("must hold {}", KEY.rule())),
});

fn certificates(pem: &str) -> Option<Vec<CertificateDer<'static>>> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    found.ok().filter(|found| !found.is_empty())
}

fn key(pem: &str) -> Option<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_slice(pem.as_bytes()).ok()
}

/// What must hold between the two.
fn fit(tls: &Tls, faults: &mut Faults) {
    match (&tls.certificate, &tls.key) {
        (Some(_), None) => faults.add("key", "is required beside `certificate`"),
        (None, Some(_)) => faults.add("certificate", "is required beside `key`"),
        // What is broken by itself was told already.
        (Some(certificate), Some(secret)) => {
            if let (Some(certificates), Some(key)) =
                (certificates(certificate.reveal()), key(secret.reveal()))
                && let Err(why) = served_with(certificates, key)
            {
                faults.add("key", format!("cannot be used with `certificate`: {why}"));
            }
        }
        (None, None) => {}
    }
}

impl Tls {
    /// What speaks TLS on each connection; none for plain HTTP. The text says what is wrong.
    pub(crate) fn acceptor(&self) -> Result<Option<TlsAcceptor>, String> {
        let (Some(certificate), Some(secret)) = (&self.certificate, &self.key) else { return Ok(None) };
        let certificates = certificates(certificate.reveal());
        let certificates =
            certificates.ok_or_else(|| format!("`certificate` must hold {}", CERTIFICATE.rule()))?;
        let key = key(secret.reveal()).ok_or_else(|| format!("`key` must hold {}", KEY.rule()))?;
        served_with(certificates, key).map(Some)
    }
}

fn served_with(
    certificates: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<TlsAcceptor, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|versions| versions.with_no_client_auth().with_single_cert(certificates, key));
    let mut config = config.map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => "it is another certificate's".to_owned(),
        other => other.to_string(),
    })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config).into())
}
