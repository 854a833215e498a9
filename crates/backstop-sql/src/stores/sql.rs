//! The store on any SQL database: the statements they share, with the dialect's words where they differ.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use backstop_core::codec::{Codec, Json};
use backstop_core::delivery::Settlement;
use backstop_core::event::{GLOBAL, Stored};
use backstop_core::inspect::{Count, Troubled};
use backstop_core::{Event, Timestamp};
use chrono::TimeDelta;

use super::Dialect;
use crate::connection::{Connection, Connections, Kind};
use crate::statement::{Statement, Value};
use crate::store::{At, Census, Claim, Due, Row, Settle, Status, Store};
use crate::{BoxFuture, Error, TableName, migration};

/// Longer error texts are cut: a stack trace must not blow up the row.
const MAX_ERROR_CHARS: usize = 4_000;

/// How many rows one statement names, well below what any database allows as bound values.
const ROWS_PER_STATEMENT: usize = 500;

/// An outbox table on a SQL database.
pub(crate) struct SqlStore {
    dialect: &'static dyn Dialect,
    connections: Arc<dyn Connections>,
    table: TableName,
}

impl SqlStore {
    pub(crate) fn new(
        dialect: &'static dyn Dialect,
        connections: Arc<dyn Connections>,
        table: TableName,
    ) -> Self {
        Self { dialect, connections, table }
    }

    fn statement(&self, text: &str) -> Statement {
        let mut statement = Statement::new(self.dialect.marks());
        statement.push(&text.replace("{table}", self.table.as_str()));
        statement
    }

    fn moment(&self, statement: &mut Statement, at: At) {
        self.moment_offset(statement, at, TimeDelta::zero());
    }

    fn moment_offset(&self, statement: &mut Statement, at: At, offset: TimeDelta) {
        self.dialect.moment(statement, at, offset);
    }

    /// `where` the rows are due, without what a claim adds.
    fn push_due(&self, statement: &mut Statement, due: Due) {
        statement.push(" where status in (0, 2) and available_at <= ");
        self.moment(statement, due.at);
        if !due.skip_recent.is_zero() {
            statement.push(" and created_at <= ");
            self.moment_offset(statement, due.at, -delta(due.skip_recent));
        }
    }

    /// `where` the row may still be settled under its claim: terminal rows are final.
    fn push_settleable(&self, statement: &mut Statement, settles: &[&Settle]) {
        statement.push(" where status not in (1, 3)");
        match settles.first().and_then(|settle| settle.claim.as_ref()) {
            None => {
                statement.push(" and event_id in (");
                statement.list(settles, |statement, settle| {
                    statement.bind(settle.id.as_str());
                });
                statement.push(")");
            }
            Some(claim) => {
                let pairs: Vec<_> = settles
                    .iter()
                    .filter_map(|settle| Some((settle.id.as_str(), settle.claim.as_ref()?.seq)))
                    .collect();
                statement
                    .push(" and locked_by = ")
                    .bind(&*claim.owner)
                    .push(" and (event_id, claim_seq) in ");
                self.dialect.pairs(statement, &pairs);
            }
        }
    }

    async fn settle_done(
        &self,
        connection: &mut dyn Connection,
        at: At,
        settles: &[&Settle],
    ) -> Result<u64, Error> {
        let mut statement = self.statement("update {table} set status = 1, done_at = ");
        self.moment(&mut statement, at);
        statement.push(", locked_by = null, locked_at = null");
        self.push_settleable(&mut statement, settles);
        connection.execute(&statement).await
    }

    async fn settle_one(
        &self,
        connection: &mut dyn Connection,
        at: At,
        settle: &Settle,
    ) -> Result<u64, Error> {
        let mut statement = self.statement("update {table} set ");
        match &settle.settlement {
            Settlement::Done => return self.settle_done(connection, at, &[settle]).await,
            Settlement::Deferred { after } => {
                statement.push("status = 0, available_at = ");
                self.moment_offset(&mut statement, at, delta(*after));
            }
            Settlement::Retry { after, error } => {
                statement.push("status = 2, attempts = attempts + 1, available_at = ");
                self.moment_offset(&mut statement, at, delta(*after));
                statement.push(", last_error = ").bind(cut(error));
            }
            Settlement::Dead { error } => {
                statement.push("status = 3, last_error = ").bind(cut(error)).push(", done_at = ");
                self.moment(&mut statement, at);
            }
        }
        statement.push(", locked_by = null, locked_at = null");
        self.push_settleable(&mut statement, &[settle]);
        connection.execute(&statement).await
    }

    async fn count(&self, connection: &mut dyn Connection, status: Status, cap: u32) -> Result<Count, Error> {
        let mut statement = self.statement("select count(*) from (select 1 from {table} where status = ");
        statement.bind(status as i64).push(" limit ").bind(i64::from(cap)).push(") as counted");
        let rows = connection.fetch(&statement, &[Kind::Int]).await?;
        let counted = rows.first().and_then(|row| row.first()).and_then(int).unwrap_or_default();
        Ok(Count::up_to(cap.into(), counted.unsigned_abs()))
    }
}

/// The columns of a due row, in the order that [`to_row`] reads them.
const ROW: &str = "event_id, event_type, aggregate_type, aggregate_id, tenant_id, payload, headers, attempts, \
                   created_at, available_at, claim_seq";
const ROW_KINDS: [Kind; 11] = [
    Kind::Text,
    Kind::Text,
    Kind::Text,
    Kind::Text,
    Kind::Text,
    Kind::Text,
    Kind::Text,
    Kind::Int,
    Kind::Time,
    Kind::Time,
    Kind::Int,
];

impl Store for SqlStore {
    fn migrate(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async {
            let mut connection = self.connections.connection().await?;
            migration::migrate(self.dialect, &mut *connection, &self.table).await
        })
    }

    fn insert<'a>(
        &'a self,
        connection: &'a mut dyn Connection,
        events: &'a [Event],
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            for events in events.chunks(ROWS_PER_STATEMENT) {
                let mut statement = self.statement(
                    "insert into {table} (event_id, event_type, aggregate_type, aggregate_id, tenant_id, payload, \
                     headers, status, attempts, available_at, created_at) values ",
                );
                statement.list(events, |statement, event| {
                    statement.push("(").list(values_of(event), |statement, value| {
                        statement.bind(value);
                    });
                    statement.push(")");
                });
                connection.execute(&statement).await?;
            }
            Ok(())
        })
    }

    fn poll(&self, due: Due) -> BoxFuture<'_, Result<Vec<Row>, Error>> {
        Box::pin(async move {
            let mut statement = self.statement(&format!("select {ROW} from {{table}}"));
            self.push_due(&mut statement, due);
            statement.push(" order by available_at, created_at, event_id limit ").bind(i64::from(due.limit));
            let mut connection = self.connections.connection().await?;
            Ok(in_order(connection.fetch(&statement, &ROW_KINDS).await?, None))
        })
    }

    fn claim<'a>(
        &'a self,
        owner: &'a Arc<str>,
        timeout: Duration,
        due: Due,
    ) -> BoxFuture<'a, Result<Vec<Row>, Error>> {
        Box::pin(async move {
            let mut statement = self.statement("update {table} set locked_by = ");
            statement.bind(&**owner).push(", locked_at = ");
            self.moment(&mut statement, due.at);
            statement.push(", claim_seq = claim_seq + 1 where event_id in (select event_id from ");
            statement.push(self.table.as_str());
            self.push_due(&mut statement, due);
            statement.push(" and (locked_by is null or locked_at < ");
            self.moment_offset(&mut statement, due.at, -delta(timeout));
            statement.push(") order by available_at, created_at, event_id limit ").bind(i64::from(due.limit));
            statement.push(&format!(") returning {ROW}"));
            let mut connection = self.connections.connection().await?;
            Ok(in_order(connection.fetch(&statement, &ROW_KINDS).await?, Some(owner)))
        })
    }

    fn release<'a>(&'a self, rows: &'a [(String, Claim)]) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(async move {
            let mut connection = self.connections.connection().await?;
            let mut released = 0;
            for rows in rows.chunks(ROWS_PER_STATEMENT) {
                let Some((_, Claim { owner, .. })) = rows.first() else { break };
                let pairs: Vec<_> = rows.iter().map(|(id, claim)| (id.as_str(), claim.seq)).collect();
                let mut statement = self
                    .statement("update {table} set locked_by = null, locked_at = null where locked_by = ");
                statement.bind(&**owner).push(" and (event_id, claim_seq) in ");
                self.dialect.pairs(&mut statement, &pairs);
                released += connection.execute(&statement).await?;
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
            let mut connection = self.connections.connection().await?;
            let mut settled = 0;
            for settles in claimed.chunks(ROWS_PER_STATEMENT).chain(unclaimed.chunks(ROWS_PER_STATEMENT)) {
                settled += self.settle_done(&mut *connection, at, settles).await?;
            }
            for settle in others {
                settled += self.settle_one(&mut *connection, at, settle).await?;
            }
            Ok(settled)
        })
    }

    fn census(&self, cap: u32) -> BoxFuture<'_, Result<Census, Error>> {
        Box::pin(async move {
            let mut connection = self.connections.connection().await?;
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
            let mut connection = self.connections.connection().await?;
            let mut troubled = Vec::new();
            for (status, place) in [(Status::Dead, "dead"), (Status::Retry, "retrying")] {
                let mut statement = self.statement(
                    "select event_id, event_type, aggregate_type, aggregate_id, attempts, last_error, created_at, \
                     available_at from {table} where status = ",
                );
                statement
                    .bind(status as i64)
                    .push(" order by available_at desc limit ")
                    .bind(i64::from(limit));
                let kinds = [
                    Kind::Text,
                    Kind::Text,
                    Kind::Text,
                    Kind::Text,
                    Kind::Int,
                    Kind::Text,
                    Kind::Time,
                    Kind::Time,
                ];
                let rows = connection.fetch(&statement, &kinds).await?;
                troubled.extend(rows.iter().map(|row| to_troubled(row, status, place)));
            }
            troubled.truncate(limit as usize);
            Ok(troubled)
        })
    }
}

impl fmt::Debug for SqlStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlStore").field("dialect", &self.dialect).field("table", &self.table).finish()
    }
}

/// The values of an inserted row, in the order of its columns.
fn values_of(event: &Event) -> [Value; 11] {
    // NULL for "no headers", like the tables that others write. A map of strings always has a JSON form.
    let headers = (!event.headers().is_empty()).then(|| Json.write(event.headers()).unwrap_or_default());
    [
        event.id().into(),
        event.event_type().into(),
        event.aggregate_type().into(),
        event.aggregate_id().into(),
        event.tenant_id().into(),
        event.payload_json().into(),
        Value::Text(headers),
        (Status::New as i64).into(),
        0.into(),
        event.available_at().unwrap_or(event.occurred_at()).into(),
        event.occurred_at().into(),
    ]
}

/// Due rows are chosen by when they are due, and handed on in the order they were created.
fn in_order(rows: Vec<Vec<Value>>, owner: Option<&Arc<str>>) -> Vec<Row> {
    let mut rows: Vec<_> = rows.into_iter().map(|row| (time(&row[8]), to_row(row, owner))).collect();
    rows.sort_by(|(a_time, a), (b_time, b)| (a_time, &a.id).cmp(&(b_time, &b.id)));
    rows.into_iter().map(|(_, row)| row).collect()
}

fn to_row(values: Vec<Value>, owner: Option<&Arc<str>>) -> Row {
    let claim = owner.map(|owner| Claim { owner: owner.clone(), seq: int(&values[10]).unwrap_or_default() });
    Row {
        id: text(&values[0]).unwrap_or_default(),
        attempts: int(&values[7]).and_then(|attempts| u32::try_from(attempts).ok()).unwrap_or_default(),
        claim,
        event: to_event(&values),
    }
}

fn to_event(values: &[Value]) -> Result<Event, String> {
    if let Some(problem) = values.iter().find_map(|value| match value {
        Value::Unreadable(problem) => Some(problem),
        _ => None,
    }) {
        return Err(format!("a column cannot be read: {problem}"));
    }
    let required =
        |index: usize, column: &str| text(&values[index]).ok_or_else(|| format!("{column} is NULL"));
    let headers = Json
        .parse_string_map(text(&values[6]).as_deref())
        .map_err(|error| format!("headers are not a map of strings: {error}"))?;
    Ok(Event::restore(Stored {
        id: required(0, "event_id")?,
        event_type: required(1, "event_type")?,
        occurred_at: time(&values[8]).ok_or("created_at is NULL")?,
        aggregate_type: text(&values[2]),
        aggregate_id: text(&values[3]),
        tenant_id: text(&values[4]),
        headers,
        payload_json: required(5, "payload")?,
        available_at: time(&values[9]),
    }))
}

fn to_troubled(row: &[Value], status: Status, place: &'static str) -> Troubled {
    let attempts = int(&row[4]).and_then(|attempts| u32::try_from(attempts).ok()).unwrap_or_default();
    Troubled {
        id: text(&row[0]).unwrap_or_default(),
        event_type: text(&row[1]).unwrap_or_default(),
        aggregate_type: text(&row[2]).unwrap_or_else(|| GLOBAL.to_owned()),
        aggregate_id: text(&row[3]),
        place,
        // The failure that buries is not counted in the column.
        tries: if status == Status::Dead { attempts + 1 } else { attempts },
        error: text(&row[5]),
        occurred_at: time(&row[6]).unwrap_or_default(),
        next_try_at: time(&row[7]).filter(|_| status == Status::Retry),
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::Text(text) => text.clone(),
        _ => None,
    }
}

fn int(value: &Value) -> Option<i64> {
    match value {
        Value::Int(number) => *number,
        _ => None,
    }
}

fn time(value: &Value) -> Option<Timestamp> {
    match value {
        Value::Time(moment) => *moment,
        _ => None,
    }
}

/// A span longer than any table's life is as good as for ever.
fn delta(span: Duration) -> TimeDelta {
    const LONGEST: TimeDelta = TimeDelta::days(365_000);
    TimeDelta::from_std(span).map_or(LONGEST, |span| span.min(LONGEST))
}

/// The text in at most [`MAX_ERROR_CHARS`] characters, with a mark where it was cut.
fn cut(error: &str) -> String {
    match error.char_indices().nth(MAX_ERROR_CHARS) {
        None => error.to_owned(),
        Some(_) => error.chars().take(MAX_ERROR_CHARS - 3).chain("...".chars()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
