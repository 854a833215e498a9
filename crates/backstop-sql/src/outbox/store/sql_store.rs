//! The outbox's table on any SQL database.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use backstop_core::codec::{Codec, HeaderCodec, Json};
use backstop_core::inspect::{Count, Troubled};
use backstop_core::{Event, Timestamp};

use super::row;
use super::settlement::gather;
use super::statements::{Claimant, KEY, Statements, key};
use super::words::Words;
use super::{
    After, At, Born, Census, Claim, DeadEvent, DeadFilter, Done, Due, NextDue, Pair, Purgeable, Rights, Row,
    Sample, Settle, Status, Store, Unreadable, Whereabouts,
};
use crate::connection::{Column, Connection};
use crate::database::migration::Schema;
use crate::database::rows::{Change, ROWS_PER_STATEMENT};
use crate::database::{Database, Via};
use crate::statement::{Statement, Value};
use crate::stores::{DatabaseKind, Supported};
use crate::wake_up::WakeUps;
use crate::{BoxFuture, Error, TableName, TimeZone, Tls};

/// All columns.
const COLUMNS: [&str; 16] = [
    KEY,
    "event_type",
    "aggregate_type",
    "aggregate_id",
    "tenant_id",
    "payload",
    "headers",
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

/// The columns that hold moments.
const MOMENTS: [&str; 4] = ["available_at", "created_at", "done_at", "locked_at"];

/// An outbox table on a SQL database.
///
/// [`Outbox`](crate::Outbox) makes its own; tools and tests can use it alone to look at the table.
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
#[derive(Clone)]
pub struct SqlStore {
    pub(super) database: Database,
    pub(super) words: &'static Words,
    pub(super) table: TableName,
    pub(super) codec: Arc<dyn HeaderCodec>,
    done: Done,
    wake_ups: Option<Arc<dyn WakeUps>>,
}

impl SqlStore {
    /// A table of that name on the pool's database.
    pub fn on<DB: Supported>(pool: sqlx::Pool<DB>, table: TableName) -> Self {
        let wake_ups = DB::wake_ups(&pool, &table);
        let store = Self::new(Database::new(DB::dialect(), DB::connections(pool)), DB::outbox(), table);
        Self { wake_ups, ..store }
    }

    /// A table of that name on the database of a URL: `postgres:`, `mysql:`, `mariadb:` or `sqlite:`.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # let directory = backstop_testkit::servers::directory();
    /// # let url = format!("sqlite://{}", directory.file("orders.db").display());
    /// use backstop_sql::store::{SqlStore, Store};
    /// use backstop_sql::TableName;
    ///
    /// let store = SqlStore::connect(&url, TableName::default()).await?;
    /// store.migrate().await?;
    ///
    /// let refused = SqlStore::connect("oracle://scott:tiger@host/db", TableName::default()).await;
    /// assert!(refused.unwrap_err().to_string().contains("does not name a known database, but \"oracle\""));
    /// # Ok::<(), backstop_sql::Error>(()) }).unwrap();
    /// ```
    pub async fn connect(url: &str, table: TableName) -> Result<Self, Error> {
        Self::connect_with(url, &Tls::default(), table).await
    }

    /// [`connect`](Self::connect), with TLS as the settings say.
    pub async fn connect_with(url: &str, tls: &Tls, table: TableName) -> Result<Self, Error> {
        DatabaseKind::of(url)?.connect(url, tls, table).await
    }

    /// Writes and reads headers with your own codec. Defaults to [`Json`].
    pub fn codec(mut self, codec: impl Codec) -> Self {
        self.codec = Arc::new(codec);
        self
    }

    /// What happens to a row whose event was handled. Defaults to [`Done::Keep`].
    pub fn done(mut self, done: Done) -> Self {
        self.done = done;
        self
    }

    /// How long reading, claiming, renewing and settling may take. After that the connection is given up: if a
    /// network swallows everything, no error would ever come. Defaults to 30 s.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.database = self.database.patience(patience);
        self
    }

    /// Works through a pooler that shares connections between transactions, as PgBouncer does in transaction
    /// mode: nothing is prepared, and each statement is a transaction.
    pub fn behind_pooler(mut self) -> Self {
        self.database = self.database.behind_pooler();
        self
    }

    /// The time zone of the table's columns, if they carry none. Defaults to UTC.
    ///
    /// ```
    /// use backstop_sql::store::SqlStore;
    /// use backstop_sql::{TableName, TimeZone};
    ///
    /// # fn example(pool: sqlx::MySqlPool) -> Result<(), backstop_sql::Error> {
    /// let store = SqlStore::on(pool, TableName::default()).time_zone(TimeZone::new("+02:00")?);
    /// # Ok(()) }
    /// ```
    pub fn time_zone(mut self, zone: TimeZone) -> Self {
        self.database = self.database.zone(zone);
        self
    }

    pub(crate) fn new(database: Database, words: &'static Words, table: TableName) -> Self {
        Self { database, words, table, codec: Arc::new(Json), done: Done::Keep, wake_ups: None }
    }

    pub(super) fn statements(&self) -> Statements<'_> {
        Statements { database: &self.database, words: self.words, table: &self.table, done: self.done }
    }

    fn schema(&self) -> Schema {
        Self::schema_of(&self.table, self.words)
    }

    /// The table of that name on a database.
    pub(crate) fn schema_of(table: &TableName, words: &Words) -> Schema {
        Schema { table: table.clone(), key: KEY, columns: &COLUMNS, migrations: words.migrations }
    }

    pub(super) async fn check_zone(&self) -> Result<(), Error> {
        let mut session = self.database.session(Via::Pool).await?;
        self.database.check_zone(&mut session, &self.table, &MOMENTS).await
    }

    /// What a question makes of its answer: errors get the words that help.
    pub(super) async fn explained<T>(
        &self,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        work.await.map_err(|error| self.database.explain(&self.table, error))
    }

    /// The same, given up if it takes too long.
    async fn in_time<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        self.explained(self.database.in_time(work)).await
    }

    async fn read(&self, statement: &Statement) -> Result<Vec<Vec<Value>>, Error> {
        self.database.session(Via::Pool).await?.fetch(statement, &row::KINDS).await
    }

    pub(super) fn change_of_claim<'a>(
        &self,
        set: &'a (dyn Fn(&mut Statement) + Sync),
        choose: &'a (dyn Fn(Vec<Vec<Value>>) -> Vec<Vec<Value>> + Sync),
    ) -> Change<'a> {
        let dialect = self.database.dialect();
        Change {
            set,
            read: row::columns(dialect, "claim_seq"),
            read_before: row::columns(dialect, "claim_seq + 1"),
            kinds: &row::KINDS,
            choose,
            may_be_taken_back: true,
        }
    }

    /// Changes rows under their claims, and returns the ids of those that were changed.
    async fn change_claimed(
        &self,
        via: Via,
        rows: &[(String, Claim)],
        may_be_taken_back: bool,
        set: impl Fn(&mut Statement) + Sync,
    ) -> Result<Vec<String>, Error> {
        let change = Change {
            set: &set,
            read: KEY.to_owned(),
            read_before: KEY.to_owned(),
            kinds: &[Column::Text],
            choose: &|all| all,
            may_be_taken_back,
        };
        let mut changed = Vec::new();
        for (claim, ids) in by_claim(rows) {
            for ids in ids.chunks(ROWS_PER_STATEMENT) {
                let rows = self.statements().claimed(claim, ids);
                changed.extend(Value::texts(self.database.change(via, &rows, &change).await?));
            }
        }
        Ok(changed)
    }

    async fn ids_still_claimed(&self, via: Via, rows: &[(String, Claim)]) -> Result<Vec<String>, Error> {
        let mut session = self.database.session(via).await?;
        let mut claimed = Vec::new();
        for (claim, ids) in by_claim(rows) {
            for ids in ids.chunks(ROWS_PER_STATEMENT) {
                let statement = self.statements().still_claimed(claim, ids);
                claimed.extend(Value::texts(session.fetch(&statement, &[Column::Text]).await?));
            }
        }
        Ok(claimed)
    }

    /// Changes dead rows by their ids, and tells how many the statements have changed.
    async fn change_dead(
        &self,
        ids: &[String],
        statement: impl Fn(&[&str]) -> Statement,
    ) -> Result<u64, Error> {
        let ids: Vec<_> = ids.iter().map(String::as_str).collect();
        let mut session = self.database.session(Via::Pool).await?;
        let mut changed = 0;
        for ids in ids.chunks(ROWS_PER_STATEMENT) {
            changed += self.database.execute_alone(&mut session, &statement(ids)).await?;
        }
        Ok(changed)
    }

    async fn count(&self, connection: &mut dyn Connection, status: Status, cap: u32) -> Result<Count, Error> {
        let events = self.database.fetch_count(connection, &self.statements().count(status, cap)).await?;
        Ok(Count::up_to(cap.into(), events))
    }
}

impl Store for SqlStore {
    fn migrate(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(self.explained(async {
            self.schema().migrate(&self.database).await?;
            self.check_zone().await
        }))
    }

    fn check(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(self.explained(async {
            self.schema().check(&self.database).await?;
            self.check_zone().await
        }))
    }

    fn insert<'a>(
        &'a self,
        connection: &'a mut dyn Connection,
        events: &'a [Event],
        born: Option<&'a Born>,
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(self.explained(async move {
            self.insert_parts(&mut self.database.within(connection), events, born).await
        }))
    }

    fn poll<'a>(&'a self, due: Due<'a>) -> BoxFuture<'a, Result<Vec<Row>, Error>> {
        Box::pin(self.in_time(async move {
            let rows = self.read(&self.statements().poll(due, Claimant::Any)).await?;
            Ok(row::in_order(&*self.codec, row::choose(rows, due), None))
        }))
    }

    fn next_due(&self, at: At, since: Option<Timestamp>) -> BoxFuture<'_, Result<Option<NextDue>, Error>> {
        Box::pin(self.in_time(async move {
            let mut session = self.database.session(Via::Pool).await?;
            let rows = session.fetch(&self.statements().next_due(at, since), &[Column::Time; 3]).await?;
            let Some([Value::Time(Some(asked_at)), moments @ ..]) = rows.first().map(Vec::as_slice) else {
                return Ok(None);
            };
            let next = moments.iter().filter_map(Value::time).min();
            let after = next.map(|due| (due - *asked_at).to_std().unwrap_or_default());
            Ok(Some(NextDue { asked_at: *asked_at, after }))
        }))
    }

    fn pending_pairs(&self) -> BoxFuture<'_, Result<Option<Vec<Pair>>, Error>> {
        Box::pin(self.in_time(async move {
            let mut session = self.database.session(Via::Pool).await?;
            let mut pairs = Vec::new();
            for pending in self.words.pending {
                let mut last: Option<Pair> = None;
                loop {
                    let [first, second] = self.statements().next_pair(pending, last.as_ref());
                    let mut found = session.fetch(&first, &[Column::Text; 2]).await?;
                    if found.is_empty() {
                        found = session.fetch(&second, &[Column::Text; 2]).await?;
                    }
                    let Some([aggregate_type, event_type]) = found.first().map(Vec::as_slice) else { break };
                    let pair = Pair {
                        aggregate_type: aggregate_type.text().map(str::to_owned),
                        event_type: event_type.text().unwrap_or_default().to_owned(),
                    };
                    if !pairs.contains(&pair) {
                        pairs.push(pair.clone());
                    }
                    last = Some(pair);
                }
            }
            Ok(Some(pairs))
        }))
    }

    fn check_rights(&self, rights: Rights) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(self.in_time(async move {
            let mut session = self.database.session(Via::Pool).await?;
            if rights.update {
                session.execute(&self.statements().may_update()).await?;
            }
            if rights.delete || (rights.update && self.done == Done::Delete) {
                session.execute(&self.statements().may_delete()).await?;
            }
            Ok(())
        }))
    }

    fn present<'a>(
        &'a self,
        connection: Option<&'a mut dyn Connection>,
        ids: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<String>, Error>> {
        match connection {
            Some(connection) => Box::pin(self.explained(self.present_in(connection, ids))),
            None => Box::pin(self.in_time(async {
                let mut session = self.database.session(Via::Pool).await?;
                self.find(&mut session, ids).await
            })),
        }
    }

    fn never_due(&self, limit: u32) -> BoxFuture<'_, Result<Vec<Row>, Error>> {
        Box::pin(self.in_time(async move {
            let Some(statement) = self.statements().never_due(limit) else { return Ok(Vec::new()) };
            Ok(row::in_order(&*self.codec, self.read(&statement).await?, None))
        }))
    }

    fn owned<'a>(
        &'a self,
        owner: &'a Arc<str>,
        at: At,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<Row>, Error>> {
        Box::pin(self.in_time(async move {
            let due = Due { at, limit, ..Due::default() };
            let rows = self.read(&self.statements().poll(due, Claimant::Node(owner))).await?;
            Ok(row::in_order(&*self.codec, rows, Some(owner)))
        }))
    }

    fn claim<'a>(
        &'a self,
        owner: &'a Arc<str>,
        timeout: Duration,
        due: Due<'a>,
    ) -> BoxFuture<'a, Result<Vec<Row>, Error>> {
        Box::pin(self.in_time(async move {
            let (set, choose) = (self.taking(owner, due.at), |rows| row::choose(rows, due));
            let rows = self.statements().due(due, Claimant::Nobody(timeout));
            let claimed =
                self.database.change(Via::Pool, &rows, &self.change_of_claim(&set, &choose)).await?;
            Ok(row::in_order(&*self.codec, claimed, Some(owner)))
        }))
    }

    fn release<'a>(&'a self, rows: &'a [(String, Claim)]) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(self.in_time(async move {
            let set = |statement: &mut Statement| {
                statement.push("locked_by = null, locked_at = null");
            };
            // One that is taken back would keep others from its row until it runs out.
            Ok(self.change_claimed(Via::Pool, rows, false, set).await?.len() as u64)
        }))
    }

    fn renew<'a>(&'a self, at: At, rows: &'a [(String, Claim)]) -> BoxFuture<'a, Result<Vec<String>, Error>> {
        Box::pin(self.in_time(async move {
            let now = self.statements().now(at);
            let set = |statement: &mut Statement| {
                statement.write("locked_at = {now}", &[("now", &now)]);
            };
            match self.change_claimed(Via::Reserve, rows, true, set).await {
                Err(error) if self.database.has_reserve() => {
                    tracing::debug!(%error, "cannot renew claims beside the pool");
                    self.change_claimed(Via::Pool, rows, true, set).await
                }
                renewed => renewed,
            }
        }))
    }

    fn still_claimed<'a>(&'a self, rows: &'a [(String, Claim)]) -> BoxFuture<'a, Result<Vec<String>, Error>> {
        Box::pin(self.in_time(async move {
            match self.ids_still_claimed(Via::Reserve, rows).await {
                Err(_) if self.database.has_reserve() => self.ids_still_claimed(Via::Pool, rows).await,
                claimed => claimed,
            }
        }))
    }

    fn settle<'a>(&'a self, at: At, settles: &'a [Settle]) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(self.in_time(async move {
            let mut session = self.database.session(Via::PoolOrReserve).await?;
            let mut settled = 0;
            for group in gather(settles) {
                let statement = self.statements().settle(at, &group);
                settled += self.database.execute_alone(&mut session, &statement).await?;
            }
            Ok(settled)
        }))
    }

    fn unsettled<'a>(&'a self, settles: &'a [Settle]) -> BoxFuture<'a, Result<Vec<String>, Error>> {
        Box::pin(self.in_time(async move {
            let mut session = self.database.session(Via::PoolOrReserve).await?;
            let mut unsettled = Vec::new();
            for group in gather(settles) {
                let statement = self.statements().unsettled(&group);
                unsettled.extend(Value::texts(session.fetch(&statement, &[Column::Text]).await?));
            }
            Ok(unsettled)
        }))
    }

    fn bury_unreadable<'a>(&'a self, at: At, rows: &'a [Unreadable]) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(async move {
            let by_id = rows.iter().filter(|row| row.key.is_none());
            let mut buried = self.settle(at, &by_id.map(Unreadable::settle).collect::<Vec<_>>()).await?;
            let by_key = rows.iter().filter_map(|row| Some((row, row.key.as_deref()?)));
            for (row, key) in by_key {
                let statement = self.statements().bury_by_key(at, row, key);
                let bury = async {
                    let mut session = self.database.session(Via::Pool).await?;
                    self.database.execute_alone(&mut session, &statement).await
                };
                buried += self.in_time(bury).await?;
            }
            Ok(buried)
        })
    }

    fn census(&self, cap: u32) -> BoxFuture<'_, Result<Census, Error>> {
        Box::pin(self.explained(async move {
            let mut session = self.database.session(Via::Pool).await?;
            Ok(Census {
                waiting: self.count(&mut session, Status::New, cap).await?,
                retrying: self.count(&mut session, Status::Retry, cap).await?,
                dead: self.count(&mut session, Status::Dead, cap).await?,
                done: self.count(&mut session, Status::Done, cap).await?,
            })
        }))
    }

    fn sample(&self, at: At, cap: u32) -> BoxFuture<'_, Result<Option<Sample>, Error>> {
        Box::pin(self.in_time(async move {
            let mut sample = Sample::default();
            for status in [Status::New, Status::Retry, Status::Dead] {
                // A connection for each, so that whoever waits for one waits for a single statement.
                let mut session = self.database.session(Via::Pool).await?;
                let rows =
                    session.fetch(&self.statements().sample(status, at, cap), &row::SAMPLED_KINDS).await?;
                drop(session);
                let kinds: Vec<_> = rows.iter().map(|row| row::to_sampled(row, status)).collect();
                if kinds.iter().map(|kind| kind.events).sum::<u64>() >= u64::from(cap) {
                    sample.capped.push(status);
                }
                sample.kinds.extend(kinds);
            }
            Ok(Some(sample))
        }))
    }

    fn troubled(&self, limit: u32) -> BoxFuture<'_, Result<Vec<Troubled>, Error>> {
        Box::pin(self.explained(async move {
            let mut session = self.database.session(Via::Pool).await?;
            let mut read = Vec::new();
            for (status, place) in [(Status::Dead, "dead"), (Status::Retry, "retrying")] {
                let statement = self.statements().troubled(status, limit);
                let rows = session.fetch(&statement, &row::TROUBLED_KINDS).await?;
                read.push(rows.iter().map(|row| row::to_troubled(row, status, place)).collect::<Vec<_>>());
            }
            // Many dead must not hide those that retry: each has half of the room, and what the other leaves.
            let limit = limit as usize;
            let retrying = read.pop().unwrap_or_default();
            let mut troubled = read.pop().unwrap_or_default();
            troubled.truncate(limit - retrying.len().min(limit / 2));
            troubled.extend(retrying);
            troubled.truncate(limit);
            Ok(troubled)
        }))
    }

    fn query_dead<'a>(
        &'a self,
        filter: &'a DeadFilter,
        after: Option<&'a After>,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<DeadEvent>, Error>> {
        Box::pin(self.explained(async move {
            let statement = self.statements().query_dead(filter, after, limit);
            let kinds: Vec<_> = row::KINDS.into_iter().chain(row::ENDING_KINDS).collect();
            let rows = self.database.session(Via::Pool).await?.fetch(&statement, &kinds).await?;
            Ok(rows.into_iter().map(|row| row::to_dead(&*self.codec, row)).collect())
        }))
    }

    fn count_dead<'a>(&'a self, filter: &'a DeadFilter) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(self.explained(async move {
            let mut session = self.database.session(Via::Pool).await?;
            self.database.fetch_count(&mut session, &self.statements().count_dead(filter)).await
        }))
    }

    fn count_dead_up_to<'a>(
        &'a self,
        filter: &'a DeadFilter,
        cap: u32,
    ) -> BoxFuture<'a, Result<Count, Error>> {
        if filter.ids.is_some() {
            // They are reached by their keys.
            return Box::pin(async move { self.count_dead(filter).await.map(Count::exactly) });
        }
        Box::pin(self.explained(async move {
            let mut session = self.database.session(Via::Pool).await?;
            let dead = self.statements().count(Status::Dead, cap.saturating_add(1));
            let capped = self.database.fetch_count(&mut session, &dead).await? > u64::from(cap);
            let matching = self.statements().count_oldest_dead(filter, cap);
            Ok(Count { events: self.database.fetch_count(&mut session, &matching).await?, capped })
        }))
    }

    fn newest_dead(&self) -> BoxFuture<'_, Result<Option<Timestamp>, Error>> {
        Box::pin(self.explained(async move {
            let mut session = self.database.session(Via::Pool).await?;
            let rows = session.fetch(&self.statements().newest_dead(), &[Column::Time]).await?;
            Ok(rows.first().and_then(|row| row[0].time()))
        }))
    }

    fn replay_dead<'a>(&'a self, at: At, ids: &'a [String]) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(self.in_time(self.change_dead(ids, move |ids| self.statements().replay_dead(at, ids))))
    }

    fn redriven<'a>(&'a self, at: At, ids: &'a [String]) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(self.in_time(self.change_dead(ids, move |ids| self.statements().redriven(at, ids))))
    }

    fn discard_dead<'a>(
        &'a self,
        filter: &'a DeadFilter,
        ids: &'a [String],
    ) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(self.in_time(self.change_dead(ids, move |ids| self.statements().discard_dead(filter, ids))))
    }

    fn whereabouts<'a>(&'a self, at: At, id: &'a str) -> BoxFuture<'a, Result<Option<Whereabouts>, Error>> {
        Box::pin(self.in_time(async move {
            let statement = self.statements().whereabouts(at, id);
            let kinds = row::KINDS.into_iter().chain(row::ENDING_KINDS).chain(row::HOLD_KINDS);
            let kinds: Vec<_> = kinds.collect();
            let mut rows = self.database.session(Via::Pool).await?.fetch(&statement, &kinds).await?;
            Ok(rows.pop().map(|row| row::to_whereabouts(&*self.codec, row)))
        }))
    }

    fn bring_back<'a>(&'a self, event: &'a Event) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(self.in_time(async move {
            // One statement: it needs no transaction around it.
            let mut session = self.database.session(Via::Pool).await?;
            match self.insert_parts(&mut session, std::slice::from_ref(event), None).await {
                Ok(()) => Ok(true),
                Err(error) if error.is_taken() => Ok(false),
                Err(error) => Err(error),
            }
        }))
    }

    fn wake_nodes(&self) -> BoxFuture<'_, Result<(), Error>> {
        match &self.wake_ups {
            Some(wake_ups) => Box::pin(self.in_time(wake_ups.send())),
            None => Box::pin(async { Ok(()) }),
        }
    }

    fn purge<'a>(
        &'a self,
        connection: &'a mut dyn Connection,
        what: Purgeable,
        at: At,
        age: Duration,
        limit: u32,
    ) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(self.in_time(async move {
            let mut session = self.database.within(connection);
            let mut purged = 0;
            for mut rows in self.statements().old(what, at, age, limit) {
                rows.at_most(limit.saturating_sub(u32::try_from(purged).unwrap_or(u32::MAX)));
                purged += self.database.dialect().delete(&mut session, &mut rows).await?;
            }
            Ok(purged)
        }))
    }
}

impl SqlStore {
    /// What a claim writes into its rows.
    pub(super) fn taking<'a>(&'a self, owner: &'a str, at: At) -> impl Fn(&mut Statement) + Sync + 'a {
        let now = self.statements().now(at);
        move |statement| {
            statement.write(
                "locked_by = {owner}, locked_at = {now}, claim_seq = claim_seq + 1",
                &[("owner", &owner), ("now", &now)],
            );
        }
    }
}

/// Runs a statement of our own without values.
pub(super) async fn run(connection: &mut dyn Connection, text: &str) -> Result<(), Error> {
    connection.execute(&Statement::plain(text)).await.map(drop)
}

impl fmt::Debug for SqlStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlStore")
            .field("database", &self.database)
            .field("table", &self.table)
            .finish_non_exhaustive()
    }
}

/// The rows of each claim.
fn by_claim(rows: &[(String, Claim)]) -> BTreeMap<(&str, i64), Vec<&str>> {
    let mut claims: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (id, claim) in rows {
        claims.entry(key(claim)).or_default().push(id.as_str());
    }
    claims
}
