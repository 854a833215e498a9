//! The statements of a store, for reading their plans.

use std::sync::Arc;
use std::time::Duration;

use super::sql_store::SqlStore;
use super::statements::Claimant;
use super::{After, At, DeadFilter, Due, Purgeable, Status, row};
use crate::connection::Connections;
use crate::statement::Statement;

#[doc(hidden)]
impl SqlStore {
    /// The statement that [`poll`](crate::store::Store::poll) runs.
    pub fn poll_statement(&self, due: Due<'_>) -> Statement {
        self.statements().poll(due, Claimant::Any)
    }

    /// The statement with which [`claim`](crate::store::Store::claim) chooses rows.
    pub fn claim_statement(&self, owner: &str, timeout: Duration, due: Due<'_>) -> Statement {
        let (set, choose) = (self.taking(owner, due.at), |rows| row::choose(rows, due));
        let rows = self.statements().due(due, Claimant::Nobody(timeout));
        self.database.dialect().change_statement(&rows, &self.change_of_claim(&set, &choose))
    }

    /// The statements that [`purge`](crate::store::Store::purge) runs.
    pub fn purge_statements(&self, what: Purgeable, at: At, age: Duration, limit: u32) -> Vec<Statement> {
        let old = self.statements().old(what, at, age, limit);
        old.iter().map(|rows| self.database.dialect().delete_statement(rows)).collect()
    }

    /// The statement of [`query_dead`](crate::store::Store::query_dead).
    pub fn query_dead_statement(&self, filter: &DeadFilter, after: Option<&After>, limit: u32) -> Statement {
        self.statements().query_dead(filter, after, limit)
    }

    /// The statements of [`count_dead_up_to`](crate::store::Store::count_dead_up_to) that look at the oldest dead rows, and
    /// that of [`newest_dead`](crate::store::Store::newest_dead).
    pub fn count_dead_statements(&self, filter: &DeadFilter, cap: u32) -> [Statement; 2] {
        [self.statements().count_oldest_dead(filter, cap), self.statements().newest_dead()]
    }

    /// The statement of [`whereabouts`](crate::store::Store::whereabouts).
    pub fn whereabouts_statement(&self, at: At, id: &str) -> Statement {
        self.statements().whereabouts(at, id)
    }

    /// The statements that [`sample`](crate::store::Store::sample) runs.
    pub fn sample_statements(&self, at: At, cap: u32) -> [Statement; 3] {
        [Status::New, Status::Retry, Status::Dead].map(|status| self.statements().sample(status, at, cap))
    }

    /// The statements that [`troubled`](crate::store::Store::troubled) runs.
    pub fn troubled_statements(&self, limit: u32) -> [Statement; 2] {
        [Status::Dead, Status::Retry].map(|status| self.statements().troubled(status, limit))
    }

    /// The same store on connections around its own, which see each statement before it runs.
    pub fn through(mut self, around: impl FnOnce(Arc<dyn Connections>) -> Arc<dyn Connections>) -> Self {
        self.database = self.database.through(around);
        self
    }
}
