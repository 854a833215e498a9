//! The queue's statements, for reading their plans.

use std::time::Duration;

use super::statements::rows;
use super::{Tables, Which};
use crate::database::At;
use crate::statement::Statement;

impl Tables {
    /// Each statement that a worker runs again and again, what it is for, and the index that it should use.
    pub(crate) fn planned(
        &self,
        at: At,
        timeout: Duration,
        limit: u32,
    ) -> Vec<(&'static str, &'static str, Statement)> {
        let (statements, dialect) = (self.statements(), self.database.dialect());
        let set = self.taking(at);
        let claim = |which| {
            dialect.change_statement(&statements.eligible(which, at, limit), &self.change_of_claim(&set))
        };
        let of_type = |event_type| Which::OfType { event_type, after: Some(7) };
        let then = statements.before(at, timeout);
        let old = move |statement: &mut Statement| {
            statement.write("updated_at < {then}", &[("then", &then)]);
        };
        let purge = rows(&self.log, self.words.indexes.ended, old, Some(("updated_at, id", limit)));
        vec![
            ("taking what waits", "ready", claim(Which::Ready { after: None })),
            ("taking one type", "types", claim(of_type(Some("Rare")))),
            ("taking what names no type", "types", claim(of_type(None))),
            ("taking what is due", "later", claim(Which::Due)),
            ("taking over", "processing", claim(Which::Abandoned(timeout))),
            ("asking for the next type", "types", statements.next_type(Some("Held"))),
            ("asking what comes next", "processing", statements.ahead(at)),
            ("asking what comes first", "ready", statements.first_eligible(at, timeout)),
            ("purging", "ended", dialect.delete_statement(&purge)),
        ]
    }
}
