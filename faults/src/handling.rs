//! The handler: waits at the gate, writes the delivery down, takes its time.

use std::io;
use std::time::Duration;

use backstop_core::{Clock as _, Event, Failure, Outcome, SystemClock};
use tokio::sync::watch;

use crate::args::Args;
use crate::recording::Recording;

/// What all handlers of a node share.
#[derive(Debug)]
pub(crate) struct Handling {
    delivered: Recording,
    open: watch::Sender<bool>,
    takes: Duration,
}

impl Handling {
    pub(crate) fn new(args: &Args) -> io::Result<Self> {
        let delivered = Recording::open(args, "delivered")?;
        let takes = Duration::from_millis(args.handler_ms);
        Ok(Self { delivered, open: watch::Sender::new(!args.shut), takes })
    }

    /// Opens or shuts the gate.
    pub(crate) fn set_open(&self, open: bool) {
        self.open.send_replace(open);
    }

    pub(crate) async fn handle(&self, event: &Event) -> Result<Outcome, Failure> {
        // It fails only if the sender is gone, which is a field of this very value.
        let _ = self.open.subscribe().wait_for(|open| *open).await;
        let at = SystemClock.now().timestamp_micros();
        let line = format!("{at} {} {}\n", event.id(), event.payload_json());
        self.delivered.add(&line).map_err(|error| Failure::transient("recording", error.to_string()))?;
        if !self.takes.is_zero() {
            tokio::time::sleep(self.takes).await;
        }
        Ok(Outcome::Done)
    }
}
