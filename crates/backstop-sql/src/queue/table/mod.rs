//! The queue's two tables on any SQL database: `events` for what waits and runs, `event_log` for what has ended.

mod admin;
mod endings;
mod plans;
mod publish;
mod statements;
pub(crate) mod words;

use std::collections::BTreeMap;
use std::time::Duration;

use backstop_core::Timestamp;

use super::claim::{Claim, Row, read_event};
use crate::connection::{Column, Connection};
use crate::database::dialect::Explanation;
use crate::database::migration::Schema;
use crate::database::rows::{Change, ROWS_PER_STATEMENT};
use crate::database::statement::Plain;
use crate::database::{At, Database, Via, delta};
use crate::statement::{Statement, Value};
use crate::{Error, TableName};
use statements::{Held, Statements};
use words::Words;

pub(crate) use admin::{Census, Sampled};
pub use admin::{Filter, Found, Listed, Requeued, Status};
pub(crate) use endings::{Ending, Finish, PutBack};
pub(crate) use publish::New;

/// The column that holds the key, in both tables.
pub(super) const KEY: &str = "id";

const EVENTS_COLUMNS: [&str; 11] = [
    KEY,
    "event",
    "status",
    "attempts",
    "created_at",
    "updated_at",
    "processing_started_at",
    "available_at",
    "event_type",
    "claim_seq",
    "last_error",
];

const LOG_COLUMNS: [&str; 8] =
    [KEY, "payload", "status", "attempts", "created_at", "updated_at", "event_type", "error"];

/// The columns that hold moments, of each table.
const EVENTS_MOMENTS: [&str; 4] = ["created_at", "updated_at", "processing_started_at", "available_at"];
const LOG_MOMENTS: [&str; 2] = ["created_at", "updated_at"];

/// The tables of one queue. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Tables {
    database: Database,
    words: &'static Words,
    events: TableName,
    log: TableName,
}

/// Which rows are to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which<'a> {
    /// Those that wait for nothing, behind an id.
    Ready { after: Option<i64> },
    /// The same of one type; `None` is for rows that name none.
    OfType { event_type: Option<&'a str>, after: Option<i64> },
    /// Those that waited for a moment that has come.
    Due,
    /// Those that somebody took so long ago and did not finish.
    Abandoned(Duration),
}

/// How long it is until another row can be taken.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ahead {
    /// Because its moment has come.
    pub(crate) due: Option<Duration>,
    /// Because nobody has finished it by then.
    pub(crate) abandoned: Option<Duration>,
}

/// How often a row was taken, once it is taken now. Another program may have left anything there, and one such row must not
/// keep its batch from being taken.
const TAKEN_ONCE_MORE: &str = "case when attempts is null or attempts < 0 then 1 when attempts < 2147483647 \
     then attempts + 1 else 2147483647 end";

/// What a claimed row is read as.
const KINDS: [Column; 6] = [Column::Int, Column::Text, Column::Int, Column::Int, Column::Time, Column::Text];

impl Tables {
    pub(crate) fn new(database: Database, words: &'static Words, events: TableName, log: TableName) -> Self {
        Self { database, words, events, log }
    }

    /// The same tables, reached through a pooler that shares connections between transactions.
    pub(crate) fn behind_pooler(mut self) -> Self {
        self.database = self.database.behind_pooler();
        self
    }

    pub(crate) fn database(&self) -> &Database {
        &self.database
    }

    fn statements(&self) -> Statements<'_> {
        Statements { database: &self.database, words: self.words, events: &self.events, log: &self.log }
    }

    /// The schemas of two tables of these names.
    pub(crate) fn schemas(words: &Words, events: &TableName, log: &TableName) -> [Schema; 2] {
        [
            Schema { table: events.clone(), key: KEY, columns: &EVENTS_COLUMNS, migrations: words.events },
            Schema { table: log.clone(), key: KEY, columns: &LOG_COLUMNS, migrations: words.log },
        ]
    }

    /// Creates the tables, or brings them up to date.
    pub(crate) async fn migrate(&self) -> Result<(), Error> {
        // Before any index names a status that the column does not know.
        match self.check_statuses().await {
            Err(error) if !self.database.means(&error, Explanation::NoTable) => return Err(error),
            _ => {}
        }
        for schema in Self::schemas(self.words, &self.events, &self.log) {
            schema.migrate(&self.database).await?;
        }
        self.check_columns().await
    }

    /// Checks that the tables are there and up to date.
    pub(crate) async fn check(&self) -> Result<(), Error> {
        for schema in Self::schemas(self.words, &self.events, &self.log) {
            schema.check(&self.database).await?;
        }
        self.check_columns().await
    }

    async fn check_columns(&self) -> Result<(), Error> {
        let mut session = self.database.session(Via::Pool).await?;
        for (table, moments) in [(&self.events, &EVENTS_MOMENTS[..]), (&self.log, &LOG_MOMENTS[..])] {
            self.database.check_zone(&mut session, table, moments).await?;
        }
        drop(session);
        self.check_statuses().await
    }

    async fn check_statuses(&self) -> Result<(), Error> {
        let mut session = self.database.session(Via::Pool).await?;
        for table in [&self.events, &self.log] {
            self.check_status(&mut session, table).await?;
        }
        self.check_ids(&mut session).await
    }

    /// Checks that the id of an event in the log cannot come back as that of another.
    async fn check_ids(&self, connection: &mut dyn Connection) -> Result<(), Error> {
        let Some(question) = self.words.reuses_ids else { return Ok(()) };
        let mut statement = self.database.sql(question, &[]);
        statement.bind(self.events.as_str());
        match Value::texts(connection.fetch(&statement, &[Column::Text]).await?).pop() {
            Some(table) => Err(Error::ReusedIds { table }),
            None => Ok(()),
        }
    }

    /// Checks that the column `status` knows our names: it may be an enum of another program, or a number.
    async fn check_status(&self, connection: &mut dyn Connection, table: &TableName) -> Result<(), Error> {
        let odd = |said: String| Error::StatusColumn { table: table.to_string(), said };
        let names = "status in ('PENDING', 'PROCESSING', 'COMPLETED', 'FAILED')";
        let question = Statement::plain(&format!("select 1 from {table} where {names} and 1 = 0"));
        match connection.execute(&question).await {
            Err(Error::Database { source, .. })
                if source.as_database_error().is_some_and(|it| it.code().as_deref() == Some("22P02")) =>
            {
                return Err(odd(source.to_string()));
            }
            other => other?,
        };
        if let Some(question) = self.words.odd_status {
            let mut statement = self.database.sql(question, &[]);
            statement.bind(table.as_str());
            if let Some(found) = Value::texts(connection.fetch(&statement, &[Column::Text]).await?).pop() {
                return Err(odd(format!("it is of type {found}")));
            }
        }
        Ok(())
    }

    /// Errors get the words that help, and what takes too long is given up.
    pub(super) async fn in_time<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let done = self.database.in_time(work).await;
        done.map_err(|error| self.database.explain(&self.events, error))
    }
}

/// Taking and holding.
impl Tables {
    /// Takes rows: PROCESSING from now on, one attempt more. Rows that somebody else has locked are passed over.
    pub(crate) async fn claim(&self, which: Which<'_>, at: At, limit: u32) -> Result<Vec<Row>, Error> {
        self.in_time(async {
            let rows = self.statements().eligible(which, at, limit);
            let set = self.taking(at);
            let change = self.change_of_claim(&set);
            let claimed = self.database.change(Via::Pool, &rows, &change).await?;
            let mut claimed: Vec<_> = claimed.into_iter().map(to_row).collect();
            claimed.sort_by_key(|row| row.claim.id);
            Ok(claimed)
        })
        .await
    }

    /// What a claim writes into its rows.
    fn taking(&self, at: At) -> impl Fn(&mut Statement) + Sync + '_ {
        let now = self.statements().now(at);
        move |statement| {
            statement.write(
                "status = 'PROCESSING', attempts = {attempts}, claim_seq = claim_seq + 1, \
                 processing_started_at = {now}, updated_at = {now}",
                &[("attempts", &Plain(TAKEN_ONCE_MORE)), ("now", &now)],
            );
        }
    }

    fn change_of_claim<'a>(&self, set: &'a (dyn Fn(&mut Statement) + Sync)) -> Change<'a> {
        let event = self.database.dialect().json_as_text("event");
        Change {
            set,
            read: format!("id, {event}, attempts, claim_seq, created_at, event_type"),
            read_before: format!(
                // Signed and unsigned numbers together would make a decimal.
                "id, {event}, cast({TAKEN_ONCE_MORE} as signed), claim_seq + 1, created_at, event_type"
            ),
            kinds: &KINDS,
            choose: &|all| all,
            may_be_taken_back: true,
        }
    }

    /// Which kinds of rows can be taken, the one with the lowest id first.
    pub(crate) async fn eligible(&self, at: At, timeout: Duration) -> Result<Vec<Which<'static>>, Error> {
        self.in_time(async {
            let mut session = self.database.session(Via::Pool).await?;
            let rows =
                session.fetch(&self.statements().first_eligible(at, timeout), &[Column::Int; 3]).await?;
            let kinds = [Which::Ready { after: None }, Which::Due, Which::Abandoned(timeout)];
            let first = rows.into_iter().next().unwrap_or_default();
            let mut found: Vec<_> =
                first.iter().zip(kinds).filter_map(|(id, which)| Some((id.int()?, which))).collect();
            found.sort_by_key(|(id, _)| *id);
            Ok(found.into_iter().map(|(_, which)| which).collect())
        })
        .await
    }

    /// How long it is until another row can be taken, as far as that is known.
    pub(crate) async fn ahead(&self, at: At, timeout: Duration) -> Result<Ahead, Error> {
        self.in_time(async {
            let mut session = self.database.session(Via::Pool).await?;
            let rows = session.fetch(&self.statements().ahead(at), &[Column::Time; 3]).await?;
            let Some([Value::Time(Some(now)), due, taken]) = rows.first().map(Vec::as_slice) else {
                return Ok(Ahead::default());
            };
            let until = |moment: Timestamp| (moment - *now).to_std().unwrap_or_default();
            let abandoned = taken.time().map(|taken| until(taken + delta(timeout)));
            Ok(Ahead { due: due.time().map(until), abandoned })
        })
        .await
    }

    /// The types of rows that can be taken at once. Rows that name none are not among them.
    pub(crate) async fn ready_types(&self) -> Result<Vec<String>, Error> {
        self.in_time(async {
            let mut session = self.database.session(Via::Pool).await?;
            let mut types: Vec<String> = Vec::new();
            loop {
                let next = self.statements().next_type(types.last().map(String::as_str));
                match Value::texts(session.fetch(&next, &[Column::Text]).await?).pop() {
                    Some(event_type) => types.push(event_type),
                    None => return Ok(types),
                }
            }
        })
        .await
    }

    /// Says that rows are still being handled, and returns the ids of those that are still held under these claims.
    pub(crate) async fn renew(&self, at: At, claims: &[Claim]) -> Result<Vec<i64>, Error> {
        self.in_time(async {
            let renewed = self.renew_via(Via::Reserve, at, claims).await;
            match renewed {
                Err(error) if self.database.has_reserve() => {
                    tracing::debug!(%error, "cannot renew claims beside the pool");
                    self.renew_via(Via::Pool, at, claims).await
                }
                renewed => renewed,
            }
        })
        .await
    }

    async fn renew_via(&self, via: Via, at: At, claims: &[Claim]) -> Result<Vec<i64>, Error> {
        let now = self.statements().now(at);
        let set = |statement: &mut Statement| {
            statement.write("processing_started_at = {now}, updated_at = {now}", &[("now", &now)]);
        };
        let change = Change {
            set: &set,
            read: KEY.to_owned(),
            read_before: KEY.to_owned(),
            kinds: &[Column::Int],
            choose: &|all| all,
            may_be_taken_back: true,
        };
        let mut renewed = Vec::new();
        for held in held_together(claims.iter().copied()) {
            let rows = self.statements().held(&held);
            renewed.extend(Value::ints(&self.database.change(via, &rows, &change).await?));
        }
        Ok(renewed)
    }

    /// Which rows are still held under these claims, locked or not.
    pub(crate) async fn still_held(&self, claims: &[Claim]) -> Result<Vec<i64>, Error> {
        self.in_time(async {
            let mut session = self.database.session(Via::PoolOrReserve).await?;
            let mut found = Vec::new();
            for held in held_together(claims.iter().copied()) {
                let these = |statement: &mut Statement| self.statements().push_held(statement, &held);
                let statement =
                    self.statements().sql("select id from {events} where {these}", &[("these", &these)]);
                found.extend(Value::ints(&session.fetch(&statement, &[Column::Int]).await?));
            }
            Ok(found)
        })
        .await
    }
}

/// Claims that one statement can name, by what they share.
fn held_together(claims: impl Iterator<Item = Claim>) -> Vec<Held> {
    let mut groups: BTreeMap<(u32, i64), Vec<i64>> = BTreeMap::new();
    for Claim { id, attempt, seq } in claims {
        groups.entry((attempt, seq)).or_default().push(id);
    }
    let held = groups.into_iter().flat_map(|((attempt, seq), mut ids)| {
        // In one order, so that two statements cannot wait for each other.
        ids.sort_unstable();
        let chunks: Vec<_> = ids.chunks(ROWS_PER_STATEMENT).map(<[i64]>::to_vec).collect();
        chunks.into_iter().map(move |ids| Held { attempt, seq, ids })
    });
    held.collect()
}

fn to_row(mut values: Vec<Value>) -> Row {
    let created_at = values[4].time().unwrap_or_default();
    let unreadable = values.iter().find_map(|value| match value {
        Value::Unreadable(problem) => Some(format!("a column cannot be read: {problem}")),
        _ => None,
    });
    let id = values[0].int().unwrap_or_default();
    let text = match std::mem::replace(&mut values[1], Value::Text(None)) {
        Value::Text(text) => text,
        _ => None,
    };
    Row {
        claim: Claim { id, attempt: count(&values[2]), seq: values[3].int().unwrap_or_default() },
        created_at,
        has_type: values[5].text().is_some(),
        event: unreadable.map_or_else(|| read_event(id, text, created_at), Err),
    }
}

fn count(value: &Value) -> u32 {
    value.int().and_then(|number| u32::try_from(number).ok()).unwrap_or_default()
}

/// A moment that a row holds, or the beginning of time.
fn moment(value: &Value) -> Timestamp {
    value.time().unwrap_or_default()
}
