//! Databases behind TLS: what the settings file says of it, and a daemon that delivers from one.

use std::path::Path;

use backstop_testkit::certificates::Authority;
use backstop_testkit::servers::private_postgres;
use sqlx::{Connection as _, PgConnection};

use crate::support::Place;

/// Settings for a database with more keys beside the URL.
fn on(url: &str, tls: &str) -> String {
    format!(
        "outbox: {{database: {{url: '{url}', tls: {{{tls}}}}}, handlers: [{{event-type: T, log: }}]}}\nserver: \
         {{enabled: false}}\n"
    )
}

#[test]
fn what_cannot_be_done_is_refused_with_its_key() {
    let authority = Authority::new();
    let (client, other) = (authority.client("shop"), authority.client("shop"));
    let files = [
        ("ca.pem", authority.pem()),
        ("shop.pem", client.certificate),
        ("shop.key", client.key),
        ("other.key", other.key),
        ("text", "no certificate".to_owned()),
    ];
    let (postgres, mysql) = ("postgres://u@db.example/d", "mysql://u@db.example/d");
    let with = |url: &str, parameters: &str| format!("{url}?{parameters}");
    for (url, tls, told) in [
        (
            postgres.into(),
            "mode: verify_full",
            "tls.mode: must be one of disable, prefer, require, verify-ca, verify-full",
        ),
        (postgres.into(), "ca: file:missing.pem", "tls.ca: there is no such file in or below "),
        (postgres.into(), "ca: env:NO_CA", "tls.ca: the environment variable NO_CA is not set"),
        (postgres.into(), "ca: file:text", "tls.ca: must be at least one certificate in PEM form"),
        (
            postgres.into(),
            "ca: ca.pem",
            "tls.ca: must be at least one certificate in PEM form, kept in a file (file:PATH)",
        ),
        (mysql.into(), "certificate: file:shop.pem", "tls.key: is required beside `certificate`"),
        (mysql.into(), "key: file:shop.key", "tls.certificate: is required beside `key`"),
        (
            mysql.into(),
            "certificate: file:shop.pem, key: file:other.key",
            "tls.key: must be the private key of `certificate`",
        ),
        (
            mysql.into(),
            "certificate: file:shop.pem, key: file:text",
            "tls.key: must be the private key of `certificate`",
        ),
        (
            postgres.into(),
            "mode: require, ca: file:ca.pem",
            "tls.ca: has no effect unless the server's certificate is checked",
        ),
        (
            mysql.into(),
            "mode: disable, certificate: file:shop.pem, key: file:shop.key",
            "tls.certificate: has no effect without encryption",
        ),
        (postgres.into(), "mode: verify-ca", "tls.mode: is verify-ca, which needs a root certificate"),
        (
            with(postgres, "sslmode=require"),
            "mode: verify-full",
            "tls.mode: stands in the URL too, as the parameter sslmode; keep one of the two",
        ),
        (
            with(mysql, "ssl-mode=verify_ca&ssl-ca=ca.pem"),
            "ca: file:ca.pem",
            "tls.ca: stands in the URL too, as the parameter ssl-ca; keep one of the two",
        ),
        ("sqlite:a.db".into(), "mode: require", "tls: is for database servers, and SQLite is a file"),
        (
            with(postgres, "sslmode=verify_full"),
            "",
            "url: cannot be used: its parameter sslmode must be one of disable, ",
        ),
        (
            with(postgres, "sslmode=verify-full&sslrootcert=missing.pem"),
            "",
            "url: cannot be used: its parameter sslrootcert names a file that cannot be read: No such file",
        ),
        (
            with(postgres, "sslmode=require&sslrootcert=ca.pem"),
            "",
            "url: cannot be used: its parameter sslrootcert has no effect unless the server's certificate is checked",
        ),
        (with(mysql, "ssl-mode=verify_ca"), "", "url: cannot be used: its parameter ssl-mode is verify-ca"),
    ] {
        let place = Place::with(&on(&url, tls));
        for (name, text) in &files {
            std::fs::write(place.file(name), text).unwrap();
        }
        let complained = place.run(&["check"]).with(1).complained;
        assert!(complained.contains(&format!("outbox.database.{told}")), "{url} {tls}:\n{complained}");
        assert!(complained.starts_with("error: backstop.yaml has 1 fault\n"), "{complained}");
        assert_eq!(place.run(&["serve"]).with(1).complained, complained);
        assert_eq!(place.run(&["migrate"]).with(1).complained, complained);
    }
}

#[test]
fn the_settings_in_the_guide_are_fine() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides/managed-databases.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let files: Vec<_> = guide.split("```yaml\n").skip(1).collect();
    assert_eq!(files.len(), 2);
    let authority = Authority::new();
    let client = authority.client("shop");
    for yaml in files {
        let yaml = yaml.split_once("```").unwrap().0;
        let place =
            Place::with(yaml).variable("ORDERS_DATABASE_URL", "postgres://shop@orders.db.example/shop");
        for (name, text) in [
            ("ca.pem", authority.pem()),
            ("client.pem", client.certificate.clone()),
            ("client.key", client.key.clone()),
        ] {
            std::fs::write(place.file(name), text).unwrap();
        }
        assert_eq!(place.run(&["check"]).with(0).complained, "");
    }
}

#[test]
fn a_name_that_is_not_checked_is_warned_of() {
    let place = Place::with(&on("postgres://u@db.example/d", "mode: verify-ca, ca: file:ca.pem"));
    std::fs::write(place.file("ca.pem"), Authority::new().pem()).unwrap();
    let complained = place.run(&["check"]).with(0).complained;
    assert!(
        complained.contains("outbox.database.tls.mode: leaves the server's name unchecked"),
        "{complained}"
    );
    assert_eq!(complained.lines().count(), 1, "{complained}");
}

#[tokio::test]
async fn the_daemon_delivers_from_a_database_that_both_sides_have_checked() {
    let Some(server) = private_postgres().await else { return };
    let authority = Authority::new();
    server.encrypt(&authority, &authority.server(&["localhost"])).await;
    let client = authority.client("postgres");
    let tls = "mode: verify-full, ca: env:CA, certificate: file:client.pem, key: file:client.key";
    let place = Place::with(&on("env:URL", tls))
        .variable("URL", server.url().replace("127.0.0.1", "localhost"))
        .variable("CA", authority.pem());
    std::fs::write(place.file("client.pem"), client.certificate).unwrap();
    std::fs::write(place.file("client.key"), client.key).unwrap();
    place.run(&["migrate", "--triggers"]).with(0);

    let daemon = place.serve();
    let mut admin = PgConnection::connect(&server.url()).await.unwrap();
    let sessions = "select count(*), count(*) filter (where ssl and client_dn like '%postgres%') from pg_stat_ssl \
                    join pg_stat_activity using (pid) where application_name = 'backstop'";
    let (all, shown): (i64, i64) = sqlx::query_as(sessions).fetch_one(&mut admin).await.unwrap();
    assert!(all > 0 && all == shown, "{shown} of {all} sessions are encrypted and have shown a certificate");
    let insert = "insert into outbox_event (event_id, event_type, payload) values ('e-1', 'T', '{}')";
    sqlx::query(insert).execute(&mut admin).await.unwrap();
    assert_eq!(daemon.until_handled(1), ["e-1"]);
    daemon.end("-TERM").with(0);
}
