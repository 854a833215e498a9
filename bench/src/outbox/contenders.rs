//! Who drains a backlog.

use anyhow::Result;
use backstop_sql::store::Done;

use super::http::Server;
use super::schema::{self, Schema};
use super::{Part, http, kafka, mariadb, ours, raw, raw_tokio_postgres, snapshot, sqlite};
use crate::contender::{Contender, Drained, contender};
use crate::peers;
use crate::postgres::Fresh;

pub(super) const RAW_SELECT_DONE: &str = "raw select + done";
pub(super) const RAW_CLAIM_DONE: &str = "raw claim + done";
pub(super) const RAW_SELECT_DELETE: &str = "raw select + delete";
pub(super) const SINGLE: &str = "single_node, batch 500";
pub(super) const SINGLE_DEFAULTS: &str = "single_node, defaults";
pub(super) const SINGLE_DELETE: &str = "single_node, batch 500, Done::Delete";
pub(super) const MULTI: &str = "multi_node, batch 500";
pub(super) const GRAPHILE_ONE: &str = "graphile_worker, one local queue";
pub(super) const GRAPHILE_TWO: &str = "graphile_worker, two local queues";
pub(super) const RIVER_1_000: &str = "riverqueue, 1,000 workers";
pub(super) const RIVER_10_000: &str = "riverqueue, 10,000 workers";
pub(super) const SINGLE_SNAPSHOT: &str = "single_node, batch 500, snapshot open";
pub(super) const MULTI_SNAPSHOT: &str = "multi_node, batch 500, snapshot open";
pub(super) const PLAIN_SCHEMA: &str = "raw claim + done, plain schema";
pub(super) const PLAIN_SCHEMA_BY_CREATION: &str = "raw claim + done, plain schema, by creation";
pub(super) const MARIADB_SELECT: &str = "MariaDB: raw select + done";
pub(super) const MARIADB_SINGLE: &str = "MariaDB: single_node, batch 500";
pub(super) const MARIADB_CLAIM: &str = "MariaDB: raw claim + done";
pub(super) const MARIADB_MULTI: &str = "MariaDB: multi_node, batch 500";
pub(super) const SQLITE_SELECT: &str = "SQLite: raw select + done";
pub(super) const SQLITE_SINGLE: &str = "SQLite: single_node, batch 500";

pub(super) const RAW_PRODUCE: &str = "raw produce";
pub(super) const MULTI_KAFKA: &str = "multi_node to Kafka, 1,000 in flight";
pub(super) const RAW_CLIENT: &str = "raw client, 64 in flight";
pub(super) const WEBHOOK: &str = "webhook without an outbox, 64 in flight";
pub(super) const SINGLE_HTTP: &str = "single_node to HTTP, 64 in flight";
pub(super) const SINGLE_HTTP_BATCHED: &str = "single_node to HTTP, 64 in flight, batched";
pub(super) const RAW_CLIENT_AT_WORK: &str = "raw client, 64 in flight, 5 ms each";
pub(super) const SINGLE_HTTP_AT_WORK: &str = "single_node to HTTP, 64 in flight, 5 ms each";

const POSTGRES: &str = "a backlog on PostgreSQL";
const PEERS: &str = "the same backlog, other libraries";
const SNAPSHOT: &str = "the same, a snapshot open elsewhere";
const SCHEMAS: &str = "the same, raw loops on other schemas";
const STATEMENTS: &str = "the same, raw loops with other statements";
const MARIADB: &str = "a backlog on MariaDB";
const SQLITE: &str = "a backlog on SQLite";
const KAFKA: &str = "from PostgreSQL to Kafka";
pub(super) const HTTP: &str = "from PostgreSQL to a web server";

use Part::{Backlog, Http, Kafka, Mariadb, Peers, Schema as SchemaPart, Snapshot, Sqlite};

#[rustfmt::skip]
pub(super) const ALL: &[Contender<Part>] = &[
    contender!(RAW_SELECT_DONE, POSTGRES, [Backlog, SchemaPart, Http], None,
        |events| loop_on(Schema::Ours, events, raw::SELECT_DONE)),
    contender!(SINGLE, POSTGRES, [Backlog, Peers, Snapshot], Some(RAW_SELECT_DONE),
        |events| on_ours(events, move |db| ours::single_node(db.pool, events, Some(500), Done::Keep))),
    contender!(SINGLE_DEFAULTS, POSTGRES, [Backlog], Some(RAW_SELECT_DONE),
        |events| on_ours(events, move |db| ours::single_node(db.pool, events, None, Done::Keep))),
    contender!("raw select + done, tokio-postgres", POSTGRES, [Backlog], Some(RAW_SELECT_DONE),
        |events| on_ours(events, move |db| raw_tokio_postgres::run(db.url, events, raw::SELECT_DONE))),
    contender!(RAW_CLAIM_DONE, POSTGRES, [Backlog, SchemaPart, Kafka], None,
        |events| loop_on(Schema::Ours, events, raw::CLAIM_DONE)),
    contender!(MULTI, POSTGRES, [Backlog, Snapshot], Some(RAW_CLAIM_DONE),
        |events| on_ours(events, move |db| ours::multi_node(db.pool, events, 500))),
    contender!("raw claim + done, tokio-postgres", POSTGRES, [Backlog], Some(RAW_CLAIM_DONE),
        |events| on_ours(events, move |db| raw_tokio_postgres::run(db.url, events, raw::CLAIM_DONE))),
    contender!(PLAIN_SCHEMA, POSTGRES, [Backlog, SchemaPart], Some(RAW_CLAIM_DONE),
        |events| loop_on(Schema::Plain, events, raw::PLAIN_CLAIM_DONE)),
    contender!(PLAIN_SCHEMA_BY_CREATION, POSTGRES, [Backlog, SchemaPart], Some(RAW_CLAIM_DONE),
        |events| loop_on(Schema::Plain, events, raw::PLAIN_CLAIM_DONE_BY_CREATION)),
    contender!(RAW_SELECT_DELETE, POSTGRES, [Backlog], None,
        |events| loop_on(Schema::Ours, events, raw::SELECT_DELETE)),
    contender!(SINGLE_DELETE, POSTGRES, [Backlog], Some(RAW_SELECT_DELETE),
        |events| on_ours(events, move |db| ours::single_node(db.pool, events, Some(500), Done::Delete))),

    contender!(GRAPHILE_ONE, PEERS, [Peers], Some(SINGLE), |events| peers::graphile_worker(events, 1, 5_000)),
    contender!(GRAPHILE_TWO, PEERS, [Peers], Some(SINGLE), |events| peers::graphile_worker(events, 2, 500)),
    contender!(RIVER_1_000, PEERS, [Peers], Some(SINGLE), |events| peers::riverqueue(events, 1_000)),
    contender!(RIVER_10_000, PEERS, [Peers], Some(SINGLE), |events| peers::riverqueue(events, 10_000)),

    contender!(SINGLE_SNAPSHOT, SNAPSHOT, [Snapshot], Some(SINGLE), |events| snapshot::single_node(events)),
    contender!(MULTI_SNAPSHOT, SNAPSHOT, [Snapshot], Some(MULTI), |events| snapshot::multi_node(events)),

    contender!("raw claim + done, fillfactor 50", SCHEMAS, [SchemaPart], Some(RAW_CLAIM_DONE),
        |events| loop_on(Schema::Fillfactor50, events, raw::CLAIM_DONE)),
    contender!("raw claim + done, fillfactor 70", SCHEMAS, [SchemaPart], Some(RAW_CLAIM_DONE),
        |events| loop_on(Schema::Fillfactor70, events, raw::CLAIM_DONE)),
    contender!("raw claim + done, the database's collation", SCHEMAS, [SchemaPart], Some(RAW_CLAIM_DONE),
        |events| loop_on(Schema::DefaultCollation, events, raw::CLAIM_DONE)),
    contender!("raw claim + done, ICU collation", SCHEMAS, [SchemaPart], Some(RAW_CLAIM_DONE),
        |events| loop_on(Schema::IcuCollation, events, raw::CLAIM_DONE)),

    contender!("raw claim + done, by event_id", STATEMENTS, [SchemaPart], Some(RAW_CLAIM_DONE),
        |events| loop_on(Schema::Ours, events, raw::CLAIM_BY_ID_DONE)),
    contender!("raw select + done, 50 per update", STATEMENTS, [SchemaPart], Some(RAW_SELECT_DONE),
        |events| loop_on(Schema::Ours, events, raw::Loop { settled_at_once: 50, ..raw::SELECT_DONE })),
    // A tenth of the backlog: each update waits for its own sync.
    contender!("raw select + done, 1 per update", STATEMENTS, [SchemaPart], Some(RAW_SELECT_DONE),
        |events| loop_on(Schema::Ours, events / 10, raw::Loop { settled_at_once: 1, ..raw::SELECT_DONE })),

    contender!(MARIADB_SELECT, MARIADB, [Mariadb], None, |events| mariadb::raw_select_done(events)),
    contender!(MARIADB_SINGLE, MARIADB, [Mariadb], Some(MARIADB_SELECT), |events| mariadb::single_node(events)),
    contender!(MARIADB_CLAIM, MARIADB, [Mariadb], None, |events| mariadb::raw_claim_done(events)),
    contender!(MARIADB_MULTI, MARIADB, [Mariadb], Some(MARIADB_CLAIM), |events| mariadb::multi_node(events)),

    contender!(SQLITE_SELECT, SQLITE, [Sqlite], None, |events| sqlite::raw_select_done(events)),
    contender!(SQLITE_SINGLE, SQLITE, [Sqlite], Some(SQLITE_SELECT), |events| sqlite::single_node(events)),

    contender!(RAW_PRODUCE, KAFKA, [Kafka], None, |events| kafka::raw_produce(events)),
    contender!(MULTI_KAFKA, KAFKA, [Kafka], Some(RAW_CLAIM_DONE),
        |events| on_ours(events, move |db| kafka::multi_node(db.pool, events))),

    contender!(RAW_CLIENT, HTTP, [Http], None, |events| http::raw_client(events, Server::AtOnce)),
    contender!(WEBHOOK, HTTP, [Http], Some(RAW_CLIENT), |events| http::handler(events)),
    contender!(SINGLE_HTTP, HTTP, [Http], Some(RAW_CLIENT),
        |events| on_ours(events, move |db| http::single_node(db.pool, events, Server::AtOnce))),
    contender!(SINGLE_HTTP_BATCHED, HTTP, [Http], Some(RAW_CLIENT),
        |events| on_ours(events, move |db| http::single_node_batched(db.pool, events))),
    // A quarter of the backlog: what takes time here is the server.
    contender!(RAW_CLIENT_AT_WORK, HTTP, [Http], None, |events| http::raw_client(events / 4, Server::AtWork)),
    contender!(SINGLE_HTTP_AT_WORK, HTTP, [Http], Some(RAW_CLIENT_AT_WORK),
        |events| on_ours(events / 4, move |db| http::single_node(db.pool, events / 4, Server::AtWork))),
];

/// What a contender is given of its database.
struct Place {
    pool: sqlx::PgPool,
    url: String,
}

async fn on_ours<F>(events: u32, drain: impl FnOnce(Place) -> F + Send) -> Result<Drained>
where
    F: Future<Output = Result<Drained>> + Send,
{
    let database = Fresh::create().await?;
    database.fill_ours(events, &[]).await?;
    let drained = drain(Place { pool: database.pool.clone(), url: database.url.clone() }).await?;
    database.drop().await?;
    Ok(drained)
}

async fn loop_on(schema: Schema, events: u32, by: raw::Loop) -> Result<Drained> {
    let database = Fresh::create().await?;
    schema::fill(&database, schema, events).await?;
    let drained = raw::run(&database.pool, events, by).await?;
    database.drop().await?;
    Ok(drained)
}
