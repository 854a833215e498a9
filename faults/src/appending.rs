//! The business side: transactions that append events, and what became of their commits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use backstop_core::Event;
use backstop_sql::{Outbox, Supported};

use crate::args::Args;
use crate::recording::Recording;

pub(crate) const AGGREGATE_TYPE: &str = "Counter";
pub(crate) const EVENT_TYPE: &str = "Counted";

/// After a transaction that failed, the next one waits so long, as a service would.
const AFTER_A_FAILURE: Duration = Duration::from_millis(50);

/// Writes down which events were accepted, and of which nobody knows.
#[derive(Debug)]
pub(crate) struct Appender {
    name: String,
    accepted: Recording,
    unsure: Recording,
    made: AtomicU64,
}

impl Appender {
    pub(crate) fn new(args: &Args) -> Result<Self> {
        let (accepted, unsure) = (Recording::open(args, "accepted")?, Recording::open(args, "unsure")?);
        Ok(Self { name: args.name.clone(), accepted, unsure, made: AtomicU64::new(0) })
    }

    /// Appends `count` events, `at_once` in each transaction. Tells how many were accepted.
    pub(crate) async fn append<DB: Supported>(
        &self,
        outbox: &Outbox<DB>,
        count: usize,
        at_once: usize,
    ) -> Result<usize> {
        let (mut left, mut accepted) = (count, 0);
        while left > 0 {
            let events = self.some(left.min(at_once))?;
            left -= events.len();
            let ids: Vec<_> = events.iter().map(|event| event.id().to_owned()).collect();
            let lines: String = ids.iter().flat_map(|id| [id, "\n"]).collect();
            let appended = outbox.transaction(async |tx| tx.append_all(events).await).await;
            if let Err(error) = appended {
                eprintln!("{} events may not be accepted: {error}", ids.len());
                self.unsure.add(&lines)?;
                tokio::time::sleep(AFTER_A_FAILURE).await;
            } else {
                self.accepted.add(&lines)?;
                accepted += ids.len();
            }
        }
        Ok(accepted)
    }

    fn some(&self, count: usize) -> Result<Vec<Event>> {
        let event = |_| {
            let n = self.made.fetch_add(1, Ordering::Relaxed);
            // Written as no serialiser would, to see it arrive byte for byte.
            let payload = format!(r#"{{ "node":"{}",  "n":{n} }}"#, self.name);
            let event = Event::of(EVENT_TYPE).aggregate(AGGREGATE_TYPE, (n % 100).to_string());
            Ok(event.payload_json(payload).build()?)
        };
        (0..count).map(event).collect()
    }
}
