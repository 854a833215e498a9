//! TLS to a daemon: the roots by which its certificate is checked, and what is said when there is no handshake.

use std::io;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError as Fault, ClientConfig, Error, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::config;

/// Speaks TLS to daemons whose certificates it can check.
pub(super) struct Tls(TlsConnector);

impl Tls {
    /// With the system's roots, those in a file, and the certificates that the daemon's own settings have.
    pub(super) fn trusting(ca: Option<&Path>, own: Option<&str>) -> anyhow::Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if let Some(path) = ca {
            let pem = config::text(path).context("--ca cannot be used")?;
            if !add(&mut roots, &pem) {
                bail!(
                    "--ca cannot be used: {} must hold at least one certificate in PEM form, and no broken one",
                    path.display()
                );
            }
        }
        if let Some(pem) = own {
            // What cannot be a root is not trusted for this; the daemon's settings were checked already.
            let _ = add(&mut roots, pem);
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let mut config =
            versions.context("TLS cannot be set up")?.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config).into()))
    }

    /// Agrees with the daemon at this host; the error says why not, behind the daemon's address.
    pub(super) async fn agree(&self, host: &str, stream: TcpStream) -> Result<TlsStream<TcpStream>, String> {
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host).map_err(|_| "has a name that no certificate can have")?;
        self.0.connect(name, stream).await.map_err(|error| why(&error))
    }
}

/// Whether all certificates of a text, of which there must be one, are roots now.
fn add(roots: &mut RootCertStore, pem: &str) -> bool {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    found.is_ok_and(|found| !found.is_empty() && found.into_iter().all(|it| roots.add(it).is_ok()))
}

fn why(error: &io::Error) -> String {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(Error::InvalidCertificate(fault)) => format!("cannot be trusted: {}", of_certificate(fault)),
        Some(Error::InvalidMessage(_)) => {
            "does not speak TLS; without `server.tls` the address of a daemon begins with http://".to_owned()
        }
        Some(other) => format!("does not agree on TLS: {other}"),
        None => format!("does not agree on TLS: {error}; is it a daemon with `server.tls`?"),
    }
}

fn of_certificate(fault: &Fault) -> String {
    match fault {
        // The second: an authority that was made anew under the same name.
        Fault::UnknownIssuer | Fault::BadSignature => {
            "no root certificate that is known here vouches for its certificate; name the file of its root with --ca"
                .to_owned()
        }
        Fault::NotValidForName | Fault::NotValidForNameContext { .. } => {
            format!("its certificate is for another name: {fault}; name it with --url as the certificate does")
        }
        Fault::Expired | Fault::ExpiredContext { .. } => {
            format!("its certificate has expired: {fault}; renew it there")
        }
        Fault::NotValidYet | Fault::NotValidYetContext { .. } => {
            format!("its certificate is not valid yet: {fault}; compare the clocks")
        }
        other => format!("its certificate is refused: {other}"),
    }
}
