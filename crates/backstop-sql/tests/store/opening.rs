//! Opening a database by its URL: the right store, sane sessions, and no password in any error.

use std::net::TcpListener;
use std::process::Command;
use std::time::{Duration, Instant};

use backstop_sql::store::{DatabaseKind, SqlStore, Store};
use backstop_sql::{Error, TableName};
use backstop_testkit::eventually;
use backstop_testkit::logs::Logs;
use backstop_testkit::servers::{directory, private_postgres};
use sqlx::{Connection as _, PgConnection};

use crate::harness::*;

database_suite! {
    over empty

    /// Rules: O-044, O-049, O-059.
    async fn the_store_of_a_url_is_the_one_of_its_database(it) {
        assert_eq!(DatabaseKind::of(&it.url).unwrap(), it.kind);
        let store = SqlStore::connect(&it.url, TableName::default()).await.unwrap();
        store.migrate().await.unwrap();
        // The store that was made from the pool finds what the one of the URL made.
        it.store.check().await.unwrap();
        let dialects = [format!("{store:?}"), format!("{:?}", it.store)];
        assert_eq!(dialects[0], dialects[1]);
    }

    async fn sessions_are_in_utc_and_say_who_they_are(it) {
        match it.kind {
            DatabaseKind::Postgres => {
                assert_eq!(it.texts("select current_setting('TimeZone')").await, ["UTC"]);
                assert_eq!(it.texts("select current_setting('application_name')").await, ["backstop"]);
            }
            DatabaseKind::Mysql => {
                assert_eq!(it.texts("select @@session.time_zone").await, ["+00:00"]);
                assert_eq!(it.texts("select @@session.character_set_client").await, ["utf8mb4"]);
            }
            DatabaseKind::Sqlite => assert_eq!(it.texts("select journal_mode from pragma_journal_mode").await, ["wal"]),
        }
    }

    async fn no_error_shows_a_password(it) {
        let Some((scheme, (_, place))) = it.url.split_once("://").map(|(a, b)| (a, b.split_once('@').unwrap_or(("", b))))
        else {
            panic!("{} is no URL", it.url)
        };
        let wrong = match it.kind {
            DatabaseKind::Sqlite => vec!["sqlite:///no/such/directory/x.db".to_owned()],
            _ => vec![
                missing(&format!("{scheme}://nobody:hunter2@{place}")),
                format!("{scheme}://nobody:hunter2@host:notaport/database"),
                "nosuch://nobody:hunter2@host/database".to_owned(),
            ],
        };
        for url in wrong {
            let error = SqlStore::connect(&url, TableName::default()).await.unwrap_err();
            let said = format!("{error} {error:?}");
            assert!(!said.contains("hunter2"), "{said}");
            let clear = matches!(
                error,
                Error::Login { .. }
                    | Error::NoDatabase { .. }
                    | Error::Url { .. }
                    | Error::Scheme { .. }
                    | Error::Open { .. }
            );
            assert!(clear, "{said}");
        }
    }

    async fn a_database_that_is_not_there_is_told_as_such_and_at_once(it) {
        if it.kind == DatabaseKind::Sqlite {
            return;
        }
        let begun = Instant::now();
        let url = missing(&it.url);
        let error = SqlStore::connect(&url, TableName::default()).await.unwrap_err();
        assert!(begun.elapsed() < AT_ONCE, "it took {:?}", begun.elapsed());
        let said = error.to_string();
        assert!(said.contains("_missing") && said.contains("create the database"), "{said}");
        assert!(matches!(error, Error::NoDatabase { .. }), "{error:?}");
    }

    async fn parameters_that_the_driver_would_log_or_quote_are_refused_without_their_values(it) {
        let separator = if it.url.contains('?') { '&' } else { '?' };
        for parameter in ["sslpasswrod=hunter2", "hunter2", "pass%77ord=hunter2", "mode=hunter2", "sslmode=hunter2"] {
            let url = format!("{}{separator}{parameter}", it.url);
            let logs = Logs::catch_all();
            let error = SqlStore::connect(&url, TableName::default()).await.unwrap_err();
            let said = format!("{error} {error:?} {}", logs.all());
            assert!(matches!(error, Error::Url { .. }) && !said.contains("hunter2"), "{said}");
            let (name, value) = parameter.split_once('=').unwrap_or_default();
            assert!(value.is_empty() || name.contains('%') || said.contains(name), "{said}");
        }
    }
}

/// The URL of a database that is not there, on the same server.
fn missing(url: &str) -> String {
    let (place, parameters) = url.split_at(url.find('?').unwrap_or(url.len()));
    format!("{place}_missing{parameters}")
}

/// The pool's patience is twice that.
const AT_ONCE: Duration = Duration::from_secs(5);

/// The login's words, where the server asks for a password.
async fn refused(url: &str) {
    let begun = Instant::now();
    let logs = Logs::catch_all();
    let error = SqlStore::connect(url, TableName::default()).await.unwrap_err();
    assert!(begun.elapsed() < AT_ONCE, "it took {:?}", begun.elapsed());
    let said = error.to_string();
    assert!(said.contains("refuses this user and password: "), "{said}");
    assert!(!format!("{said} {error:?} {}", logs.all()).contains("hunter2"), "{said}");
    assert!(matches!(error, Error::Login { .. }), "{error:?}");
}

#[tokio::test]
async fn a_wrong_password_of_mysql_is_told_as_such_and_at_once() {
    let Some(it) = empty::<sqlx::MySql>().await else { return };
    let (scheme, place) = it.url.split_once("://").unwrap();
    let (login, place) = place.split_once('@').unwrap();
    let user = login.split(':').next().unwrap();
    refused(&format!("{scheme}://{user}:hunter2@{place}")).await;
    refused(&format!("{scheme}://nobody:hunter2@{place}")).await;
}

#[tokio::test]
async fn a_wrong_password_of_postgresql_is_told_as_such_and_at_once() {
    let Some(server) = private_postgres().await else { return };
    let mut admin = PgConnection::connect(&server.url()).await.unwrap();
    sqlx::query("alter role postgres password 'right'").execute(&mut admin).await.unwrap();
    let rules: String = sqlx::query_scalar("show hba_file").fetch_one(&mut admin).await.unwrap();
    let rule = format!("copy (select 'host all all 127.0.0.1/32 scram-sha-256') to '{rules}'");
    sqlx::query(sqlx::AssertSqlSafe(rule)).execute(&mut admin).await.unwrap();
    sqlx::query("select pg_reload_conf()").execute(&mut admin).await.unwrap();
    let with = |login: &str| server.url().replace("postgres@", &format!("{login}@"));
    // The server reads its rules a moment later.
    eventually("the password is asked for", async || PgConnection::connect(&server.url()).await.is_err())
        .await;

    SqlStore::connect(&with("postgres:right"), TableName::default()).await.unwrap();
    refused(&with("postgres:hunter2")).await;
    refused(&with("nobody:hunter2")).await;
    refused(&with("postgres")).await;
}

/// Others may be starting, so a refused connection is waited for; what it was is told all the same.
#[tokio::test]
async fn a_server_that_is_not_there_is_told_with_its_cause() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (postgres, mysql) =
        (format!("postgres://u:hunter2@{nobody}/d"), format!("mysql://u:hunter2@{nobody}/d"));
    let connect =
        |url: String| async move { SqlStore::connect(&url, TableName::default()).await.unwrap_err() };
    let (postgres, mysql) = tokio::join!(connect(postgres), connect(mysql));
    for error in [postgres, mysql] {
        let said = error.to_string();
        assert!(said.contains("refused") && !said.contains("pool"), "{said}");
    }
}

#[tokio::test]
async fn a_pipe_is_no_database_and_no_certificate() {
    let directory = directory();
    let pipe = directory.file("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let pipe = pipe.display();
    for url in [
        format!("sqlite:{pipe}"),
        format!("postgres://u@127.0.0.1:1/d?sslmode=require&sslrootcert={pipe}"),
        format!("mysql://u@127.0.0.1:1/d?ssl-mode=required&ssl-ca={pipe}"),
    ] {
        let connect = SqlStore::connect(&url, TableName::default());
        let error = tokio::time::timeout(AT_ONCE, connect).await.expect("it waits").unwrap_err();
        assert!(error.to_string().contains("not a regular file"), "{error}");
    }
}
