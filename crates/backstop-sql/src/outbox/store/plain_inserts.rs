//! Rows that others insert: programs in any language, with plain SQL, in transactions of their own.

use super::sql_store::{SqlStore, run};
use crate::Error;
use crate::database::Via;

impl SqlStore {
    /// Lets others insert rows with plain SQL: gives columns that such a statement leaves out a default where they
    /// have none, and adds a trigger that wakes nodes when the insert commits. Returns whether nodes are woken; on
    /// databases without wake-ups polling finds the rows. The table must exist; this may be run again.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # let directory = backstop_testkit::servers::directory();
    /// # let pool = backstop_sql::sqlite::open(directory.file("orders.db")).await?;
    /// use backstop_sql::TableName;
    /// use backstop_sql::store::{SqlStore, Store};
    ///
    /// let store = SqlStore::on(pool, TableName::default());
    /// store.migrate().await?;
    /// let woken = store.allow_plain_inserts().await?;
    /// assert!(!woken); // SQLite has no wake-ups
    /// # Ok::<(), backstop_sql::Error>(()) }).unwrap();
    /// ```
    pub async fn allow_plain_inserts(&self) -> Result<bool, Error> {
        self.explained(self.check_zone()).await?;
        let dialect = self.database.dialect();
        let mut transaction = self.database.transaction(Via::Pool, dialect.migration_begin()).await?;
        dialect.lock_migrations(&mut transaction).await?;
        // As one text: a function's body has semicolons of its own.
        let ahead = dialect.default_ahead(self.database.setup().zone.ahead().num_minutes());
        let text = self.words.plain_inserts.replace("{table}", self.table.as_str());
        let allowed = run(&mut transaction, &text.replace("{ahead}", &ahead)).await;
        // Also after a failure, since the lock may outlive the transaction; the first error is the one that helps.
        let unlocked = dialect.unlock_migrations(&mut transaction).await;
        allowed.and(unlocked)?;
        transaction.commit().await?;
        Ok(self.words.wakes)
    }
}
