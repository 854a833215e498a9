//! A backlog of due events on PostgreSQL.

use std::time::Duration;

use anyhow::Result;
use backstop_sql::TableName;
use backstop_sql::store::{SqlStore, Store};
use sqlx::Executor;

use crate::postgres::Fresh;

impl Fresh {
    /// Our table, changed by statements before it has rows, with a backlog.
    pub(in crate::outbox) async fn fill_ours(&self, events: u32, changes: &[&'static str]) -> Result<()> {
        SqlStore::on(self.pool.clone(), TableName::default()).migrate().await?;
        for change in changes {
            self.pool.execute(*change).await?;
        }
        self.fill(events).await
    }

    /// `events` NEW rows of about 200 bytes of payload, due since an hour.
    pub(in crate::outbox) async fn fill(&self, events: u32) -> Result<()> {
        sqlx::query(
            "insert into outbox_event (event_id, event_type, aggregate_type, aggregate_id, payload, status,
                 attempts, available_at, created_at)
             select lpad(n::text, 26, '0'), 'OrderPlaced', 'Order', n::text,
                    json_build_object('order', n, 'text', repeat('x', 170)), 0, 0,
                    now() - interval '1 hour' + n * interval '1 microsecond',
                    now() - interval '1 hour' + n * interval '1 microsecond'
             from generate_series(1, $1) as n",
        )
        .bind(i32::try_from(events)?)
        .execute(&self.pool)
        .await?;
        self.settle_down().await
    }

    /// `events` rows of another pair of types that become due together, in a while.
    pub(in crate::outbox) async fn fill_second_route(&self, events: u32, due_in: Duration) -> Result<()> {
        sqlx::query(
            "insert into outbox_event (event_id, event_type, aggregate_type, aggregate_id, payload, status,
                 attempts, available_at, created_at)
             select 'i' || lpad(n::text, 25, '0'), 'InvoiceSent', 'Invoice', n::text,
                    json_build_object('order', n, 'text', repeat('x', 170)), 0, 0,
                    now() + $2 * interval '1 second', now() + n * interval '1 microsecond'
             from generate_series(1, $1) as n",
        )
        .bind(i32::try_from(events)?)
        .bind(due_in.as_secs_f64())
        .execute(&self.pool)
        .await?;
        self.settle_down().await
    }
}
