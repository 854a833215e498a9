//! The statements of a store, for whoever wants to read their plans.

use std::time::Duration;

use backstop_core::delivery::Settlement;

use super::alike::gather;
use super::sql::SqlStore;
use super::statements::Statements;
use crate::statement::Statement;
use crate::store::{At, DeadFilter, Done, Due, Purgeable, Settle};

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

    /// The statements that change rows by their ids.
    pub fn statements_by_id(&self, ids: &[String]) -> Vec<Statement> {
        let settlements = [
            Settlement::Done,
            Settlement::Deferred { after: Duration::ZERO },
            Settlement::Retry { after: Duration::ZERO, error: String::new() },
            Settlement::Dead { error: String::new() },
        ];
        let settle = |id: &String, settlement: &Settlement| Settle {
            id: id.clone(),
            claim: None,
            attempts: Some(0),
            generation: Some(0),
            settlement: settlement.clone(),
        };
        let settles: Vec<_> = settlements.iter().flat_map(|it| ids.iter().map(|id| settle(id, it))).collect();
        let deleting = Statements { done: Done::Delete, ..self.statements() };
        let gathered = gather(&settles);
        let mut statements: Vec<_> =
            gathered.iter().map(|alike| self.statements().settle(At::Database, alike)).collect();
        statements.extend(gathered.first().map(|alike| deleting.settle(At::Database, alike)));
        let ids: Vec<_> = ids.iter().map(String::as_str).collect();
        statements.push(self.statements().replay_dead(At::Database, &ids));
        statements
    }
}
