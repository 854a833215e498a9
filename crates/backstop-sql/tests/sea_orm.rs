//! Appending with a transaction of SeaORM's, on each database.

#![cfg(feature = "sea-orm")]

#[macro_use]
#[path = "support/fresh.rs"]
mod fresh;

use backstop_core::Event;
use backstop_sql::outbox::Writer;
use backstop_sql::store::{At, Due, Order, SqlStore, Store};
use backstop_sql::{Outbox, TableName};
use backstop_testkit::handlers::Recording;
use sea_orm::{ConnectionTrait, Database, DatabaseConnection, TransactionTrait};

use crate::fresh::{Fresh, empty};

/// A database with a shop's table, seen by SeaORM and by the outbox.
struct Shop<DB: fresh::Database> {
    orm: DatabaseConnection,
    pool: sqlx::Pool<DB>,
    _database: Fresh<DB>,
}

impl<DB: fresh::Database> Shop<DB> {
    async fn orders(&self) -> usize {
        let backend = self.orm.get_database_backend();
        let all = sea_orm::Statement::from_string(backend, "select id from shop_order");
        self.orm.query_all_raw(all).await.unwrap().len()
    }
}

async fn shop<DB: fresh::Database>() -> Option<Shop<DB>> {
    let database = empty::<DB>().await?;
    let orm = Database::connect(&database.url).await.unwrap();
    orm.execute_unprepared("create table shop_order (id int)").await.unwrap();
    Some(Shop { orm, pool: database.pool.clone(), _database: database })
}

fn order() -> Event {
    Event::of("OrderPlaced").aggregate("Order", "1").header("a", "b").json(&["tea", "é😀"]).unwrap()
}

database_suite! {
    over shop

    /// Rules: O-033.
    async fn the_event_and_the_entity_commit_together_and_the_token_starts_delivery(shop) {
        let recorder = Recording::new();
        let outbox = Outbox::single_node(shop.pool.clone())
            .interval(std::time::Duration::from_secs(3_600))
            .on("Order", "OrderPlaced", recorder.clone())
            .start()
            .await
            .unwrap();
        let event = order();
        let mut tx = shop.orm.begin().await.unwrap();
        tx.execute_unprepared("insert into shop_order values (1)").await.unwrap();
        let appended = outbox.writer().append(&mut tx, event.clone()).await.unwrap();
        tx.commit().await.unwrap();
        appended.committed();
        assert_eq!(recorder.until(1).await, [event]);
        assert_eq!(shop.orders().await, 1);
        outbox.close().await.unwrap();
    }

    async fn a_rollback_takes_both(shop) {
        let store = std::sync::Arc::new(SqlStore::on(shop.pool.clone(), TableName::default()));
        store.migrate().await.unwrap();
        let mut tx = shop.orm.begin().await.unwrap();
        tx.execute_unprepared("insert into shop_order values (1)").await.unwrap();
        let appended = Writer::new(store.clone()).append(&mut tx, order()).await.unwrap();
        tx.rollback().await.unwrap();
        appended.rolled_back();
        let due = Due { at: At::Database, skip_recent: std::time::Duration::ZERO, limit: 10, order: Order::Due, after: None, pair: None };
        assert_eq!((shop.orders().await, store.poll(due).await.unwrap().len()), (0, 0));
    }
}
