//! The short commands, each a file: they do one thing and end.

pub(crate) mod check;
pub(crate) mod init;
pub(crate) mod migrate;
pub(crate) mod reference;
pub(crate) mod token;

use backstop_sql::queue::Tables;
use backstop_sql::store::DatabaseKind;

use crate::config::settings::{Database, Handler, Outbox, Queue};

/// An outbox on a line: mode, database, table and how many handlers.
pub(crate) fn outbox_told(outbox: &Outbox) -> String {
    let Outbox { mode, database, handlers, .. } = outbox;
    format!(
        "{mode} on {}, table {}{}",
        database_word(database),
        database.table.table,
        handlers_told(handlers)
    )
}

/// A queue on a line: database, tables and how many handlers.
pub(crate) fn queue_told(Queue { database, handlers, .. }: &Queue) -> String {
    format!("{}, {}{}", database_word(database), tables_told(database), handlers_told(handlers))
}

/// The tables of a queue.
pub(crate) fn tables_told(database: &Database<Tables>) -> String {
    format!("tables {} and {}", database.table.table, database.table.log_table)
}

fn handlers_told(handlers: &[Handler]) -> String {
    match handlers.iter().map(|handler| handler.event_type.len()).sum::<usize>() {
        0 => String::new(),
        1 => ", 1 event type".to_owned(),
        many => format!(", {many} event types"),
    }
}

/// A database in a word.
pub(crate) fn database_word<T>(database: &Database<T>) -> &'static str {
    DatabaseKind::of(database.url.reveal()).map_or("an unknown database", DatabaseKind::name)
}
