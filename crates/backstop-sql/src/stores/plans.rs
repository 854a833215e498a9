//! The statements of a store, for whoever wants to read their plans.

use std::sync::Arc;
use std::time::Duration;

use super::sql::SqlStore;
use crate::connection::Connections;
use crate::statement::Statement;
use crate::store::{At, DeadFilter, Due, Purgeable};

#[doc(hidden)]
impl SqlStore {
    /// The statement that [`poll`](crate::store::Store::poll) runs.
    pub fn poll_statement(&self, due: Due<'_>) -> Statement {
        self.statements().poll(due)
    }

    /// The statement with which [`claim`](crate::store::Store::claim) chooses rows.
    pub fn claim_statement(&self, owner: &str, timeout: Duration, due: Due<'_>) -> Statement {
        self.dialect.claim_statement(&self.question(owner, timeout, due))
    }

    /// The statements that [`purge`](crate::store::Store::purge) runs.
    pub fn purge_statements(&self, what: Purgeable, at: At, age: Duration, limit: u32) -> Vec<Statement> {
        let parts = what.parts(self.statements(), at, age, limit);
        parts.iter().map(|part| self.dialect.purge_statement(part)).collect()
    }

    /// The statement of [`query_dead`](crate::store::Store::query_dead).
    pub fn query_dead_statement(&self, filter: &DeadFilter, limit: u32) -> Statement {
        self.statements().query_dead(filter, None, limit)
    }

    /// The same store on connections around its own, which see each statement before it runs.
    pub fn through(mut self, around: impl FnOnce(Arc<dyn Connections>) -> Arc<dyn Connections>) -> Self {
        self.connections = around(self.connections);
        self.settling = self.connections.clone();
        self.beside = None;
        self
    }
}
