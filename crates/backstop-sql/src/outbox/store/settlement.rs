//! Writing settlements: those that lead to the same status are gathered, and one statement writes them all.

use std::collections::BTreeMap;

use backstop_core::delivery::Settlement;
use chrono::TimeDelta;

use super::statements::{KEY, Statements, key, push_claimed};
use super::{At, Done, Settle, Status, Unreadable};
use crate::database::delta;
use crate::database::statement::{Plain, Statement, Value};
use crate::database::text::cut;

/// How many rows one statement settles, well below what any database allows as bound values.
const ROWS: usize = 500;

/// The same where each row has values of its own, which some databases look up one after the other.
const ROWS_WITH_VALUES: usize = 100;

impl Status {
    /// In which order settlements are written: first those whose events would be handled again after a crash.
    pub(crate) fn rank(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::New => 1,
            Self::Retry => 2,
            Self::Dead => 3,
        }
    }

    /// The status that a settlement leads to. No two lead to the same.
    pub(crate) fn of(settlement: &Settlement) -> Self {
        match settlement {
            Settlement::Deferred { .. } => Self::New,
            Settlement::Done => Self::Done,
            Settlement::Retry { .. } => Self::Retry,
            Settlement::Dead { .. } => Self::Dead,
        }
    }
}

/// Rows that one statement settles: the same status, under the same claim or in the same generation, after as many
/// failed attempts.
#[derive(Debug)]
pub(super) struct SettlementGroup<'a> {
    /// The status that they get.
    pub(super) status: Status,
    pub(super) fence: Fence<'a>,
    pub(super) attempts: Option<u32>,
    pub(super) ids: Vec<&'a str>,
    /// How long each row is deferred, if it is.
    pub(super) delays: Vec<TimeDelta>,
    /// Why each failed, if it did.
    pub(super) errors: Vec<String>,
}

/// What must still be true of a row that is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fence<'a> {
    /// Nothing but that it is pending.
    Pending,
    /// Nobody has claimed or replayed it since.
    Generation(i64),
    /// It has this claim.
    Claim((&'a str, i64)),
}

impl<'a> Fence<'a> {
    fn of(settle: &'a Settle) -> Self {
        match (&settle.claim, settle.generation) {
            (Some(claim), _) => Self::Claim(key(claim)),
            (None, Some(generation)) => Self::Generation(generation),
            (None, None) => Self::Pending,
        }
    }
}

/// Gathers settlements by how they end. An id that is given twice is written once for each time.
pub(super) fn gather(settles: &[Settle]) -> Vec<SettlementGroup<'_>> {
    let mut groups: BTreeMap<_, Vec<&Settle>> = BTreeMap::new();
    for settle in settles {
        let status = Status::of(&settle.settlement);
        // Only a retry is fenced by them, so nothing else is kept apart for their sake.
        let attempts = settle.attempts.filter(|_| status == Status::Retry);
        groups.entry((status.rank(), status, Fence::of(settle), attempts)).or_default().push(settle);
    }
    let chunks = groups.iter().flat_map(|(&(_, status, fence, attempts), settles)| {
        let rows = if status == Status::Done { ROWS } else { ROWS_WITH_VALUES };
        settles.chunks(rows).map(move |settles| SettlementGroup {
            status,
            fence,
            attempts,
            ids: settles.iter().map(|settle| settle.id.as_str()).collect(),
            delays: settles.iter().filter_map(|settle| settle.settlement.delay()).map(delta).collect(),
            errors: settles.iter().filter_map(|settle| settle.settlement.error()).map(cut).collect(),
        })
    });
    chunks.collect()
}

impl Statements<'_> {
    /// Settles rows that get one status, each with its own delay and error.
    pub(super) fn settle(&self, at: At, group: &SettlementGroup<'_>) -> Statement {
        let SettlementGroup { ids, delays, errors, .. } = group;
        let dialect = self.database.dialect();
        let at = dialect.once(at);
        let template = match group.status {
            Status::Done if self.done == Done::Delete => "{delete} where {settleable}",
            Status::Done => {
                "update {table}{by_key} set status = 1, done_at = {now}, locked_by = null, locked_at = null \
                 where {settleable}"
            }
            Status::New => {
                "update {table}{by_key} set status = 0, available_at = {later}, created_at = {created_at}, \
                 locked_by = null, locked_at = null where {settleable}"
            }
            Status::Retry => {
                "update {table}{by_key} set status = 2, attempts = attempts + 1, available_at = {later}, \
                 created_at = {created_at}, last_error = {error}, locked_by = null, locked_at = null \
                 where {settleable}"
            }
            // When it died is recorded, so that a purge counts its age from then on.
            Status::Dead => {
                "update {table}{by_key} set status = 3, last_error = {error}, done_at = {now}, \
                 locked_by = null, locked_at = null where {settleable}"
            }
        };
        let later =
            |statement: &mut Statement| self.database.push_own_moment(statement, KEY, at, ids, delays);
        let error = |statement: &mut Statement| dialect.own_text(statement, KEY, ids, errors);
        let settleable = |statement: &mut Statement| self.push_settleable(statement, group);
        self.sql(
            template,
            &[
                ("delete", &Plain(dialect.delete_by_key(self.table))),
                ("now", &self.now(at)),
                ("later", &later),
                ("created_at", &self.created_by(at)),
                ("error", &error),
                ("settleable", &settleable),
            ],
        )
    }

    /// The ids of those rows that a settlement would still change.
    pub(super) fn unsettled(&self, group: &SettlementGroup<'_>) -> Statement {
        let settleable = |statement: &mut Statement| self.push_settleable(statement, group);
        self.sql("select event_id from {table} where {settleable}", &[("settleable", &settleable)])
    }

    /// Adds the condition that the rows may still be settled: terminal rows are final, and a row that is not as it was
    /// when its event was delivered is somebody else's.
    fn push_settleable(&self, statement: &mut Statement, group: &SettlementGroup<'_>) {
        statement.push("status not in (1, 3) and ");
        match group.fence {
            Fence::Pending => {}
            Fence::Generation(generation) => {
                statement.push("claim_seq = ").bind(generation).push(" and ");
            }
            Fence::Claim(claim) => push_claimed(statement, claim),
        }
        self.one_of(&group.ids)(statement);
        if let (Status::Retry, Some(attempts)) = (group.status, group.attempts) {
            statement.push(" and attempts = ").bind(i64::from(attempts));
        }
    }

    /// Buries a row whose id is not text.
    pub(super) fn bury_by_key(&self, at: At, row: &Unreadable, key: &[u8]) -> Statement {
        let error = cut(&row.error());
        let claimed = |statement: &mut Statement| {
            if let Some(claim) = &row.claim {
                push_claimed(statement, self::key(claim));
            }
        };
        let bytes = |statement: &mut Statement| {
            statement.bind(Value::Bytes(key.to_vec()));
        };
        let this = |statement: &mut Statement| {
            statement.write(self.words.key_of_bytes, &[("key", &bytes)]);
        };
        self.sql(
            "update {table}{by_key} set status = 3, last_error = {error}, done_at = {now}, locked_by = null, \
             locked_at = null where status not in (1, 3) and {claimed}{this}",
            &[("error", &error.as_str()), ("now", &self.now(at)), ("claimed", &claimed), ("this", &this)],
        )
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::store::Claim;

    #[test]
    fn what_ends_alike_is_one_statement_and_only_retries_are_kept_apart_by_their_tries() {
        let claim = Claim { owner: "node-1".into(), seq: 3 };
        let retry = || Settlement::Retry { after: Duration::from_secs(1), error: "no".into() };
        let settle = |id: &str, attempts, settlement| Settle {
            id: id.to_owned(),
            claim: Some(claim.clone()),
            attempts: Some(attempts),
            generation: None,
            settlement,
        };
        let settles = [
            settle("a", 0, Settlement::Done),
            settle("b", 1, retry()),
            settle("c", 7, Settlement::Done),
            settle("d", 1, retry()),
            settle("e", 2, retry()),
            settle("f", 9, Settlement::Dead { error: "given up".into() }),
        ];
        let gathered = gather(&settles);
        let shown: Vec<_> = gathered.iter().map(|it| (it.status, it.attempts, it.ids.concat())).collect();
        let expected = [
            (Status::Done, None, "ac"),
            (Status::Retry, Some(1), "bd"),
            (Status::Retry, Some(2), "e"),
            (Status::Dead, None, "f"),
        ];
        assert_eq!(shown, expected.map(|(status, attempts, ids)| (status, attempts, ids.to_owned())));
        assert_eq!((gathered[1].delays.len(), gathered[1].errors.len()), (2, 2));
        assert_eq!((gathered[3].delays.len(), gathered[3].errors.len()), (0, 1));
    }

    /// A crash between two statements repeats what was handled and not yet written as such.
    #[test]
    fn what_was_handled_is_written_before_anything_else() {
        let settle = |id: &str, settlement| Settle {
            id: id.to_owned(),
            claim: None,
            attempts: None,
            generation: None,
            settlement,
        };
        let later = Duration::from_secs(1);
        let settles = [
            settle("a", Settlement::Deferred { after: later }),
            settle("b", Settlement::Dead { error: "no".into() }),
            settle("c", Settlement::Retry { after: later, error: "no".into() }),
            settle("d", Settlement::Done),
        ];
        let order: Vec<_> = gather(&settles).iter().map(|group| group.status).collect();
        assert_eq!(order, [Status::Done, Status::New, Status::Retry, Status::Dead]);
    }
}
