//! What is said of settings that make no sense beside the framework.

use std::sync::Arc;
use std::time::Duration;

use backstop_sql::store::{SqlStore, Store};
use backstop_sql::{Error, Outbox, Supported, TableName, TimeZone};

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
    assert_eq!(names, ["claim_locking", "time_zone", "skip_recent"], "{told}");
}

#[tokio::test]
async fn a_zone_beside_a_store_of_ones_own_is_not_forgotten_silently() {
    let database = backstop_testkit::servers::sqlite();
    let pool = backstop_sql::sqlite::open(database.path()).await.unwrap();
    let own = Arc::new(SqlStore::on(pool.clone(), TableName::default()));
    let told = refusal(Outbox::writer_only(pool).store(own).time_zone("+02:00")).await;
    let rule = "setting time_zone means nothing with a store of your own: give it to that store";
    assert_eq!(told.to_string(), rule);
}

#[tokio::test]
async fn a_zone_means_nothing_on_sqlite() {
    let database = backstop_testkit::servers::sqlite();
    let pool = backstop_sql::sqlite::open(database.path()).await.unwrap();
    let told = refusal(Outbox::writer_only(pool.clone()).time_zone("+02:00")).await;
    assert!(matches!(&told, Error::TimeZoneKnown { table } if table == "outbox_event"), "{told}");
    assert!(
        told.to_string().starts_with("setting time_zone is for columns that carry no time zone"),
        "{told}"
    );
    let outbox =
        Outbox::single_node(pool).time_zone("+00:00").interval(Duration::from_secs(3_600)).start().await;
    outbox.unwrap().close().await.unwrap();
}

backstop_testkit::suite! {
    over { zoned: java_on_postgres_zoned }

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
