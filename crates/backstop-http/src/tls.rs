//! TLS by rustls, and the roots that a target's certificate is checked against.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

/// TLS with the system's roots, and those given as PEM beside them.
pub(crate) fn connector(extra_roots: &RootCertStore) -> Result<TlsConnector, String> {
    // It would be waited for, and nothing would ever be sent.
    if std::env::var_os("SSL_CERT_FILE")
        .is_some_and(|path| Path::new(&path).metadata().is_ok_and(|it| !it.is_file()))
    {
        return Err(
            "is https, and the environment variable SSL_CERT_FILE names something that is not a regular file"
                .to_owned(),
        );
    }
    let mut roots = system_roots().clone();
    roots.extend(extra_roots.roots.iter().cloned());
    if roots.is_empty() {
        return Err("is https, and this machine has no root certificates: install the package \
                    ca-certificates, or give a root with `root-certificates`"
            .to_owned());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let versions = versions.map_err(|error| format!("is https, and TLS cannot be set up: {error}"))?;
    let mut config = versions.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config).into())
}

/// Adds the certificates of a PEM text, of which there must be at least one.
pub(crate) fn add_pem(roots: &mut RootCertStore, pem: &[u8]) -> Result<(), String> {
    let rule = "must hold at least one certificate in PEM form, and no broken one";
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let certificates = certificates.ok().filter(|found| !found.is_empty()).ok_or(rule)?;
    certificates.into_iter().try_for_each(|it| roots.add(it)).map_err(|_| rule.to_owned())
}

/// Read once: it is a hundred files on some systems, and the same for every target.
fn system_roots() -> &'static RootCertStore {
    static ROOTS: OnceLock<RootCertStore> = OnceLock::new();
    ROOTS.get_or_init(|| {
        let found = rustls_native_certs::load_native_certs();
        for error in &found.errors {
            tracing::warn!(%error, "some of the system's root certificates cannot be read");
        }
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(found.certs);
        roots
    })
}
