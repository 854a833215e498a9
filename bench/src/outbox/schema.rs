//! Other tables that ours was chosen against: `fillfactor`, collations, and the plain one.

use anyhow::Result;
use sqlx::Executor;

use crate::postgres::Fresh;

#[derive(Debug, Clone, Copy)]
pub(super) enum Schema {
    Ours,
    Fillfactor50,
    Fillfactor70,
    /// Text columns in the collation of the database, which is what a column gets that names none.
    DefaultCollation,
    /// Text columns in a collation of a language, as many databases have by default.
    IcuCollation,
    /// What one writes down first: no claim number, no partial index, text in the database's collation.
    Plain,
}

const DEFAULT_COLLATION: &str = r#"alter table outbox_event
    alter column event_id type varchar(36) collate "default",
    alter column event_type type varchar(128) collate "default",
    alter column aggregate_type type varchar(64) collate "default",
    alter column aggregate_id type varchar(128) collate "default",
    alter column tenant_id type varchar(64) collate "default",
    alter column locked_by type varchar(128) collate "default""#;

const ICU_COLLATION: &str = r#"alter table outbox_event
    alter column event_id type varchar(36) collate "en-US-x-icu",
    alter column event_type type varchar(128) collate "en-US-x-icu",
    alter column aggregate_type type varchar(64) collate "en-US-x-icu",
    alter column aggregate_id type varchar(128) collate "en-US-x-icu",
    alter column tenant_id type varchar(64) collate "en-US-x-icu",
    alter column locked_by type varchar(128) collate "en-US-x-icu""#;

const PLAIN: &str = "create table outbox_event (
      event_id varchar(36) primary key,
      event_type varchar(128) not null,
      aggregate_type varchar(64),
      aggregate_id varchar(128),
      tenant_id varchar(64),
      payload json not null,
      headers json,
      status smallint not null,
      attempts integer not null default 0,
      available_at timestamptz(6) not null,
      created_at timestamptz(6) not null,
      done_at timestamptz(6),
      last_error text,
      locked_by varchar(128),
      locked_at timestamptz(6)
    );
    create index idx_status_available on outbox_event (status, available_at, created_at)";

/// The table with a backlog of so many events.
pub(super) async fn fill(database: &Fresh, schema: Schema, events: u32) -> Result<()> {
    match schema {
        Schema::Ours => database.fill_ours(events, &[]).await,
        Schema::Fillfactor50 => {
            database.fill_ours(events, &["alter table outbox_event set (fillfactor = 50)"]).await
        }
        Schema::Fillfactor70 => {
            database.fill_ours(events, &["alter table outbox_event set (fillfactor = 70)"]).await
        }
        Schema::DefaultCollation => database.fill_ours(events, &[DEFAULT_COLLATION]).await,
        Schema::IcuCollation => database.fill_ours(events, &[ICU_COLLATION]).await,
        Schema::Plain => {
            database.pool.execute(PLAIN).await?;
            database.fill(events).await
        }
    }
}
