//! What can go wrong with an outbox, and what to do about it.

use std::time::Duration;

use backstop_core::InvalidEvent;
use backstop_core::config::Config;
use backstop_core::setting::{Faults, SettingFault};

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An event breaks its rules.
    #[error(transparent)]
    Event(#[from] InvalidEvent),

    /// The headers of an event cannot be written as text.
    #[error("the headers of an event cannot be written: {0}")]
    Headers(#[from] backstop_core::codec::CodecError),

    /// The database refused or did not answer.
    #[error("while {doing}: {source}")]
    Database {
        /// What was being done.
        doing: &'static str,
        /// What the database or its driver said.
        source: sqlx::Error,
    },

    /// A driver other than our own failed.
    #[error("while {doing}: {source}")]
    Driver {
        /// What was being done.
        doing: &'static str,
        /// What the driver said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },

    /// A database file that cannot be opened.
    #[error("cannot open the database {}: {source}; check that its directory exists and can be written to", .path.display())]
    Open {
        /// The file.
        path: std::path::PathBuf,
        /// What the driver said.
        source: sqlx::Error,
    },

    /// A table name that is not a plain identifier.
    #[error(
        "table name {0:?} must be a letter or underscore followed by letters, digits or underscores, at most 63 in all"
    )]
    TableName(String),

    /// A text that is not a time zone.
    #[error(
        "time zone {0:?} must be UTC or a fixed distance from it such as +02:00, at most 14 hours; the name of a zone \
         is not accepted, because an hour comes twice when clocks are set back"
    )]
    TimeZone(String),

    /// A time zone was given for a table whose columns carry their own.
    #[error(
        "setting time_zone (in a settings file `database.time-zone`) is for columns that carry no time zone, DATETIME on \
         MySQL and TIMESTAMP on PostgreSQL; some time columns of table {table} carry one, so leave the setting out"
    )]
    TimeZoneKnown {
        /// The table.
        table: String,
    },

    /// A PostgreSQL session shifts the moments of a table whose columns carry no time zone.
    #[error(
        "table {table} has TIMESTAMP columns, which carry no time zone, and the session's setting TimeZone is {zone}, so \
         PostgreSQL would shift its times; keep the session in UTC, as sqlx does by itself (look for `SET TIME ZONE` in \
         the pool's after_connect), and name the table's zone with the setting time_zone (in a settings file \
         `database.time-zone`)"
    )]
    SessionTimeZone {
        /// The table.
        table: String,
        /// The session's zone.
        zone: String,
    },

    /// There is no such table.
    #[error(
        "there is no table {table}; let `migrate` create it, or run the .sql file of your database from docs/sql"
    )]
    NoTable {
        /// The table.
        table: String,
    },

    /// The server accepts no changes.
    #[error(
        "the database with table {table} is read-only, as a replica is: {said}; connect to the server that accepts writes"
    )]
    OnlyReads {
        /// The table.
        table: String,
        /// What the database said.
        said: String,
    },

    /// The table belongs to somebody else, or the database may not be written to.
    #[error(
        "the database user may not do this with table {table}: {said}; grant it select, insert, update and delete"
    )]
    NotPermitted {
        /// The table.
        table: String,
        /// What the database said.
        said: String,
    },

    /// The table has not been migrated to the version that this code needs.
    #[error(
        "table {table} has schema version {found}, but this version of Backstop needs {wanted}; run `migrate`"
    )]
    OldSchema {
        /// The table.
        table: String,
        /// The version it has.
        found: i64,
        /// The version that is needed.
        wanted: i64,
    },

    /// The table was migrated by a newer version of Backstop.
    #[error(
        "table {table} has schema version {found}, but this version of Backstop knows only {known}; update Backstop"
    )]
    NewSchema {
        /// The table.
        table: String,
        /// The version it has.
        found: i64,
        /// The newest version known here.
        known: i64,
    },

    /// A column of the table is missing, although all migrations ran.
    #[error(
        "table {table} was changed by somebody else: {said}; give the column back its name and type, as the .sql file of \
         your database in docs/sql has them"
    )]
    ChangedTable {
        /// The table.
        table: String,
        /// What the database said.
        said: String,
    },

    /// Another process delivers from this table, and at least one of the two runs in a single-process mode.
    #[error(
        "another process delivers from table {table}, and at least one of the two runs in a single-process mode; stop one of \
         them, run both in mode multi-node, or switch this check off (setting `guard`, in a settings file \
         `database.guard: false`)"
    )]
    NotAlone {
        /// The table.
        table: String,
    },

    /// The lock file beside a SQLite database cannot be used.
    #[error("cannot use the lock file {}: {source}; check that its directory can be written to", .path.display())]
    LockFile {
        /// The file.
        path: std::path::PathBuf,
        /// What the system said.
        source: std::io::Error,
    },

    /// A pooler between us and the database shares connections, and nobody said so.
    #[error(
        "a pooler such as PgBouncer shares this connection between transactions, so prepared statements and locks do \
         not stay with it; set `behind_pooler` (in a settings file `database.behind-pooler: true`), \
         or connect to the database itself"
    )]
    Pooler,

    /// An event was to be appended outside any transaction.
    #[error(
        "no transaction is open: begin one first, so that the event is stored together with your changes"
    )]
    NoTransaction,

    /// The transaction had ended before it was to be committed, or before an event was to be appended in it.
    #[error(
        "this transaction had already ended: {said}; either an earlier statement in it failed, its error was ignored and the \
         database rolled all of it back, or a statement such as CREATE TABLE committed it: find that statement, and see what \
         is in your tables before you run the transaction again"
    )]
    RolledBack {
        /// What the database said when it was asked.
        said: String,
    },

    /// A hook refused the events before they were written.
    #[error("a hook refused the events: {0}")]
    Hook(#[source] Box<dyn std::error::Error + Send + Sync>),

    /// Something was done in an order that makes no sense, such as starting after closing.
    #[error("{0}")]
    State(&'static str),

    /// Settings that make no sense or are missing, all at once.
    #[error("{}", list(faults))]
    Settings {
        /// Every fault.
        faults: Vec<SettingFault>,
    },

    /// Two handlers for the same events.
    #[error(
        "a handler for aggregate type {aggregate_type:?}, event type {event_type:?} is already registered"
    )]
    Duplicate {
        /// The aggregate type of both.
        aggregate_type: String,
        /// The event type of both.
        event_type: String,
    },

    /// The outbox did not stop in time; the events that it had in hand are still in the table.
    #[error(
        "the outbox did not stop within {0:?}; events that it had in hand stay in the table and are delivered later"
    )]
    Drain(Duration),

    /// A database server that cannot be reached.
    #[error("cannot connect to {server}: {source}; check that it runs there and can be reached")]
    Connect {
        /// Where it should be. Never a password.
        server: String,
        /// What the driver said.
        source: sqlx::Error,
    },

    /// No encrypted connection to a database server: it has no TLS, its certificate is refused here, or ours is there.
    #[error("{server}: {why}")]
    Tls {
        /// Where it is. Never a password.
        server: String,
        /// What is wrong, and what to do.
        why: String,
    },

    /// A database server that answers and refuses the user or the password.
    #[error(
        "{server} refuses this user and password: {said}; check them in the database URL, and whether the server wants TLS \
         or a client certificate from this user"
    )]
    Login {
        /// Where it is. Never a password.
        server: String,
        /// What the server said.
        said: String,
    },

    /// A server that has no database of that name, or none that this user may use.
    #[error("{server} cannot be used: {said}; create the database, or name another in the database URL")]
    NoDatabase {
        /// Where it is. Never a password.
        server: String,
        /// What the server said.
        said: String,
    },

    /// A database URL that cannot be used. It is not shown, because it may hold a password.
    #[error("the database URL cannot be used: {why}; write it like {example}")]
    Url {
        /// What is wrong with it, without quoting any part of it.
        why: String,
        /// How such a URL is written.
        example: &'static str,
    },

    /// A database URL that does not name a known database.
    #[error(
        "the database URL does not name a known database{}; begin it with postgres:, mysql:, mariadb: or sqlite:",
        named(scheme)
    )]
    Scheme {
        /// The part before `://`; empty if there is none, since the text may then be a password.
        scheme: String,
    },

    /// A database that this program was built without.
    #[error("this program was built without {database}; build it with the cargo feature `{feature}`")]
    Feature {
        /// The database.
        database: &'static str,
        /// The feature that brings it.
        feature: &'static str,
    },

    /// An event that cannot be written as a CloudEvent.
    #[error("the event cannot be queued: {0}")]
    CloudEvent(#[source] backstop_core::event::cloudevents::CloudEventError),

    /// The column `status` of a queue's table does not know our names.
    #[error(
        "column status of table {table} cannot hold PENDING, PROCESSING, COMPLETED and FAILED: {said}; make it text, or an enum \
         with these names, or give the queue a table of its own"
    )]
    StatusColumn {
        /// The table.
        table: String,
        /// What the database said.
        said: String,
    },

    /// The ids of a queue's table come back once their rows are deleted.
    #[error(
        "the ids of table {table} come back once their rows are deleted, so that two events could have the same in the log; \
         declare its id as INTEGER PRIMARY KEY AUTOINCREMENT, or give the queue a table of its own"
    )]
    ReusedIds {
        /// The table.
        table: String,
    },

    /// A queue has no event with this id.
    #[error("the queue has no event {id}; it was never published, or its row was purged or deleted")]
    NotQueued {
        /// The id.
        id: i64,
    },

    /// An event was to be finalized that nobody is handling.
    #[error("event {id} is {status} and not PROCESSING; take it with `poll` first")]
    NotProcessing {
        /// The id.
        id: i64,
        /// Its status.
        status: &'static str,
    },

    /// An event was to be finalized that is not held any more under this claim.
    #[error(
        "event {id} is not held by attempt {attempt} any more: it was abandoned for too long and taken over, or set back by an \
         operator; nothing was changed"
    )]
    TakenOver {
        /// The id.
        id: i64,
        /// The attempt that held it.
        attempt: u32,
    },

    /// Another node has been migrating for too long.
    #[error(
        "another node has been migrating for {0:?}; look for a session that waits for a lock, then try again"
    )]
    Migrating(Duration),
}

/// Each fault begins with `setting`, since more than settings can be wrong here.
fn list(faults: &[SettingFault]) -> String {
    let each: Vec<_> = faults.iter().map(|fault| format!("setting {fault}")).collect();
    each.join("; ")
}

/// The scheme of a URL, to be put after a sentence, if it is known.
fn named(scheme: &str) -> String {
    if scheme.is_empty() { String::new() } else { format!(", but {scheme:?}") }
}

impl Error {
    /// Why there is no connection to a server.
    #[cfg(feature = "_server")]
    pub(crate) fn connecting(server: String, source: sqlx::Error) -> Self {
        if let Some(why) = crate::tls::refusal(&source) {
            return Self::Tls { server, why };
        }
        let Some(error) = source.as_database_error() else { return Self::Connect { server, source } };
        let (code, number, said) =
            (error.code().unwrap_or_default(), mysql_number(error), error.message().to_owned());
        match (&*code, number) {
            (_, 1044 | 1049) | ("3D000", _) => Self::NoDatabase { server, said },
            (_, 1045 | 1698) | ("28P01" | "28000", _) => Self::Login { server, said },
            _ => Self::Connect { server, source },
        }
    }

    /// Refuses settings that make no sense, with every fault.
    pub(crate) fn unless_fit(config: &impl Config) -> Result<(), Self> {
        let mut faults = Faults::default();
        config.check(&mut faults);
        faults.into_result().map_err(|faults| Self::Settings { faults })
    }

    /// Whether the database was unavailable, or too busy to answer: the same would succeed once it is back.
    pub fn is_outage(&self) -> bool {
        match self {
            Self::OnlyReads { .. } => true,
            Self::Database { source, .. } => is_outage(source),
            _ => false,
        }
    }

    /// Whether there is a row with this key already.
    pub(crate) fn is_taken(&self) -> bool {
        matches!(self, Self::Database { source: sqlx::Error::Database(said), .. } if said.is_unique_violation())
    }

    /// Whether the database cannot be reached, or has no time for anybody: the same may succeed later, without anything being
    /// changed here. A login that is refused, a table that is not there and settings that are wrong stay so.
    ///
    /// ```
    /// let wrong = backstop_sql::Error::NoTable { table: "orders".to_owned() };
    /// assert!(!wrong.is_unavailable());
    /// ```
    pub fn is_unavailable(&self) -> bool {
        match self {
            Self::Connect { source, .. } => is_outage(source) && !only_reads(source),
            Self::OnlyReads { .. } => false,
            other => other.is_outage(),
        }
    }

    /// Whether the pool had no connection in time.
    pub(crate) fn is_busy_pool(&self) -> bool {
        matches!(self, Self::Database { source: sqlx::Error::PoolTimedOut, .. })
    }

    /// The same error, where more is known of what was being done.
    pub(crate) fn doing(self, doing: &'static str) -> Self {
        match self {
            Self::Database { source, .. } => Self::Database { doing, source },
            other => other,
        }
    }

    /// Wraps a driver's error with what was being done.
    pub(crate) fn database(doing: &'static str) -> impl FnOnce(sqlx::Error) -> Self {
        move |source| Self::Database { doing, source }
    }
}

fn is_outage(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::WorkerCrashed => true,
        sqlx::Error::Database(said) => {
            let by_code = said.code().is_some_and(|code| is_outage_code(&code));
            by_code || PASSING.contains(&mysql_number(&**said)) || only_reads(error)
        }
        _ => false,
    }
}

/// What servers say when they are not there for anybody, or had no time: SQLSTATE of lost connections, of a server that
/// starts, stops, has no connection left or a full disk, of locks and statements that took too long, of deadlocks.
/// SQLite's numbers, with details in their higher bytes: busy, locked, interrupted, full.
fn is_outage_code(code: &str) -> bool {
    const SQLITE: [u32; 4] = [5, 6, 9, 13];
    const TIMED_OUT: [&str; 6] = ["55P03", "57014", "25P03", "40001", "40P01", "70100"];
    const NO_ROOM: [&str; 2] = ["53100", "53300"];
    let is_sqlites = code.len() < 5 && code.parse().is_ok_and(|code: u32| SQLITE.contains(&(code & 0xff)));
    let is_standard = code.starts_with("08") || code.starts_with("57P");
    is_sqlites || is_standard || TIMED_OUT.contains(&code) || NO_ROOM.contains(&code)
}

/// MySQL's numbers: a disk that is full, told so, by a file that cannot be written, by a table that can grow no more; a
/// lock, a statement, a transaction that took too long.
const PASSING: [u16; 7] = [1021, 1026, 1114, 1205, 1969, 3024, 4031];

/// Whether the server takes no changes, from anybody.
pub(crate) fn only_reads(error: &sqlx::Error) -> bool {
    let Some(said) = error.as_database_error() else { return false };
    // MySQL's: an option of the server, its mode, and one of the database alone.
    said.code().is_some_and(|code| code == "25006") || [1290, 1836, 3989].contains(&mysql_number(said))
}

/// Whether a statement that was prepared on one session came to another, as behind a pooler that shares connections between
/// transactions: PostgreSQL's words for one that is not there, is there already, or is somebody else's.
#[cfg(feature = "_server")]
pub(crate) fn is_of_a_pooler(error: &sqlx::Error) -> bool {
    let Some(said) = error.as_database_error() else { return false };
    said.code().is_some_and(|code| match &*code {
        "26000" | "42P05" => true,
        "08P01" => said.message().contains("prepared statement"),
        _ => false,
    })
}

/// MySQL's own number of an error, where it has no SQLSTATE for it; zero if it is another database's.
pub(crate) fn mysql_number(said: &dyn sqlx::error::DatabaseError) -> u16 {
    #[cfg(feature = "mysql")]
    if let Some(said) = said.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>() {
        return said.number();
    }
    let _ = said;
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_passes_and_a_refusal_does_not() {
        let error = |source| Error::Database { doing: "testing", source };
        assert!(error(sqlx::Error::PoolTimedOut).is_outage());
        assert!(error(sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into())).is_outage());
        let only_reads = Error::OnlyReads { table: "t".to_owned(), said: String::new() };
        assert!(only_reads.is_outage(), "another server takes over, or this one writes again");
        assert!(!error(sqlx::Error::PoolClosed).is_outage());
        assert!(!Error::NoTransaction.is_outage());
        let passing = ["57P01", "08006", "53300", "53100", "5", "261", "517", "13", "9"];
        let timed_out = ["55P03", "57014", "40001", "40P01", "25P03", "70100"];
        assert!(timed_out.into_iter().all(is_outage_code));
        assert!(passing.into_iter().all(is_outage_code));
        assert!(
            !["23505", "22P02", "53200", "1", "19", "2067", "266", "HY000"].into_iter().any(is_outage_code)
        );
    }
}
