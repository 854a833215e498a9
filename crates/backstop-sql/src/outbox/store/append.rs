//! Events into the table, in the caller's transaction, and which of them it holds: before the commit as the transaction sees
//! it, and after it as everybody does.

use backstop_core::Event;
use chrono::TimeDelta;

use super::sql_store::{SqlStore, run};
use super::statements::Statements;
use super::{At, Born};
use crate::Error;
use crate::connection::{Column, Connection};
use crate::database::dialect::{Explanation, StillIn};
use crate::database::rows::ROWS_PER_STATEMENT;
use crate::database::statement::{Part, Plain, Statement, Value};

/// How many bytes of payload one statement carries, well below what servers accept by default.
const BYTES_PER_STATEMENT: usize = 4 * 1024 * 1024;

impl SqlStore {
    /// Inserts events, all or none.
    pub(super) async fn insert_parts(
        &self,
        connection: &mut dyn Connection,
        events: &[Event],
        born: Option<&Born>,
    ) -> Result<(), Error> {
        let with_headers = |event| Ok((event, self.headers_of(event)?));
        let events = events.iter().map(with_headers).collect::<Result<Vec<_>, Error>>()?;
        let parts: Vec<_> = in_parts(&events).collect();
        self.database.check_within(connection).await?;
        if let [part] = parts[..] {
            return connection.execute(&self.statements().insert(part, born)).await.map(drop);
        }
        // All or none, even for a caller who goes on after an error.
        run(connection, "savepoint backstop_append").await?;
        for part in parts {
            if let Err(error) = connection.execute(&self.statements().insert(part, born)).await {
                // The first error is the one that helps.
                let _ = run(connection, "rollback to savepoint backstop_append").await;
                return Err(error);
            }
        }
        run(connection, "release savepoint backstop_append").await
    }

    /// The text of an event's headers: NULL for none, as others write it too.
    fn headers_of(&self, event: &Event) -> Result<Option<String>, Error> {
        let headers = event.headers();
        if headers.is_empty() { Ok(None) } else { Ok(Some(self.codec.write_headers(headers)?)) }
    }

    /// Which of the events the caller's transaction holds, if it is still the one that began.
    pub(super) async fn present_in(
        &self,
        connection: &mut dyn Connection,
        ids: &[String],
    ) -> Result<Vec<String>, Error> {
        let (dialect, mut session) = (self.database.dialect(), self.database.within(connection));
        let connection = &mut session;
        let probe = dialect.still_in_transaction();
        if let StillIn::Asked(text) = probe
            && let Err(error) = run(connection, text).await
        {
            if let (false, Some(begin)) = (error.is_outage(), dialect.begin_again()) {
                let _ = run(connection, begin).await; // the first error is the one that helps
            }
            return Err(rolled_back(error));
        }
        let found = match self.find(connection, ids).await {
            Err(error) if self.database.means(&error, Explanation::Aborted) => {
                return Err(rolled_back(error));
            }
            other => other?,
        };
        // Where nothing was looked for, nothing was found out either.
        let is_open = ids.is_empty() || found.len() < ids.len();
        if let (StillIn::WhenMissing(text), true) = (probe, is_open) {
            run(connection, text).await.map_err(rolled_back)?;
        }
        Ok(found)
    }

    pub(super) async fn find(
        &self,
        connection: &mut dyn Connection,
        ids: &[String],
    ) -> Result<Vec<String>, Error> {
        let ids: Vec<_> = ids.iter().map(String::as_str).collect();
        let mut found = Vec::new();
        for ids in ids.chunks(ROWS_PER_STATEMENT) {
            let statement = self.statements().present(ids);
            found.extend(Value::texts(connection.fetch(&statement, &[Column::Text]).await?));
        }
        Ok(found)
    }
}

/// Splits events into pieces that one statement may hold, limited in rows and in bytes.
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

/// The transaction in which events were appended is gone.
fn rolled_back(error: Error) -> Error {
    if error.is_outage() { error } else { Error::RolledBack { said: error.to_string() } }
}

impl Statements<'_> {
    /// Inserts events, each with the text of its headers. An event that happened later than now, by the clock of a
    /// writer that is ahead, is created now.
    pub(super) fn insert(&self, events: &[(&Event, Option<String>)], born: Option<&Born>) -> Statement {
        let claim = Plain(if born.is_some() { ", locked_by, locked_at" } else { "" });
        let now = self.database.dialect().once(At::Database);
        let rows = |statement: &mut Statement| {
            statement.list(events.iter().zip(0..), |statement, ((event, headers), place)| {
                self.push_row(statement, event, headers.as_ref(), born, (now, place));
            });
        };
        self.sql(
            "insert into {table} (event_id, event_type, aggregate_type, aggregate_id, tenant_id, payload, headers, \
             status, attempts, available_at, created_at{claim}) values {rows}",
            &[("claim", &claim), ("rows", &rows)],
        )
    }

    fn push_row(
        &self,
        statement: &mut Statement,
        event: &Event,
        headers: Option<&String>,
        born: Option<&Born>,
        (now, place): (At, i64),
    ) {
        let dialect = self.database.dialect();
        let payload = |statement: &mut Statement| dialect.bind_json(statement, event.payload_json().into());
        let headers = |statement: &mut Statement| dialect.bind_json(statement, Value::Text(headers.cloned()));
        // Those of one statement stay in their order, whatever their ids are.
        let occurred_at = event.occurred_at();
        let created_at = self.not_after(&occurred_at, now, TimeDelta::microseconds(place));
        let delayed_until = event.available_at().filter(|_| event.is_delayed());
        let available_at: &dyn Part = match &delayed_until {
            Some(moment) => moment,
            None => &created_at,
        };
        let claim = |statement: &mut Statement| match born {
            // Nobody delivers it from memory, so it is nobody's yet.
            Some(born) if event.is_delayed() || born.except.contains(event.id()) => {
                statement.push(", null, null");
            }
            Some(born) => {
                let since = self.before(At::Database, born.age);
                statement.write(", {owner}, {since}", &[("owner", &&*born.owner), ("since", &since)]);
            }
            None => {}
        };
        statement.write(
            "({id}, {type}, {aggregate_type}, {aggregate_id}, {tenant_id}, {payload}, {headers}, 0, 0, \
             {available_at}, {created_at}{claim})",
            &[
                ("id", &event.id()),
                ("type", &event.event_type()),
                ("aggregate_type", &event.aggregate_type()),
                ("aggregate_id", &event.aggregate_id()),
                ("tenant_id", &event.tenant_id()),
                ("payload", &payload),
                ("headers", &headers),
                ("available_at", available_at),
                ("created_at", &created_at),
                ("claim", &claim),
            ],
        );
    }

    /// Which of the events are in the table.
    pub(super) fn present(&self, ids: &[&str]) -> Statement {
        self.sql("select event_id from {table} where {these}", &[("these", &self.one_of(ids))])
    }
}
