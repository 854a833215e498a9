//! Logins and encrypted connections to Oracle's MySQL, whose ways are not those of MariaDB.

use backstop_sql::{Error, Tls, TlsMode};
use backstop_testkit::certificates::{Authority, Certified};
use backstop_testkit::servers::{MysqlDatabase, mysql, oracle_mysql, private_mysql};
use sqlx::{AssertSqlSafe, MySqlPool, raw_sql};

use crate::{error, refused, showing};

fn mode(mode: TlsMode) -> Tls {
    Tls { mode: Some(mode), ..Tls::default() }
}

/// A server, its administrator, and a user of the test's own.
struct Mysql {
    database: MysqlDatabase,
    admin: MySqlPool,
    user: String,
}

impl Mysql {
    async fn start() -> Option<Self> {
        let database = oracle_mysql().await?;
        let admin = database.pool().await;
        let user = database.name().to_owned();
        Some(Self { database, admin, user })
    }

    async fn run(&self, statement: &str) {
        raw_sql(AssertSqlSafe(statement))
            .execute(&self.admin)
            .await
            .unwrap_or_else(|error| panic!("{}: {error}", statement.chars().take(60).collect::<String>()));
    }

    /// Makes the user, who logs in by the server's default.
    async fn user(&self, requiring: &str) {
        self.run(&format!("create user '{0}'@'%' identified by 'right' {requiring}", self.user)).await;
        self.run(&format!("grant all on {0}.* to '{0}'@'%'", self.user)).await;
    }

    fn url(&self, host: &str, password: &str) -> String {
        let url = self.database.url();
        let (_, place) = url.split_once('@').unwrap();
        let place = place.split('?').next().unwrap().replace("127.0.0.1", host);
        format!("mysql://{}:{password}@{place}", self.user)
    }

    /// Lets the server show a certificate from now on, and check those of clients by the authority's.
    async fn show(&self, authority: &Authority, shown: &Certified) {
        let folder: String =
            sqlx::query_scalar("select @@secure_file_priv").fetch_one(&self.admin).await.unwrap();
        for (setting, pem) in [
            ("ssl_ca", authority.pem()),
            ("ssl_cert", shown.certificate.clone()),
            ("ssl_key", shown.key.clone()),
        ] {
            let file = format!("{folder}/{}.pem", backstop_core::event::next_id());
            self.run(&format!("select '{pem}' into dumpfile '{file}'")).await;
            self.run(&format!("set global {setting} = '{file}'")).await;
        }
        self.run("alter instance reload tls").await;
    }

    async fn leave(self) {
        self.run(&format!("drop user '{}'@'%'", self.user)).await;
    }
}

async fn is_encrypted(pool: &MySqlPool) -> bool {
    let asked = sqlx::query_as("show session status like 'Ssl_cipher'");
    let (_, cipher): (String, String) = asked.fetch_one(pool).await.unwrap();
    !cipher.is_empty()
}

async fn open(url: &str, tls: &Tls) -> MySqlPool {
    backstop_sql::mysql::open_with(url, 2, tls).await.unwrap()
}

#[tokio::test]
async fn the_default_login_of_mysql_works_with_tls_and_without() {
    let Some(it) = Mysql::start().await else { return };
    it.user("").await;
    let plugin = format!("select plugin from mysql.user where user = '{}'", it.user);
    let plugin: String = sqlx::query_scalar(AssertSqlSafe(plugin)).fetch_one(&it.admin).await.unwrap();
    assert_eq!(plugin, "caching_sha2_password");

    let url = it.url("127.0.0.1", "right");
    for (mode, encrypted) in
        [(mode(TlsMode::Disable), false), (mode(TlsMode::Require), true), (Tls::default(), true)]
    {
        // The server forgets whom it knows, so that it asks for the whole password: by RSA or within TLS.
        it.run("flush privileges").await;
        assert_eq!(is_encrypted(&open(&url, &mode).await).await, encrypted);
        // The second time it knows the password by its hash.
        assert_eq!(is_encrypted(&open(&url, &mode).await).await, encrypted);
        for wrong in [it.url("127.0.0.1", "hunter2"), url.replace(&it.user, "nobody")] {
            let error = error(&wrong, &mode).await;
            assert!(matches!(error, Error::Login { .. }), "{error:?}");
            assert!(error.to_string().contains("refuses this user and password: Access denied"), "{error}");
        }
    }
    it.leave().await;
}

#[tokio::test]
async fn certificates_are_checked_on_both_sides_and_what_is_wrong_with_them_is_told() {
    let Some(it) = Mysql::start().await else { return };
    it.user("").await;
    let authority = Authority::new();
    it.show(&authority, &authority.server(&["localhost"])).await;
    let (here, elsewhere) = (it.url("localhost", "right"), it.url("127.0.0.1", "right"));
    let trusting = |mode| Tls { mode: Some(mode), ca: Some(authority.pem().into()), ..Tls::default() };
    let full = trusting(TlsMode::VerifyFull);

    assert!(is_encrypted(&open(&here, &full).await).await);
    assert!(is_encrypted(&open(&elsewhere, &trusting(TlsMode::VerifyCa)).await).await);
    let said = refused(&elsewhere, &full).await;
    assert!(said.contains("is for another name") && said.contains("127.0.0.1"), "{said}");
    for ca in [Some(Authority::new().pem().into()), None] {
        let said = refused(&here, &Tls { ca, ..full.clone() }).await;
        assert!(said.contains("no root certificate that is known here vouches"), "{said}");
    }

    it.run(&format!("alter user '{}'@'%' require x509", it.user)).await;
    let error = error(&here, &full).await;
    // MySQL has one answer for all of them.
    assert!(matches!(error, Error::Login { .. }) && error.to_string().contains("Access denied"), "{error}");
    assert!(error.to_string().contains("client certificate"), "{error}");
    let said = refused(&here, &showing(full.clone(), Authority::new().client("shop"))).await;
    assert!(said.contains("it refuses our client certificate"), "{said}");
    assert!(is_encrypted(&open(&here, &showing(full, authority.client("shop"))).await).await);
    it.leave().await;
}

/// Shown by MariaDB: Oracle's MySQL does not load one that has expired.
#[tokio::test]
async fn a_certificate_that_expired_is_told_as_such() {
    let Some(mut server) = private_mysql().await else { return };
    let authority = Authority::new();
    let shown = authority.expired_server(&["localhost"]);
    let files = [("ca", authority.pem()), ("cert", shown.certificate), ("key", shown.key)];
    let options = files
        .map(|(name, pem)| format!("--ssl-{name}={}", server.write(&format!("{name}.pem"), &pem).display()));
    server.set_options(options);
    server.restart().await;
    let url = server.url().replace("127.0.0.1", "localhost");
    for mode in [TlsMode::VerifyFull, TlsMode::VerifyCa] {
        let tls = Tls { mode: Some(mode), ca: Some(authority.pem().into()), ..Tls::default() };
        let said = refused(&url, &tls).await;
        assert!(said.contains("its certificate has expired"), "{said}");
    }
    assert!(
        is_encrypted(&open(&url, &mode(TlsMode::Require)).await).await,
        "that is all that is wrong with it"
    );
}

/// MariaDB as Debian has it has no certificate.
#[tokio::test]
async fn a_server_without_tls_is_told_as_such_where_tls_is_asked_for() {
    let Some(database) = mysql().await else { return };
    if is_encrypted(&open(&database.url(), &Tls::default()).await).await {
        // It is somebody's own server.
        return backstop_testkit::skip("the server of BACKSTOP_TEST_MYSQL_URL has TLS");
    }
    for mode in [mode(TlsMode::VerifyFull), mode(TlsMode::Require)] {
        let said = refused(&database.url(), &mode).await;
        assert!(said.contains("it offers no TLS, and the mode asks for it"), "{said}");
    }
}
