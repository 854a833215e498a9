//! The queue's statements, with the database's words where they differ. Runs nothing.

use std::time::Duration;

use chrono::TimeDelta;

use super::words::Words;
use super::{KEY, Which};
use crate::TableName;
use crate::connection::Column;
use crate::database::rows::Rows;
use crate::database::statement::{Part, Parts, Plain, Statement};
use crate::database::{At, Database, delta};

/// Writes statements about the two tables.
#[derive(Debug, Clone, Copy)]
pub(super) struct Statements<'a> {
    pub(super) database: &'a Database,
    pub(super) words: &'static Words,
    pub(super) events: &'a TableName,
    pub(super) log: &'a TableName,
}

/// Rows that share what a settlement under their claims must name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) attempt: u32,
    pub(super) seq: i64,
    pub(super) ids: Vec<i64>,
}

/// What statements are made of.
impl<'a> Statements<'a> {
    /// A statement; `{events}` and `{log}` in it stand for the tables, and `{by_key}` for what makes it reach rows by their keys.
    pub(super) fn sql(&self, template: &str, parts: Parts<'_>) -> Statement {
        let (events, log) = (Plain(self.events.as_str()), Plain(self.log.as_str()));
        let by_key = Plain(self.database.dialect().by_key());
        let known: [(&str, &dyn Part); 3] = [("events", &events), ("log", &log), ("by_key", &by_key)];
        let parts: Vec<_> = known.iter().chain(parts).copied().collect();
        self.database.sql(template, &parts)
    }

    pub(super) fn now(self, at: At) -> impl Fn(&mut Statement) + Send + Sync + 'a {
        self.moment(at, TimeDelta::zero())
    }

    pub(super) fn before(self, at: At, span: Duration) -> impl Fn(&mut Statement) + Send + Sync + 'a {
        self.moment(at, -delta(span))
    }

    pub(super) fn moment(self, at: At, offset: TimeDelta) -> impl Fn(&mut Statement) + Send + Sync + 'a {
        move |statement| self.database.push_moment(statement, at, offset)
    }

    pub(super) fn one_of<'i>(self, ids: &'i [i64]) -> impl Fn(&mut Statement) + Send + Sync + use<'a, 'i> {
        move |statement| self.database.dialect().push_one_of_ints(statement, KEY, ids)
    }

    /// That a row was taken so long ago, and nobody has said since that it is being handled.
    pub(super) fn abandoned(self, at: At, timeout: Duration) -> impl Fn(&mut Statement) + Send + Sync + 'a {
        move |statement| {
            statement.write(
                "status = 'PROCESSING' and (processing_started_at < {then} \
                 or (processing_started_at is null and updated_at < {then}))",
                &[("then", &self.before(at, timeout))],
            );
        }
    }
}

/// Taking and holding.
impl<'a> Statements<'a> {
    /// Rows that can be taken, up to a limit.
    pub(super) fn eligible(self, which: Which<'a>, at: At, limit: u32) -> Rows<'a> {
        let indexes = &self.words.indexes;
        let (index, order) = match which {
            Which::Ready { .. } => (indexes.ready, "id"),
            // In the index's own order: a missing type is not taken for a constant everywhere.
            Which::OfType { .. } => (indexes.types, "event_type, id"),
            Which::Due => (indexes.later, "available_at, id"),
            Which::Abandoned(_) => (indexes.processing, "id"),
        };
        let condition = move |statement: &mut Statement| match which {
            Which::Ready { after } => {
                statement.push("status = 'PENDING' and available_at is null");
                push_behind(statement, after);
            }
            Which::OfType { event_type, after } => {
                statement.push("status = 'PENDING' and available_at is null and event_type");
                match event_type {
                    Some(event_type) => statement.push(" = ").bind(event_type),
                    None => statement.push(" is null"),
                };
                push_behind(statement, after);
            }
            Which::Due => {
                statement.write(
                    "status = 'PENDING' and available_at is not null and available_at <= {now}",
                    &[("now", &self.now(at))],
                );
            }
            Which::Abandoned(timeout) => self.abandoned(at, timeout)(statement),
        };
        rows(self.events, index, condition, Some((order, limit)))
    }

    /// Rows that are still held under these claims.
    pub(super) fn held(self, held: &'a Held) -> Rows<'a> {
        let condition = move |statement: &mut Statement| self.push_held(statement, held);
        rows(self.events, self.database.dialect().by_key(), condition, None)
    }

    pub(super) fn push_held(self, statement: &mut Statement, held: &Held) {
        statement.write(
            "status = 'PROCESSING' and attempts = {attempt} and claim_seq = {seq} and ",
            &[("attempt", &i64::from(held.attempt)), ("seq", &held.seq)],
        );
        self.one_of(&held.ids)(statement);
    }

    /// The first that can be taken of each kind, and when the next becomes due. Nothing is locked.
    pub(super) fn first_eligible(&self, at: At, timeout: Duration) -> Statement {
        let hint = |index: &str| Plain(self.events.hint(index));
        let indexes = &self.words.indexes;
        self.sql(
            "select (select id from {events}{ready} where status = 'PENDING' and available_at is null order by id limit 1), \
             (select id from {events}{later} where status = 'PENDING' and available_at is not null \
             and available_at <= {now} order by available_at, id limit 1), \
             (select min(id) from {events}{processing} where {abandoned})",
            &[
                ("ready", &hint(indexes.ready)),
                ("later", &hint(indexes.later)),
                ("processing", &hint(indexes.processing)),
                ("now", &self.now(at)),
                ("abandoned", &self.abandoned(at, timeout)),
            ],
        )
    }

    /// The moment of now, the next at which a row becomes due, and when the one was taken that is abandoned next.
    pub(super) fn ahead(&self, at: At) -> Statement {
        let hint = |index: &str| Plain(self.events.hint(index));
        self.sql(
            "select {now}, (select min(available_at) from {events}{later} where status = 'PENDING' \
             and available_at is not null), (select min(processing_started_at) from {events}{processing} \
             where status = 'PROCESSING')",
            &[
                ("now", &self.now(at)),
                ("later", &hint(self.words.indexes.later)),
                ("processing", &hint(self.words.indexes.processing)),
            ],
        )
    }

    /// The first type of rows that can be taken behind another, or the first of all.
    pub(super) fn next_type(&self, after: Option<&str>) -> Statement {
        let behind = |statement: &mut Statement| {
            match after {
                Some(after) => statement.push(" and event_type > ").bind(after),
                None => statement.push(" and event_type is not null"),
            };
        };
        self.sql(
            "select event_type from {events}{types} where status = 'PENDING' and available_at is null{behind} \
             order by event_type limit 1",
            &[("types", &Plain(self.events.hint(self.words.indexes.types))), ("behind", &behind)],
        )
    }
}

/// Rows of one condition, whose keys are numbers.
pub(super) fn rows<'a>(
    table: &'a TableName,
    index: &str,
    condition: impl Fn(&mut Statement) + Send + Sync + 'a,
    order: Option<(&'static str, u32)>,
) -> Rows<'a> {
    Rows {
        table,
        key: KEY,
        key_kind: Column::Int,
        hint: table.hint(index),
        conditions: vec![Box::new(condition)],
        order,
    }
}

fn push_behind(statement: &mut Statement, after: Option<i64>) {
    if let Some(after) = after {
        statement.push(" and id > ").bind(after);
    }
}
