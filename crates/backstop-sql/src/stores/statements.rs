//! The statements that all databases share, with the dialect's words where they differ.

use std::time::Duration;

use backstop_core::{Event, Timestamp};
use chrono::TimeDelta;

use super::alike::{Alike, Ending, Fence, cut};
use super::{Dialect, Index, row};
use crate::statement::{Statement, Value};
use crate::store::{After, At, Born, Claim, DeadFilter, Done, Due, Order, Purgeable, Status, Unreadable};
use crate::{TableName, TimeZone};

/// Writes statements about one table in one dialect. Runs nothing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Statements<'a> {
    pub(crate) dialect: &'a dyn Dialect,
    pub(crate) table: &'a TableName,
    pub(crate) done: Done,
    pub(crate) zone: TimeZone,
}

impl Statements<'_> {
    /// A statement that begins with the text; `{table}` in it stands for the table's name.
    pub(crate) fn begin(&self, text: &str) -> Statement {
        let mut statement = Statement::new(self.dialect.marks());
        statement.push(&text.replace("{table}", self.table.as_str()));
        statement
    }

    pub(crate) fn moment(&self, statement: &mut Statement, at: At) {
        self.dialect.moment(statement, at, self.zone.ahead_of(at));
    }

    fn moment_before(&self, statement: &mut Statement, at: At, span: Duration) {
        self.dialect.moment(statement, at, self.zone.ahead_of(at) - delta(span));
    }

    /// Adds the moment `at` plus, for each of the rows, a delay of its own.
    fn own_moment(&self, statement: &mut Statement, at: At, ids: &[&str], delays: &[TimeDelta]) {
        let offsets: Vec<_> = delays.iter().map(|delay| self.zone.ahead_of(at) + *delay).collect();
        self.dialect.own_moment(statement, at, ids, &offsets);
    }

    /// Adds the earlier of a moment and `at` plus `offset`.
    fn not_after(
        &self,
        statement: &mut Statement,
        moment: impl FnOnce(&mut Statement),
        at: At,
        offset: TimeDelta,
    ) {
        statement.push(self.dialect.earlier()).push("(");
        moment(statement);
        statement.push(", ");
        self.dialect.moment(statement, at, self.zone.ahead_of(at) + offset);
        statement.push(")");
    }

    /// Adds that a row which becomes due at `at` or later was created by then: one that was written by a clock that is
    /// ahead, elsewhere or by an older version, is not put off until then, nor due before it was created.
    fn push_created_by(&self, statement: &mut Statement, at: At) {
        statement.push(", created_at = ");
        let created_at = |statement: &mut Statement| {
            statement.push(self.dialect.own_created_at());
        };
        self.not_after(statement, created_at, at, TimeDelta::zero());
    }

    /// Inserts events, each with the text of its headers. What happened later than now, by the clock of a writer that
    /// is ahead, is created now.
    pub(super) fn insert(&self, events: &[(&Event, Option<String>)], born: Option<&Born>) -> Statement {
        let now = self.dialect.once(At::Database);
        let mut statement = self.begin(
            "insert into {table} (event_id, event_type, aggregate_type, aggregate_id, tenant_id, payload, headers, \
             status, attempts, available_at, created_at",
        );
        if born.is_some() {
            statement.push(", locked_by, locked_at");
        }
        statement.push(") values ").list(events.iter().zip(0..), |statement, ((event, headers), place)| {
            statement.push("(").bind(event.id()).push(", ").bind(event.event_type());
            statement.push(", ").bind(event.aggregate_type()).push(", ").bind(event.aggregate_id());
            statement.push(", ").bind(event.tenant_id()).push(", ");
            self.dialect.bind_json(statement, event.payload_json().into());
            statement.push(", ");
            self.dialect.bind_json(statement, Value::Text(headers.clone()));
            statement.push(", 0, 0, ");
            // Those of one statement stay in their order, whatever their ids are.
            let created_at = |statement: &mut Statement| {
                let occurred_at = |statement: &mut Statement| {
                    statement.bind(event.occurred_at());
                };
                self.not_after(statement, occurred_at, now, TimeDelta::microseconds(place));
            };
            match event.available_at().filter(|_| event.is_delayed()) {
                Some(moment) => {
                    statement.bind(moment);
                }
                None => created_at(statement),
            }
            statement.push(", ");
            created_at(statement);
            match born {
                // Nobody delivers a delayed event from memory, so it is nobody's yet.
                Some(_) if event.is_delayed() => {
                    statement.push(", null, null");
                }
                Some(born) => {
                    statement.push(", ").bind(&*born.owner).push(", ");
                    self.moment_before(statement, At::Database, born.age);
                }
                None => {}
            }
            statement.push(")");
        });
        statement
    }

    /// Reads due rows.
    pub(super) fn poll(&self, due: Due<'_>) -> Statement {
        let mut statement = self.begin("");
        self.push_due(&mut statement, &row::columns(self.dialect, "claim_seq"), due, None, "");
        statement
    }

    /// Adds a query for due rows, in the order they are wanted, up to the limit. A claim leaves those out
    /// that somebody holds; a claim is forgotten when it is older than its time-out.
    ///
    /// Where no index gives the order over all conditions of [`Dialect::pending`], it is one query for each
    /// of them, and [`row::choose`] chooses from what they return.
    pub(crate) fn push_due(
        &self,
        statement: &mut Statement,
        columns: &str,
        due: Due<'_>,
        claim_timeout: Option<Duration>,
        lock: &str,
    ) {
        self.push_due_where(statement, columns, due, lock, |statement| {
            if let Some(timeout) = claim_timeout {
                statement.push(" and (locked_by is null or locked_at < ");
                self.moment_before(statement, due.at, timeout);
                statement.push(")");
            }
        });
    }

    /// [`push_due`](Self::push_due) of rows for which more is true.
    fn push_due_where(
        &self,
        statement: &mut Statement,
        columns: &str,
        due: Due<'_>,
        lock: &str,
        more: impl Fn(&mut Statement),
    ) {
        let (index, order) = match due.order {
            Order::Due => (Index::Due, "available_at, created_at, event_id"),
            Order::Created => (Index::DueCreated, "created_at, event_id"),
        };
        let from = format!("{}{}", self.table, self.dialect.hint(self.table, index));
        let conditions = self.dialect.pending();
        let (open, close) = if conditions.len() > 1 { ("(", ")") } else { ("", "") };
        for (index, condition) in conditions.iter().enumerate() {
            statement.push(if index > 0 { " union all " } else { "" });
            statement.push(&format!("{open}select {columns} from {from} where {condition}"));
            statement.push(" and available_at <= ");
            self.moment(statement, due.at);
            if let (Some(place), Order::Due) = (due.after, due.order) {
                statement.push(" and ");
                self.dialect.push_behind(statement, place);
            }
            if !due.skip_recent.is_zero() {
                statement.push(" and created_at <= ");
                self.moment_before(statement, due.at, due.skip_recent);
            }
            more(statement);
            statement.push(&format!(" order by {order} limit "));
            statement.bind(i64::from(due.limit)).push(lock).push(close);
        }
    }

    /// A statement that changes rows by their ids: the columns follow, then [`push_ids`](Dialect::push_ids).
    pub(crate) fn update(&self, columns: &str) -> Statement {
        let mut statement = self.begin("update {table}");
        statement.push(self.dialect.by_key()).push(" set ").push(columns);
        statement
    }

    /// Settles rows as done that were delivered under the same claim, or under none.
    fn done(&self, at: At, alike: &Alike<'_>) -> Statement {
        if self.done == Done::Delete {
            let mut statement = self.begin(&self.dialect.delete_by_key(self.table));
            self.push_where_settleable(&mut statement, alike);
            return statement;
        }
        let mut statement = self.update("status = 1, done_at = ");
        self.moment(&mut statement, at);
        self.push_settleable(&mut statement, alike);
        statement
    }

    /// Settles rows that end alike, each with its own delay and error.
    pub(super) fn settle(&self, at: At, alike: &Alike<'_>) -> Statement {
        let Alike { ids, delays, errors, .. } = alike;
        let at = self.dialect.once(at);
        let mut statement = self.update("");
        match alike.ending {
            Ending::Done => return self.done(at, alike),
            Ending::Deferred => {
                statement.push("status = 0, available_at = ");
                self.own_moment(&mut statement, at, ids, delays);
                self.push_created_by(&mut statement, at);
            }
            Ending::Retry => {
                statement.push("status = 2, attempts = attempts + 1, available_at = ");
                self.own_moment(&mut statement, at, ids, delays);
                self.push_created_by(&mut statement, at);
                statement.push(", last_error = ");
                self.dialect.own_text(&mut statement, ids, errors);
            }
            Ending::Dead => {
                // When it died is recorded, so that a purge counts its age from then on.
                statement.push("status = 3, last_error = ");
                self.dialect.own_text(&mut statement, ids, errors);
                statement.push(", done_at = ");
                self.moment(&mut statement, at);
            }
        }
        self.push_settleable(&mut statement, alike);
        statement
    }

    /// The ids of those rows that a settlement would still change.
    pub(super) fn unsettled(&self, alike: &Alike<'_>) -> Statement {
        let mut statement = self.begin("select event_id from {table}");
        self.push_where_settleable(&mut statement, alike);
        statement
    }

    /// Ends a settlement: the claim ends with it, and terminal rows are final.
    fn push_settleable(&self, statement: &mut Statement, alike: &Alike<'_>) {
        statement.push(", locked_by = null, locked_at = null");
        self.push_where_settleable(statement, alike);
    }

    /// `where` the rows may still be settled: terminal rows are final, and a row that is not as it was when its event
    /// was delivered is somebody else's.
    fn push_where_settleable(&self, statement: &mut Statement, alike: &Alike<'_>) {
        statement.push(" where status not in (1, 3) and ");
        match alike.fence {
            Fence::Pending => {}
            Fence::Generation(generation) => {
                statement.push("claim_seq = ").bind(generation).push(" and ");
            }
            Fence::Claim(claim) => push_claimed(statement, claim),
        }
        self.dialect.push_ids(statement, &alike.ids);
        if let (Ending::Retry, Some(attempts)) = (alike.ending, alike.attempts) {
            statement.push(" and attempts = ").bind(i64::from(attempts));
        }
    }

    /// Buries a row whose id is not text.
    pub(super) fn bury_by_key(&self, at: At, row: &Unreadable, key: &[u8]) -> Statement {
        let mut statement = self.update("status = 3, last_error = ");
        statement.bind(cut(&row.error())).push(", done_at = ");
        self.moment(&mut statement, at);
        statement.push(", locked_by = null, locked_at = null where status not in (1, 3) and ");
        if let Some(claim) = &row.claim {
            push_claimed(&mut statement, self::key(claim));
        }
        self.dialect.push_key(&mut statement, key);
        statement
    }

    /// The moment of now, and for each pending status the next moment at which a row becomes due that was scheduled
    /// ahead before `since`, or is now.
    pub(super) fn next_due(&self, at: At, since: Option<Timestamp>) -> Statement {
        let mut statement = self.begin("select ");
        self.moment(&mut statement, at);
        for status in [Status::New, Status::Retry] {
            statement.push(&format!(", (select available_at from {}{}", self.table, is(status)));
            statement.push(" and available_at > ");
            match since {
                None => self.moment(&mut statement, at),
                Some(since) => {
                    statement
                        .bind(since)
                        .push(" and (created_at <= ")
                        .bind(since)
                        .push(" or available_at > ");
                    self.moment(&mut statement, at);
                    statement.push(")");
                }
            }
            statement.push(" order by available_at limit 1)");
        }
        statement
    }

    /// Which of the events are in the table.
    pub(super) fn present(&self, ids: &[&str]) -> Statement {
        let mut statement = self.begin("select event_id from {table} where ");
        self.dialect.push_ids(&mut statement, ids);
        statement
    }

    /// Reads due rows that an owner has claimed.
    pub(super) fn owned(&self, owner: &str, at: At, limit: u32) -> Statement {
        let due = Due { at, skip_recent: Duration::ZERO, limit, order: Order::Due, after: None };
        let mut statement = self.begin("");
        self.push_due_where(&mut statement, &row::columns(self.dialect, "claim_seq"), due, "", |statement| {
            statement.push(" and locked_by = ").bind(owner);
        });
        statement
    }

    /// Reads pending rows whose moment never comes, where the database takes such moments.
    pub(super) fn never_due(&self, limit: u32) -> Option<Statement> {
        let condition = self.dialect.never_due()?;
        let (columns, hint) =
            (row::columns(self.dialect, "claim_seq"), self.dialect.hint(self.table, Index::Due));
        let mut statement =
            self.begin(&format!("select {columns} from {{table}}{hint} where {condition} limit "));
        statement.bind(i64::from(limit));
        Some(statement)
    }

    /// A statement that changes nothing and needs the right to change every column that a delivery changes.
    pub(super) fn may_update(&self) -> Statement {
        const COLUMNS: [&str; 9] = [
            "status",
            "attempts",
            "available_at",
            "created_at",
            "done_at",
            "last_error",
            "locked_by",
            "locked_at",
            "claim_seq",
        ];
        let mut statement = self.update("");
        statement.list(COLUMNS, |statement, column| {
            statement.push(&format!("{column} = {column}"));
        });
        statement.push(" where event_id = '' and 1 = 0");
        statement
    }

    /// The same for deleting.
    pub(super) fn may_delete(&self) -> Statement {
        let mut statement = self.begin(&self.dialect.delete_by_key(self.table));
        statement.push(" where event_id = '' and 1 = 0");
        statement
    }

    /// The ids of those rows that still have that claim.
    pub(super) fn still_claimed(&self, claim: (&str, i64), ids: &[&str]) -> Statement {
        let mut statement = self.begin("select event_id from {table} where ");
        push_claimed(&mut statement, claim);
        self.dialect.push_ids(&mut statement, ids);
        statement
    }

    /// Counts rows of a status, and stops at the cap.
    pub(super) fn count(&self, status: Status, cap: u32) -> Statement {
        let mut statement = self.begin("select count(*) from (select 1 from {table}");
        statement.push(is(status)).push(" limit ").bind(i64::from(cap)).push(") as counted");
        statement
    }

    pub(super) fn troubled(&self, status: Status, limit: u32) -> Statement {
        let mut statement = self.begin(&format!("select {} from {{table}}", row::TROUBLED));
        statement.push(is(status)).push(" order by available_at desc limit ").bind(i64::from(limit));
        statement
    }

    pub(super) fn query_dead(&self, filter: &DeadFilter, after: Option<&After>, limit: u32) -> Statement {
        let columns = row::columns(self.dialect, "claim_seq");
        let hint = self.dialect.hint(self.table, Index::Dead);
        let mut statement = self.begin(&format!("select {columns}, {} from {{table}}{hint}", row::ENDING));
        self.push_dead(&mut statement, filter);
        if let Some(After { created_at, id }) = after {
            statement.push(" and (created_at > ").bind(*created_at);
            statement.push(" or (created_at = ").bind(*created_at).push(" and event_id > ");
            statement.bind(id.as_str()).push("))");
        }
        statement.push(" order by created_at, event_id limit ").bind(i64::from(limit));
        statement
    }

    pub(super) fn count_dead(&self, filter: &DeadFilter) -> Statement {
        let mut statement = self.begin("select count(*) from {table}");
        self.push_dead(&mut statement, filter);
        statement
    }

    /// Adds `where` rows are dead and match.
    fn push_dead(&self, statement: &mut Statement, filter: &DeadFilter) {
        statement.push(is(Status::Dead));
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
            let ids: Vec<_> = ids.iter().map(String::as_str).collect();
            statement.push(" and ");
            self.dialect.push_ids(statement, &ids);
        }
    }

    pub(super) fn replay_dead(&self, at: At, ids: &[&str]) -> Statement {
        let at = self.dialect.once(at);
        // Another life of the row: whatever was still on its way for the last one comes too late.
        let mut statement = self.update(
            "status = 0, attempts = 0, last_error = null, done_at = null, locked_by = null, locked_at = null, \
             claim_seq = claim_seq + 1, available_at = ",
        );
        self.moment(&mut statement, at);
        self.push_created_by(&mut statement, at);
        statement.push(is(Status::Dead)).push(" and ");
        self.dialect.push_ids(&mut statement, ids);
        statement
    }

    /// Adds `where` rows are old enough to be purged.
    pub(crate) fn push_old(&self, statement: &mut Statement, purge: &PurgeQuestion<'_>) {
        let PurgeQuestion { statuses, what, at, age, .. } = *purge;
        // What ended so long ago was created before that: said so, the index leaves out all that is younger.
        statement.push(&format!(" where status in {statuses} and created_at < "));
        self.moment_before(statement, at, age);
        if what == Purgeable::Ended {
            statement.push(" and (done_at is null or done_at < ");
            self.moment_before(statement, at, age);
            statement.push(")");
        }
    }

    /// Reads rows that are old enough to be purged, the oldest first.
    pub(crate) fn old(&self, columns: &str, purge: &PurgeQuestion<'_>, lock: &str) -> Statement {
        let hint = self.dialect.hint(self.table, purge.index);
        let mut statement = self.begin(&format!("select {columns} from {{table}}{hint}"));
        self.push_old(&mut statement, purge);
        statement.push(" order by created_at, event_id limit ").bind(i64::from(purge.limit)).push(lock);
        statement
    }
}

/// Which rows a purge wants: one of the [`Purgeable::parts`].
#[derive(Debug, Clone, Copy)]
pub struct PurgeQuestion<'a> {
    pub(crate) statements: Statements<'a>,
    statuses: &'static str,
    pub(crate) index: Index,
    what: Purgeable,
    at: At,
    age: Duration,
    pub(crate) limit: u32,
}

impl Purgeable {
    /// The rows that are meant, in parts that one index each gives in order.
    pub(super) fn parts(
        self,
        statements: Statements<'_>,
        at: At,
        age: Duration,
        limit: u32,
    ) -> Vec<PurgeQuestion<'_>> {
        const PENDING: (&str, Index) = ("(0, 2)", Index::DueCreated);
        const ENDED: (&str, Index) = ("(1, 3)", Index::Ended);
        let parts: &[_] = match self {
            Self::Ended => &[ENDED],
            Self::Any => &[PENDING, ENDED],
        };
        let part =
            |&(statuses, index)| PurgeQuestion { statements, statuses, index, what: self, at, age, limit };
        parts.iter().map(part).collect()
    }
}

/// The parts of a claim that rows are settled under together.
pub(super) fn key(claim: &Claim) -> (&str, i64) {
    (&claim.owner, claim.seq)
}

pub(crate) fn push_claimed(statement: &mut Statement, (owner, seq): (&str, i64)) {
    statement.push("locked_by = ").bind(owner).push(" and claim_seq = ").bind(seq).push(" and ");
}

/// `where` a row has the status. Part of the text, so that a partial index is known to hold it.
fn is(status: Status) -> &'static str {
    match status {
        Status::New => " where status = 0",
        Status::Done => " where status = 1",
        Status::Retry => " where status = 2",
        Status::Dead => " where status = 3",
    }
}

/// A span longer than any table's life is as good as for ever.
pub(super) fn delta(span: Duration) -> TimeDelta {
    const LONGEST: TimeDelta = TimeDelta::days(365 * 100);
    TimeDelta::from_std(span).map_or(LONGEST, |span| span.min(LONGEST))
}
