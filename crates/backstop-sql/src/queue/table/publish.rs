//! New rows, in the caller's transaction or in one of their own.

use backstop_core::Event;
use backstop_core::event::cloudevents;

use super::Tables;
use super::words::NewIds;
use crate::Error;
use crate::connection::{Column, Connection};
use crate::database::dialect::Explanation;
use crate::database::rows::ROWS_PER_STATEMENT;
use crate::database::statement::{Statement, Value};
use crate::database::{At, Via};

/// How many bytes of events one statement carries, well below what servers accept by default.
const BYTES_PER_STATEMENT: usize = 4 * 1024 * 1024;

/// A row that is to be inserted.
#[derive(Debug)]
pub(crate) struct New {
    json: String,
    event: Event,
}

impl New {
    /// An event as its row has it.
    pub(crate) fn of(event: Event, source: &str) -> Result<Self, Error> {
        let json = cloudevents::to_json(&event, source).map_err(Error::CloudEvent)?;
        Ok(Self { json, event })
    }
}

impl Tables {
    /// Inserts rows in a transaction of their own, and returns their ids.
    pub(crate) async fn publish(&self, new: &[New]) -> Result<Vec<i64>, Error> {
        self.in_time(async {
            match &in_parts(new).collect::<Vec<_>>()[..] {
                [] => Ok(Vec::new()),
                // One statement is a transaction.
                [part] if self.words.new_ids == NewIds::Returned => {
                    self.insert(&mut self.database.session(Via::Pool).await?, part).await
                }
                parts => {
                    let begin = self.database.dialect().begin_to_change();
                    let mut transaction = self.database.transaction(Via::Pool, begin).await?;
                    let mut ids = Vec::new();
                    for part in parts {
                        ids.extend(self.insert(&mut transaction, part).await?);
                    }
                    transaction.commit().await?;
                    Ok(ids)
                }
            }
        })
        .await
    }

    /// Inserts rows in the caller's transaction, all or none, and returns their ids.
    pub(crate) async fn publish_in(
        &self,
        connection: &mut dyn Connection,
        new: &[New],
    ) -> Result<Vec<i64>, Error> {
        if !connection.in_transaction() {
            return Err(Error::NoTransaction);
        }
        let mut session = self.database.within(connection);
        let published = async {
            self.database.check_within(&mut session).await?;
            let parts: Vec<_> = in_parts(new).collect();
            let several = parts.len() > 1;
            if several {
                session.execute(&Statement::plain("savepoint backstop_publish")).await?;
            }
            let mut ids = Vec::new();
            for part in parts {
                match self.insert(&mut session, part).await {
                    Ok(inserted) => ids.extend(inserted),
                    Err(error) => {
                        if several {
                            // The first error is the one that helps.
                            let undo = Statement::plain("rollback to savepoint backstop_publish");
                            let _ = session.execute(&undo).await;
                        }
                        return Err(error);
                    }
                }
            }
            if several {
                session.execute(&Statement::plain("release savepoint backstop_publish")).await?;
            }
            Ok(ids)
        };
        published.await.map_err(|error| match error {
            error if self.database.means(&error, Explanation::Aborted) => {
                Error::RolledBack { said: error.to_string() }
            }
            error => self.database.explain(&self.events, error),
        })
    }

    /// Inserts what one statement can carry.
    async fn insert(&self, connection: &mut dyn Connection, new: &[New]) -> Result<Vec<i64>, Error> {
        let mut statement = self.insertion(new);
        let mut ids = match self.words.new_ids {
            NewIds::Returned => {
                statement.push(" returning id");
                Value::ints(&connection.fetch(&statement, &[Column::Int]).await?)
            }
            NewIds::Asked(question) => {
                connection.execute(&statement).await?;
                let told = connection.fetch(&Statement::plain(question), &[Column::Int; 2]).await?;
                let [first, step] = Value::ints(&told)[..] else {
                    return Err(Error::State("the database did not tell the ids of new rows"));
                };
                (0..).take(new.len()).map(|place| first + place * step).collect()
            }
        };
        if ids.len() != new.len() {
            return Err(Error::State("a statement did not insert all the events that it was given"));
        }
        // They grow in the order of the rows, however they are returned.
        ids.sort_unstable();
        Ok(ids)
    }

    fn insertion(&self, new: &[New]) -> Statement {
        let (dialect, statements) = (self.database.dialect(), self.statements());
        let at = dialect.once(At::Database);
        let rows = |statement: &mut Statement| {
            statement.list(new, |statement, New { json, event }| {
                let json = |statement: &mut Statement| dialect.bind_json(statement, json.as_str().into());
                let available_at = |statement: &mut Statement| {
                    statement.bind(Value::Time(event.available_at().filter(|_| event.is_delayed())));
                };
                statement.write(
                    "({event}, {type}, 'PENDING', 0, {now}, {now}, {available_at})",
                    &[
                        ("event", &json),
                        ("type", &event.event_type()),
                        ("now", &statements.now(at)),
                        ("available_at", &available_at),
                    ],
                );
            });
        };
        statements.sql(
            "insert into {events} (event, event_type, status, attempts, created_at, updated_at, available_at) values {rows}",
            &[("rows", &rows)],
        )
    }
}

/// Splits rows into pieces that one statement may hold, limited in rows and in bytes.
fn in_parts(new: &[New]) -> impl Iterator<Item = &[New]> {
    let mut rest = new;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = rest.iter().take(ROWS_PER_STATEMENT).take_while(|new| {
            let first = bytes == 0;
            bytes += new.json.len();
            first || bytes <= BYTES_PER_STATEMENT
        });
        let part;
        (part, rest) = rest.split_at(fits.count());
        (!part.is_empty()).then_some(part)
    })
}
