//! Which events are in the table: what a transaction holds before it commits, and what everybody sees after it.

use super::sql_store::{SqlStore, run};
use crate::Error;
use crate::connection::{Connection, Kind};
use crate::database::dialect::{Explanation, StillIn};
use crate::database::rows::ROWS_PER_STATEMENT;
use crate::statement::Value;

impl SqlStore {
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

    /// Fails where the caller's transaction was ended by the database, or by a statement that commits: drivers do not notice.
    pub(super) async fn check_within(&self, connection: &mut dyn Connection) -> Result<(), Error> {
        let Some(text) = self.database.dialect().refused_within().filter(|_| connection.in_transaction())
        else {
            return Ok(());
        };
        match run(connection, text).await {
            Err(error) if self.database.means(&error, Explanation::Within) => Ok(()),
            // A driver of somebody else's, of which nobody here knows how it says that.
            Err(Error::Driver { .. }) => Ok(()),
            Err(error) => Err(error),
            Ok(()) => {
                Err(Error::RolledBack { said: format!("it accepts `{text}`, which it refuses within one") })
            }
        }
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
            found.extend(Value::texts(connection.fetch(&statement, &[Kind::Text]).await?));
        }
        Ok(found)
    }
}

/// The transaction in which events were appended is gone.
fn rolled_back(error: Error) -> Error {
    if error.is_outage() { error } else { Error::RolledBack { said: error.to_string() } }
}
