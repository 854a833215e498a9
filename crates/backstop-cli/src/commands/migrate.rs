//! `backstop migrate`: the tables of a settings file, created or brought up to date.

use std::path::Path;

use anyhow::{Context, bail};
use backstop_sql::store::Store;

use crate::commands::{database_word, tables_told};
use crate::config::settings::{Outbox, Queue};
use crate::config::{self, Sections};
use crate::plain;
use crate::table;

pub(crate) async fn run(file: &Path, triggers: bool) -> anyhow::Result<()> {
    let (settings, sections) = config::load(file)?.settings()?;
    let mut failed = 0;
    for outbox in &settings.outbox {
        // One database that is unavailable keeps no other table back.
        failed += tell(&sections, &outbox.path, migrate(outbox, triggers).await);
    }
    for queue in &settings.queue {
        failed += tell(&sections, &queue.path, migrate_queue(queue, triggers).await);
    }
    let of = match (settings.outbox.len(), settings.queue.len()) {
        (outboxes, 0) => format!("{outboxes} outboxes"),
        (0, queues) => format!("{queues} queues"),
        (outboxes, queues) => format!("{} outboxes and queues", outboxes + queues),
    };
    match failed {
        0 => Ok(()),
        _ => bail!("{failed} of {of} were not migrated"),
    }
}

/// Tells what failed, and how many that are.
fn tell(sections: &Sections, path: &str, migrated: anyhow::Result<()>) -> usize {
    let Err(error) = migrated else { return 0 };
    eprintln!("error: {} cannot be migrated: {}", sections.told(path), plain::told(&error));
    1
}

async fn migrate_queue(queue: &Queue, triggers: bool) -> anyhow::Result<()> {
    let Queue { name, database, .. } = queue;
    table::queue(queue).await?.migrate().await?;
    println!("{name}: {} are up to date", tables_told(database));
    if triggers {
        println!(
            "{name}: workers find rows inserted by plain SQL when they look, at the latest after idle-wait"
        );
    }
    Ok(())
}

async fn migrate(outbox: &Outbox, triggers: bool) -> anyhow::Result<()> {
    let Outbox { name, database, .. } = outbox;
    let store = table::open(outbox).await?;
    store.migrate().await?;
    println!("{name}: table {} is up to date", database.table.table);
    if triggers {
        let woken = store.allow_plain_inserts().await.context("cannot add triggers and defaults")?;
        match (woken, database_word(database)) {
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
