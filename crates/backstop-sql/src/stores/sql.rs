//! The store on any SQL database.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use backstop_core::codec::{Codec, HeaderCodec, Json};
use backstop_core::inspect::{Count, Troubled};
use backstop_core::{Event, Timestamp};
use tokio::time::timeout;

use super::alike::gather;
use super::or_beside::OrBeside;
use super::row::{self, int};
use super::statements::{Statements, key};
use super::{Change, ClaimQuestion, DatabaseKind, Dialect, Explanation, Supported};
use crate::connection::{Connection, Connections, Kind};
use crate::pooler::{Pooled, Unprepared};
use crate::statement::{Statement, Value};
use crate::store::{
    After, At, Born, Census, Claim, DeadEvent, DeadFilter, Done, Due, NextDue, Purgeable, Rights, Row,
    Settle, Status, Store, Unreadable,
};
use crate::time_zone::Zoned;
use crate::{BoxFuture, Error, TableName, TimeZone, migration};

/// How many rows one statement names, well below what any database allows as bound values.
pub(super) const ROWS_PER_STATEMENT: usize = 500;

/// How many bytes of payload one statement carries, well below what servers accept by default.
const BYTES_PER_STATEMENT: usize = 4 * 1024 * 1024;

/// How long a question about due rows or a settlement may take, by default.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often a statement is tried that lost against another one.
const TRIES: u32 = 5;

/// An outbox table on a SQL database.
///
/// [`Outbox`](crate::Outbox) makes its own; by itself it serves tools and tests that look at the table.
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
    pub(super) dialect: &'static dyn Dialect,
    pub(super) connections: Arc<dyn Connections>,
    /// Connections that the application cannot take: claims must be renewed while it has all of the pool's.
    pub(super) beside: Option<Arc<dyn Connections>>,
    /// Where what became of events is written: the pool, and beside it while the application has all of its connections.
    pub(super) settling: Arc<dyn Connections>,
    pub(super) table: TableName,
    codec: Arc<dyn HeaderCodec>,
    done: Done,
    pub(super) zone: TimeZone,
    pub(super) pooled: bool,
    patience: Duration,
}

impl SqlStore {
    /// A table of that name on the pool's database.
    pub fn on<DB: Supported>(pool: sqlx::Pool<DB>, table: TableName) -> Self {
        Self::new(DB::dialect(), DB::connections(pool), table)
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
    /// assert!(refused.unwrap_err().to_string().contains("names no database that is known, but \"oracle\""));
    /// # Ok::<(), backstop_sql::Error>(()) }).unwrap();
    /// ```
    pub async fn connect(url: &str, table: TableName) -> Result<Self, Error> {
        DatabaseKind::of(url)?.connect(url, table).await
    }

    /// Writes and reads headers with a codec of one's own. Defaults to [`Json`].
    pub fn codec(mut self, codec: impl Codec) -> Self {
        self.codec = Arc::new(codec);
        self
    }

    /// What becomes of a row whose event was handled. Defaults to [`Done::Keep`].
    pub fn done(mut self, done: Done) -> Self {
        self.done = done;
        self
    }

    /// How long reading, claiming, renewing and settling may take. After that the connection is given up: where a
    /// network swallows everything, no error would ever come. Defaults to 30 s.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Works through a pooler that shares connections between transactions, as PgBouncer does in transaction
    /// mode: nothing is prepared, and each statement is a transaction.
    pub fn behind_pooler(mut self) -> Self {
        let pooled = |connections| Arc::new(Pooled(connections)) as Arc<dyn Connections>;
        self.connections = pooled(self.connections);
        self.beside = self.beside.map(pooled);
        self.settling = pooled(self.settling);
        self.pooled = true;
        self
    }

    /// Renews claims on these connections, and on the pool's where they fail; settles on the pool's, and on these where it
    /// has none.
    pub(crate) fn beside(mut self, beside: Option<Arc<dyn Connections>>) -> Self {
        if let Some(beside) = &beside {
            let (pool, beside) = (self.connections.clone(), beside.clone());
            self.settling = Arc::new(OrBeside { pool, beside });
        }
        self.beside = beside;
        self
    }

    pub(crate) fn new(
        dialect: &'static dyn Dialect,
        connections: Arc<dyn Connections>,
        table: TableName,
    ) -> Self {
        Self {
            dialect,
            settling: connections.clone(),
            connections,
            beside: None,
            table,
            codec: Arc::new(Json),
            done: Done::Keep,
            zone: TimeZone::default(),
            pooled: false,
            patience: PATIENCE,
        }
    }

    /// The text of an event's headers: NULL for none, as others write it too.
    fn headers_of(&self, event: &Event) -> Result<Option<String>, Error> {
        let headers = event.headers();
        if headers.is_empty() { Ok(None) } else { Ok(Some(self.codec.write_headers(headers)?)) }
    }

    pub(super) async fn run(&self, connection: &mut dyn Connection, text: &'static str) -> Result<(), Error> {
        let mut statement = Statement::new(self.dialect.marks());
        statement.push(text);
        self.execute(connection, &statement).await.map(drop)
    }

    pub(super) fn statements(&self) -> Statements<'_> {
        Statements { dialect: self.dialect, table: &self.table, done: self.done, zone: self.zone }
    }

    pub(super) fn question<'a>(
        &'a self,
        owner: &'a str,
        timeout: Duration,
        due: Due<'a>,
    ) -> ClaimQuestion<'a> {
        ClaimQuestion { table: &self.table, owner, timeout, due, zone: self.zone }
    }

    /// Changes rows under their claims, and tells which, by their ids.
    async fn change_claimed(
        &self,
        connections: &Arc<dyn Connections>,
        rows: &[(String, Claim)],
        set: impl Fn(&mut Statement) + Sync,
    ) -> Result<Vec<String>, Error> {
        let connections = Zoned { inner: connections.clone(), zone: self.zone };
        let mut changed = Vec::new();
        for (claim, ids) in by_claim(rows) {
            for ids in ids.chunks(ROWS_PER_STATEMENT) {
                let mut tries = 1;
                changed.extend(loop {
                    let change = Change { statements: self.statements(), claim, ids, set: &set };
                    match self.dialect.change(&connections, change).await {
                        Err(error) if self.may_win(&mut tries, &error) => {}
                        other => break other.map_err(|error| self.explain(error))?,
                    }
                });
            }
        }
        Ok(changed)
    }

    async fn ids_still_claimed(
        &self,
        connections: &Arc<dyn Connections>,
        rows: &[(String, Claim)],
    ) -> Result<Vec<String>, Error> {
        let mut connection = self.connection_of(connections).await?;
        let mut claimed = Vec::new();
        for (claim, ids) in by_claim(rows) {
            for ids in ids.chunks(ROWS_PER_STATEMENT) {
                let statement = self.statements().still_claimed(claim, ids);
                claimed.extend(row::ids(self.fetch(&mut *connection, &statement, &[Kind::Text]).await?));
            }
        }
        Ok(claimed)
    }

    /// Gives work up that takes too long.
    async fn in_time<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let late = || sqlx::Error::Io(std::io::ErrorKind::TimedOut.into());
        let given_up = |_| Err(Error::database("waiting for the database")(late()));
        timeout(self.patience, work).await.unwrap_or_else(given_up)
    }

    /// Gives a driver's error the words that help.
    fn explain(&self, error: Error) -> Error {
        let Error::Database { source, .. } = &error else { return error };
        match self.dialect.explain(source) {
            Some(Explanation::NoTable) => Error::NoTable { table: self.table.to_string() },
            Some(Explanation::NotPermitted) => {
                Error::NotPermitted { table: self.table.to_string(), said: source.to_string() }
            }
            Some(Explanation::OnlyReads) => {
                Error::OnlyReads { table: self.table.to_string(), said: source.to_string() }
            }
            Some(Explanation::Pooler) => Error::Pooler,
            Some(Explanation::Lost | Explanation::Aborted | Explanation::Within) | None => error,
        }
    }

    /// Whether an error says this.
    pub(super) fn means(&self, error: &Error, explanation: Explanation) -> bool {
        matches!(error, Error::Database { source, .. } if self.dialect.explain(source) == Some(explanation))
    }

    pub(super) async fn connection(&self) -> Result<Box<dyn Connection + '_>, Error> {
        self.connection_of(&self.connections).await
    }

    async fn connection_of<'a>(
        &self,
        connections: &'a Arc<dyn Connections>,
    ) -> Result<Box<dyn Connection + 'a>, Error> {
        Ok(Box::new(Zoned { inner: connections.connection().await?, zone: self.zone }))
    }

    /// Runs a statement within the caller's transaction.
    async fn execute(&self, connection: &mut dyn Connection, statement: &Statement) -> Result<u64, Error> {
        connection.execute(statement).await.map_err(|error| self.explain(error))
    }

    /// Runs a statement that is a transaction of its own, again if it lost against another one.
    async fn execute_alone(
        &self,
        connection: &mut dyn Connection,
        statement: &Statement,
    ) -> Result<u64, Error> {
        let mut tries = 1;
        loop {
            match connection.execute(statement).await {
                Err(error) if self.may_win(&mut tries, &error) => {}
                other => return other.map_err(|error| self.explain(error)),
            }
        }
    }

    /// Whether what lost against another statement is worth another try.
    fn may_win(&self, tries: &mut u32, error: &Error) -> bool {
        let again = *tries < TRIES && self.means(error, Explanation::Lost);
        if again {
            *tries += 1;
            tracing::debug!(%error, "trying again");
        }
        again
    }

    pub(super) async fn fetch(
        &self,
        connection: &mut dyn Connection,
        statement: &Statement,
        columns: &[Kind],
    ) -> Result<Vec<Vec<Value>>, Error> {
        connection.fetch(statement, columns).await.map_err(|error| self.explain(error))
    }

    async fn count(&self, connection: &mut dyn Connection, status: Status, cap: u32) -> Result<Count, Error> {
        let events = self.fetch_count(connection, &self.statements().count(status, cap)).await?;
        Ok(Count::up_to(cap.into(), events))
    }

    pub(super) async fn fetch_count(
        &self,
        connection: &mut dyn Connection,
        statement: &Statement,
    ) -> Result<u64, Error> {
        let rows = self.fetch(connection, statement, &[Kind::Int]).await?;
        Ok(rows.first().and_then(|row| int(&row[0])).unwrap_or_default().unsigned_abs())
    }
}

impl Store for SqlStore {
    fn migrate(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async {
            // A task of its own, which goes on when the caller gives up: a lock that belongs to the session
            // would go back to the pool with the connection.
            let Self { dialect, connections, table, .. } = self.clone();
            let migrating =
                tokio::spawn(async move { migration::migrate(dialect, &*connections, &table).await });
            let migrated = migrating.await.unwrap_or(Err(Error::State("the migration was interrupted")));
            migrated.map_err(|error| self.explain(error))?;
            self.check_zone(&mut *self.connection().await?).await
        })
    }

    fn check(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async {
            let mut connection = self.connection().await?;
            let checked = migration::check(self.dialect, &mut *connection, &self.table).await;
            checked.map_err(|error| self.explain(error))?;
            self.check_zone(&mut *connection).await
        })
    }

    fn insert<'a>(
        &'a self,
        connection: &'a mut dyn Connection,
        events: &'a [Event],
        born: Option<&'a Born>,
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let with_headers = |event| Ok((event, self.headers_of(event)?));
            let events = events.iter().map(with_headers).collect::<Result<Vec<_>, Error>>()?;
            let parts: Vec<_> = in_parts(&events).collect();
            let mut zoned = Zoned { inner: connection, zone: self.zone };
            let mut unprepared = Unprepared(&mut zoned as &mut dyn Connection);
            let connection = if self.pooled { &mut unprepared as &mut dyn Connection } else { unprepared.0 };
            self.check_within(connection).await?;
            if let [part] = parts[..] {
                return self.execute(connection, &self.statements().insert(part, born)).await.map(drop);
            }
            // All or none, also for a caller who goes on after an error.
            self.run(connection, "savepoint backstop_append").await?;
            for part in parts {
                if let Err(error) = self.execute(connection, &self.statements().insert(part, born)).await {
                    // The first error is the one that helps.
                    let _ = self.run(connection, "rollback to savepoint backstop_append").await;
                    return Err(error);
                }
            }
            self.run(connection, "release savepoint backstop_append").await
        })
    }

    fn poll<'a>(&'a self, due: Due<'a>) -> BoxFuture<'a, Result<Vec<Row>, Error>> {
        Box::pin(self.in_time(async move {
            let mut connection = self.connection().await?;
            let rows = self.fetch(&mut *connection, &self.statements().poll(due), &row::KINDS).await?;
            Ok(row::in_order(&*self.codec, row::choose(rows, due), None))
        }))
    }

    fn next_due(&self, at: At, since: Option<Timestamp>) -> BoxFuture<'_, Result<Option<NextDue>, Error>> {
        Box::pin(self.in_time(async move {
            let mut connection = self.connection().await?;
            let statement = self.statements().next_due(at, since);
            let rows = self.fetch(&mut *connection, &statement, &[Kind::Time; 3]).await?;
            let Some([Value::Time(Some(asked_at)), moments @ ..]) = rows.first().map(Vec::as_slice) else {
                return Ok(None);
            };
            let next = moments.iter().filter_map(row::time).min();
            let after = next.map(|due| (due - *asked_at).to_std().unwrap_or_default());
            Ok(Some(NextDue { asked_at: *asked_at, after }))
        }))
    }

    fn check_rights(&self, rights: Rights) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(self.in_time(async move {
            let mut connection = self.connection().await?;
            if rights.update {
                self.execute(&mut *connection, &self.statements().may_update()).await?;
            }
            if rights.delete || (rights.update && self.done == Done::Delete) {
                self.execute(&mut *connection, &self.statements().may_delete()).await?;
            }
            Ok(())
        }))
    }

    fn present<'a>(
        &'a self,
        connection: Option<&'a mut dyn Connection>,
        ids: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<String>, Error>> {
        Box::pin(async move {
            match connection {
                Some(connection) => self.present_in(connection, ids).await,
                None => {
                    self.in_time(async {
                        let mut connection = self.connection().await?;
                        self.find(&mut *connection, ids).await
                    })
                    .await
                }
            }
        })
    }

    fn never_due(&self, limit: u32) -> BoxFuture<'_, Result<Vec<Row>, Error>> {
        Box::pin(self.in_time(async move {
            let Some(statement) = self.statements().never_due(limit) else { return Ok(Vec::new()) };
            let mut connection = self.connection().await?;
            let rows = self.fetch(&mut *connection, &statement, &row::KINDS).await?;
            Ok(row::in_order(&*self.codec, rows, None))
        }))
    }

    fn owned<'a>(
        &'a self,
        owner: &'a Arc<str>,
        at: At,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<Row>, Error>> {
        Box::pin(self.in_time(async move {
            let mut connection = self.connection().await?;
            let statement = self.statements().owned(owner, at, limit);
            let rows = self.fetch(&mut *connection, &statement, &row::KINDS).await?;
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
            let question = self.question(owner, timeout, due);
            let connections = Zoned { inner: self.connections.clone(), zone: self.zone };
            let mut tries = 1;
            let claimed = loop {
                match self.dialect.claim(&connections, question).await {
                    Err(error) if self.may_win(&mut tries, &error) => {}
                    other => break other.map_err(|error| self.explain(error))?,
                }
            };
            Ok(row::in_order(&*self.codec, claimed, Some(owner)))
        }))
    }

    fn release<'a>(&'a self, rows: &'a [(String, Claim)]) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(self.in_time(async move {
            let set = |statement: &mut Statement| {
                statement.push("locked_by = null, locked_at = null");
            };
            Ok(self.change_claimed(&self.connections, rows, set).await?.len() as u64)
        }))
    }

    fn renew<'a>(&'a self, at: At, rows: &'a [(String, Claim)]) -> BoxFuture<'a, Result<Vec<String>, Error>> {
        Box::pin(self.in_time(async move {
            let set = |statement: &mut Statement| {
                statement.push("locked_at = ");
                self.statements().moment(statement, at);
            };
            if let Some(beside) = &self.beside {
                match self.change_claimed(beside, rows, set).await {
                    Ok(renewed) => return Ok(renewed),
                    Err(error) => tracing::debug!(%error, "cannot renew claims beside the pool"),
                }
            }
            self.change_claimed(&self.connections, rows, set).await
        }))
    }

    fn still_claimed<'a>(&'a self, rows: &'a [(String, Claim)]) -> BoxFuture<'a, Result<Vec<String>, Error>> {
        Box::pin(self.in_time(async move {
            if let Some(beside) = &self.beside
                && let Ok(claimed) = self.ids_still_claimed(beside, rows).await
            {
                return Ok(claimed);
            }
            self.ids_still_claimed(&self.connections, rows).await
        }))
    }

    fn settle<'a>(&'a self, at: At, settles: &'a [Settle]) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(self.in_time(async move {
            let mut connection = self.connection_of(&self.settling).await?;
            let mut settled = 0;
            for alike in gather(settles) {
                let statement = self.statements().settle(at, &alike);
                settled += self.execute_alone(&mut *connection, &statement).await?;
            }
            Ok(settled)
        }))
    }

    fn unsettled<'a>(&'a self, settles: &'a [Settle]) -> BoxFuture<'a, Result<Vec<String>, Error>> {
        Box::pin(self.in_time(async move {
            let mut connection = self.connection_of(&self.settling).await?;
            let mut unsettled = Vec::new();
            for alike in gather(settles) {
                let statement = self.statements().unsettled(&alike);
                unsettled.extend(row::ids(self.fetch(&mut *connection, &statement, &[Kind::Text]).await?));
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
                    let mut connection = self.connection().await?;
                    self.execute_alone(&mut *connection, &statement).await
                };
                buried += self.in_time(bury).await?;
            }
            Ok(buried)
        })
    }

    fn census(&self, cap: u32) -> BoxFuture<'_, Result<Census, Error>> {
        Box::pin(async move {
            let mut connection = self.connection().await?;
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
            let mut connection = self.connection().await?;
            let mut read = Vec::new();
            for (status, place) in [(Status::Dead, "dead"), (Status::Retry, "retrying")] {
                let statement = self.statements().troubled(status, limit);
                let rows = self.fetch(&mut *connection, &statement, &row::TROUBLED_KINDS).await?;
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
        })
    }

    fn query_dead<'a>(
        &'a self,
        filter: &'a DeadFilter,
        after: Option<&'a After>,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<DeadEvent>, Error>> {
        Box::pin(async move {
            let statement = self.statements().query_dead(filter, after, limit);
            let kinds: Vec<_> = row::KINDS.into_iter().chain(row::ENDING_KINDS).collect();
            let mut connection = self.connection().await?;
            let rows = self.fetch(&mut *connection, &statement, &kinds).await?;
            Ok(rows.into_iter().map(|row| row::to_dead(&*self.codec, row)).collect())
        })
    }

    fn count_dead<'a>(&'a self, filter: &'a DeadFilter) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(async move {
            let mut connection = self.connection().await?;
            self.fetch_count(&mut *connection, &self.statements().count_dead(filter)).await
        })
    }

    fn replay_dead<'a>(&'a self, at: At, ids: &'a [String]) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(async move {
            let ids: Vec<_> = ids.iter().map(String::as_str).collect();
            let mut connection = self.connection().await?;
            let mut replayed = 0;
            for ids in ids.chunks(ROWS_PER_STATEMENT) {
                let statement = self.statements().replay_dead(at, ids);
                replayed += self.execute_alone(&mut *connection, &statement).await?;
            }
            Ok(replayed)
        })
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
            let mut connection = Zoned { inner: connection, zone: self.zone };
            let mut purged = 0;
            for mut part in what.parts(self.statements(), at, age, limit) {
                part.limit = limit.saturating_sub(u32::try_from(purged).unwrap_or(u32::MAX));
                let deleted = self.dialect.purge(&mut connection, part).await;
                purged += deleted.map_err(|error| self.explain(error))?;
            }
            Ok(purged)
        }))
    }
}

/// Splits events into what one statement may hold: so many rows, and so many bytes.
fn in_parts<'a, 'e>(
    events: &'a [(&'e Event, Option<String>)],
) -> impl Iterator<Item = &'a [(&'e Event, Option<String>)]> {
    let mut rest = events;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = rest.iter().take(ROWS_PER_STATEMENT).take_while(|(event, headers)| {
            let size = event.payload_json().len() + headers.as_ref().map_or(0, String::len);
            let first = bytes == 0;
            bytes += size;
            first || bytes <= BYTES_PER_STATEMENT
        });
        let part;
        (part, rest) = rest.split_at(fits.count());
        (!part.is_empty()).then_some(part)
    })
}

impl fmt::Debug for SqlStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlStore")
            .field("dialect", &self.dialect)
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
