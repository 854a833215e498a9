//! TLS to a database server: whether a connection is encrypted, whom the server's certificate must be vouched for by, and
//! which certificate the server is shown.

use backstop_core::config::{Parsed, Secret, ValueKind};
use backstop_core::setting::Faults;

backstop_core::choice! {
    /// Whether a connection to a database server is encrypted, and what is asked of the server's certificate. The words are
    /// PostgreSQL's, for every server.
    pub enum TlsMode {
        /// Never.
        Disable = "disable",
        /// If the server offers it, whoever the server is.
        Prefer = "prefer",
        /// Always, whoever the server is.
        Require = "require",
        /// Always, and a root certificate vouches for the server, whatever its name.
        VerifyCa = "verify-ca",
        /// Always, a root certificate vouches for the server, and the certificate has the name that the URL has.
        VerifyFull = "verify-full",
    }
}

backstop_core::config! {
    /// How connections to a database server are encrypted. Certificates and keys are PEM texts; in a settings file best
    /// `file:PATH` or `env:NAME`.
    ///
    /// ```no_run
    /// use backstop_sql::{Tls, TlsMode};
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let ca = std::fs::read_to_string("/etc/ssl/rds-bundle.pem")?;
    /// let tls = Tls { mode: Some(TlsMode::VerifyFull), ca: Some(ca.into()), ..Tls::default() };
    /// let pool = backstop_sql::postgres::open_with("postgres://shop@db.example/orders", 10, &tls).await?;
    /// # Ok(()) }
    /// ```
    #[derive(Debug, Clone, PartialEq)]
    pub struct Tls {
        /// Whether connections are encrypted, and what is asked of the server's certificate: `verify-full` asks for all,
        /// `require` for nothing, and `prefer` goes on without encryption where the server has none.
        mode: Option<TlsMode> = None
            => "mode": one(TlsMode::KIND), unset("as the URL says, else `verify-full` if there is a `ca`, else `prefer`");
        /// Root certificates, one of which must vouch for the server; those of the system count too.
        ca: Option<Secret> = None => "ca": one(CERTIFICATES), unset("the system's alone");
        /// The certificate that the server is shown, where it asks for one, with those between it and its root.
        certificate: Option<Secret> = None => "certificate": one(CERTIFICATES), unset("none is shown");
        /// The private key of `certificate`, without a password.
        key: Option<Secret> = None => "key": one(ValueKind::Secret), unset("none is needed");
    }
    rules: fit_together;
}

const CERTIFICATES: ValueKind = ValueKind::Parsed(&Parsed {
    word: "PEM, or where it is kept",
    rule: "at least one certificate in PEM form, kept in a file (file:PATH) or in a variable (env:NAME)",
    secret: true,
    check: |text| {
        if pem::holds_certificates(text) { Ok(()) } else { Err(format!("must be {}", CERTIFICATES.rule())) }
    },
});

fn fit_together(tls: &Tls, faults: &mut Faults) {
    match (&tls.certificate, &tls.key) {
        (Some(_), None) => faults.add("key", "is required beside `certificate`"),
        (None, Some(_)) => faults.add("certificate", "is required beside `key`"),
        (Some(certificate), Some(key)) => {
            // Broken certificates are told by their kind.
            if pem::holds_certificates(certificate.reveal())
                && !pem::belong_together(certificate.reveal(), key.reveal())
            {
                let rule = "must be the private key of `certificate`, in PEM form and without a password";
                faults.add("key", rule);
            }
        }
        (None, None) => {}
    }
    let is_asked_for = tls.ca.is_some()
        || tls.certificate.is_some()
        || matches!(tls.mode, Some(TlsMode::Require | TlsMode::VerifyCa | TlsMode::VerifyFull));
    if is_asked_for && cfg!(not(feature = "tls")) {
        faults.add("mode", "asks for TLS, which this program was built without; its cargo feature is `tls`");
    }
}

/// What TLS has to do with a connection that could not be made, and what to do about it.
#[cfg(feature = "_server")]
pub(crate) fn refusal(error: &sqlx::Error) -> Option<String> {
    match error {
        sqlx::Error::Tls(said) if said.to_string().contains("does not support TLS") => Some(
            "it offers no TLS, and the mode asks for it; switch TLS on there, or set the mode prefer"
                .to_owned(),
        ),
        sqlx::Error::Tls(said) => Some(format!("TLS cannot be set up: {said}")),
        #[cfg(feature = "tls")]
        sqlx::Error::Io(said) => said.get_ref()?.downcast_ref::<rustls::Error>().map(handshake::in_words),
        sqlx::Error::Database(said) => {
            let text = said.message();
            // PostgreSQL has one code for all that its rules refuse.
            let refused = said.code().is_some_and(|code| code == "28000");
            if refused && text.contains("client certificate") {
                return Some(format!("{text}; give a certificate and its key"));
            }
            let plain =
                (refused && text.contains("no encryption")) || crate::error::mysql_number(&**said) == 3159;
            plain.then(|| format!("{text}; encrypt the connection: set the mode verify-full, or require"))
        }
        _ => None,
    }
}

#[cfg(all(feature = "tls", feature = "_server"))]
mod handshake {
    use rustls::{AlertDescription as Alert, CertificateError as Fault, Error};

    /// Why there was no handshake.
    pub(super) fn in_words(error: &Error) -> String {
        match error {
            Error::InvalidCertificate(fault) => of_the_server(fault),
            Error::AlertReceived(Alert::CertificateRequired) => {
                "it wants to see a client certificate; give a certificate and its key".to_owned()
            }
            Error::AlertReceived(
                alert @ (Alert::UnknownCA
                | Alert::BadCertificate
                | Alert::UnsupportedCertificate
                | Alert::CertificateExpired
                | Alert::CertificateRevoked
                | Alert::CertificateUnknown
                | Alert::AccessDenied
                | Alert::DecryptError),
            ) => format!("it refuses our client certificate: {alert:?}; give one that it accepts"),
            other => format!("TLS fails: {other}; compare the TLS versions that it accepts"),
        }
    }

    fn of_the_server(fault: &Fault) -> String {
        match fault {
            Fault::Expired | Fault::ExpiredContext { .. } => {
                format!("its certificate has expired: {fault}; renew it there")
            }
            Fault::NotValidYet | Fault::NotValidYetContext { .. } => {
                format!("its certificate is not valid yet: {fault}; compare the clocks")
            }
            Fault::NotValidForName | Fault::NotValidForNameContext { .. } => {
                format!(
                    "its certificate is for another name: {fault}; name the host in the URL as the certificate does"
                )
            }
            // The second: an authority that was made anew under the same name.
            Fault::UnknownIssuer | Fault::BadSignature => {
                "no root certificate that is known here vouches for its certificate; give the \
                                     server's root certificate as `ca`"
                    .to_owned()
            }
            other => format!("its certificate is refused: {other}"),
        }
    }
}

#[cfg(feature = "tls")]
mod pem {
    use rustls::RootCertStore;
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use rustls::sign::CertifiedKey;

    fn certificates(pem: &str) -> Option<Vec<CertificateDer<'static>>> {
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
        found.ok().filter(|found| !found.is_empty())
    }

    pub(super) fn holds_certificates(pem: &str) -> bool {
        let mut roots = RootCertStore::empty();
        certificates(pem).is_some_and(|found| found.into_iter().all(|it| roots.add(it).is_ok()))
    }

    pub(super) fn belong_together(certificate: &str, key: &str) -> bool {
        let provider = rustls::crypto::ring::default_provider();
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).ok();
        let pair = certificates(certificate).zip(key);
        pair.is_some_and(|(chain, key)| CertifiedKey::from_der(chain, key, &provider).is_ok())
    }
}

/// Without TLS nobody reads them.
#[cfg(not(feature = "tls"))]
mod pem {
    pub(super) fn holds_certificates(_: &str) -> bool {
        true
    }

    pub(super) fn belong_together(_: &str, _: &str) -> bool {
        true
    }
}
