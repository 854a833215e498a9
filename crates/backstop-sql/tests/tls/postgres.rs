//! Encrypted connections to PostgreSQL.

use backstop_sql::{Tls, TlsMode};
use backstop_testkit::certificates::{Authority, Certified};
use backstop_testkit::eventually;
use backstop_testkit::servers::{PrivatePostgres, private_postgres};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool, raw_sql};

use crate::{refused, showing};

/// A server that has TLS, once it was given a certificate.
struct Postgres {
    server: PrivatePostgres,
    authority: Authority,
    admin: PgConnection,
}

impl Postgres {
    async fn start() -> Option<Self> {
        let server = private_postgres().await?;
        let admin = PgConnection::connect(&server.url()).await.unwrap();
        Some(Self { server, authority: Authority::new(), admin })
    }

    async fn with(certificate: impl FnOnce(&Authority) -> Certified) -> Option<Self> {
        let it = Self::start().await?;
        it.server.encrypt(&it.authority, &certificate(&it.authority)).await;
        Some(it)
    }

    /// Lets in only those whom the rule is for.
    async fn rule(&mut self, rule: &str) {
        let file: String = sqlx::query_scalar("show hba_file").fetch_one(&mut self.admin).await.unwrap();
        self.run(&format!("copy (select '{rule}') to '{file}'")).await;
        self.reload().await;
        let url = self.url_by("127.0.0.1", "sslmode=disable");
        eventually("the rule is known", async || PgConnection::connect(&url).await.is_err()).await;
    }

    async fn run(&mut self, statement: &str) {
        raw_sql(AssertSqlSafe(statement)).execute(&mut self.admin).await.unwrap();
    }

    async fn reload(&mut self) {
        self.run("select pg_reload_conf()").await;
    }

    fn url_by(&self, host: &str, parameters: &str) -> String {
        format!("{}?{parameters}", self.server.url().replace("127.0.0.1", host))
    }

    fn trusting(&self, mode: TlsMode) -> Tls {
        Tls { mode: Some(mode), ca: Some(self.authority.pem().into()), ..Tls::default() }
    }
}

async fn is_encrypted(pool: &PgPool) -> bool {
    let asked = sqlx::query_scalar("select ssl from pg_stat_ssl where pid = pg_backend_pid()");
    asked.fetch_one(pool).await.unwrap()
}

#[tokio::test]
async fn a_server_with_the_right_certificate_is_connected_to_by_settings_and_by_url() {
    let Some(it) = Postgres::with(|authority| authority.server(&["localhost"])).await else { return };
    let url = it.url_by("localhost", "");
    for tls in [
        it.trusting(TlsMode::VerifyFull),
        it.trusting(TlsMode::VerifyCa),
        // A root certificate is there to be checked by.
        Tls { ca: Some(it.authority.pem().into()), ..Tls::default() },
        Tls { mode: Some(TlsMode::Require), ..Tls::default() },
        Tls::default(),
    ] {
        let pool = backstop_sql::postgres::open_with(&url, 2, &tls).await.unwrap();
        assert!(is_encrypted(&pool).await, "{tls:?}");
    }
    let plain = Tls { mode: Some(TlsMode::Disable), ..Tls::default() };
    let pool = backstop_sql::postgres::open_with(&url, 2, &plain).await.unwrap();
    assert!(!is_encrypted(&pool).await);

    let ca = it.server.write("root.crt", &it.authority.pem());
    let by_file = it.url_by("localhost", &format!("sslmode=verify-full&sslrootcert={}", ca.display()));
    assert!(is_encrypted(&backstop_sql::postgres::open(&by_file).await.unwrap()).await);
    let pem = it.authority.pem().replace('+', "%2B").replace('\n', "%0A");
    let by_text = it.url_by("localhost", &format!("sslmode=verify-full&sslrootcert={pem}"));
    assert!(is_encrypted(&backstop_sql::postgres::open(&by_text).await.unwrap()).await);
}

#[tokio::test]
async fn a_certificate_that_expired_or_has_another_name_or_a_stranger_behind_it_is_told_as_such() {
    let Some(it) = Postgres::with(|authority| authority.server(&["localhost"])).await else { return };
    let full = it.trusting(TlsMode::VerifyFull);

    let said = refused(&it.url_by("127.0.0.1", ""), &full).await;
    assert!(said.contains("is for another name") && said.contains("127.0.0.1"), "{said}");
    // The name is all that is wrong with it.
    let nameless = it.trusting(TlsMode::VerifyCa);
    backstop_sql::postgres::open_with(&it.url_by("127.0.0.1", ""), 2, &nameless).await.unwrap();

    let stranger = Tls { ca: Some(Authority::new().pem().into()), ..full.clone() };
    let nobody = Tls { ca: None, ..full.clone() };
    for tls in [stranger, nobody] {
        let said = refused(&it.url_by("localhost", ""), &tls).await;
        assert!(said.contains("no root certificate that is known here vouches"), "{said}");
    }

    let Some(it) = Postgres::with(|authority| authority.expired_server(&["localhost"])).await else { return };
    for mode in [TlsMode::VerifyFull, TlsMode::VerifyCa] {
        let said = refused(&it.url_by("localhost", ""), &it.trusting(mode)).await;
        assert!(said.contains("has expired"), "{said}");
    }
}

#[tokio::test]
async fn a_server_without_tls_is_told_as_such_where_tls_is_asked_for() {
    let Some(it) = Postgres::start().await else { return };
    let url = it.url_by("localhost", "");
    for tls in [it.trusting(TlsMode::VerifyFull), Tls { mode: Some(TlsMode::Require), ..Tls::default() }] {
        let said = refused(&url, &tls).await;
        assert!(said.contains("it offers no TLS, and the mode asks for it"), "{said}");
    }
    let prefers = Tls { mode: Some(TlsMode::Prefer), ..Tls::default() };
    let pool = backstop_sql::postgres::open_with(&url, 2, &prefers).await.unwrap();
    assert!(!is_encrypted(&pool).await);
}

#[tokio::test]
async fn a_server_that_lets_in_only_who_has_a_certificate_is_shown_one() {
    let Some(mut it) = Postgres::with(|authority| authority.server(&["localhost"])).await else { return };
    it.rule("hostssl all all 127.0.0.1/32 cert").await;
    let (url, full) = (it.url_by("localhost", ""), it.trusting(TlsMode::VerifyFull));

    let said = refused(&url, &Tls { mode: Some(TlsMode::Disable), ..Tls::default() }).await;
    assert!(said.contains("encrypt the connection"), "{said}");
    let said = refused(&url, &full).await;
    assert!(said.contains("client certificate") && said.contains("give a certificate and its key"), "{said}");
    let said = refused(&url, &showing(full.clone(), Authority::new().client("postgres"))).await;
    assert!(said.contains("it refuses our client certificate"), "{said}");

    let pool = backstop_sql::postgres::open_with(&url, 2, &showing(full, it.authority.client("postgres")))
        .await
        .unwrap();
    assert!(is_encrypted(&pool).await);
}
