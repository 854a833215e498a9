//! What operators ask of the tables and do to them: counts, lists, one event, requeues and the purge.

use std::fmt;
use std::time::Duration;

use backstop_core::inspect::Count;
use backstop_core::{Clock, Event, SystemClock, Timestamp};

use super::statements::rows;
use super::{Tables, count, moment};
use crate::Error;
use crate::connection::{Column, Connection};
use crate::database::rows::{Move, ROWS_PER_STATEMENT};
use crate::database::statement::{Part, Plain, Statement, Value};
use crate::database::{At, Via};
use crate::queue::claim::read_event;

/// Where an event stands. The names are those that the tables hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// It waits in `events`.
    Pending,
    /// It is being handled, or its worker has died.
    Processing,
    /// It was handled, and is in `event_log`.
    Completed,
    /// It was given up, and is in `event_log` with the reason.
    Failed,
}

impl Status {
    /// All of them, in the order of an event's life.
    pub const ALL: [Self; 4] = [Self::Pending, Self::Processing, Self::Completed, Self::Failed];

    /// The name, as the tables hold it.
    ///
    /// ```
    /// assert_eq!(backstop_sql::queue::Status::Pending.name(), "PENDING");
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Processing => "PROCESSING",
            Self::Completed => "COMPLETED",
            Self::Failed => "FAILED",
        }
    }

    /// The status of that name.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }

    /// Whether events of that status are in `event_log`.
    pub fn has_ended(self) -> bool {
        matches!(self, Self::Completed | Self::Failed)
    }

    /// That a row has the status. Part of the text, so that a partial index is known to hold it.
    fn condition(self) -> &'static str {
        match self {
            Self::Pending => "status = 'PENDING'",
            Self::Processing => "status = 'PROCESSING'",
            Self::Completed => "status = 'COMPLETED'",
            Self::Failed => "status = 'FAILED'",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Which events are meant. What is not given does not matter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Filter {
    /// Of this type.
    pub event_type: Option<String>,
    /// Whose error contains this text.
    pub error_contains: Option<String>,
    /// Published at this moment or later.
    pub created_from: Option<Timestamp>,
    /// Published before this moment.
    pub created_before: Option<Timestamp>,
    /// Behind this id.
    pub after: Option<i64>,
    /// One of these.
    pub ids: Option<Vec<i64>>,
}

/// An event in one of the tables, without its payload.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listed {
    /// The number of its row.
    pub id: i64,
    /// Its type, if its row names it.
    pub event_type: Option<String>,
    /// Where it stands.
    pub status: Status,
    /// How often it was taken.
    pub attempts: u32,
    /// When it was published.
    pub created_at: Timestamp,
    /// When its row was last changed; in the log, when it ended.
    pub updated_at: Timestamp,
    /// Since when it is being handled.
    pub processing_started_at: Option<Timestamp>,
    /// Before when it is not taken.
    pub available_at: Option<Timestamp>,
    /// What went wrong last.
    pub error: Option<String>,
}

/// An event in one of the tables, with all that is known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Found {
    /// What its row says.
    pub listed: Listed,
    /// The event, or why its row cannot be read.
    pub event: Result<Event, String>,
    /// When the database was asked, by its clock.
    pub asked_at: Timestamp,
}

/// How many events are where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Census {
    pub(crate) pending: Count,
    pub(crate) processing: Count,
    pub(crate) stuck: Count,
    pub(crate) completed: Count,
    pub(crate) failed: Count,
    /// How long ago the oldest was published that could be taken.
    pub(crate) oldest: Option<Duration>,
}

/// How many events of one type wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sampled {
    pub(crate) event_type: Option<String>,
    pub(crate) waiting: u64,
    pub(crate) oldest: Option<Timestamp>,
}

/// What happened to events that an operator wants to be handled again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Requeued {
    /// Those that were PROCESSING.
    pub processing: u64,
    /// Those that had FAILED, and are back from the log.
    pub failed: u64,
}

const LISTED_KINDS: [Column; 9] = [
    Column::Int,
    Column::Text,
    Column::Text,
    Column::Int,
    Column::Time,
    Column::Time,
    Column::Time,
    Column::Time,
    Column::Text,
];

/// The columns of a list, in either table.
fn listed_columns(ended: bool) -> &'static str {
    if ended {
        "id, event_type, status, attempts, created_at, updated_at, null, null, error"
    } else {
        "id, event_type, status, attempts, created_at, updated_at, processing_started_at, available_at, last_error"
    }
}

fn to_listed(row: &[Value]) -> Listed {
    Listed {
        id: row[0].int().unwrap_or_default(),
        event_type: row[1].text().map(str::to_owned),
        status: row[2].text().and_then(Status::of).unwrap_or(Status::Pending),
        attempts: count(&row[3]),
        created_at: moment(&row[4]),
        updated_at: moment(&row[5]),
        processing_started_at: row[6].time(),
        available_at: row[7].time(),
        error: row[8].text().map(str::to_owned),
    }
}

/// Looking.
impl Tables {
    /// How many events are where, counted up to a cap.
    pub(crate) async fn census(&self, at: At, timeout: Duration, cap: u32) -> Result<Census, Error> {
        self.in_time(async {
            let mut session = self.database.session(Via::Pool).await?;
            let mut counts = Vec::new();
            let abandoned = self.statements().abandoned(at, timeout);
            let of = |status: Status| Plain(status.condition());
            let [pending, processing, completed, failed] = Status::ALL.map(of);
            let conditions: [(&str, &(dyn Part + Sync)); 5] = [
                ("{events}", &pending),
                ("{events}", &processing),
                ("{events}", &abandoned),
                ("{log}", &completed),
                ("{log}", &failed),
            ];
            for (table, condition) in conditions {
                let template =
                    "select count(*) from (select 1 from TABLE where {these} limit {cap}) as counted";
                let statement = self.statements().sql(
                    &template.replace("TABLE", table),
                    &[("these", condition), ("cap", &i64::from(cap))],
                );
                let events = self.database.fetch_count(&mut session, &statement).await?;
                counts.push(Count::up_to(cap.into(), events));
            }
            let oldest = self.oldest(&mut session, at).await?;
            let [pending, processing, stuck, completed, failed] = counts[..] else {
                return Err(Error::State("a count is missing"));
            };
            Ok(Census { pending, processing, stuck, completed, failed, oldest })
        })
        .await
    }

    /// How long ago the first event was published that could be taken. Ids grow with publication, nearly.
    async fn oldest(&self, connection: &mut dyn Connection, at: At) -> Result<Option<Duration>, Error> {
        let hint = |index: &str| Plain(self.events.hint(index));
        let indexes = &self.words.indexes;
        let statement = self.statements().sql(
            "select {now}, (select created_at from {events}{ready} where status = 'PENDING' and available_at is null \
             order by id limit 1), (select created_at from {events}{later} where status = 'PENDING' \
             and available_at is not null and available_at <= {now} order by available_at, id limit 1)",
            &[
                ("now", &self.statements().now(at)),
                ("ready", &hint(indexes.ready)),
                ("later", &hint(indexes.later)),
            ],
        );
        let rows = connection.fetch(&statement, &[Column::Time; 3]).await?;
        let Some([Value::Time(Some(now)), first @ ..]) = rows.first().map(Vec::as_slice) else {
            return Ok(None);
        };
        let oldest = first.iter().filter_map(Value::time).min();
        Ok(oldest.map(|oldest| (*now - oldest).to_std().unwrap_or_default()))
    }

    /// How many events of each type wait, and since when, counted up to a cap.
    pub(crate) async fn sample(&self, cap: u32) -> Result<Vec<Sampled>, Error> {
        self.in_time(async {
            let statement = self.statements().sql(
                "select event_type, count(*), min(created_at) from (select event_type, created_at from {events} \
                 where status = 'PENDING' limit {cap}) as sampled group by event_type order by event_type",
                &[("cap", &i64::from(cap))],
            );
            let mut session = self.database.session(Via::Pool).await?;
            let rows = session.fetch(&statement, &[Column::Text, Column::Int, Column::Time]).await?;
            let sampled = |row: &Vec<Value>| Sampled {
                event_type: row[0].text().map(str::to_owned),
                waiting: row[1].int().unwrap_or_default().unsigned_abs(),
                oldest: row[2].time(),
            };
            Ok(rows.iter().map(sampled).collect())
        })
        .await
    }

    /// Events of a status, by id.
    pub(crate) async fn list(
        &self,
        status: Status,
        filter: &Filter,
        limit: u32,
    ) -> Result<Vec<Listed>, Error> {
        self.in_time(async {
            let these = |statement: &mut Statement| {
                statement.push(status.condition());
                self.push_filter(statement, status.has_ended(), filter);
            };
            self.listed(status, &these, limit).await
        })
        .await
    }

    /// PROCESSING events that nobody has said to be handled for so long.
    pub(crate) async fn stuck(&self, at: At, timeout: Duration, limit: u32) -> Result<Vec<Listed>, Error> {
        self.in_time(async {
            self.listed(Status::Processing, &self.statements().abandoned(at, timeout), limit).await
        })
        .await
    }

    async fn listed(
        &self,
        status: Status,
        these: &(dyn Fn(&mut Statement) + Sync),
        limit: u32,
    ) -> Result<Vec<Listed>, Error> {
        let (table, ended) = (if status.has_ended() { "{log}" } else { "{events}" }, status.has_ended());
        let hint =
            if status == Status::Failed { self.log.hint(self.words.indexes.failed) } else { String::new() };
        let statement = self.statements().sql(
            &format!("select {{columns}} from {table}{{hint}} where {{these}} order by id limit {{limit}}"),
            &[
                ("columns", &Plain(listed_columns(ended))),
                ("hint", &Plain(hint)),
                ("these", &these),
                ("limit", &i64::from(limit)),
            ],
        );
        let rows = self.database.session(Via::Pool).await?.fetch(&statement, &LISTED_KINDS).await?;
        Ok(rows.iter().map(|row| to_listed(row)).collect())
    }

    fn push_filter(&self, statement: &mut Statement, ended: bool, filter: &Filter) {
        let Filter { event_type, error_contains, created_from, created_before, after, ids } = filter;
        if let Some(event_type) = event_type {
            statement.push(" and event_type = ").bind(event_type.as_str());
        }
        if let Some(text) = error_contains {
            let column = if ended { "error" } else { "last_error" };
            let place_of = self.database.dialect().place_of();
            statement.push(&format!(" and {place_of}({column}, ")).bind(text.as_str()).push(") > 0");
        }
        if let Some(from) = created_from {
            statement.push(" and created_at >= ").bind(*from);
        }
        if let Some(before) = created_before {
            statement.push(" and created_at < ").bind(*before);
        }
        if let Some(after) = after {
            statement.push(" and id > ").bind(*after);
        }
        if let Some(ids) = ids {
            statement.push(" and ");
            self.statements().one_of(ids)(statement);
        }
    }

    /// The event of that id, wherever it is.
    pub(crate) async fn find(&self, at: At, id: i64) -> Result<Option<Found>, Error> {
        self.in_time(async {
            let mut session = self.database.session(Via::Pool).await?;
            // First where it waits: it may be moved between the two questions, and never comes back by itself.
            for (table, column, ended) in [
                ("{events}", self.database.dialect().json_as_text("event"), false),
                ("{log}", "payload".to_owned(), true),
            ] {
                let statement = self.statements().sql(
                    &format!("select {{columns}}, {column}, {{now}} from {table} where id = {{id}}"),
                    &[
                        ("columns", &Plain(listed_columns(ended))),
                        ("now", &self.statements().now(at)),
                        ("id", &id),
                    ],
                );
                let kinds: Vec<_> = LISTED_KINDS.into_iter().chain([Column::Text, Column::Time]).collect();
                let rows = session.fetch(&statement, &kinds).await?;
                if let Some(row) = rows.first() {
                    let listed = to_listed(row);
                    let text = row[9].text().map(str::to_owned);
                    let event = match &row[9] {
                        Value::Unreadable(problem) => Err(format!("a column cannot be read: {problem}")),
                        _ => read_event(id, text, listed.created_at),
                    };
                    return Ok(Some(Found { listed, event, asked_at: moment(&row[10]) }));
                }
            }
            Ok(None)
        })
        .await
    }
}

const QUEUED: &str = "id, event, status, attempts, created_at, updated_at, event_type, last_error, claim_seq";

/// Changing.
impl Tables {
    /// Sets events back to PENDING: those that are PROCESSING, if they are abandoned or `force` is given, and those that
    /// FAILED, which come back from the log with no attempts used. Their claims are worth nothing from then on.
    pub(crate) async fn requeue(
        &self,
        at: At,
        timeout: Duration,
        force: bool,
        ids: &[i64],
    ) -> Result<Requeued, Error> {
        let mut requeued = Requeued::default();
        for ids in ids.chunks(ROWS_PER_STATEMENT) {
            let (processing, failed) =
                self.in_time(async { self.requeue_some(at, timeout, force, ids).await }).await?;
            requeued.processing += processing;
            requeued.failed += failed;
        }
        Ok(requeued)
    }

    async fn requeue_some(
        &self,
        at: At,
        timeout: Duration,
        force: bool,
        ids: &[i64],
    ) -> Result<(u64, u64), Error> {
        let (statements, dialect) = (self.statements(), self.database.dialect());
        let at = dialect.once(at);
        let held = |statement: &mut Statement| {
            if force {
                statement.push(Status::Processing.condition());
            } else {
                statements.abandoned(at, timeout)(statement);
            }
        };
        let set_back = statements.sql(
            "update {events}{by_key} set status = 'PENDING', processing_started_at = null, updated_at = {now}, \
             available_at = null where {held} and {these}",
            &[("now", &statements.now(at)), ("held", &held), ("these", &statements.one_of(ids))],
        );
        let mut session = self.database.session(Via::Pool).await?;
        let processing = self.database.execute_alone(&mut session, &set_back).await?;
        drop(session);
        let failed = |statement: &mut Statement| {
            statement.push(Status::Failed.condition()).push(" and ");
            statements.one_of(ids)(statement);
        };
        let rows = rows(&self.log, dialect.by_key(), failed, None);
        let now = statements.now(at);
        // The log does not know how often the row was taken. Counted from the clock on, no claim is like one that a worker may
        // still believe to have from before.
        let seq = SystemClock.now().timestamp_micros();
        let made_of = |statement: &mut Statement| {
            statement.write(
                "id, {event}, 'PENDING', 0, created_at, {now}, event_type, error, {seq}",
                &[("event", &Plain(dialect.text_as_json("payload"))), ("now", &now), ("seq", &seq)],
            );
        };
        let moving = Move { to: &self.events, columns: QUEUED, made_of: &made_of };
        let failed = self.database.move_rows(Via::Pool, &rows, &moving).await?.len() as u64;
        Ok((processing, failed))
    }

    /// Deletes events of the log that ended so long ago, at most `limit`, and returns how many.
    pub(crate) async fn purge(
        &self,
        connection: &mut dyn Connection,
        at: At,
        age: Duration,
        limit: u32,
    ) -> Result<u64, Error> {
        self.in_time(async {
            let statements = self.statements();
            let old = move |statement: &mut Statement| {
                statement.write("updated_at < {then}", &[("then", &statements.before(at, age))]);
            };
            let order = Some(("updated_at, id", limit));
            let mut rows = rows(&self.log, self.words.indexes.ended, old, order);
            let mut session = self.database.within(connection);
            self.database.dialect().delete(&mut session, &mut rows).await
        })
        .await
    }

    /// Which of these events are in the log, each with how often it had been taken.
    pub(crate) async fn ended(&self, ids: &[i64]) -> Result<Vec<(i64, u32)>, Error> {
        self.in_time(async {
            let mut session = self.database.session(Via::PoolOrReserve).await?;
            let mut ended = Vec::new();
            for ids in ids.chunks(ROWS_PER_STATEMENT) {
                let statement = self.statements().sql(
                    "select id, attempts from {log} where {these}",
                    &[("these", &self.statements().one_of(ids))],
                );
                for row in session.fetch(&statement, &[Column::Int; 2]).await? {
                    ended.push((row[0].int().unwrap_or_default(), count(&row[1])));
                }
            }
            Ok(ended)
        })
        .await
    }
}
