//! Settlements that the database refuses: kept, shown, and tried again ever later.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Settled;
use crate::outbox::gate::{Gate, Trouble};

/// One event that cannot be settled stops nobody. After so many in a row it is not the event's fault, and each more
/// would be handled without anybody knowing.
const IN_A_ROW: usize = 3;

/// So many are kept at most before deliveries stand still.
const MOST: usize = 500;

/// How long to wait before they are tried again, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// What was refused. Its events stay in this node's hands, so that they are not handled again.
pub(super) struct Stuck {
    settled: Vec<Settled>,
    error: String,
    /// How many were refused since one was written.
    in_a_row: usize,
    again_at: Instant,
    pause: Duration,
    /// How many are being tried again, and how many were left then.
    taken: usize,
    left: usize,
    gate: Arc<Gate>,
}

impl Stuck {
    pub(super) fn new(gate: Arc<Gate>) -> Self {
        let (error, again_at) = (String::new(), Instant::now());
        Self {
            settled: Vec::new(),
            error,
            in_a_row: 0,
            again_at,
            pause: FIRST_PAUSE,
            taken: 0,
            left: 0,
            gate,
        }
    }

    pub(super) fn add(&mut self, settled: Settled, error: String) {
        if self.settled.is_empty() && self.taken == 0 {
            self.wait();
        }
        self.settled.push(settled);
        self.error = error;
        self.in_a_row += 1;
    }

    fn wait(&mut self) {
        self.again_at = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    /// When to try again, if there is something to try.
    pub(super) fn again_at(&self) -> Option<Instant> {
        (!self.settled.is_empty()).then_some(self.again_at)
    }

    pub(super) fn is_due(&self) -> bool {
        self.again_at().is_some_and(|at| at <= Instant::now())
    }

    /// Some of them, for another try.
    pub(super) fn take(&mut self, most: usize) -> Vec<Settled> {
        let most = most.min(self.settled.len());
        self.taken = most;
        self.left = self.settled.len() - most;
        self.settled.drain(..most).collect()
    }

    pub(super) fn something_was_written(&mut self) {
        self.in_a_row = 0;
    }

    /// Shows how things stand, and shuts the gate or opens it. Tells whether that lets deliveries go on.
    pub(super) fn show(&mut self) -> bool {
        let events = self.settled.len();
        if self.taken > 0 {
            if events < self.left + self.taken {
                self.pause = FIRST_PAUSE; // some were taken, so the others may be too
                self.again_at = Instant::now();
            } else {
                self.wait();
            }
            self.taken = 0;
        }
        if events == 0 {
            self.pause = FIRST_PAUSE;
            let cleared = self.gate.clear();
            if cleared {
                tracing::info!("what became of events is written again");
            }
            return cleared;
        }
        let shut = self.in_a_row >= IN_A_ROW || events >= MOST;
        let news = self.gate.set(Trouble { events, error: self.error.clone(), shut });
        if news && shut {
            tracing::error!(
                events,
                error = self.error,
                "the database refuses what became of events; deliveries stand still until it takes it"
            );
        }
        !shut && news
    }
}
