//! What is said of settings that make no sense beside the framework.

use std::sync::Arc;
use std::time::Duration;

use backstop_sql::store::{SqlStore, Store};
use backstop_sql::{Error, Outbox, Supported, TableName, TimeZone};

use sqlx::postgres::{PgPoolOptions, Postgres};
use sqlx::{AssertSqlSafe, PgPool};

use crate::framework::now;
use crate::place::*;

/// The refusal of an outbox that must not start.
async fn refusal<DB: Supported, M: backstop_sql::outbox::Mode>(
    builder: backstop_sql::outbox::Builder<DB, M>,
) -> Error {
    builder.start().await.unwrap_err()
}

#[tokio::test]
async fn beside_java_needs_skip_recent_and_a_wrong_zone_is_named_with_it() {
    let database = backstop_testkit::servers::sqlite();
    let pool = backstop_sql::sqlite::open(database.path()).await.unwrap();
    let told = refusal(Outbox::multi_node(pool).beside_java(true).time_zone("Europe/Berlin")).await;
    let Error::Settings { faults } = &told else { panic!("{told}") };
    let names: Vec<_> = faults.iter().map(|fault| fault.setting).collect();
    assert_eq!(names, ["time-zone", "skip-recent", "lock-timeout"], "{told}");
}

#[tokio::test]
async fn a_zone_beside_a_store_of_ones_own_is_not_forgotten_silently() {
    let database = backstop_testkit::servers::sqlite();
    let pool = backstop_sql::sqlite::open(database.path()).await.unwrap();
    let own = Arc::new(SqlStore::on(pool.clone(), TableName::default()));
    let told = refusal(Outbox::writer_only(pool).store(own).time_zone("+02:00")).await;
    let rule = "setting database.time-zone has no effect with a store of your own: give it to that store";
    assert_eq!(told.to_string(), rule);
}

#[tokio::test]
async fn a_zone_means_nothing_on_sqlite() {
    let database = backstop_testkit::servers::sqlite();
    let pool = backstop_sql::sqlite::open(database.path()).await.unwrap();
    let told = refusal(Outbox::writer_only(pool.clone()).time_zone("+02:00")).await;
    assert!(matches!(&told, Error::TimeZoneKnown { table } if table == "outbox_event"), "{told}");
    assert!(
        told.to_string().contains("`database.time-zone`) is for columns that carry no time zone"),
        "{told}"
    );
    let outbox =
        Outbox::single_node(pool).time_zone("+00:00").interval(Duration::from_secs(3_600)).start().await;
    outbox.unwrap().close().await.unwrap();
}

/// Connections to the same database whose sessions are somewhere else.
async fn in_session_zone(place: &Place<Postgres>, zone: &'static str) -> PgPool {
    let options = (*place.pool.connect_options()).clone();
    let pool = PgPoolOptions::new().max_connections(2).after_connect(move |connection, _| {
        let set = AssertSqlSafe(format!("SET TIME ZONE '{zone}'"));
        Box::pin(async move { sqlx::query(set).execute(connection).await.map(drop) })
    });
    pool.connect_with(options).await.unwrap()
}

backstop_testkit::suite! {
    over { zoneless: java_on_postgres }

    async fn a_session_that_would_shift_moments_is_refused(place) {
        for zone in ["Europe/Berlin", "America/New_York", "Europe/London", "+05:30"] {
            let pool = in_session_zone(&place, zone).await;
            for told in [
                refusal(Outbox::writer_only(pool.clone())).await,
                refusal(Outbox::writer_only(pool.clone()).migrate(false).time_zone("+02:00")).await,
            ] {
                assert!(matches!(&told, Error::SessionTimeZone { table, .. } if table == "outbox_event"), "{told}");
                assert!(told.to_string().contains("setting TimeZone is "), "{told}");
            }
        }
        for zone in ["UTC", "Etc/UTC", "GMT", "Zulu"] {
            let pool = in_session_zone(&place, zone).await;
            SqlStore::on(pool, TableName::default()).migrate().await.unwrap();
        }
    }
}

backstop_testkit::suite! {
    over { zoneless: java_on_postgres, zoned: java_on_postgres_zoned }

    async fn plain_sql_from_a_session_in_any_zone_gets_moments_in_utc(place) {
        let store = place.store();
        store.migrate().await.unwrap();
        store.allow_plain_inserts().await.unwrap();
        let elsewhere = in_session_zone(&place, "Asia/Tokyo").await;
        let insert = "INSERT INTO outbox_event (event_id, event_type, payload) VALUES ('a', 'OrderPlaced', '{}')";
        sqlx::query(insert).execute(&elsewhere).await.unwrap();
        let state = place.java.state("a").await;
        for moment in [state.created_at.unwrap(), state.available_at.unwrap()] {
            assert!(moment <= now() && moment > now() - Duration::from_secs(60), "{state:?}");
        }
    }
}

backstop_testkit::suite! {
    over { zoned: java_on_postgres_zoned }

    async fn a_session_in_any_zone_does_where_columns_carry_theirs(place) {
        let pool = in_session_zone(&place, "Europe/Berlin").await;
        SqlStore::on(pool, TableName::default()).migrate().await.unwrap();
    }

    async fn a_zone_means_nothing_where_columns_carry_theirs(place) {
        let zone = TimeZone::new("+02:00").unwrap();
        let store = SqlStore::on(place.pool.clone(), TableName::default()).time_zone(zone);
        let told = store.migrate().await.unwrap_err();
        assert!(matches!(told, Error::TimeZoneKnown { .. }), "{told}");
        let told = refusal(place.node().migrate(false).time_zone("+02:00")).await;
        assert!(matches!(told, Error::TimeZoneKnown { .. }), "{told}");
        // One column of four is enough to be in doubt.
        place.java.run_text("ALTER TABLE outbox_event ALTER COLUMN done_at TYPE TIMESTAMP(6)").await;
        assert!(matches!(store.check().await, Err(Error::TimeZoneKnown { .. })));
        assert!(matches!(store.allow_plain_inserts().await, Err(Error::TimeZoneKnown { .. })));
        place.store().check().await.unwrap();
    }
}
