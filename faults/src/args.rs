//! The settings of a node, as flags.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

/// A node of the fault tests.
#[derive(Debug, Clone, Parser)]
pub(crate) struct Args {
    /// The database, of any kind
    #[arg(long)]
    pub(crate) url: String,
    /// Whether it has the table to itself
    #[arg(long, value_enum, default_value_t = Mode::Multi)]
    pub(crate) mode: Mode,
    /// Its name, new at each start: the owner of its claims, and the name of its recordings
    #[arg(long)]
    pub(crate) name: String,
    /// Where it writes down what it did
    #[arg(long)]
    pub(crate) folder: PathBuf,
    #[arg(long, default_value_t = 5_000)]
    pub(crate) claim_timeout_ms: u64,
    #[arg(long, default_value_t = 3_000)]
    pub(crate) hot_grace_ms: u64,
    #[arg(long, default_value_t = 200)]
    pub(crate) interval_ms: u64,
    #[arg(long, default_value_t = 500)]
    pub(crate) batch_size: u32,
    #[arg(long, default_value_t = 4)]
    pub(crate) workers: usize,
    #[arg(long, default_value_t = 1_000)]
    pub(crate) hot_queue: usize,
    #[arg(long, default_value_t = 1_000)]
    pub(crate) cold_queue: usize,
    /// How many connections its pool has
    #[arg(long, default_value_t = 5)]
    pub(crate) pool: u32,
    #[arg(long, default_value_t = 2_000)]
    pub(crate) acquire_timeout_ms: u64,
    #[arg(long, default_value_t = 5_000)]
    pub(crate) drain_ms: u64,
    /// How often a handler is called for an event at most, where the mode has more than one attempt
    #[arg(long, default_value_t = 10)]
    pub(crate) max_attempts: u32,
    /// How long a failed event waits at most before it is tried again, where the mode tries again
    #[arg(long, default_value_t = 60_000)]
    pub(crate) retry_ms: u64,
    /// Deletes rows that ended longer ago than this, again and again
    #[arg(long)]
    pub(crate) purge_ms: Option<u64>,
    /// Deletes rows whose events were handled, in place of keeping them as done
    #[arg(long)]
    pub(crate) delete_done: bool,
    /// How many scripts have a transaction open at the same time; the others wait
    #[arg(long, default_value_t = 2)]
    pub(crate) transactions: usize,
    /// What each session of the pool is told first
    #[arg(long)]
    pub(crate) session: Option<String>,
    /// The URL leads to a pooler that shares connections between transactions
    #[arg(long)]
    pub(crate) pooled: bool,
    /// The machine's wall clock, in microseconds, at the zero of its monotonic clock. With it moments are written
    /// down by the monotonic clock, which nobody moves
    #[arg(long)]
    pub(crate) epoch: Option<i64>,
    /// How long a handler takes after it has written the delivery down
    #[arg(long, default_value_t = 0)]
    pub(crate) handler_ms: u64,
    /// Handlers wait at a gate, before anything is written down, until they are told `open`
    #[arg(long)]
    pub(crate) shut: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Mode {
    /// One process on the table, no claims
    Single,
    /// Several processes on the table
    Multi,
    /// One process on the table, one event after another
    Ordered,
}
