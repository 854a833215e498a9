//! Short words for what the tests do with a table.

use std::any::Any;
use std::time::Duration;

use backstop_core::delivery::Settlement;
use backstop_core::{Event, Timestamp};
use backstop_sql::store::{At, Claim, Due, Order, Row, Settle, Share, Store};
use backstop_sql::{Error, TableName};
use chrono::TimeDelta;

pub(crate) use crate::fresh::*;

impl<DB: Database> Fresh<DB> {
    /// Takes the right to be the only node.
    pub(crate) async fn alone(&self, table: &str) -> Result<Box<dyn Any + Send + Sync>, Error> {
        self.right(table, Share::Alone).await
    }

    /// Takes the right to deliver, alone or with others that claim.
    pub(crate) async fn right(&self, table: &str, share: Share) -> Result<Box<dyn Any + Send + Sync>, Error> {
        let table = TableName::new(table).unwrap();
        Ok(Box::new(DB::right(&self.pool, &table, share).await?))
    }

    /// A transaction as users begin it.
    pub(crate) async fn begin_to_append(&self) -> sqlx::Transaction<'static, DB> {
        DB::begin(&self.pool).await.unwrap()
    }

    /// Settles a row under no claim and tells how many rows changed.
    pub(crate) async fn settle(&self, id: &str, seconds: i64, settlement: Settlement) -> u64 {
        self.settle_under(None, id, seconds, settlement).await
    }

    pub(crate) async fn settle_under(
        &self,
        claim: Option<&Claim>,
        id: &str,
        seconds: i64,
        settlement: Settlement,
    ) -> u64 {
        let settle =
            Settle { id: id.to_owned(), claim: claim.cloned(), attempts: None, generation: None, settlement };
        self.store.settle(at(seconds), &[settle]).await.unwrap()
    }

    pub(crate) async fn poll(&self, seconds: i64, limit: u32) -> Vec<Row> {
        self.store.poll(due(seconds, limit)).await.unwrap()
    }

    /// Claims with a time-out of one minute.
    pub(crate) async fn claim(&self, owner: &str, seconds: i64, limit: u32) -> Vec<Row> {
        self.store.claim(&owner.into(), MINUTE, due(seconds, limit)).await.unwrap()
    }
}

pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// A moment of the tests' own time, which begins on the first of January 2020.
pub(crate) fn moment(seconds: i64) -> Timestamp {
    let begin: Timestamp = "2020-01-01T00:00:00Z".parse().unwrap();
    begin + TimeDelta::seconds(seconds)
}

pub(crate) fn at(seconds: i64) -> At {
    At::Instant(moment(seconds))
}

pub(crate) fn due(seconds: i64, limit: u32) -> Due<'static> {
    Due { at: at(seconds), skip_recent: Duration::ZERO, limit, order: Order::Due, after: None, pair: None }
}

/// An event of that id that happened at that moment.
pub(crate) fn event(id: &str, seconds: i64) -> Event {
    Event::of("OrderPlaced")
        .id(id)
        .aggregate("Order", "42")
        .occurred_at(moment(seconds))
        .payload_json("{}")
        .build()
        .unwrap()
}

/// Events `a`, `b`, … one second apart from 0 on.
pub(crate) fn events(ids: &str) -> Vec<Event> {
    ids.chars().zip(0..).map(|(id, seconds)| event(&id.to_string(), seconds)).collect()
}

pub(crate) fn ids(rows: &[Row]) -> String {
    rows.iter().map(|row| row.id.as_str()).collect()
}

pub(crate) fn retry(seconds: u64, error: &str) -> Settlement {
    Settlement::Retry { after: Duration::from_secs(seconds), error: error.to_owned() }
}

pub(crate) fn deferred(seconds: u64) -> Settlement {
    Settlement::Deferred { after: Duration::from_secs(seconds) }
}

pub(crate) fn dead(error: &str) -> Settlement {
    Settlement::Dead { error: error.to_owned() }
}
