//! The same loops through another driver: how much of the ceiling is sqlx.

use std::time::Instant;

use anyhow::{Result, ensure};
use tokio_postgres::NoTls;

use super::raw::{BATCH, Loop};
use crate::contender::Drained;

pub(super) async fn run(url: String, events: u32, by: Loop) -> Result<Drained> {
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await?;
    let connection = tokio::spawn(connection);
    let (read, settle) = (client.prepare(by.read).await?, client.prepare(by.settle).await?);
    let start = Instant::now();
    let mut settled = 0;
    loop {
        let rows = client.query(&read, &[&BATCH]).await?;
        if rows.is_empty() {
            break;
        }
        let ids: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        let _payload_bytes: usize = rows.iter().map(|row| row.get::<_, String>(5).len()).sum();
        for ids in ids.chunks(by.settled_at_once) {
            settled += client.execute(&settle, &[&ids]).await?;
        }
    }
    let took = start.elapsed();
    drop(client);
    connection.await??;
    ensure!(settled == u64::from(events), "{settled} of {events} are done");
    Ok(Drained { events, took })
}
