//! The table of an outbox of a settings file, for commands that work on it without an outbox that runs.

use backstop_sql::store::{DatabaseKind, SqlStore, Store};
use backstop_sql::{TableName, TimeZone};

use crate::config::settings::Outbox;

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
    let mut store = SqlStore::connect(url, table).await?.time_zone(zone);
    if settings.behind_pooler {
        store = store.behind_pooler();
    }
    Ok(store.done(outbox.config().dispatcher.done))
}
