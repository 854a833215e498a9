//! `backstop migrate`: the tables of a settings file, created or brought up to date.

use std::path::Path;

use anyhow::{Context, bail};
use backstop_sql::store::{SqlStore, Store};
use backstop_sql::{TableName, TimeZone};

use crate::commands::database_word;
use crate::config;
use crate::config::settings::Outbox;
use crate::plain;

pub(crate) async fn run(file: &Path, triggers: bool) -> anyhow::Result<()> {
    let (settings, sections) = config::load(file)?.settings()?;
    let mut failed = 0;
    for outbox in &settings.outbox {
        // One database that is away keeps no other table back.
        if let Err(error) = migrate(outbox, triggers).await {
            eprintln!("error: {} cannot be migrated: {}", sections.told(&outbox.path), plain::told(&error));
            failed += 1;
        }
    }
    match failed {
        0 => Ok(()),
        _ => bail!("{failed} of {} outboxes were not migrated", settings.outbox.len()),
    }
}

async fn migrate(outbox: &Outbox, triggers: bool) -> anyhow::Result<()> {
    let Outbox { name, database, .. } = outbox;
    let table = TableName::new(database.table.table.clone())?;
    let zone = TimeZone::new(&database.table.time_zone)?;
    let mut store =
        SqlStore::connect_with(database.url.reveal(), &database.tls, table).await?.time_zone(zone);
    if database.table.behind_pooler {
        store = store.behind_pooler();
    }
    store.migrate().await?;
    println!("{name}: table {} is up to date", database.table.table);
    if triggers {
        let woken = store.allow_plain_inserts().await.context("cannot add triggers and defaults")?;
        match (woken, database_word(outbox)) {
            (true, _) => {
                println!("{name}: rows inserted by plain SQL wake the daemon when they are committed");
            }
            (false, database) => {
                println!("{name}: {database} has no wake-ups; polling finds rows inserted by plain SQL");
            }
        }
    }
    Ok(())
}
