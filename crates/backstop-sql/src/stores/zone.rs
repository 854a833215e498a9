//! Tables whose moments carry no time zone: which one they are in, and whether saying so makes sense.

use super::SqlStore;
use crate::connection::{Connection, Kind};
use crate::statement::{Statement, Value};
use crate::{Error, TimeZone};

impl SqlStore {
    /// The zone that the table's moments are in, where its columns carry none. Defaults to UTC.
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
        self.zone = zone;
        self
    }

    /// Checks that a zone that was given means something: where columns carry theirs, it would make moments wrong. And
    /// where they carry none, that the session is in UTC.
    pub(super) async fn check_zone(&self, connection: &mut dyn Connection) -> Result<(), Error> {
        let shifting = self.dialect.shifting_zone();
        if self.zone.is_utc() && shifting.is_none() {
            return Ok(());
        }
        let zoneless = match self.dialect.zoneless_moments(&self.table) {
            Some(statement) => self.fetch_count(connection, &statement).await?,
            None => 0,
        };
        if !self.zone.is_utc() && zoneless != 4 {
            return Err(Error::TimeZoneKnown { table: self.table.to_string() });
        }
        match shifting {
            Some(question) if zoneless > 0 => self.check_session(connection, &question).await,
            _ => Ok(()),
        }
    }

    /// Checks that the session does not shift moments on their way into columns that carry no zone.
    async fn check_session(
        &self,
        connection: &mut dyn Connection,
        question: &Statement,
    ) -> Result<(), Error> {
        let rows = self.fetch(connection, question, &[Kind::Text]).await?;
        match rows.into_iter().flatten().next() {
            Some(Value::Text(Some(zone))) => {
                Err(Error::SessionTimeZone { table: self.table.to_string(), zone })
            }
            _ => Ok(()),
        }
    }
}
