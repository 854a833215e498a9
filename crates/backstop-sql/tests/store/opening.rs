//! Opening a database by its URL: the right store, sane sessions, and no password in any error.

use backstop_sql::store::{DatabaseKind, SqlStore, Store};
use backstop_sql::{Error, TableName};

use crate::harness::*;

backstop_testkit::suite! {
    over { sqlite: empty_sqlite, postgres: empty_postgres, mysql: empty_mysql }

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
                format!("{scheme}://nobody:hunter2@{place}_missing"),
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
                Error::Connect { .. } | Error::Url(_) | Error::Scheme { .. } | Error::Open { .. }
            );
            assert!(clear, "{said}");
        }
    }
}
