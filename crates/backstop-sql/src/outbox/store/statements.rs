//! The outbox's statements, with the database's words where they differ.

use std::time::Duration;

use backstop_core::Timestamp;
use chrono::TimeDelta;

use super::words::{PairRange, Words};
use super::{After, At, Claim, DeadFilter, Done, Due, Order, Pair, Place, Purgeable, Status, row};
use crate::TableName;
use crate::connection::Column;
use crate::database::rows::Rows;
use crate::database::statement::{Part, Parts, Plain, Statement};
use crate::database::{Database, delta};

/// The column that holds the key.
pub(super) const KEY: &str = "event_id";

/// Writes statements about one table. Runs nothing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Statements<'a> {
    pub(super) database: &'a Database,
    pub(super) words: &'static Words,
    pub(super) table: &'a TableName,
    pub(super) done: Done,
}

/// Who may have claimed the due rows that are wanted.
#[derive(Debug, Clone, Copy)]
pub(super) enum Claimant<'a> {
    /// It does not matter.
    Any,
    /// Nobody, or somebody whose claim is older than this.
    Nobody(Duration),
    /// This owner.
    Node(&'a str),
}

/// What statements are made of.
impl<'a> Statements<'a> {
    /// A statement; `{table}` in it stands for the table's name, and `{by_key}` for what makes it reach rows by their keys.
    pub(super) fn sql(&self, template: &str, parts: Parts<'_>) -> Statement {
        let (table, by_key) = (Plain(self.table.as_str()), Plain(self.database.dialect().by_key()));
        let known: [(&str, &dyn Part); 2] = [("table", &table), ("by_key", &by_key)];
        let parts: Vec<_> = known.iter().chain(parts).copied().collect();
        self.database.sql(template, &parts)
    }

    pub(super) fn now(self, at: At) -> impl Fn(&mut Statement) + Send + Sync + 'a {
        self.moment(at, TimeDelta::zero())
    }

    pub(super) fn before(self, at: At, span: Duration) -> impl Fn(&mut Statement) + Send + Sync + 'a {
        self.moment(at, -delta(span))
    }

    fn moment(self, at: At, offset: TimeDelta) -> impl Fn(&mut Statement) + Send + Sync + 'a {
        move |statement| self.database.push_moment(statement, at, offset)
    }

    /// The earlier of a moment and `at` plus `offset`.
    pub(super) fn not_after<'p>(
        self,
        moment: &'p dyn Part,
        at: At,
        offset: TimeDelta,
    ) -> impl Fn(&mut Statement) + use<'a, 'p> {
        move |statement| {
            let (earlier, latest) = (Plain(self.database.dialect().earlier()), self.moment(at, offset));
            statement.write(
                "{earlier}({moment}, {latest})",
                &[("earlier", &earlier), ("moment", moment), ("latest", &latest)],
            );
        }
    }

    /// When a row was created that becomes due at `at` or later: by then. One that was written by a clock that is ahead,
    /// elsewhere or by an older version, is not deferred until then, nor due before it was created.
    pub(super) fn created_by(self, at: At) -> impl Fn(&mut Statement) + use<'a> {
        move |statement| self.not_after(&Plain(self.words.created_at), at, TimeDelta::zero())(statement)
    }

    /// The condition that a row is one of these.
    pub(super) fn one_of<'i>(
        self,
        ids: &'i [&'i str],
    ) -> impl Fn(&mut Statement) + Send + Sync + use<'a, 'i> {
        move |statement| self.database.dialect().push_one_of(statement, KEY, ids)
    }

    /// That rows have this status and no index of several is to be walked.
    fn only(self, status: Status) -> impl Fn(&mut Statement) + use<'a> {
        move |statement| {
            let number = Plain((status as i16).to_string());
            statement.write(self.words.one_status, &[("status", &number)]);
        }
    }

    fn hint(&self, index: &str) -> String {
        self.table.hint(index)
    }
}

/// Out of the table.
impl<'a> Statements<'a> {
    /// Due rows, in the order they are wanted, up to the limit.
    ///
    /// Where no index gives the order over all conditions of [`Words::pending`], it is one query for each of them, and
    /// [`row::choose`] chooses from what they return.
    pub(super) fn due(self, due: Due<'a>, held: Claimant<'a>) -> Rows<'a> {
        let (index, order) = match due.order {
            Order::Due if due.pair.is_some() => (self.words.indexes.pair, self.words.pair_order),
            Order::Due => (self.words.indexes.due, "available_at, created_at, event_id"),
            Order::Created => (self.words.indexes.due_created, "created_at, event_id"),
        };
        let condition = |pending: &'static str| {
            let condition = move |statement: &mut Statement| self.push_due(statement, pending, due, held);
            Box::new(condition) as Box<dyn Part + Send + Sync>
        };
        Rows {
            table: self.table,
            key: KEY,
            key_kind: Column::Text,
            hint: self.hint(index),
            conditions: self.words.pending.iter().copied().map(condition).collect(),
            order: Some((order, due.limit)),
        }
    }

    fn push_due(self, statement: &mut Statement, pending: &str, due: Due<'_>, held: Claimant<'_>) {
        statement.push(pending);
        match (due.pair, due.order, &self.words.pair_range) {
            (Some(Pair { aggregate_type: Some(aggregate), event_type }), Order::Due, Some(range)) => {
                self.push_range(statement, range, (aggregate, event_type), due);
            }
            _ => self.push_until_now(statement, due),
        }
        if !due.skip_recent.is_zero() {
            let then = self.before(due.at, due.skip_recent);
            statement.write(" and created_at <= {then}", &[("then", &then)]);
        }
        match held {
            Claimant::Any => statement,
            Claimant::Nobody(timeout) => statement.write(
                " and (locked_by is null or locked_at < {then})",
                &[("then", &self.before(due.at, timeout))],
            ),
            Claimant::Node(owner) => statement.write(" and locked_by = {owner}", &[("owner", &owner)]),
        };
    }

    /// That a row is due, of a pair if one is given, and behind a place if one is given.
    fn push_until_now(self, statement: &mut Statement, due: Due<'_>) {
        if let Some(pair) = due.pair {
            push_pair(statement, pair);
        }
        statement.write(" and available_at <= {now}", &[("now", &self.now(due.at))]);
        if let (Some(Place { due_at, created_at, id }), Order::Due) = (due.after, due.order) {
            let place: Parts<'_> = &[("due_at", due_at), ("created_at", created_at), ("id", &id.as_str())];
            statement.push(" and ").write(self.words.behind, place);
        }
    }

    /// The same of a pair, as a range.
    fn push_range(
        self,
        statement: &mut Statement,
        range: &PairRange,
        (aggregate, event): (&str, &str),
        due: Due<'_>,
    ) {
        statement.push(" and ");
        match due.after {
            None => statement.write(range.from, &[("aggregate", &aggregate), ("event", &event)]),
            Some(Place { due_at, created_at, id }) => statement.write(
                range.behind,
                &[
                    ("aggregate", &aggregate),
                    ("event", &event),
                    ("due_at", due_at),
                    ("created_at", created_at),
                    ("id", &id.as_str()),
                ],
            ),
        };
        let until: Parts<'_> = &[("aggregate", &aggregate), ("event", &event), ("now", &self.now(due.at))];
        statement.push(" and ").write(range.until, until);
    }

    /// Reads due rows.
    pub(super) fn poll(&self, due: Due<'_>, held: Claimant<'_>) -> Statement {
        let mut statement = self.sql("", &[]);
        self.due(due, held).select(&mut statement, &self.columns(), "");
        statement
    }

    fn columns(&self) -> String {
        row::columns(self.database.dialect(), "claim_seq")
    }

    /// The moment of now, and for each pending status the next moment at which a row becomes due that was scheduled
    /// ahead before `since`, or is now.
    pub(super) fn next_due(&self, at: At, since: Option<Timestamp>) -> Statement {
        let now = self.now(at);
        let ahead = |statement: &mut Statement| {
            match since {
                None => statement.write("available_at > {now}", &[("now", &now)]),
                Some(since) => statement.write(
                    "available_at > {since} and (created_at <= {since} or available_at > {now})",
                    &[("since", &since), ("now", &now)],
                ),
            };
        };
        self.sql(
            "select {now}, \
             (select available_at from {table} where status = 0 and {ahead} order by available_at limit 1), \
             (select available_at from {table} where status = 2 and {ahead} order by available_at limit 1)",
            &[("now", &now), ("ahead", &ahead)],
        )
    }

    /// The first pair of types of pending rows behind another, in the order of an index; in two steps, of which the second is
    /// for when the first finds nothing.
    pub(super) fn next_pair(&self, pending: &'static str, after: Option<&Pair>) -> [Statement; 2] {
        let aggregate = |statement: &mut Statement| {
            match after.and_then(|pair| pair.aggregate_type.as_deref()) {
                Some(aggregate) => statement.write(" and aggregate_type = {it}", &[("it", &aggregate)]),
                None => statement.push(" and aggregate_type is null"),
            };
            if let Some(pair) = after {
                statement.write(" and event_type > {it}", &[("it", &pair.event_type.as_str())]);
            }
        };
        let next_aggregate = |statement: &mut Statement| {
            match after.and_then(|pair| pair.aggregate_type.as_deref()) {
                Some(aggregate) => statement.write(" and aggregate_type > {it}", &[("it", &aggregate)]),
                None => statement.push(" and aggregate_type >= ''"),
            };
        };
        let steps: [(&dyn Part, &str); 2] =
            [(&aggregate, "event_type"), (&next_aggregate, "aggregate_type, event_type")];
        steps.map(|(behind, order)| {
            self.sql(
                "select aggregate_type, event_type from {table}{hint} where {pending}{behind} order by {order} limit 1",
                &[
                    ("hint", &Plain(self.hint(self.words.indexes.pair))),
                    ("pending", &Plain(pending)),
                    ("behind", behind),
                    ("order", &Plain(order)),
                ],
            )
        })
    }

    /// Reads pending rows whose moment never comes, where the database takes such moments.
    pub(super) fn never_due(&self, limit: u32) -> Option<Statement> {
        let condition = self.words.never_due?;
        let hint = self.hint(self.words.indexes.due);
        Some(self.sql(
            "select {columns} from {table}{hint} where {never} limit {limit}",
            &[
                ("columns", &Plain(self.columns())),
                ("hint", &Plain(hint)),
                ("never", &Plain(condition)),
                ("limit", &i64::from(limit)),
            ],
        ))
    }
}

/// Claims.
impl<'a> Statements<'a> {
    /// Rows that still have that claim.
    pub(super) fn claimed(self, (owner, seq): (&'a str, i64), ids: &'a [&'a str]) -> Rows<'a> {
        let condition = move |statement: &mut Statement| {
            push_claimed(statement, (owner, seq));
            self.one_of(ids)(statement);
        };
        Rows {
            table: self.table,
            key: KEY,
            key_kind: Column::Text,
            hint: self.database.dialect().by_key().to_owned(),
            conditions: vec![Box::new(condition)],
            order: None,
        }
    }

    /// The ids of those rows that still have that claim.
    pub(super) fn still_claimed(&self, claim: (&str, i64), ids: &[&str]) -> Statement {
        let claimed = |statement: &mut Statement| push_claimed(statement, claim);
        self.sql(
            "select event_id from {table} where {claimed}{these}",
            &[("claimed", &claimed), ("these", &self.one_of(ids))],
        )
    }
}

/// Rights.
impl Statements<'_> {
    /// A statement that changes nothing and needs the right to change every column that a delivery changes.
    pub(super) fn may_update(&self) -> Statement {
        self.sql(
            "update {table}{by_key} set status = status, attempts = attempts, available_at = available_at, \
             created_at = created_at, done_at = done_at, last_error = last_error, locked_by = locked_by, \
             locked_at = locked_at, claim_seq = claim_seq where event_id = '' and 1 = 0",
            &[],
        )
    }

    /// The same for deleting.
    pub(super) fn may_delete(&self) -> Statement {
        let delete = Plain(self.database.dialect().delete_by_key(self.table));
        self.sql("{delete} where event_id = '' and 1 = 0", &[("delete", &delete)])
    }
}

/// For operators.
impl Statements<'_> {
    /// Counts rows of a status, and stops at the cap.
    pub(super) fn count(&self, status: Status, cap: u32) -> Statement {
        self.sql(
            "select count(*) from (select 1 from {table} where {status} limit {cap}) as counted",
            &[("status", &Plain(is(status))), ("cap", &i64::from(cap))],
        )
    }

    /// The moment of now, and for each kind of event how many rows have a status and when the oldest of them was created that
    /// is due. Rows are read in the order of an index and no further than the cap, however many there are. Where the planner
    /// believes that there are hardly more than that, it may read all of that status by the index.
    pub(super) fn sample(&self, status: Status, at: At, cap: u32) -> Statement {
        self.sql(
            "select {now}, aggregate_type, event_type, count(*), \
             min(case when available_at <= {now} then created_at end) from \
             (select aggregate_type, event_type, available_at, created_at from {table}{hint} where {status} \
             order by status, available_at limit {cap}) as sampled group by aggregate_type, event_type",
            &[
                ("now", &self.now(at)),
                ("hint", &Plain(self.hint(self.words.indexes.by_status))),
                ("status", &self.only(status)),
                ("cap", &i64::from(cap)),
            ],
        )
    }

    pub(super) fn troubled(&self, status: Status, limit: u32) -> Statement {
        self.sql(
            "select {columns} from {table}{hint} where {status} order by status desc, available_at desc limit {limit}",
            &[
                ("columns", &Plain(row::TROUBLED)),
                ("hint", &Plain(self.hint(self.words.indexes.by_status))),
                ("status", &self.only(status)),
                ("limit", &i64::from(limit)),
            ],
        )
    }

    pub(super) fn query_dead(&self, filter: &DeadFilter, after: Option<&After>, limit: u32) -> Statement {
        let behind = |statement: &mut Statement| {
            if let Some(After { created_at, id }) = after {
                statement.write(
                    // In words that let an index begin there.
                    " and created_at >= {created_at} and (created_at > {created_at} or event_id > {id})",
                    &[("created_at", created_at), ("id", &id.as_str())],
                );
            }
        };
        let walked = |statement: &mut Statement| push_walked(statement, filter);
        // Those that are named are reached by their keys, and all others by walking over the dead.
        let (hint, [open, shut]) = match filter.ids {
            Some(_) => (self.database.dialect().by_key().to_owned(), ["", ""]),
            None => (self.hint(self.words.indexes.dead), self.words.fence),
        };
        let matching = |statement: &mut Statement| {
            statement.push(" and ").push(open).push("1 = 1");
            self.push_matching(statement, filter);
            statement.push(shut);
        };
        self.sql(
            "select {columns}, {ending} from {table}{hint} where {walked}{behind}{matching} \
             order by created_at, event_id limit {limit}",
            &[
                ("columns", &Plain(self.columns())),
                ("ending", &Plain(row::ENDING)),
                ("hint", &Plain(hint)),
                ("walked", &walked),
                ("behind", &behind),
                ("matching", &matching),
                ("limit", &i64::from(limit)),
            ],
        )
    }

    pub(super) fn count_dead(&self, filter: &DeadFilter) -> Statement {
        let dead = |statement: &mut Statement| self.push_dead(statement, filter);
        self.sql("select count(*) from {table} where {dead}", &[("dead", &dead)])
    }

    /// Counts those that match among the oldest dead rows, and looks at no others, however few match.
    pub(super) fn count_oldest_dead(&self, filter: &DeadFilter, cap: u32) -> Statement {
        let dead = |statement: &mut Statement| self.push_dead(statement, filter);
        self.sql(
            "select count(*) from (select event_id, status, event_type, aggregate_type, aggregate_id, created_at, done_at, \
             last_error from {table}{hint} where {is_dead} order by created_at, event_id limit {cap}) as oldest \
             where {dead}",
            &[
                ("hint", &Plain(self.hint(self.words.indexes.dead))),
                ("is_dead", &Plain(is(Status::Dead))),
                ("cap", &i64::from(cap)),
                ("dead", &dead),
            ],
        )
    }

    /// When the dead row was created that is the last in the order of creation.
    pub(super) fn newest_dead(&self) -> Statement {
        self.sql(
            "select created_at from {table}{hint} where {is_dead} order by created_at desc, event_id desc limit 1",
            &[
                ("hint", &Plain(self.hint(self.words.indexes.dead))),
                ("is_dead", &Plain(is(Status::Dead))),
            ],
        )
    }

    /// Adds the condition that rows are dead and match.
    fn push_dead(&self, statement: &mut Statement, filter: &DeadFilter) {
        push_walked(statement, filter);
        self.push_matching(statement, filter);
    }

    /// Adds the conditions that no index answers, behind others.
    fn push_matching(&self, statement: &mut Statement, filter: &DeadFilter) {
        let DeadFilter { event_type, aggregate_type, aggregate_id, ids, .. } = filter;
        let texts =
            [("event_type", event_type), ("aggregate_type", aggregate_type), ("aggregate_id", aggregate_id)];
        for (column, value) in texts {
            if let Some(value) = value {
                statement.push(&format!(" and {column} = ")).bind(value.as_str());
            }
        }
        let died = "coalesce(done_at, created_at)";
        for (is, bound) in [(">=", filter.died_from), ("<", filter.died_before)] {
            if let Some(bound) = bound {
                statement.push(&format!(" and {died} {is} ")).bind(bound);
            }
        }
        if let Some(text) = &filter.error_contains {
            let place_of = Plain(self.database.dialect().place_of());
            statement.write(
                " and {place_of}(last_error, {text}) > 0",
                &[("place_of", &place_of), ("text", &text.as_str())],
            );
        }
        if let Some(ids) = ids {
            let ids: Vec<_> = ids.iter().map(String::as_str).collect();
            statement.push(" and ");
            self.one_of(&ids)(statement);
        }
    }

    /// Sets dead rows back. Another life of the row: whatever was still on its way for the last one comes too late.
    pub(super) fn replay_dead(&self, at: At, ids: &[&str]) -> Statement {
        let at = self.database.dialect().once(at);
        self.sql(
            "update {table}{by_key} set status = 0, attempts = 0, last_error = null, done_at = null, \
             locked_by = null, locked_at = null, claim_seq = claim_seq + 1, available_at = {now}, \
             created_at = {created_at} where status = 3 and {these}",
            &[("now", &self.now(at)), ("created_at", &self.created_by(at)), ("these", &self.one_of(ids))],
        )
    }

    /// Settles dead rows whose letters have arrived. What they died of stays.
    pub(super) fn redriven(&self, at: At, ids: &[&str]) -> Statement {
        let template = match self.done {
            Done::Delete => "{delete} where status = 3 and {these}",
            Done::Keep => {
                "update {table}{by_key} set status = 1, done_at = {now} where status = 3 and {these}"
            }
        };
        let delete = Plain(self.database.dialect().delete_by_key(self.table));
        self.sql(template, &[("delete", &delete), ("now", &self.now(at)), ("these", &self.one_of(ids))])
    }

    /// Deletes those of the rows that are dead and match: what changed since they were chosen is not changed.
    pub(super) fn discard_dead(&self, filter: &DeadFilter, ids: &[&str]) -> Statement {
        let delete = Plain(self.database.dialect().delete_by_key(self.table));
        let dead = |statement: &mut Statement| self.push_dead(statement, filter);
        self.sql(
            "{delete} where {dead} and {these}",
            &[("delete", &delete), ("dead", &dead), ("these", &self.one_of(ids))],
        )
    }

    /// Reads one row, whatever its status, and the moment at which it was read.
    pub(super) fn whereabouts(&self, at: At, id: &str) -> Statement {
        self.sql(
            "select {columns}, {ending}, {hold}, {now} from {table} where event_id = {id}",
            &[
                ("columns", &Plain(self.columns())),
                ("ending", &Plain(row::ENDING)),
                ("hold", &Plain(row::HOLD)),
                ("now", &self.now(at)),
                ("id", &id),
            ],
        )
    }
}

/// For the purge.
impl<'a> Statements<'a> {
    /// Rows that are old enough to be purged, the oldest first, in parts that one index each gives in order.
    pub(super) fn old(self, what: Purgeable, at: At, age: Duration, limit: u32) -> Vec<Rows<'a>> {
        // What ended so long ago was created before that: said so, the index leaves out all that is younger.
        const ENDED: &str =
            "status in (1, 3) and created_at < {then} and (done_at is null or done_at < {then})";
        const ANY_ENDED: &str = "status in (1, 3) and created_at < {then}";
        const ANY_PENDING: &str = "status in (0, 2) and created_at < {then}";
        let indexes = &self.words.indexes;
        let parts = match what {
            Purgeable::Ended => vec![(ENDED, indexes.old_ended)],
            Purgeable::Any => vec![(ANY_PENDING, indexes.old_pending), (ANY_ENDED, indexes.old_ended)],
        };
        let rows = |(condition, index): (&'static str, &str)| {
            let condition = move |statement: &mut Statement| {
                statement.write(condition, &[("then", &self.before(at, age))]);
            };
            Rows {
                table: self.table,
                key: KEY,
                key_kind: Column::Text,
                hint: self.hint(index),
                conditions: vec![Box::new(condition)],
                order: Some(("created_at, event_id", limit)),
            }
        };
        parts.into_iter().map(rows).collect()
    }
}

/// The parts of a claim that rows are settled under together.
pub(super) fn key(claim: &Claim) -> (&str, i64) {
    (&claim.owner, claim.seq)
}

/// Adds the condition that rows are dead, and of an age: those that the index of the dead answers in its order.
fn push_walked(statement: &mut Statement, filter: &DeadFilter) {
    statement.push(is(Status::Dead));
    for (is, bound) in [(">=", filter.created_from), ("<", filter.created_before)] {
        if let Some(bound) = bound {
            statement.push(&format!(" and created_at {is} ")).bind(bound);
        }
    }
}

fn push_pair(statement: &mut Statement, Pair { aggregate_type, event_type }: &Pair) {
    match aggregate_type {
        Some(aggregate) => statement.write(" and aggregate_type = {it}", &[("it", &aggregate.as_str())]),
        None => statement.push(" and aggregate_type is null"),
    };
    statement.write(" and event_type = {it}", &[("it", &event_type.as_str())]);
}

pub(super) fn push_claimed(statement: &mut Statement, (owner, seq): (&str, i64)) {
    statement.write("locked_by = {owner} and claim_seq = {seq} and ", &[("owner", &owner), ("seq", &seq)]);
}

/// That a row has the status. Part of the text, so that a partial index is known to hold it.
fn is(status: Status) -> &'static str {
    match status {
        Status::New => "status = 0",
        Status::Done => "status = 1",
        Status::Retry => "status = 2",
        Status::Dead => "status = 3",
    }
}
