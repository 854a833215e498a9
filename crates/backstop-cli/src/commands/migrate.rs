//! `backstop migrate`: the tables of a settings file, created or brought up to date.

use std::path::Path;

use anyhow::{Context, bail};
use backstop_sql::store::Store;

use crate::commands::database_word;
use crate::config;
use crate::config::settings::Outbox;
use crate::plain;
use crate::table;

pub(crate) async fn run(file: &Path, triggers: bool) -> anyhow::Result<()> {
    let (settings, sections) = config::load(file)?.settings()?;
    let mut failed = 0;
    for outbox in &settings.outbox {
        // One database that is unavailable keeps no other table back.
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
    let store = table::open(outbox).await?;
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
