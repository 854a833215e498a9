//! The tables of a settings file, for commands that work on them without an outbox or a queue that runs.

use std::sync::Arc;

use anyhow::bail;
use backstop_sql::outbox::DeadEvents;
use backstop_sql::queue::Operations;
use backstop_sql::store::{DatabaseKind, Rights, SqlStore, Store};
use backstop_sql::{TableName, TimeZone};

use crate::config::settings::{OnDatabase, Outbox, Queue};
use crate::plain::plain;

/// Opens it, whether it is there or not.
pub(crate) async fn open(outbox: &Outbox) -> anyhow::Result<SqlStore> {
    open_url(outbox, outbox.database.url.reveal()).await
}

/// Opens it if it is there, in a version that this program knows. A file that is not there is not made.
pub(crate) async fn open_existing(outbox: &Outbox) -> anyhow::Result<SqlStore> {
    let store = open_url(outbox, &existing(outbox.database.url.reveal())?).await?;
    store.check().await?;
    Ok(store)
}

/// The URL of a database that is opened only if it is there.
fn existing(url: &str) -> anyhow::Result<String> {
    match DatabaseKind::of(url)? {
        DatabaseKind::Sqlite if !url.contains("mode=") => {
            let sign = if url.contains('?') { '&' } else { '?' };
            Ok(format!("{url}{sign}mode=rw"))
        }
        _ => Ok(url.to_owned()),
    }
}

/// Opens the tables of a queue, whether they are there or not.
pub(crate) async fn queue(queue: &Queue) -> anyhow::Result<Operations> {
    queue_url(queue, queue.database.url.reveal()).await
}

/// Opens the tables of a queue if they are there, in a version that this program knows.
pub(crate) async fn existing_queue(queue: &Queue) -> anyhow::Result<Operations> {
    let operations = queue_url(queue, &existing(queue.database.url.reveal())?).await?;
    operations.check().await?;
    Ok(operations)
}

async fn queue_url(queue: &Queue, url: &str) -> anyhow::Result<Operations> {
    let tables = &queue.database.table;
    let (events, log) = (TableName::new(tables.table.clone())?, TableName::new(tables.log_table.clone())?);
    let operations = Operations::connect(url, &queue.database.tls, events, log).await?;
    let operations = operations.abandoned_timeout(queue.config().abandoned_timeout);
    Ok(if tables.behind_pooler { operations.behind_pooler() } else { operations })
}

async fn open_url(outbox: &Outbox, url: &str) -> anyhow::Result<SqlStore> {
    let settings = &outbox.database.table;
    let table = TableName::new(settings.table.clone())?;
    let zone = TimeZone::new(&settings.time_zone)?;
    let mut store = SqlStore::connect_with(url, &outbox.database.tls, table).await?.time_zone(zone);
    if settings.behind_pooler {
        store = store.behind_pooler();
    }
    Ok(store.done(outbox.config().dispatcher.done))
}

/// The dead events of an outbox, whether it runs or not, for whoever has these rights.
pub(crate) async fn dead_events(outbox: &Outbox, rights: Rights) -> anyhow::Result<DeadEvents> {
    let store = open_existing(outbox).await?;
    store.check_rights(rights).await?;
    Ok(DeadEvents::of(Arc::new(store)).operator(operator()))
}

/// Who runs a command, for the record.
pub(crate) fn operator() -> String {
    format!("user {} on the command line", rustix::process::getuid().as_raw())
}

/// The one of that name, or the only one there is. The flag is where the name came from.
pub(crate) fn named<C: OnDatabase>(mut all: Vec<C>, name: Option<&str>, flag: &str) -> anyhow::Result<C> {
    let (one, several) = C::WORDS;
    let names = all.iter().map(OnDatabase::name).collect::<Vec<_>>().join(", ");
    let wanted = match name {
        Some(name) => all.iter().position(|it| it.name() == name),
        None if all.len() == 1 => Some(0),
        None if all.is_empty() => bail!("the settings file has no {one}"),
        None => bail!("the settings file has several {several}; name one with {flag}: {names}"),
    };
    let Some(place) = wanted else {
        let name = plain(name.unwrap_or_default());
        bail!("{flag} names {name}, and the settings file has no such {one}; it has: {names}")
    };
    Ok(all.swap_remove(place))
}
