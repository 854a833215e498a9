//! Forwarding to the store behind: a store of a test's own writes only what it changes.

/// Writes the named operations of a store so that each asks the store in `self.inner`.
macro_rules! forward {
    ($($operation:ident),*) => {
        $(forward!(@ $operation);)*
    };
    (@ migrate) => {
        fn migrate(&self) -> backstop_sql::BoxFuture<'_, Result<(), backstop_sql::Error>> {
            self.inner.migrate()
        }
    };
    (@ check) => {
        fn check(&self) -> backstop_sql::BoxFuture<'_, Result<(), backstop_sql::Error>> {
            self.inner.check()
        }
    };
    (@ release) => {
        fn release<'a>(&'a self, rows: &'a [(String, backstop_sql::store::Claim)]) -> backstop_sql::BoxFuture<'a, Result<u64, backstop_sql::Error>> {
            self.inner.release(rows)
        }
    };
    (@ census) => {
        fn census(&self, cap: u32) -> backstop_sql::BoxFuture<'_, Result<backstop_sql::store::Census, backstop_sql::Error>> {
            self.inner.census(cap)
        }
    };
    (@ troubled) => {
        fn troubled(&self, limit: u32) -> backstop_sql::BoxFuture<'_, Result<Vec<backstop_core::inspect::Troubled>, backstop_sql::Error>> {
            self.inner.troubled(limit)
        }
    };
    (@ insert) => {
        fn insert<'a>(
            &'a self,
            connection: &'a mut dyn backstop_sql::connection::Connection,
            events: &'a [backstop_core::Event],
            born: Option<&'a backstop_sql::store::Born>,
        ) -> backstop_sql::BoxFuture<'a, Result<(), backstop_sql::Error>> {
            self.inner.insert(connection, events, born)
        }
    };
    (@ query_dead) => {
        fn query_dead<'a>(
            &'a self,
            filter: &'a backstop_sql::store::DeadFilter,
            after: Option<&'a backstop_sql::store::After>,
            limit: u32,
        ) -> backstop_sql::BoxFuture<'a, Result<Vec<backstop_sql::store::DeadEvent>, backstop_sql::Error>> {
            self.inner.query_dead(filter, after, limit)
        }
    };
    (@ count_dead) => {
        fn count_dead<'a>(&'a self, filter: &'a backstop_sql::store::DeadFilter) -> backstop_sql::BoxFuture<'a, Result<u64, backstop_sql::Error>> {
            self.inner.count_dead(filter)
        }
    };
    (@ replay_dead) => {
        fn replay_dead<'a>(&'a self, at: backstop_sql::store::At, ids: &'a [String]) -> backstop_sql::BoxFuture<'a, Result<u64, backstop_sql::Error>> {
            self.inner.replay_dead(at, ids)
        }
    };
    (@ discard_dead) => {
        fn discard_dead<'a>(&'a self, filter: &'a backstop_sql::store::DeadFilter, ids: &'a [String]) -> backstop_sql::BoxFuture<'a, Result<u64, backstop_sql::Error>> {
            self.inner.discard_dead(filter, ids)
        }
    };
    (@ purge) => {
        fn purge<'a>(
            &'a self,
            connection: &'a mut dyn backstop_sql::connection::Connection,
            what: backstop_sql::store::Purgeable,
            at: backstop_sql::store::At,
            age: std::time::Duration,
            limit: u32,
        ) -> backstop_sql::BoxFuture<'a, Result<u64, backstop_sql::Error>> {
            self.inner.purge(connection, what, at, age, limit)
        }
    };
    (@ settle) => {
        fn settle<'a>(&'a self, at: backstop_sql::store::At, settles: &'a [backstop_sql::store::Settle]) -> backstop_sql::BoxFuture<'a, Result<u64, backstop_sql::Error>> {
            self.inner.settle(at, settles)
        }
    };
    (@ poll) => {
        fn poll<'a>(&'a self, due: backstop_sql::store::Due<'a>) -> backstop_sql::BoxFuture<'a, Result<Vec<backstop_sql::store::Row>, backstop_sql::Error>> {
            self.inner.poll(due)
        }
    };
    (@ claim) => {
        fn claim<'a>(
            &'a self,
            owner: &'a std::sync::Arc<str>,
            timeout: std::time::Duration,
            due: backstop_sql::store::Due<'a>,
        ) -> backstop_sql::BoxFuture<'a, Result<Vec<backstop_sql::store::Row>, backstop_sql::Error>> {
            self.inner.claim(owner, timeout, due)
        }
    };
}
