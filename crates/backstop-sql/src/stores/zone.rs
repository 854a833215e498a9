//! Tables whose moments carry no time zone: which one they are in, and whether saying so makes sense.

use super::SqlStore;
use crate::connection::Connection;
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

    /// Checks that a zone that was given means something: where columns carry theirs, it would make moments wrong.
    pub(super) async fn check_zone(&self, connection: &mut dyn Connection) -> Result<(), Error> {
        if self.zone.is_utc() {
            return Ok(());
        }
        let zoneless = match self.dialect.zoneless_moments(&self.table) {
            Some(statement) => self.fetch_count(connection, &statement).await?,
            None => 0,
        };
        if zoneless == 4 { Ok(()) } else { Err(Error::TimeZoneKnown { table: self.table.to_string() }) }
    }
}
