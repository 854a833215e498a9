//! What a node is told, line by line, and what it answers.
//!
//! | line | what happens | answer |
//! |---|---|---|
//! | (start) | | `ready` |
//! | `append <count> <at once>` | appends in the background | `appended <accepted>` |
//! | `open`, `shut` | the handlers' gate | |
//! | `hog <connections>` | takes connections out of the pool and keeps them | `hogged <connections>` |
//! | `free` | gives them back | |
//! | `transact <number> <words>` | runs a [script](crate::transacting) in the background | |
//! | `rest` | waits until no script and no replay runs | `resting` |
//! | `replay` | replays what is dead, in the background | |
//! | `tell` | | `told <late> <handled> <hot refused>` |
//! | `close` | closes the outbox and ends | `closed`, or `closed <error>` |

use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use backstop_sql::store::DeadFilter;
use backstop_sql::{Outbox, Supported};
use tokio::io::{AsyncBufReadExt as _, BufReader, stdin};

use crate::appending::Appender;
use crate::args::Args;
use crate::handling::Handling;
use crate::transacting::Scripts;

/// Obeys until it is told to close, or until whoever gives the commands is gone.
pub(crate) async fn obey<DB: Supported>(
    outbox: Outbox<DB>,
    pool: sqlx::Pool<DB>,
    handling: Arc<Handling>,
    args: Args,
) -> Result<()> {
    let appender = Arc::new(Appender::new(&args)?);
    let scripts = Arc::new(Scripts::new(&args)?);
    let mut hogged = Vec::new();
    let mut lines = BufReader::new(stdin()).lines();
    println!("ready");
    while let Some(line) = lines.next_line().await? {
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            ["append", count, at_once] => {
                let (count, at_once) = (count.parse()?, at_once.parse()?);
                let (appender, outbox) = (appender.clone(), outbox.clone());
                tokio::spawn(async move {
                    match appender.append(&outbox, count, at_once).await {
                        Ok(accepted) => println!("appended {accepted}"),
                        Err(error) => println!("cannot append: {error}"),
                    }
                });
            }
            ["transact", number, ref words @ ..] => scripts.start(&outbox, &pool, number, words),
            ["rest"] => {
                let scripts = scripts.clone();
                tokio::spawn(async move {
                    scripts.until_all_ended().await;
                    println!("resting");
                });
            }
            ["replay"] => {
                let dead = outbox.dead();
                scripts.run_in_background(async move {
                    if let Err(error) = dead.replay_all(DeadFilter::default()).run().await {
                        eprintln!("{error}");
                    }
                });
            }
            ["open"] => handling.set_open(true),
            ["shut"] => handling.set_open(false),
            ["hog", connections] => {
                for _ in 0..connections.parse::<usize>()? {
                    hogged.push(acquire(&pool).await?);
                }
                println!("hogged {}", hogged.len());
            }
            ["free"] => hogged.clear(),
            ["tell"] => {
                let counted = outbox.metrics();
                let numbers = [&counted.settle_late, &counted.dispatch_success, &counted.enqueue_hot_dropped];
                let numbers = numbers.map(|counter| counter.total().to_string());
                println!("told {}", numbers.join(" "));
            }
            ["close"] => {
                match outbox.close().await {
                    Ok(()) => println!("closed"),
                    Err(error) => println!("closed {error}"),
                }
                return Ok(());
            }
            _ => bail!("nobody knows what {line:?} means"),
        }
    }
    Ok(())
}

/// Waits for a connection however long that takes: under load the outbox itself has them all now and then.
async fn acquire<DB: Supported>(pool: &sqlx::Pool<DB>) -> Result<sqlx::pool::PoolConnection<DB>> {
    loop {
        match pool.acquire().await {
            Err(sqlx::Error::PoolTimedOut) => {}
            other => return other.context("taking a connection"),
        }
    }
}
