//! Rows that cannot be decoded: they are buried, and if even that fails, reported less and less often.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use backstop_core::clock::Tick;
use backstop_core::{Clock, SystemClock};

use crate::Error;
use crate::store::{At, Store, Unreadable};

/// How long to wait before a row that could not be buried is tried again, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// This many are remembered.
const MOST: usize = 1_000;

/// Buries rows, and remembers those that the database does not let it bury.
pub(super) struct Unburied {
    store: Arc<dyn Store>,
    /// When each may be tried again, and how long to wait after that.
    rows: HashMap<String, (Tick, Duration)>,
}

impl Unburied {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, rows: HashMap::new() }
    }

    /// How many rows are known that cannot be buried.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Buries rows, and returns how many.
    pub(super) async fn bury(&mut self, mut rows: Vec<Unreadable>) -> Result<u64, Error> {
        let now = SystemClock.ticks();
        rows.retain(|row| self.rows.get(&row.id).is_none_or(|(again_at, _)| *again_at <= now));
        if rows.is_empty() {
            return Ok(0);
        }
        for Unreadable { id, problem, .. } in &rows {
            tracing::error!(event_id = id, problem, "a row cannot be decoded: the event is dead");
        }
        let buried = match self.store.bury_unreadable(At::Database, &rows).await {
            Ok(buried) if buried >= rows.len() as u64 => {
                for row in &rows {
                    self.rows.remove(&row.id);
                }
                return Ok(buried);
            }
            Ok(buried) => buried,
            Err(error) if error.is_outage() => return Err(error),
            // One that is refused must not keep the others.
            Err(_) => 0,
        };
        Ok(buried + self.bury_each(&rows, now).await?)
    }

    /// One by one, to learn which of them cannot be. Those that are buried already change nothing.
    async fn bury_each(&mut self, rows: &[Unreadable], now: Tick) -> Result<u64, Error> {
        let mut buried = 0;
        for row in rows {
            let error = match self.store.bury_unreadable(At::Database, std::slice::from_ref(row)).await {
                Ok(0) if self.is_still_there(row).await => "no row was changed".to_owned(),
                Ok(changed) => {
                    buried += changed;
                    self.rows.remove(&row.id);
                    continue;
                }
                Err(error) if error.is_outage() => return Err(error),
                Err(error) => error.to_string(),
            };
            tracing::error!(
                event_id = row.id,
                error,
                "a row that cannot be decoded cannot be buried either: repair or delete it by hand"
            );
            self.remember(&row.id, now);
        }
        Ok(buried)
    }

    /// Whether a row that was not changed waits as before. Of one whose id is not text nobody can tell.
    async fn is_still_there(&self, row: &Unreadable) -> bool {
        match row.key {
            Some(_) => true,
            None => self.store.unsettled(&[row.settle()]).await.is_ok_and(|rows| !rows.is_empty()),
        }
    }

    fn remember(&mut self, id: &str, now: Tick) {
        let pause = self.rows.get(id).map_or(FIRST_PAUSE, |(_, pause)| *pause);
        if self.rows.len() >= MOST && !self.rows.contains_key(id) {
            self.rows.clear();
        }
        self.rows.insert(id.to_owned(), (now + pause, (pause * 2).min(LONGEST_PAUSE)));
    }
}

#[cfg(all(test, feature = "sqlite"))]
mod tests {
    use super::*;
    use crate::TableName;
    use crate::store::SqlStore;

    #[tokio::test]
    async fn a_row_that_cannot_be_buried_is_tried_again_ever_later_and_not_for_ever_remembered() {
        let pool = sqlx::SqlitePool::connect_lazy("sqlite::memory:").unwrap();
        let mut unburied = Unburied::new(Arc::new(SqlStore::on(pool, TableName::default())));
        let now = SystemClock.ticks();
        let mut pauses = Vec::new();
        for _ in 0..12 {
            unburied.remember("a", now);
            pauses.push(unburied.rows["a"].0.since(now).as_secs());
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600]);
        (0..2 * MOST).for_each(|number| unburied.remember(&number.to_string(), now));
        assert!(unburied.len() <= MOST, "{}", unburied.len());
    }
}
