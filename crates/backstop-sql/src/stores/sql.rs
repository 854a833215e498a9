//! The store on any SQL database: the statements they share, with the dialect's words where they differ.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use backstop_core::Event;
use backstop_core::codec::{Codec, Json};
use backstop_core::delivery::Settlement;
use backstop_core::inspect::{Count, Troubled};
use chrono::TimeDelta;

use super::row::{self, int};
use super::{ClaimQuestion, Dialect, Explanation, Supported};
use crate::connection::{Connection, Connections, Kind};
use crate::statement::{Statement, Value};
use crate::store::{
    After, At, Born, Census, Claim, DeadEvent, DeadFilter, Due, Order, Purgeable, Row, Settle, Status, Store,
};
use crate::{BoxFuture, Error, TableName, migration};

/// Longer error texts are cut: a stack trace must not blow up the row.
const MAX_ERROR_CHARS: usize = 4_000;

/// How many rows one statement names, well below what any database allows as bound values.
const ROWS_PER_STATEMENT: usize = 500;

/// An outbox table on a SQL database.
///
/// [`Outbox`](crate::Outbox) makes its own; by itself it serves tools and tests that look at the table.
///
/// ```
/// use backstop_sql::store::{SqlStore, Store};
/// use backstop_sql::TableName;
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// # let directory = backstop_testkit::servers::directory();
/// # let pool = backstop_sql::sqlite::open(directory.file("orders.db")).await?;
/// let store = SqlStore::on(pool, TableName::default());
/// store.migrate().await?;
/// assert_eq!(store.census(1_000).await?.waiting.events, 0);
/// # Ok::<(), backstop_sql::Error>(()) }).unwrap();
/// ```
pub struct SqlStore {
    dialect: &'static dyn Dialect,
    connections: Arc<dyn Connections>,
    table: TableName,
}

impl SqlStore {
    /// A table of that name on the pool's database.
    pub fn on<DB: Supported>(pool: sqlx::Pool<DB>, table: TableName) -> Self {
        Self::new(DB::dialect(), DB::connections(pool), table)
    }

    pub(crate) fn new(dialect: &'static dyn Dialect, connections: Arc<dyn Connections>, table: TableName) -> Self {
        Self { dialect, connections, table }
    }

    fn statement(&self, text: &str) -> Statement {
        let mut statement = Statement::new(self.dialect.marks());
        statement.push(&text.replace("{table}", self.table.as_str()));
        statement
    }

    fn moment(&self, statement: &mut Statement, at: At) {
        self.dialect.moment(statement, at, TimeDelta::zero());
    }

    fn moment_after(&self, statement: &mut Statement, at: At, span: Duration) {
        self.dialect.moment(statement, at, delta(span));
    }

    fn moment_before(&self, statement: &mut Statement, at: At, span: Duration) {
        self.dialect.moment(statement, at, -delta(span));
    }

    /// Gives a driver's error the words that help.
    fn explain(&self, error: Error) -> Error {
        let Error::Database { source, .. } = &error else { return error };
        match self.dialect.explain(source) {
            Some(Explanation::NoTable) => Error::NoTable { table: self.table.to_string() },
            Some(Explanation::NotPermitted) => {
                Error::NotPermitted { table: self.table.to_string(), said: source.to_string() }
            }
            None => error,
        }
    }

    async fn connection(&self) -> Result<Box<dyn Connection + '_>, Error> {
        self.connections.connection().await
    }

    async fn execute(&self, connection: &mut dyn Connection, statement: &Statement) -> Result<u64, Error> {
        connection.execute(statement).await.map_err(|error| self.explain(error))
    }

    async fn fetch(
        &self,
        connection: &mut dyn Connection,
        statement: &Statement,
        columns: &[Kind],
    ) -> Result<Vec<Vec<Value>>, Error> {
        connection.fetch(statement, columns).await.map_err(|error| self.explain(error))
    }

    fn insert_statement(&self, events: &[Event], born: Option<&Born>) -> Statement {
        let mut statement = self.statement(
            "insert into {table} (event_id, event_type, aggregate_type, aggregate_id, tenant_id, payload, headers, \
             status, attempts, available_at, created_at",
        );
        if born.is_some() {
            statement.push(", locked_by, locked_at");
        }
        statement.push(") values ").list(events, |statement, event| {
            // NULL for "no headers", as others write it too. A map of strings always has a JSON form.
            let headers = (!event.headers().is_empty()).then(|| Json.write(event.headers()).unwrap_or_default());
            statement.push("(").bind(event.id()).push(", ").bind(event.event_type());
            statement.push(", ").bind(event.aggregate_type()).push(", ").bind(event.aggregate_id());
            statement.push(", ").bind(event.tenant_id()).push(", ");
            self.dialect.bind_json(statement, event.payload_json().into());
            statement.push(", ");
            self.dialect.bind_json(statement, Value::Text(headers));
            statement.push(", 0, 0, ").bind(event.available_at().unwrap_or(event.occurred_at()));
            statement.push(", ").bind(event.occurred_at());
            if let Some(born) = born {
                statement.push(", ").bind(&*born.owner).push(", ");
                self.moment_before(statement, At::Database, born.age);
            }
            statement.push(")");
        });
        statement
    }

    /// `where` the row may still be settled under its claim: terminal rows are final.
    fn push_settleable(&self, statement: &mut Statement, settles: &[&Settle]) {
        statement.push(" where status not in (1, 3) and ");
        match settles.first().and_then(|settle| settle.claim.as_ref()) {
            None => {
                push_ids(statement, settles.iter().map(|settle| settle.id.as_str()));
            }
            Some(claim) => {
                let claimed = |settle: &&&Settle| settle.claim.as_ref().map(|claim| claim.seq);
                let pairs: Vec<_> =
                    settles.iter().filter_map(|settle| Some((settle.id.as_str(), claimed(&settle)?))).collect();
                statement.push("locked_by = ").bind(&*claim.owner).push(" and (event_id, claim_seq) in ");
                self.dialect.pairs(statement, &pairs);
            }
        }
    }

    fn done_statement(&self, at: At, settles: &[&Settle]) -> Statement {
        let mut statement = self.statement("update {table} set status = 1, done_at = ");
        self.moment(&mut statement, at);
        statement.push(", locked_by = null, locked_at = null");
        self.push_settleable(&mut statement, settles);
        statement
    }

    fn settle_statement(&self, at: At, settle: &Settle) -> Statement {
        let mut statement = self.statement("update {table} set ");
        match &settle.settlement {
            Settlement::Done => return self.done_statement(at, &[settle]),
            Settlement::Deferred { after } => {
                statement.push("status = 0, available_at = ");
                self.moment_after(&mut statement, at, *after);
            }
            Settlement::Retry { after, error } => {
                statement.push("status = 2, attempts = attempts + 1, available_at = ");
                self.moment_after(&mut statement, at, *after);
                statement.push(", last_error = ").bind(cut(error));
            }
            Settlement::Dead { error } => {
                // When it died is recorded, so that a purge counts its age from then on.
                statement.push("status = 3, last_error = ").bind(cut(error)).push(", done_at = ");
                self.moment(&mut statement, at);
            }
        }
        statement.push(", locked_by = null, locked_at = null");
        self.push_settleable(&mut statement, &[settle]);
        statement
    }

    async fn count(&self, connection: &mut dyn Connection, status: Status, cap: u32) -> Result<Count, Error> {
        let mut statement = self.statement("select count(*) from (select 1 from {table} where status = ");
        statement.bind(status as i64).push(" limit ").bind(i64::from(cap)).push(") as counted");
        Ok(Count::up_to(cap.into(), self.fetch_count(connection, &statement).await?))
    }

    async fn fetch_count(&self, connection: &mut dyn Connection, statement: &Statement) -> Result<u64, Error> {
        let rows = self.fetch(connection, statement, &[Kind::Int]).await?;
        Ok(rows.first().and_then(|row| int(&row[0])).unwrap_or_default().unsigned_abs())
    }
}

impl Store for SqlStore {
    fn migrate(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async {
            let mut connection = self.connection().await?;
            let migrated = migration::migrate(self.dialect, &mut *connection, &self.table).await;
            migrated.map_err(|error| self.explain(error))
        })
    }

    fn check(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async {
            let mut connection = self.connection().await?;
            let checked = migration::check(self.dialect, &mut *connection, &self.table).await;
            checked.map_err(|error| self.explain(error))
        })
    }

    fn insert<'a>(
        &'a self,
        connection: &'a mut dyn Connection,
        events: &'a [Event],
        born: Option<&'a Born>,
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            for events in events.chunks(ROWS_PER_STATEMENT) {
                self.execute(connection, &self.insert_statement(events, born)).await?;
            }
            Ok(())
        })
    }

    fn poll(&self, due: Due) -> BoxFuture<'_, Result<Vec<Row>, Error>> {
        Box::pin(async move {
            let mut statement = self.statement(&format!("select {} from {{table}}", row::columns(self.dialect)));
            due_rows(self.dialect, &mut statement, due, None);
            let mut connection = self.connection().await?;
            Ok(row::in_order(self.fetch(&mut *connection, &statement, &row::KINDS).await?, None))
        })
    }

    fn claim<'a>(
        &'a self,
        owner: &'a Arc<str>,
        timeout: Duration,
        due: Due,
    ) -> BoxFuture<'a, Result<Vec<Row>, Error>> {
        Box::pin(async move {
            let question = ClaimQuestion { table: &self.table, owner, timeout, due };
            let mut connection = self.connection().await?;
            let claimed = self.dialect.claim(&mut *connection, question).await;
            Ok(row::in_order(claimed.map_err(|error| self.explain(error))?, Some(owner)))
        })
    }

    fn release<'a>(&'a self, rows: &'a [(String, Claim)]) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(async move {
            let mut connection = self.connection().await?;
            let mut released = 0;
            for rows in rows.chunks(ROWS_PER_STATEMENT) {
                let Some((_, Claim { owner, .. })) = rows.first() else { break };
                let pairs: Vec<_> = rows.iter().map(|(id, claim)| (id.as_str(), claim.seq)).collect();
                let mut statement =
                    self.statement("update {table} set locked_by = null, locked_at = null where locked_by = ");
                statement.bind(&**owner).push(" and (event_id, claim_seq) in ");
                self.dialect.pairs(&mut statement, &pairs);
                released += self.execute(&mut *connection, &statement).await?;
            }
            Ok(released)
        })
    }

    fn settle<'a>(&'a self, at: At, settles: &'a [Settle]) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(async move {
            let (done, others): (Vec<_>, Vec<_>) =
                settles.iter().partition(|settle| settle.settlement == Settlement::Done);
            let (claimed, unclaimed): (Vec<_>, Vec<_>) =
                done.into_iter().partition(|settle| settle.claim.is_some());
            let mut connection = self.connection().await?;
            let mut settled = 0;
            for settles in claimed.chunks(ROWS_PER_STATEMENT).chain(unclaimed.chunks(ROWS_PER_STATEMENT)) {
                settled += self.execute(&mut *connection, &self.done_statement(at, settles)).await?;
            }
            for settle in others {
                settled += self.execute(&mut *connection, &self.settle_statement(at, settle)).await?;
            }
            Ok(settled)
        })
    }

    fn census(&self, cap: u32) -> BoxFuture<'_, Result<Census, Error>> {
        Box::pin(async move {
            let mut connection = self.connection().await?;
            Ok(Census {
                waiting: self.count(&mut *connection, Status::New, cap).await?,
                retrying: self.count(&mut *connection, Status::Retry, cap).await?,
                dead: self.count(&mut *connection, Status::Dead, cap).await?,
                done: self.count(&mut *connection, Status::Done, cap).await?,
            })
        })
    }

    fn troubled(&self, limit: u32) -> BoxFuture<'_, Result<Vec<Troubled>, Error>> {
        Box::pin(async move {
            let mut connection = self.connection().await?;
            let mut troubled = Vec::new();
            for (status, place) in [(Status::Dead, "dead"), (Status::Retry, "retrying")] {
                let mut statement =
                    self.statement(&format!("select {} from {{table}} where status = ", row::TROUBLED));
                statement.bind(status as i64).push(" order by available_at desc limit ").bind(i64::from(limit));
                let rows = self.fetch(&mut *connection, &statement, &row::TROUBLED_KINDS).await?;
                troubled.extend(rows.iter().map(|row| row::to_troubled(row, status, place)));
            }
            troubled.truncate(limit as usize);
            Ok(troubled)
        })
    }

    fn query_dead<'a>(
        &'a self,
        filter: &'a DeadFilter,
        after: Option<&'a After>,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<DeadEvent>, Error>> {
        Box::pin(async move {
            let columns = row::columns(self.dialect);
            let mut statement = self.statement(&format!("select {columns}, {} from {{table}}", row::ENDING));
            push_dead(&mut statement, filter);
            if let Some(After { created_at, id }) = after {
                statement.push(" and (created_at > ").bind(*created_at);
                statement.push(" or (created_at = ").bind(*created_at).push(" and event_id > ");
                statement.bind(id.as_str()).push("))");
            }
            statement.push(" order by created_at, event_id limit ").bind(i64::from(limit));
            let mut connection = self.connection().await?;
            let kinds: Vec<_> = row::KINDS.into_iter().chain(row::ENDING_KINDS).collect();
            let rows = self.fetch(&mut *connection, &statement, &kinds).await?;
            Ok(rows.iter().map(|row| row::to_dead(row)).collect())
        })
    }

    fn count_dead<'a>(&'a self, filter: &'a DeadFilter) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(async move {
            let mut statement = self.statement("select count(*) from {table}");
            push_dead(&mut statement, filter);
            let mut connection = self.connection().await?;
            self.fetch_count(&mut *connection, &statement).await
        })
    }

    fn replay_dead<'a>(&'a self, at: At, ids: &'a [String]) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(async move {
            let mut connection = self.connection().await?;
            let mut replayed = 0;
            for ids in ids.chunks(ROWS_PER_STATEMENT) {
                let mut statement = self.statement(
                    "update {table} set status = 0, attempts = 0, last_error = null, done_at = null, \
                     locked_by = null, locked_at = null, available_at = ",
                );
                self.moment(&mut statement, at);
                statement.push(" where status = 3 and ");
                push_ids(&mut statement, ids.iter().map(String::as_str));
                replayed += self.execute(&mut *connection, &statement).await?;
            }
            Ok(replayed)
        })
    }

    fn purge<'a>(
        &'a self,
        connection: &'a mut dyn Connection,
        what: Purgeable,
        at: At,
        age: Duration,
        limit: u32,
    ) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(async move {
            let mut condition = |statement: &mut Statement| match what {
                Purgeable::Any => {
                    statement.push(" where created_at < ");
                    self.moment_before(statement, at, age);
                }
                Purgeable::Ended => {
                    statement.push(" where status in (1, 3) and (done_at < ");
                    self.moment_before(statement, at, age);
                    statement.push(" or (done_at is null and created_at < ");
                    self.moment_before(statement, at, age);
                    statement.push("))");
                }
            };
            let statement = self.dialect.delete_some(&self.table, &mut condition, limit);
            self.execute(connection, &statement).await
        })
    }
}

impl fmt::Debug for SqlStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlStore").field("dialect", &self.dialect).field("table", &self.table).finish()
    }
}

/// Adds `where` rows are due, in the order they are wanted, up to the limit. A claim leaves those out that
/// somebody else holds; one is forgotten when it is older than its time-out.
pub(crate) fn due_rows(
    dialect: &dyn Dialect,
    statement: &mut Statement,
    due: Due,
    claim_timeout: Option<Duration>,
) {
    statement.push(" where status in (0, 2) and available_at <= ");
    dialect.moment(statement, due.at, TimeDelta::zero());
    if !due.skip_recent.is_zero() {
        statement.push(" and created_at <= ");
        dialect.moment(statement, due.at, -delta(due.skip_recent));
    }
    if let Some(timeout) = claim_timeout {
        statement.push(" and (locked_by is null or locked_at < ");
        dialect.moment(statement, due.at, -delta(timeout));
        statement.push(")");
    }
    statement.push(match due.order {
        Order::Due => " order by available_at, created_at, event_id limit ",
        Order::Created => " order by created_at, event_id limit ",
    });
    statement.bind(i64::from(due.limit));
}

/// Adds `where` rows are dead and match.
fn push_dead(statement: &mut Statement, filter: &DeadFilter) {
    statement.push(" where status = 3");
    let texts = [
        ("event_type", &filter.event_type),
        ("aggregate_type", &filter.aggregate_type),
        ("aggregate_id", &filter.aggregate_id),
    ];
    for (column, value) in texts {
        if let Some(value) = value {
            statement.push(&format!(" and {column} = ")).bind(value.as_str());
        }
    }
    if let Some(from) = filter.created_from {
        statement.push(" and created_at >= ").bind(from);
    }
    if let Some(before) = filter.created_before {
        statement.push(" and created_at < ").bind(before);
    }
    if let Some(ids) = &filter.ids {
        statement.push(" and ");
        push_ids(statement, ids.iter().map(String::as_str));
    }
}

fn push_ids<'a>(statement: &mut Statement, ids: impl ExactSizeIterator<Item = &'a str>) {
    if ids.len() == 0 {
        statement.push("1 = 0"); // `in ()` is no SQL
        return;
    }
    statement.push("event_id in (").list(ids, |statement, id| {
        statement.bind(id);
    });
    statement.push(")");
}

/// A span longer than any table's life is as good as for ever.
fn delta(span: Duration) -> TimeDelta {
    const LONGEST: TimeDelta = TimeDelta::days(365 * 100);
    TimeDelta::from_std(span).map_or(LONGEST, |span| span.min(LONGEST))
}

/// The text in at most [`MAX_ERROR_CHARS`] characters, with a mark where it was cut. NUL, which a text
/// column may refuse, becomes visible.
fn cut(error: &str) -> String {
    let error = error.replace('\0', "␀");
    match error.char_indices().nth(MAX_ERROR_CHARS) {
        None => error,
        Some(_) => error.chars().take(MAX_ERROR_CHARS - 3).chain("...".chars()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rules: O-268.
    #[test]
    fn errors_are_cut_at_4000_characters_with_a_mark_and_never_inside_one() {
        assert_eq!(cut("short"), "short");
        let exact = "é".repeat(4_000);
        assert_eq!(cut(&exact), exact);
        let long = cut(&"é".repeat(4_001));
        assert_eq!(long.chars().count(), 4_000);
        assert!(long.ends_with("é..."));
    }
}
