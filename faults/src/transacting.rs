//! Business transactions that follow a script, and what became of each, written down as it happens.
//!
//! | word | what happens |
//! |---|---|
//! | `own` | first: the transaction is the caller's own, and only the writer is the outbox's |
//! | `early` | first: the events are built before the transaction begins |
//! | `a:d,f.d` | appends a batch of events, each given by what its [handler](crate::handling::STEPS) does |
//! | `w250` | waits 250 ms |
//! | `s`, `b` | a savepoint; back to the last one |
//! | `l3` | locks row 3 of the table `business`, and waits for whoever has it |
//! | `x` | runs a statement that the database refuses |
//! | `c`, `r`, `d` | last: commits, rolls back, is dropped |
//!
//! What goes wrong before the last word is swallowed, and the script goes on with the last word. An owner who was told that
//! his transaction committed says so of everything that he appended, also where he went back to a savepoint: the outbox has
//! to find out.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use backstop_core::Event;
use backstop_sql::connection::Connection as _;
use backstop_sql::outbox::{Appended, Transaction, Writer};
use backstop_sql::statement::{Marks, Statement};
use backstop_sql::{Outbox, Supported};
use sqlx::Pool;
use tokio::sync::{Semaphore, watch};

use crate::args::Args;
use crate::handling::STEPS;
use crate::recording::Recording;

pub(crate) const AGGREGATE_TYPE: &str = "Tortured";
pub(crate) const EVENT_TYPE: &str = "Happened";

/// Refused by every database; PostgreSQL aborts the transaction over it, SQLite is asked to.
const REFUSED: &str = "insert into business values (1, 0)";
const REFUSED_BY_SQLITE: &str = "insert or rollback into business values (1, 0)";

/// Runs scripts and writes down what became of them: `<moment> <what> <transaction> …`.
#[derive(Debug)]
pub(crate) struct Scripts {
    transactions: Recording,
    open: watch::Sender<usize>,
    /// Leaves connections of the pool to the outbox.
    turns: Semaphore,
    refused: &'static str,
}

impl Scripts {
    pub(crate) fn new(args: &Args) -> Result<Self> {
        let refused = if args.url.starts_with("sqlite") { REFUSED_BY_SQLITE } else { REFUSED };
        let transactions = Recording::open(args, "transactions")?;
        let turns = Semaphore::new(args.transactions);
        Ok(Self { transactions, open: watch::Sender::new(0), turns, refused })
    }

    /// Runs a script in the background.
    pub(crate) fn start<DB: Supported>(
        self: &Arc<Self>,
        outbox: &Outbox<DB>,
        pool: &Pool<DB>,
        number: &str,
        words: &[&str],
    ) {
        let (scripts, number) = (self.clone(), number.to_owned());
        let (outbox, pool) = (outbox.clone(), pool.clone());
        let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
        self.run_in_background(async move {
            if let Err(error) = scripts.run(&outbox, &pool, &number, &words).await {
                eprintln!("transaction {number}: {error:#}");
            }
        });
    }

    /// Runs something that changes rows, and counts as a script.
    pub(crate) fn run_in_background(self: &Arc<Self>, work: impl Future<Output = ()> + Send + 'static) {
        let scripts = self.clone();
        self.open.send_modify(|open| *open += 1);
        tokio::spawn(async move {
            work.await;
            scripts.open.send_modify(|open| *open -= 1);
        });
    }

    /// Waits until no script runs.
    pub(crate) async fn until_all_ended(&self) {
        let _ = self.open.subscribe().wait_for(|open| *open == 0).await;
    }

    async fn run<DB: Supported>(
        &self,
        outbox: &Outbox<DB>,
        pool: &Pool<DB>,
        number: &str,
        words: &[String],
    ) -> Result<()> {
        let _turn = self.turns.acquire().await?;
        let (last, words) = words.split_last().context("a script has a last word")?;
        let says = |first: &str| words.iter().any(|word| word == first);
        let mut early = built(words, says("early"))?;
        self.note("begin", number, "")?;
        let begun = if says("own") { Open::own(outbox, pool).await } else { Open::of(outbox).await };
        let mut transaction = match begun {
            Ok(transaction) => transaction,
            Err(error) => return self.note("not-begun", number, &error.to_string()),
        };
        let (mut savepoints, mut refused) = (Vec::new(), false);
        for word in words {
            if let Err(error) = self.step(&mut transaction, number, word, &mut early, &mut savepoints).await {
                self.note("refused", number, &format!("{word} {error:#}"))?;
                refused = true;
                break;
            }
        }
        self.note("ending", number, last)?;
        let own = says("own");
        match transaction.end(last).await {
            // What its driver says of a transaction that the database aborted is not the outbox's word.
            Ok(()) if own && refused => self.note("ended", number, "somehow"),
            Ok(()) => self.note("ended", number, last),
            Err(error) => self.note("failed", number, &format!("{last} {error:#}")),
        }
    }

    async fn step<DB: Supported>(
        &self,
        transaction: &mut Open<DB>,
        number: &str,
        word: &str,
        early: &mut VecDeque<Vec<Event>>,
        savepoints: &mut Vec<Vec<String>>,
    ) -> Result<()> {
        match word.split_at(1) {
            ("e" | "o", _) => {}
            ("a", steps) => {
                let events = early.pop_front().map_or_else(|| batch(steps), Ok)?;
                let ids: Vec<_> = events.iter().map(|event| event.id().to_owned()).collect();
                // Before it happens: nothing may be delivered that nobody knows.
                self.note("append", number, &ids.join(" "))?;
                transaction.append_all(events).await?;
                if let Some(since) = savepoints.last_mut() {
                    since.extend(ids);
                }
            }
            ("w", millis) => tokio::time::sleep(Duration::from_millis(millis.parse()?)).await,
            ("s", _) => {
                transaction.execute(&format!("savepoint s{}", savepoints.len())).await?;
                savepoints.push(Vec::new());
            }
            ("b", _) => {
                let undone = savepoints.pop().context("a savepoint to go back to")?;
                transaction.execute(&format!("rollback to savepoint s{}", savepoints.len())).await?;
                self.note("undone", number, &undone.join(" "))?;
            }
            ("l", row) => {
                let lock = format!("update business set touched = touched + 1 where id = {row}");
                transaction.execute(&lock).await?;
            }
            ("x", _) => transaction.execute(self.refused).await?,
            _ => bail!("nobody knows what {word:?} means"),
        }
        Ok(())
    }

    fn note(&self, what: &str, number: &str, rest: &str) -> Result<()> {
        let line = format!("{what} {number} {}", rest.replace('\n', " "));
        Ok(self.transactions.note(line.trim_end())?)
    }
}

/// The batches of a script that builds them before it begins.
fn built(words: &[String], early: bool) -> Result<VecDeque<Vec<Event>>> {
    let appends = words.iter().filter(|_| early).filter_map(|word| word.strip_prefix('a'));
    appends.map(batch).collect()
}

fn batch(steps: &str) -> Result<Vec<Event>> {
    let event = |steps: &str| {
        let event = Event::of(EVENT_TYPE).aggregate(AGGREGATE_TYPE, "1").header(STEPS, steps);
        Ok(event.payload_json("{}").build()?)
    };
    steps.trim_start_matches(':').split(',').map(event).collect()
}

/// A transaction that is open.
enum Open<DB: Supported> {
    /// One of the outbox.
    Ours(Transaction<DB>),
    /// One of somebody else, who appends through the writer.
    Own { transaction: sqlx::Transaction<'static, DB>, writer: Writer, appended: Vec<Appended> },
}

impl<DB: Supported> Open<DB> {
    async fn of(outbox: &Outbox<DB>) -> Result<Self> {
        Ok(Self::Ours(outbox.begin().await?))
    }

    async fn own(outbox: &Outbox<DB>, pool: &Pool<DB>) -> Result<Self> {
        let (transaction, writer) = (DB::begin(pool).await?, outbox.writer().clone());
        Ok(Self::Own { transaction, writer, appended: Vec::new() })
    }

    async fn append_all(&mut self, events: Vec<Event>) -> Result<()> {
        match self {
            Self::Ours(transaction) => transaction.append_all(events).await.map(drop)?,
            Self::Own { transaction, writer, appended } => {
                appended.push(writer.append_all(&mut **transaction, events).await?);
            }
        }
        Ok(())
    }

    async fn execute(&mut self, sql: &str) -> Result<()> {
        let mut statement = Statement::new(Marks::Question);
        statement.push(sql);
        let connection = match self {
            Self::Ours(transaction) => &mut **transaction,
            Self::Own { transaction, .. } => &mut **transaction,
        };
        connection.execute(&statement.unprepared()).await?;
        Ok(())
    }

    async fn end(self, last: &str) -> Result<()> {
        match (self, last) {
            (Self::Ours(transaction), "c") => transaction.commit().await?,
            (Self::Ours(transaction), "r") => transaction.rollback().await?,
            (Self::Own { transaction, appended, .. }, "c") => {
                transaction.commit().await?;
                appended.into_iter().for_each(Appended::committed);
            }
            (Self::Own { transaction, appended, .. }, "r") => {
                transaction.rollback().await?;
                appended.into_iter().for_each(Appended::rolled_back);
            }
            _ => {}
        }
        Ok(())
    }
}
