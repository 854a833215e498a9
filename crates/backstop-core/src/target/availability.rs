//! Whether a target may be called, and what its answers mean: decided without a socket.

use std::collections::HashMap;
use std::time::Duration;

use super::config::Pace;
use super::{Status, Verdict};
use crate::breaker::{Admission, Breaker, State};
use crate::clock::{Clock, Tick};
use crate::redact::redacted;
use crate::{Failure, Outcome, Timestamp};

/// So many events are remembered because they failed. More than that are no single bad events.
const MOST_SUSPECTS: usize = 1_000;

/// Probes come at a 64th of the pause at first, each time later, and from then on at the pause.
const STEPS: u32 = 6;

pub(super) struct Availability {
    pub(super) breaker: Breaker,
    pace: Pace,
    /// Until when the target asked us to wait.
    held_until: Option<Tick>,
    pub(super) disabled: bool,
    /// How many requests in a row found it unavailable.
    misses: u32,
    /// Set while a request has been waiting long for its answer, and none has been answered since it began.
    silent: bool,
    /// Why the last request that says something about the target went wrong; none after a good one.
    pub(super) trouble: Option<String>,
    /// Since when it is not available, while it is not.
    pub(super) since: Option<Timestamp>,
    /// How many requests the target has answered, for better or worse.
    answered: u64,
    /// Events that failed here, each with how many requests had been answered by then.
    suspects: HashMap<String, u64>,
    last_asked: Tick,
}

/// A request that was made.
pub(super) struct Request<'a> {
    /// The events in it.
    pub(super) ids: &'a [String],
    /// How many requests had been answered when it began.
    pub(super) answered_before: u64,
    pub(super) took: Duration,
    pub(super) now: Tick,
}

impl Availability {
    pub(super) fn new(breaker: Breaker, pace: Pace) -> Self {
        Self {
            breaker,
            pace,
            held_until: None,
            disabled: false,
            misses: 0,
            silent: false,
            trouble: None,
            since: None,
            answered: 0,
            suspects: HashMap::new(),
            last_asked: Tick::ZERO,
        }
    }

    pub(super) fn answered(&self) -> u64 {
        self.answered
    }

    pub(super) fn status(&mut self, now: Tick) -> Status {
        self.forget_if_nobody_asks(now);
        let circuit_open = match self.breaker.poll(now) {
            State::Open => true,
            // A probe that went well says enough: the next may be days away.
            State::HalfOpen => self.trouble.is_some(),
            State::Closed => false,
        };
        let held = self.held_until.is_some_and(|until| until > now);
        if self.disabled {
            Status::Disabled
        } else if held || circuit_open || self.silent || self.misses > 0 {
            Status::Unavailable(self.trouble.clone().unwrap_or_else(|| "it asked us to wait".to_owned()))
        } else {
            Status::Available
        }
    }

    /// What was found long ago says nothing any more, once there is nothing left to send.
    fn forget_if_nobody_asks(&mut self, now: Tick) {
        let quiet = self.pace.pause.max(self.pace.wait_in_open) * 2;
        let busy_until = [Some(self.last_asked), self.held_until, self.breaker.open_until()];
        let busy_until = busy_until.into_iter().flatten().max().unwrap_or(Tick::ZERO);
        if self.trouble.is_some() && !self.disabled && now >= busy_until + quiet {
            self.breaker.close();
            (self.trouble, self.misses) = (None, 0);
        }
    }

    /// Keeps the moment at which it ceased to be available.
    pub(super) fn note_since(&mut self, status: &Status, clock: &dyn Clock) {
        match status {
            Status::Available => self.since = None,
            _ => _ = self.since.get_or_insert_with(|| clock.now()),
        }
    }

    /// How long it is not called, if so.
    pub(super) fn wait(&mut self, now: Tick) -> Option<Duration> {
        self.last_asked = now;
        if self.disabled {
            return Some(self.pace.disabled_pause);
        }
        self.breaker.poll(now);
        let until = self.held_until.filter(|until| *until > now).max(self.breaker.open_until());
        let silence = self.silent.then(|| self.pace.first_pause());
        until.map(|until| until.since(now)).max(silence)
    }

    pub(super) fn admit(&mut self, now: Tick) -> Result<Admission, Failure> {
        if let Some(wait) = self.wait(now) {
            return Err(self.unavailable(wait));
        }
        self.breaker.admit(now).map_err(|_probes_are_running| self.unavailable(self.pace.first_pause()))
    }

    /// A request has been waiting long for its answer. If others are answered meanwhile, that says nothing. Tells whether it
    /// does.
    pub(super) fn overdue(&mut self, answered_before: u64, waited: Duration) -> bool {
        if self.answered > answered_before {
            return false;
        }
        self.silent = true;
        self.trouble = Some(format!("no answer for {} s", waited.as_secs()));
        true
    }

    /// A request that was overdue has ended, one way or another.
    pub(super) fn no_longer_overdue(&mut self) {
        self.silent = false;
    }

    /// Sends again, whatever the target asked for before.
    pub(super) fn enable(&mut self) {
        self.disabled = false;
        self.held_until = None;
        (self.trouble, self.misses, self.silent) = (None, 0, false);
    }

    /// What a request means for its events, and for the requests to come.
    pub(super) fn judge(
        &mut self,
        verdict: Verdict,
        request: &Request<'_>,
        admission: &mut Option<Admission>,
    ) -> Result<Outcome, Failure> {
        match verdict {
            Verdict::Done => {
                self.record(true, request, admission);
                Ok(Outcome::Done)
            }
            // An answer like any other.
            Verdict::Failed(failure) if !failure.is_recoverable() => {
                self.record(true, request, admission);
                Err(failure)
            }
            Verdict::Failed(failure) => {
                self.record(false, request, admission);
                self.trouble = Some(failure.to_string());
                Err(failure)
            }
            // The request was not made: its admission is given back.
            Verdict::Blocked(failure) => Err(failure),
            Verdict::Gone(why) => {
                self.disabled = true;
                self.trouble = Some(redacted(&why).into_owned());
                Err(self.unavailable(self.pace.disabled_pause))
            }
            Verdict::Unavailable { class, wait, why } => {
                let others_succeed = self.others_succeed(request);
                self.record(false, request, admission);
                if others_succeed {
                    let failure = Failure::transient(class, why);
                    return Err(match wait {
                        Some(wait) => failure.retried_after(wait),
                        None => failure,
                    });
                }
                Err(self.missed(wait, &why, request.now))
            }
        }
    }

    /// Whether the target answered others since this request began, or since its event was last answered like this: then it is
    /// this event that the target does not take.
    fn others_succeed(&self, request: &Request<'_>) -> bool {
        let before = |id: &String| self.suspects.get(id).copied();
        let before = request.ids.iter().filter_map(before).min().unwrap_or(request.answered_before);
        self.answered > before.min(request.answered_before)
    }

    fn missed(&mut self, asked: Option<Duration>, why: &str, now: Tick) -> Failure {
        self.misses = self.misses.saturating_add(1);
        self.trouble = Some(redacted(why).into_owned());
        if let Some(wait) = asked.filter(|wait| !wait.is_zero()) {
            self.held_until = self.held_until.max(Some(now + wait));
        }
        let wait = self.wait(now).unwrap_or_else(|| self.pace.pause_after(self.misses));
        self.unavailable(wait)
    }

    /// Tells the breaker how a request ended. One bad event must not open the circuit of all others, so an event that failed
    /// before counts no more while it is closed.
    fn record(&mut self, good: bool, request: &Request<'_>, admission: &mut Option<Admission>) {
        let counts = good
            || self.breaker.state() != State::Closed
            || request.ids.iter().any(|id| !self.suspects.contains_key(id));
        if good && self.misses > 0 && self.breaker.state() == State::Closed {
            // It is back: what was found while it was unavailable must not open the circuit now.
            self.breaker.close();
        } else if let Some(admission) = admission.take_if(|_| counts) {
            self.breaker.record(admission, good, request.took, request.now);
        }
        if good {
            self.answered += 1;
            (self.trouble, self.misses, self.silent) = (None, 0, false);
            for id in request.ids {
                self.suspects.remove(id);
            }
        } else {
            if self.suspects.len() >= MOST_SUSPECTS {
                self.suspects.clear();
            }
            self.suspects.extend(request.ids.iter().map(|id| (id.clone(), self.answered)));
        }
    }

    fn unavailable(&self, wait: Duration) -> Failure {
        let what = if self.disabled { "is disabled" } else { "is unavailable" };
        let why = self.trouble.as_deref().unwrap_or("it gave no reason");
        Failure::unavailable(format!("the target {what}: {why}")).probe_after(wait)
    }
}

impl Pace {
    fn first_pause(self) -> Duration {
        self.pause_after(1)
    }

    /// How long to wait after so many requests in a row have found the target unavailable.
    fn pause_after(self, misses: u32) -> Duration {
        let step = misses.saturating_sub(1).min(STEPS);
        self.pause / 2_u32.pow(STEPS - step)
    }
}
