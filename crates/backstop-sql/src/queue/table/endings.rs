//! How events leave a worker's hands: moved to the log, or back to those that wait. Every change names the claim.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::TimeDelta;

use super::statements::{Held, rows};
use super::{KEY, Tables};
use crate::Error;
use crate::database::rows::{Move, ROWS_PER_STATEMENT, Rows};
use crate::database::statement::{Plain, Statement};
use crate::database::text::cut;
use crate::database::{At, Via, delta};
use crate::queue::claim::Claim;

/// How many rows one statement changes where each has values of its own, which some databases look up one after the other.
const ROWS_WITH_VALUES: usize = 100;

/// How an event ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ending {
    Completed,
    Failed,
    /// Failed without having been handled this time, so that this attempt does not count.
    GivenUp,
}

/// An event that has ended, and why, if that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finish {
    pub(crate) claim: Claim,
    pub(crate) ending: Ending,
    pub(crate) error: Option<String>,
}

/// An event that goes back to those that wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PutBack {
    pub(crate) claim: Claim,
    /// How long it waits; not at all if none is given.
    pub(crate) after: Option<Duration>,
    /// Whether this attempt counts.
    pub(crate) counted: bool,
    /// Why it failed, if it did; what an earlier attempt said stays otherwise.
    pub(crate) error: Option<String>,
    /// The event's type, where the row did not name it.
    pub(crate) event_type: Option<String>,
}

impl PutBack {
    /// As if it had not been taken.
    pub(crate) fn untouched(claim: Claim) -> Self {
        Self { claim, after: None, counted: false, error: None, event_type: None }
    }
}

const LOGGED: &str = "id, payload, status, attempts, created_at, updated_at, event_type, error";

impl Tables {
    /// Moves rows to the log under their claims, and returns the ids of those that were moved.
    pub(crate) async fn finish(&self, at: At, finished: &[Finish]) -> Result<Vec<i64>, Error> {
        self.in_time(async {
            let mut moved = Vec::new();
            let alike = |it: &Finish| (it.ending, it.error.is_some());
            let rows_of = |(_, own): &(Ending, bool)| rows_together(*own);
            for ((ending, _), held, group) in together(finished, |it| it.claim, alike, rows_of) {
                let errors = group.iter().filter_map(|it| it.error.clone()).collect();
                let rows = self.statements().held(&held);
                moved.extend(self.move_to_log(at, ending, &held.ids, errors, &rows).await?);
            }
            Ok(moved)
        })
        .await
    }

    /// Moves the row of that id to the log, if it is PROCESSING, whoever holds it. Tells whether it was.
    pub(crate) async fn finish_by_id(
        &self,
        at: At,
        id: i64,
        ending: Ending,
        error: Option<String>,
    ) -> Result<bool, Error> {
        self.in_time(async {
            let condition = move |statement: &mut Statement| {
                statement.write("status = 'PROCESSING' and id = {id}", &[("id", &id)]);
            };
            let by_key = self.database.dialect().by_key();
            let rows = rows(&self.events, by_key, condition, None);
            let errors = error.into_iter().collect();
            Ok(!self.move_to_log(at, ending, &[id], errors, &rows).await?.is_empty())
        })
        .await
    }

    /// Moves rows, each with its own error if they have any.
    async fn move_to_log(
        &self,
        at: At,
        ending: Ending,
        ids: &[i64],
        errors: Vec<String>,
        rows: &Rows<'_>,
    ) -> Result<Vec<i64>, Error> {
        let (dialect, now) = (self.database.dialect(), self.statements().now(at));
        let (status, attempts) = match ending {
            Ending::Completed => ("'COMPLETED'", "attempts"),
            Ending::Failed => ("'FAILED'", "attempts"),
            Ending::GivenUp => ("'FAILED'", "attempts - 1"),
        };
        let error = own_text(self, ids, &errors);
        let made_of = |statement: &mut Statement| {
            statement.write(
                "id, {payload}, {status}, {attempts}, created_at, {now}, event_type, {error}",
                &[
                    ("payload", &Plain(dialect.json_as_text("event"))),
                    ("status", &Plain(status)),
                    ("attempts", &Plain(attempts)),
                    ("now", &now),
                    ("error", &error),
                ],
            );
        };
        let moving = Move { to: &self.log, columns: LOGGED, made_of: &made_of };
        self.database.move_rows(Via::PoolOrReserve, rows, &moving).await
    }

    /// Sets rows back to PENDING under their claims, and returns how many were.
    pub(crate) async fn put_back(&self, at: At, rows: &[PutBack]) -> Result<u64, Error> {
        self.in_time(async {
            let mut session = self.database.session(Via::PoolOrReserve).await?;
            let mut changed = 0;
            let alike =
                |it: &PutBack| (it.counted, it.after.is_some(), it.error.is_some(), it.event_type.is_some());
            let rows_of = |(_, after, error, typed): &(bool, bool, bool, bool)| {
                rows_together(*after || *error || *typed)
            };
            for ((counted, ..), held, group) in together(rows, |it| it.claim, alike, rows_of) {
                let statement = self.putting_back(at, counted, &held, &group);
                changed += self.database.execute_alone(&mut session, &statement).await?;
            }
            Ok(changed)
        })
        .await
    }

    fn putting_back(&self, at: At, counted: bool, held: &Held, group: &[&PutBack]) -> Statement {
        let (statements, at) = (self.statements(), self.database.dialect().once(at));
        let delays: Vec<TimeDelta> = group.iter().filter_map(|it| it.after).map(delta).collect();
        let later = |statement: &mut Statement| {
            if delays.is_empty() {
                statement.push("null");
                return;
            }
            let ids: Vec<_> = held.ids.iter().map(i64::to_string).collect();
            let ids: Vec<_> = ids.iter().map(String::as_str).collect();
            self.database.push_own_moment(statement, KEY, at, &ids, &delays);
        };
        let errors: Vec<_> = group.iter().filter_map(|it| it.error.clone()).collect();
        let types: Vec<_> = group.iter().filter_map(|it| it.event_type.clone()).collect();
        let rest = |statement: &mut Statement| {
            if !errors.is_empty() {
                statement.push(", last_error = ");
                own_text(self, &held.ids, &errors)(statement);
            }
            if !types.is_empty() {
                statement.push(", event_type = ");
                own_text(self, &held.ids, &types)(statement);
            }
        };
        let these = |statement: &mut Statement| statements.push_held(statement, held);
        statements.sql(
            "update {events}{by_key} set status = 'PENDING', attempts = attempts - {uncounted}, \
             processing_started_at = null, updated_at = {now}, available_at = {later}{rest} where {these}",
            &[
                ("uncounted", &Plain(if counted { "0" } else { "1" })),
                ("now", &statements.now(at)),
                ("later", &later),
                ("rest", &rest),
                ("these", &these),
            ],
        )
    }
}

/// How many rows one statement changes, with values of their own or without.
fn rows_together(own_values: bool) -> usize {
    if own_values { ROWS_WITH_VALUES } else { ROWS_PER_STATEMENT }
}

/// For each of the rows a text of its own, or none for all.
fn own_text<'a>(
    tables: &'a Tables,
    ids: &'a [i64],
    texts: &'a [String],
) -> impl Fn(&mut Statement) + Send + Sync + 'a {
    move |statement| match texts {
        [] => {
            statement.push("null");
        }
        [text] => {
            statement.bind(cut(text));
        }
        texts => {
            let ids: Vec<_> = ids.iter().map(i64::to_string).collect();
            let ids: Vec<_> = ids.iter().map(String::as_str).collect();
            let texts: Vec<_> = texts.iter().map(|text| cut(text)).collect();
            tables.database.dialect().own_text(statement, KEY, &ids, &texts);
        }
    }
}

/// What one statement can change: rows under claims of the same numbers for which `alike` gives the same, in the order of their
/// ids, so that two statements cannot wait for each other.
fn together<T, K: Ord + Copy>(
    all: &[T],
    claim: impl Fn(&T) -> Claim,
    alike: impl Fn(&T) -> K,
    rows_of: impl Fn(&K) -> usize,
) -> Vec<(K, Held, Vec<&T>)> {
    let mut groups: BTreeMap<_, Vec<&T>> = BTreeMap::new();
    for it in all {
        let Claim { attempt, seq, .. } = claim(it);
        groups.entry((alike(it), attempt, seq)).or_default().push(it);
    }
    let mut parts = Vec::new();
    for ((key, attempt, seq), mut group) in groups {
        group.sort_by_key(|it| claim(it).id);
        for part in group.chunks(rows_of(&key)) {
            let ids = part.iter().map(|it| claim(it).id).collect();
            parts.push((key, Held { attempt, seq, ids }, part.to_vec()));
        }
    }
    parts
}
