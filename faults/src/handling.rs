//! The handlers: one that waits at the gate, writes the delivery down and takes its time, and one that does what its
//! event says.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use backstop_core::{Event, Failure, Outcome};
use tokio::sync::watch;

use crate::args::Args;
use crate::recording::Recording;

/// The header that says what becomes of an event: one step for each call of the handler, with dots between.
/// The last one is repeated.
///
/// A step is an answer: `d` done, `f` a failure, `p` a panic, `u` a failure for good, `x` dead, `r50` deferred by 50 ms.
/// Before it may stand how long it takes: `s300+d` lets the runtime go on meanwhile, `b300+d` blocks its thread.
pub(crate) const STEPS: &str = "steps";

/// What all handlers of a node share.
#[derive(Debug)]
pub(crate) struct Handling {
    delivered: Recording,
    /// `<moment> begin <call> <event> <step>` and `<moment> end <call> <event> <answer>`.
    handled: Recording,
    calls: AtomicU64,
    calls_of: Mutex<HashMap<String, usize>>,
    open: watch::Sender<bool>,
    takes: Duration,
}

impl Handling {
    pub(crate) fn new(args: &Args) -> io::Result<Self> {
        Ok(Self {
            delivered: Recording::open(args, "delivered")?,
            handled: Recording::open(args, "handled")?,
            calls: AtomicU64::new(0),
            calls_of: Mutex::default(),
            open: watch::Sender::new(!args.shut),
            takes: Duration::from_millis(args.handler_ms),
        })
    }

    /// Opens or shuts the gate.
    pub(crate) fn set_open(&self, open: bool) {
        self.open.send_replace(open);
    }

    pub(crate) async fn handle(&self, event: &Event) -> Result<Outcome, Failure> {
        // It fails only if the sender is gone, which is a field of this very value.
        let _ = self.open.subscribe().wait_for(|open| *open).await;
        let line = format!("{} {} {}\n", self.delivered.now(), event.id(), event.payload_json());
        self.delivered.add(&line).map_err(unrecorded)?;
        if !self.takes.is_zero() {
            tokio::time::sleep(self.takes).await;
        }
        Ok(Outcome::Done)
    }

    /// Does what the event says for this call, and writes down when it began and ended.
    pub(crate) async fn follow_steps(&self, event: &Event) -> Result<Outcome, Failure> {
        let (id, call) = (event.id(), self.calls.fetch_add(1, Ordering::Relaxed));
        let steps: Vec<_> = event.headers().get(STEPS).map_or("d", |steps| &**steps).split('.').collect();
        let step = steps[self.calls_before(id).min(steps.len() - 1)];
        self.handled.note(&format!("begin {call} {id} {step}")).map_err(unrecorded)?;
        let (takes, answer) = step.split_once('+').unwrap_or(("", step));
        match takes.split_at_checked(1) {
            Some(("s", millis)) => tokio::time::sleep(duration(millis)?).await,
            Some(("b", millis)) => thread::sleep(duration(millis)?),
            _ => {}
        }
        self.handled.note(&format!("end {call} {id} {answer}")).map_err(unrecorded)?;
        match answer {
            "d" => Ok(Outcome::Done),
            "f" => Err(Failure::transient("tortured", "it fails")),
            "u" => Err(Failure::permanent("tortured", "it fails for good")),
            "x" => Ok(Outcome::dead_because("it is to die")),
            "p" => panic!("it panics"),
            _ => Ok(Outcome::retry_after(duration(answer.trim_start_matches('r'))?)),
        }
    }

    /// How many calls for an event this process has seen before this one.
    fn calls_before(&self, id: &str) -> usize {
        let mut calls = self.calls_of.lock().unwrap_or_else(PoisonError::into_inner);
        let calls = calls.entry(id.to_owned()).or_default();
        *calls += 1;
        *calls - 1
    }
}

fn duration(millis: &str) -> Result<Duration, Failure> {
    let millis =
        millis.parse().map_err(|error| Failure::permanent("steps", format!("{millis:?}: {error}")))?;
    Ok(Duration::from_millis(millis))
}

#[expect(clippy::needless_pass_by_value, reason = "the signature of a mapping")]
fn unrecorded(error: io::Error) -> Failure {
    Failure::transient("recording", error.to_string())
}
