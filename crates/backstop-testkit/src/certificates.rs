//! Certificates for servers and clients, and an authority that vouches for them.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

/// An authority of the test's own, which nobody else trusts.
///
/// ```
/// use backstop_testkit::certificates::Authority;
///
/// let authority = Authority::new();
/// let server = authority.server(&["localhost"]);
/// assert!(server.certificate.starts_with("-----BEGIN CERTIFICATE-----"));
/// assert_ne!(authority.pem(), Authority::new().pem());
/// ```
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its private key, as PEM.
#[derive(Debug, Clone)]
pub struct Certified {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

impl Authority {
    /// A new one.
    ///
    /// # Panics
    ///
    /// If the machine has no randomness.
    pub fn new() -> Self {
        let mut params = named("Backstop test authority", &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("randomness");
        Self(CertifiedIssuer::self_signed(params, key).expect("a certificate of its own"))
    }

    /// Its own certificate, by which others are checked, as PEM.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for a server of these names.
    pub fn server(&self, names: &[&str]) -> Certified {
        self.vouch(named("server", names), ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// A certificate for a server of these names that is no longer valid.
    pub fn expired_server(&self, names: &[&str]) -> Certified {
        let mut params = named("server", names);
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2020, 2, 1);
        self.vouch(params, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// A certificate for a client of this name.
    pub fn client(&self, name: &str) -> Certified {
        self.vouch(named(name, &[]), ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn vouch(&self, mut params: CertificateParams, purpose: ExtendedKeyUsagePurpose) -> Certified {
        params.extended_key_usages = vec![purpose];
        let key = KeyPair::generate().expect("randomness");
        let certificate = params.signed_by(&key, &self.0).expect("a certificate");
        Certified { certificate: certificate.pem(), key: key.serialize_pem() }
    }
}

fn named(name: &str, names: &[&str]) -> CertificateParams {
    let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
    let mut params = CertificateParams::new(names).expect("names of hosts");
    params.distinguished_name.push(DnType::CommonName, name);
    params
}
