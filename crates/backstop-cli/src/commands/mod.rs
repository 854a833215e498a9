//! The short commands, each a file: they do one thing and end.

pub(crate) mod check;
pub(crate) mod init;
pub(crate) mod migrate;
pub(crate) mod reference;
pub(crate) mod token;

use backstop_sql::store::DatabaseKind;

use crate::config::settings::Outbox;

/// An outbox on a line: mode, database, table and how many handlers.
pub(crate) fn told(outbox: &Outbox) -> String {
    let Outbox { mode, database, handlers, .. } = outbox;
    let handlers = match handlers.iter().map(|handler| handler.event_type.len()).sum::<usize>() {
        0 => String::new(),
        1 => ", 1 event type".to_owned(),
        many => format!(", {many} event types"),
    };
    format!("{mode} on {}, table {}{handlers}", database_word(outbox), database.table.table)
}

/// The outbox's database in a word.
pub(crate) fn database_word(outbox: &Outbox) -> &'static str {
    DatabaseKind::of(outbox.database.url.reveal()).map_or("an unknown database", DatabaseKind::name)
}
