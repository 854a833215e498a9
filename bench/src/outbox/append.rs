//! What an append costs its transaction, against an insert of the same columns by hand.

use std::time::Instant;

use anyhow::Result;
use backstop_core::event::next_id;
use backstop_core::{Clock, Event, SystemClock};
use backstop_sql::Outbox;
use sqlx::{Executor, PgPool, Postgres};

use crate::postgres::Fresh;
use crate::report::{Report, Unit, median};

/// Transactions of one kind in a row; then it is the next one's turn.
const BLOCK: usize = 200;

/// How often each has its turn in a round.
const TURNS: usize = 15;

const GROUP: &str = "a transaction with one event or many, one connection";
pub(super) const OURS: &str = "append in a transaction of the outbox's";
pub(super) const FOREIGN: &str = "append in a transaction of one's own";
pub(super) const PLAIN: &str = "plain insert in a transaction";
pub(super) const OURS_FIRST: &str = "append, then `select 1`";
pub(super) const PLAIN_FIRST: &str = "plain insert, then `select 1`";
const OURS_UNPAIRED: &str = "append in a transaction of the outbox's, no index by types";
const MANY: &str = "100 appended at once";
const MANY_UNPAIRED: &str = "100 appended at once, no index by types";

/// Each with what it is compared with.
const CONTENDERS: [(&str, Option<&str>); 8] = [
    (PLAIN, None),
    (FOREIGN, Some(PLAIN)),
    (OURS, Some(PLAIN)),
    (OURS_UNPAIRED, Some(OURS)),
    (PLAIN_FIRST, None),
    (OURS_FIRST, Some(PLAIN_FIRST)),
    (MANY, None),
    (MANY_UNPAIRED, Some(MANY)),
];

/// The table without the index by types, through which held routes are passed over.
const UNPAIRED: &str = "unpaired";
const UNPAIR: &str = "drop index idx_unpaired_pair";

const INSERT: &str = "insert into outbox_event (event_id, event_type, aggregate_type, aggregate_id, tenant_id, \
     payload, headers, status, attempts, available_at, created_at) \
     values ($1, $2, $3, $4, $5, $6::json, $7::json, 0, 0, $8, $9)";

pub(super) async fn measure(round: usize, report: &mut Report) -> Result<()> {
    let database = Fresh::create().await?;
    let outbox = Outbox::writer_only(database.pool.clone()).start().await?;
    let unpaired = Outbox::writer_only(database.pool.clone()).table(UNPAIRED).start().await?;
    database.pool.execute(UNPAIR).await?;
    let tables = Tables { pool: &database.pool, outbox: &outbox, unpaired: &unpaired };
    let payload = serde_json::json!({ "order": 1_000_000, "text": "x".repeat(170) }).to_string();
    let mut took = CONTENDERS.map(|_| Vec::new());
    // The first turn opens connections and prepares statements; it does not count.
    for turn in 0..=TURNS {
        for ((name, _), took) in CONTENDERS.iter().zip(&mut took) {
            for _ in 0..BLOCK {
                let one = tables.transaction(name, &payload).await?;
                took.extend((turn > 0).then_some(one));
            }
        }
    }
    outbox.close().await?;
    unpaired.close().await?;
    database.drop().await?;
    for ((name, against), took) in CONTENDERS.iter().zip(&took) {
        let took = median(took);
        eprintln!("round {round}: {name}: {took:.3} ms");
        report.add(GROUP, name, Unit::Milliseconds, *against, took);
    }
    Ok(())
}

/// Where to append.
struct Tables<'a> {
    pool: &'a PgPool,
    outbox: &'a Outbox<Postgres>,
    unpaired: &'a Outbox<Postgres>,
}

impl Tables<'_> {
    /// Milliseconds of one transaction, from its beginning to its commit.
    async fn transaction(&self, name: &str, payload: &str) -> Result<f64> {
        let start = Instant::now();
        match name {
            OURS | OURS_FIRST => append(self.outbox, payload, name == OURS_FIRST).await?,
            OURS_UNPAIRED => append(self.unpaired, payload, false).await?,
            MANY => append_many(self.outbox, payload).await?,
            MANY_UNPAIRED => append_many(self.unpaired, payload).await?,
            FOREIGN => append_to_ones_own(self.pool, self.outbox, payload).await?,
            _ => insert(self.pool, payload, name == PLAIN_FIRST).await?,
        }
        Ok(start.elapsed().as_secs_f64() * 1e3)
    }
}

fn event(payload: &str) -> Result<Event> {
    Ok(Event::of("OrderPlaced").aggregate("Order", "1000000").payload_json(payload).build()?)
}

/// After a statement that follows the append, the commit asks for what the transaction holds.
async fn append(outbox: &Outbox<Postgres>, payload: &str, then_asked: bool) -> Result<()> {
    let mut tx = outbox.begin().await?;
    tx.append(event(payload)?).await?;
    if then_asked {
        sqlx::query("select 1").execute(&mut *tx).await?;
    }
    Ok(tx.commit().await?)
}

async fn append_many(outbox: &Outbox<Postgres>, payload: &str) -> Result<()> {
    let mut tx = outbox.begin().await?;
    tx.append_all((0..100).map(|_| event(payload)).collect::<Result<Vec<_>>>()?).await?;
    Ok(tx.commit().await?)
}

/// The same in a transaction that the outbox does not ask for what it holds.
async fn append_to_ones_own(pool: &PgPool, outbox: &Outbox<Postgres>, payload: &str) -> Result<()> {
    let mut tx = pool.begin().await?;
    let appended = outbox.writer().append(&mut tx, event(payload)?).await?;
    tx.commit().await?;
    appended.committed();
    Ok(())
}

async fn insert(pool: &PgPool, payload: &str, then_asked: bool) -> Result<()> {
    let now = SystemClock.now();
    let mut tx = pool.begin().await?;
    sqlx::query(INSERT)
        .bind(next_id())
        .bind("OrderPlaced")
        .bind("Order")
        .bind("1000000")
        .bind(None::<String>)
        .bind(payload)
        .bind(None::<String>)
        .bind(now)
        .bind(now)
        .execute(&mut *tx)
        .await?;
    if then_asked {
        sqlx::query("select 1").execute(&mut *tx).await?;
    }
    Ok(tx.commit().await?)
}
