//! The table of an outbox of a settings file, for commands that work on it without an outbox that runs.

use std::sync::Arc;

use anyhow::bail;
use backstop_sql::outbox::DeadEvents;
use backstop_sql::store::{DatabaseKind, Rights, SqlStore, Store};
use backstop_sql::{TableName, TimeZone};

use crate::config::settings::Outbox;
use crate::plain::plain;

/// Opens it, whether it is there or not.
pub(crate) async fn open(outbox: &Outbox) -> anyhow::Result<SqlStore> {
    open_url(outbox, outbox.database.url.reveal()).await
}

/// Opens it if it is there, in a version that this program knows. A file that is not there is not made.
pub(crate) async fn open_existing(outbox: &Outbox) -> anyhow::Result<SqlStore> {
    let url = outbox.database.url.reveal();
    let store = match DatabaseKind::of(url)? {
        DatabaseKind::Sqlite if !url.contains("mode=") => {
            let sign = if url.contains('?') { '&' } else { '?' };
            open_url(outbox, &format!("{url}{sign}mode=rw")).await?
        }
        _ => open(outbox).await?,
    };
    store.check().await?;
    Ok(store)
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

/// The outbox of that name, or the only one there is. The flag is where the name came from.
pub(crate) fn named(mut all: Vec<Outbox>, name: Option<&str>, flag: &str) -> anyhow::Result<Outbox> {
    let names = all.iter().map(|outbox| outbox.name.clone()).collect::<Vec<_>>().join(", ");
    let wanted = match name {
        Some(name) => all.iter().position(|outbox| outbox.name == name),
        None if all.len() == 1 => Some(0),
        None if all.is_empty() => bail!("the settings file has no outbox"),
        None => bail!("the settings file has several outboxes; name one with {flag}: {names}"),
    };
    let Some(place) = wanted else {
        let name = plain(name.unwrap_or_default());
        bail!("{flag} names {name}, and the settings file has no such outbox; it has: {names}")
    };
    Ok(all.swap_remove(place))
}
