//! The questions that the outbox asks a database, and the types of the answers.

mod append;
mod plain_inserts;
mod plans;
mod row;
mod settlement;
mod sql_store;
mod statements;
pub(crate) mod words;

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use backstop_core::delivery::Settlement;
use backstop_core::inspect::{Count, Troubled};
use backstop_core::{Event, Timestamp};

use crate::connection::Connection;
use crate::{BoxFuture, Error};

pub use crate::database::At;
#[doc(hidden)]
pub use crate::database::lock::Share;
pub use crate::stores::DatabaseKind;
pub use sql_store::SqlStore;

pub use super::whereabouts::{ClaimedBy, Whereabouts};

/// What a row's status column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// Waiting for its first delivery, or deferred by its handler.
    New = 0,
    /// Handled.
    Done = 1,
    /// Failed, and to be tried again.
    Retry = 2,
    /// Given up.
    Dead = 3,
}

backstop_core::choice! {
    /// What happens to a row whose event was handled.
    #[derive(Default)]
    pub enum Done {
        /// It stays as DONE until it is purged, so delivered events can be looked up.
        #[default]
        Keep = "keep",
        /// It is deleted at once: the table stays small and keeps no trace of delivered events.
        Delete = "delete",
    }
}

/// Which due rows are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Due<'a> {
    /// By which clock they are due.
    pub at: At,
    /// Rows younger than this are not read.
    pub skip_recent: Duration,
    /// At most this many.
    pub limit: u32,
    /// Which ones, if there are more.
    pub order: Order,
    /// Only rows after this place in the order of [`Order::Due`]: those before it were read already.
    pub after: Option<&'a Place>,
    /// Only rows of these types, by an index of their own: those before them, however many, cost nothing.
    pub pair: Option<&'a Pair>,
}

/// What a row's event is about, and what happened to it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pair {
    /// The aggregate type, if the row has one.
    pub aggregate_type: Option<String>,
    /// The event type.
    pub event_type: String,
}

/// A place in the order in which rows become due.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// When the row is due.
    pub due_at: Timestamp,
    /// When it was created.
    pub created_at: Timestamp,
    /// The event's id.
    pub id: String,
}

/// Which due rows are chosen when there are more than wanted. Either way they are handed on in the order of creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// Those that have been due the longest.
    #[default]
    Due,
    /// Those that were created first, whenever they became due: what strict order needs.
    Created,
}

/// A right to settle one row: who took it, and the number of the claim.
///
/// The number is raised by each claim of the row, so that a node that lost its claim cannot settle what the next
/// owner is delivering, even if the next owner is that same node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The node that claimed the row.
    pub owner: Arc<str>,
    /// The number of the claim.
    pub seq: i64,
}

/// The claim under which rows are inserted when the inserting node will deliver them itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Born {
    /// The node that inserts and will deliver.
    pub owner: Arc<str>,
    /// How old the claim is made to look, so that it expires sooner than one of the poller's.
    pub age: Duration,
    /// The ids of rows that are inserted without a claim all the same: they are left to the poller.
    pub except: HashSet<String>,
}

impl Born {
    /// A claim on every row that is inserted.
    pub fn by(owner: impl Into<Arc<str>>, age: Duration) -> Self {
        Self { owner: owner.into(), age, except: HashSet::new() }
    }

    /// The claim that such a row is delivered under: its number is the column's default.
    pub fn claim(&self) -> Claim {
        Claim { owner: self.owner.clone(), seq: 0 }
    }
}

/// A due row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The event's id.
    pub id: String,
    /// How many attempts have failed.
    pub attempts: u32,
    /// The claim it was read under, if it was claimed.
    pub claim: Option<Claim>,
    /// How often the row has been claimed or replayed: a settlement without a claim is fenced by it.
    pub generation: i64,
    /// Since when it has been due, if that can be read.
    pub due_at: Option<Timestamp>,
    /// When it was created, if that can be read.
    pub created_at: Option<Timestamp>,
    /// The key of a row whose id is not text, so that the row can still be reached. Its `id` is only for display.
    pub key: Option<Vec<u8>>,
    /// The event, or why its row cannot be decoded.
    pub event: Result<Event, String>,
}

impl Row {
    /// Its place among the due rows.
    pub fn place(&self) -> Option<Place> {
        Some(Place { due_at: self.due_at?, created_at: self.created_at?, id: self.id.clone() })
    }
}

/// What is written to one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settle {
    /// The event's id.
    pub id: String,
    /// The claim under which it was delivered: the row is not changed if the claim is no longer valid.
    pub claim: Option<Claim>,
    /// How many attempts had failed before. If given, a retry is counted only while the row says the same, so
    /// that it counts once however often it is written.
    pub attempts: Option<u32>,
    /// Without a claim, how often the row had been claimed or replayed when it was read: if given, a row that was
    /// replayed since is not changed.
    pub generation: Option<i64>,
    /// What is written.
    pub settlement: Settlement,
}

/// When to look at the table again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextDue {
    /// When the question was answered, by the database's clock.
    pub asked_at: Timestamp,
    /// How long after that the next row becomes due; zero if it has become due already, none if none is scheduled.
    pub after: Option<Duration>,
}

/// A row that cannot be decoded, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// The event's id, as far as it can be shown.
    pub id: String,
    /// The key of a row whose id is not text.
    pub key: Option<Vec<u8>>,
    /// The claim it was read under.
    pub claim: Option<Claim>,
    /// What is wrong with it.
    pub problem: String,
}

/// What an outbox does with its table beyond reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rights {
    /// It changes rows.
    pub update: bool,
    /// It deletes rows.
    pub delete: bool,
}

impl Unreadable {
    /// Its burial, if it is reached by its id.
    pub fn settle(&self) -> Settle {
        Settle {
            id: self.id.clone(),
            claim: self.claim.clone(),
            attempts: None,
            generation: None,
            settlement: Settlement::Dead { error: self.error() },
        }
    }

    /// What its row says of it.
    pub fn error(&self) -> String {
        format!("the row cannot be decoded: {}", self.problem)
    }
}

/// How many rows there are of each status, counted up to a cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Census {
    /// Status NEW.
    pub waiting: Count,
    /// Status RETRY.
    pub retrying: Count,
    /// Status DEAD.
    pub dead: Count,
    /// Status DONE.
    pub done: Count,
}

/// How many unfinished rows there are of each kind of event, counted up to a cap for each status.
///
/// Where the cap is reached, those are counted that have been due the longest.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sample {
    /// One for each aggregate type and event type that has such rows.
    pub kinds: Vec<Sampled>,
    /// Of which status there are more rows than were counted.
    pub capped: Vec<Status>,
}

/// The unfinished rows of one kind of event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sampled {
    /// Their aggregate type.
    pub aggregate_type: String,
    /// Their event type.
    pub event_type: String,
    /// Their status: NEW, RETRY or DEAD.
    pub status: Status,
    /// How many there are.
    pub events: u64,
    /// When the oldest of them was created that is due; none if none is, or if they are dead.
    pub oldest_due: Option<Timestamp>,
    /// How long ago that was, by the database's clock.
    pub waited: Option<Duration>,
}

/// Which dead events are meant. Empty means all of them; each part that is given narrows it.
///
/// ```
/// use backstop_sql::store::DeadFilter;
///
/// let refunds = DeadFilter { event_type: Some("RefundIssued".into()), ..DeadFilter::default() };
/// assert_ne!(refunds, DeadFilter::default());
/// assert_eq!(refunds.to_string(), r#"event type "RefundIssued""#);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeadFilter {
    /// Only events of this type.
    pub event_type: Option<String>,
    /// Only events about this kind of aggregate.
    pub aggregate_type: Option<String>,
    /// Only events about this aggregate.
    pub aggregate_id: Option<String>,
    /// Only these events.
    pub ids: Option<Vec<String>>,
    /// Only events created at this moment or later.
    pub created_from: Option<Timestamp>,
    /// Only events created before this moment.
    pub created_before: Option<Timestamp>,
    /// Only events that died at this moment or later; where that was not recorded, their creation counts.
    pub died_from: Option<Timestamp>,
    /// Only events that died before this moment; where that was not recorded, their creation counts.
    pub died_before: Option<Timestamp>,
    /// Only events whose error contains this text, in this case.
    pub error_contains: Option<String>,
}

/// What was given, as an operator reads it in the log. Texts are quoted and escaped.
impl fmt::Display for DeadFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts = [
            ("event type", &self.event_type),
            ("aggregate type", &self.aggregate_type),
            ("aggregate id", &self.aggregate_id),
            ("error containing", &self.error_contains),
        ];
        let moments = [
            ("created from", self.created_from),
            ("created before", self.created_before),
            ("died from", self.died_from),
            ("died before", self.died_before),
        ];
        let texts = texts.into_iter().filter_map(|(what, text)| Some(format!("{what} {:?}", text.as_ref()?)));
        let moments = moments.into_iter().filter_map(|(what, moment)| {
            let moment = moment?.to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true);
            Some(format!("{what} {moment}"))
        });
        let ids = self.ids.as_ref().map(|ids| format!("ids {ids:?}"));
        let given: Vec<_> = texts.chain(moments).chain(ids).collect();
        f.write_str(if given.is_empty() { "all" } else { "" })?;
        f.write_str(&given.join(", "))
    }
}

/// A dead event, as an operator wants to see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadEvent {
    /// The event's id.
    pub id: String,
    /// How often its handler was called.
    pub attempts: u32,
    /// Why it died.
    pub error: Option<String>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it died, if that was recorded.
    pub died_at: Option<Timestamp>,
    /// The event, or why its row cannot be decoded.
    pub event: Result<Event, String>,
}

impl DeadEvent {
    /// Its place in the list of the dead.
    pub fn place(&self) -> After {
        After { created_at: self.created_at, id: self.id.clone() }
    }
}

/// A place in the order of creation, behind which a query goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct After {
    /// When the last row seen was created.
    pub created_at: Timestamp,
    /// Its id.
    pub id: String,
}

/// Which rows a purge may delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purgeable {
    /// DONE and DEAD rows, by when they ended (or were created, where that was not recorded).
    Ended,
    /// Rows of any status, by when they were created: for a table that somebody else reads.
    Any,
}

/// A table of events on some database.
///
/// Terminal rows (DONE and DEAD) are final: no settlement moves them. Only an operator moves a DEAD one:
/// [`replay_dead`](Self::replay_dead), [`redriven`](Self::redriven), [`discard_dead`](Self::discard_dead).
pub trait Store: Send + Sync + 'static {
    /// Creates the table, or brings it up to date. Safe to call from several nodes at once.
    fn migrate(&self) -> BoxFuture<'_, Result<(), Error>>;

    /// Checks that the table is there, in a version that this code knows.
    fn check(&self) -> BoxFuture<'_, Result<(), Error>>;

    /// Inserts events as NEW rows on the caller's connection, within the caller's transaction.
    fn insert<'a>(
        &'a self,
        connection: &'a mut dyn Connection,
        events: &'a [Event],
        born: Option<&'a Born>,
    ) -> BoxFuture<'a, Result<(), Error>>;

    /// Reads due rows without taking them. Only safe where one node reads the table.
    fn poll<'a>(&'a self, due: Due<'a>) -> BoxFuture<'a, Result<Vec<Row>, Error>>;

    /// The types of all pending rows, by an index, however many rows there are of each. None if the store cannot tell.
    fn pending_pairs(&self) -> BoxFuture<'_, Result<Option<Vec<Pair>>, Error>> {
        Box::pin(async { Ok(None) })
    }

    /// When the next pending row becomes due that was scheduled ahead at the moment `since`, by the database's clock:
    /// one that has become due meanwhile is told too. A store that cannot tell leaves it to the poller's interval.
    fn next_due(&self, _at: At, _since: Option<Timestamp>) -> BoxFuture<'_, Result<Option<NextDue>, Error>> {
        Box::pin(async { Ok(None) })
    }

    /// Checks that the table may be used in these ways. A store that cannot tell says yes.
    fn check_rights(&self, _rights: Rights) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async { Ok(()) })
    }

    /// Which of these events are in the table, as the caller's transaction sees it or, without one, as everybody
    /// does. The error [`Error::RolledBack`] says that the caller's transaction has ended. A store that cannot
    /// tell says all.
    fn present<'a>(
        &'a self,
        _connection: Option<&'a mut dyn Connection>,
        ids: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<String>, Error>> {
        Box::pin(async { Ok(ids.to_vec()) })
    }

    /// Pending rows whose moment cannot be read and never comes, so that no poll finds them. Most databases have none.
    fn never_due(&self, _limit: u32) -> BoxFuture<'_, Result<Vec<Row>, Error>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Due rows that `owner` has claimed already, under the claims they have. A store that cannot tell says none.
    fn owned<'a>(
        &'a self,
        _owner: &'a Arc<str>,
        _at: At,
        _limit: u32,
    ) -> BoxFuture<'a, Result<Vec<Row>, Error>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Takes due rows for `owner`. A row that another owner took is not touched until that claim is older
    /// than `timeout`.
    fn claim<'a>(
        &'a self,
        owner: &'a Arc<str>,
        timeout: Duration,
        due: Due<'a>,
    ) -> BoxFuture<'a, Result<Vec<Row>, Error>>;

    /// Gives claimed rows back, for any node to take at once, and returns how many. Rows that somebody else has
    /// locked, such as in a transaction that has not committed, are passed over.
    fn release<'a>(&'a self, rows: &'a [(String, Claim)]) -> BoxFuture<'a, Result<u64, Error>>;

    /// Makes claims as new as if they had just been taken, and returns the ids of their rows. Rows that somebody else
    /// has locked at the moment are passed over. A store whose claims never run out has nothing to do, and says all.
    fn renew<'a>(
        &'a self,
        _at: At,
        rows: &'a [(String, Claim)],
    ) -> BoxFuture<'a, Result<Vec<String>, Error>> {
        Box::pin(async { Ok(rows.iter().map(|(id, _)| id.clone()).collect()) })
    }

    /// Which of the claims are still valid, by the ids of their rows. A store whose claims never run out says all.
    fn still_claimed<'a>(&'a self, rows: &'a [(String, Claim)]) -> BoxFuture<'a, Result<Vec<String>, Error>> {
        Box::pin(async { Ok(rows.iter().map(|(id, _)| id.clone()).collect()) })
    }

    /// Writes settlements, with one statement for all rows that end alike, and returns how many rows were changed.
    /// Fewer than given means that some had been settled already or belong to another node by now. Writing the same
    /// settlement twice changes nothing the second time, if the attempts are given.
    fn settle<'a>(&'a self, at: At, settles: &'a [Settle]) -> BoxFuture<'a, Result<u64, Error>>;

    /// Which of these settlements are still missing from their rows, by their ids. After [`settle`](Self::settle)
    /// this means that the database accepted the statement and changed nothing. A store that cannot tell says none.
    fn unsettled<'a>(&'a self, _settles: &'a [Settle]) -> BoxFuture<'a, Result<Vec<String>, Error>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Buries rows that cannot be decoded, and returns how many were changed.
    fn bury_unreadable<'a>(&'a self, at: At, rows: &'a [Unreadable]) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(async move {
            let settles: Vec<_> = rows.iter().map(Unreadable::settle).collect();
            self.settle(at, &settles).await
        })
    }

    /// Counts rows by status, each up to `cap`.
    fn census(&self, cap: u32) -> BoxFuture<'_, Result<Census, Error>>;

    /// Counts unfinished rows by kind of event, for each status up to `cap`. A store that cannot tell says nothing.
    fn sample(&self, _at: At, _cap: u32) -> BoxFuture<'_, Result<Option<Sample>, Error>> {
        Box::pin(async { Ok(None) })
    }

    /// The rows that an operator should look at first: the dead, then those that retry, the latest in front.
    fn troubled(&self, limit: u32) -> BoxFuture<'_, Result<Vec<Troubled>, Error>>;

    /// Dead events, the oldest first, starting after a place.
    fn query_dead<'a>(
        &'a self,
        filter: &'a DeadFilter,
        after: Option<&'a After>,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<DeadEvent>, Error>>;

    /// How many dead events there are.
    fn count_dead<'a>(&'a self, filter: &'a DeadFilter) -> BoxFuture<'a, Result<u64, Error>>;

    /// How many dead events there are among the oldest `cap`, at which it looks and at no others; capped if there are more
    /// dead ones, whether they match or not. A store that cannot do this counts all.
    fn count_dead_up_to<'a>(
        &'a self,
        filter: &'a DeadFilter,
        _cap: u32,
    ) -> BoxFuture<'a, Result<Count, Error>> {
        Box::pin(async move { self.count_dead(filter).await.map(Count::exactly) })
    }

    /// When the dead event was created that was created last. None if none is dead, or if the store cannot tell.
    fn newest_dead(&self) -> BoxFuture<'_, Result<Option<Timestamp>, Error>> {
        Box::pin(async { Ok(None) })
    }

    /// Sets dead events back to NEW, with no attempts used, and returns how many were dead.
    fn replay_dead<'a>(&'a self, at: At, ids: &'a [String]) -> BoxFuture<'a, Result<u64, Error>>;

    /// Sets dead events to DONE, because their dead letters have arrived, and tells how many were dead. A store without
    /// this says that it does not have it.
    fn redriven<'a>(&'a self, _at: At, _ids: &'a [String]) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(async { Err(Error::State("this store cannot settle dead events")) })
    }

    /// Deletes those of the events that are dead and match by now, and tells how many. A store without this says that it
    /// does not have it.
    fn discard_dead<'a>(
        &'a self,
        _filter: &'a DeadFilter,
        _ids: &'a [String],
    ) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(async { Err(Error::State("this store cannot discard dead events")) })
    }

    /// Where an event is, by its id; none if it has no row. A store without this says that it does not have it.
    fn whereabouts<'a>(&'a self, _at: At, _id: &'a str) -> BoxFuture<'a, Result<Option<Whereabouts>, Error>> {
        Box::pin(async { Err(Error::State("this store cannot look up a single event")) })
    }

    /// Inserts a NEW row for an event in a transaction of its own; false if the event has a row. A store without this
    /// says that it does not have it.
    fn bring_back<'a>(&'a self, _event: &'a Event) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(async { Err(Error::State("this store cannot append by itself")) })
    }

    /// Wakes every node that delivers from the table, where the database can do that; elsewhere they find rows at
    /// their interval.
    fn wake_nodes(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async { Ok(()) })
    }

    /// Deletes at most `limit` rows older than `age` on the connection given, the oldest first, and tells
    /// how many.
    fn purge<'a>(
        &'a self,
        connection: &'a mut dyn Connection,
        what: Purgeable,
        at: At,
        age: Duration,
        limit: u32,
    ) -> BoxFuture<'a, Result<u64, Error>>;
}
