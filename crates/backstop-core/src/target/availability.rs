//! Whether a target may be called, and what its answers mean: decided without a socket.

use std::collections::HashSet;
use std::time::Duration;

use super::config::Pace;
use super::{Status, Verdict};
use crate::breaker::{Admission, Breaker, State};
use crate::clock::{Clock, Tick};
use crate::redact::redacted;
use crate::suspects::Suspects;
use crate::{Failure, Outcome, Timestamp};

/// This many events are remembered because they failed. More are no single bad events.
const MOST_COUNTED: usize = 1_000;

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
    /// How many requests have been waiting long for their answers, while none has been answered since they began.
    overdue: u32,
    /// Why the last request that says something about the target went wrong; none after a good one.
    pub(super) trouble: Option<String>,
    /// Since when it is not available, while it is not.
    pub(super) since: Option<Timestamp>,
    /// How many requests the target has answered, for better or worse.
    answered: u64,
    suspects: Suspects,
    /// Events that count towards the circuit already.
    counted: HashSet<String>,
    /// When the last request ended that found the target unavailable.
    missed_at: Option<Tick>,
    last_asked: Tick,
}

/// A request that was made.
pub(super) struct Request<'a> {
    /// The events in it.
    pub(super) ids: &'a [String],
    pub(super) began: Tick,
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
            overdue: 0,
            trouble: None,
            since: None,
            answered: 0,
            suspects: Suspects::default(),
            counted: HashSet::new(),
            missed_at: None,
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
        } else if held || circuit_open || self.overdue > 0 || self.misses > 0 {
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
        let silence = (self.overdue > 0).then(|| self.pace.first_pause());
        self.closed_for(now).max(silence)
    }

    /// How long it asked us to wait, or its circuit stays open.
    fn closed_for(&self, now: Tick) -> Option<Duration> {
        let until = self.held_until.filter(|until| *until > now).max(self.breaker.open_until());
        until.map(|until| until.since(now))
    }

    /// How long it is until a request may be made again. None if that is for others to say: an operator if it is disabled, its
    /// answer if it is being asked, or else whoever has something to send.
    pub(super) fn next_probe(&self, now: Tick) -> Option<Duration> {
        let time_tells = !self.disabled && self.overdue == 0;
        self.closed_for(now).filter(|_| time_tells)
    }

    pub(super) fn admit(&mut self, now: Tick) -> Result<Admission, Failure> {
        if let Some(wait) = self.wait(now) {
            return Err(self.unavailable(wait));
        }
        self.breaker.admit(now).map_err(|_probes_are_running| self.unavailable(self.pace.first_pause()))
    }

    /// A request has been waiting long for its answer. If others are answered meanwhile, that says nothing. Tells whether it
    /// does.
    pub(super) fn overdue(&mut self, answered_before: u64, why: &str) -> bool {
        if self.answered > answered_before {
            return false;
        }
        self.overdue += 1;
        self.trouble = Some(redacted(why).into_owned());
        true
    }

    /// A request that was overdue has ended, one way or another.
    pub(super) fn no_longer_overdue(&mut self) {
        self.overdue = self.overdue.saturating_sub(1);
    }

    /// Sends again, whatever the target asked for before.
    pub(super) fn enable(&mut self) {
        self.disabled = false;
        self.held_until = None;
        (self.trouble, self.misses, self.overdue) = (None, 0, 0);
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
                let is_own = self.is_own_trouble(request);
                self.record(false, request, admission);
                if is_own {
                    let failure = Failure::transient(class, why);
                    return Err(match wait {
                        Some(wait) => failure.retried_after(wait),
                        None => failure,
                    });
                }
                Err(self.missed(wait, &why, request))
            }
        }
    }

    /// Whether it is an event of this request that the target does not take, while it takes others.
    fn is_own_trouble(&mut self, request: &Request<'_>) -> bool {
        let (answered, suspects) = (self.answered, &mut self.suspects);
        let own: Vec<_> =
            request.ids.iter().map(|id| suspects.is_its_own(id, answered, request.now)).collect();
        own.contains(&true)
    }

    /// Of requests that were under way together only the first raises the pause.
    fn missed(&mut self, asked: Option<Duration>, why: &str, request: &Request<'_>) -> Failure {
        self.misses =
            if self.is_another_miss(request) { self.misses.saturating_add(1) } else { self.misses.max(1) };
        self.missed_at = Some(request.now);
        self.trouble = Some(redacted(why).into_owned());
        if let Some(wait) = asked.filter(|wait| !wait.is_zero()) {
            self.held_until = self.held_until.max(Some(request.now + wait));
        }
        let wait = self.wait(request.now).unwrap_or_else(|| self.pace.pause_after(self.misses));
        self.unavailable(wait)
    }

    /// Whether a request began after the last one that found the target unavailable had ended.
    fn is_another_miss(&self, request: &Request<'_>) -> bool {
        self.missed_at.is_none_or(|missed_at| missed_at <= request.began)
    }

    /// Tells the breaker how a request ended. One bad event must not open the circuit of all others, so an event that failed
    /// before counts no more while it is closed; and requests that were under way together when the target went away are one
    /// failure.
    fn record(&mut self, good: bool, request: &Request<'_>, admission: &mut Option<Admission>) {
        let closed = self.breaker.state() == State::Closed;
        let is_new = request.ids.iter().any(|id| !self.counted.contains(id)) && self.is_another_miss(request);
        if good && self.misses > 0 && closed {
            // It is back: what was found while it was unavailable must not open the circuit now.
            self.breaker.close();
        } else if let Some(admission) = admission.take_if(|_| good || !closed || is_new) {
            self.breaker.record(admission, good, request.took, request.now);
            // More probes may be admitted than one, but one that succeeds is enough: what waits flows at once.
            if good && self.breaker.state() == State::HalfOpen {
                self.breaker.close();
            }
        }
        if !good {
            if self.counted.len() >= MOST_COUNTED {
                self.counted.clear();
            }
            self.counted.extend(request.ids.iter().cloned());
            return;
        }
        self.answered += 1;
        if !self.counted.is_empty() {
            request.ids.iter().for_each(|id| _ = self.counted.remove(id));
        }
        request.ids.iter().for_each(|id| self.suspects.clear(id));
        // An answer from before the circuit opened does not say why it is open.
        if self.breaker.state() != State::Open {
            (self.trouble, self.misses, self.overdue) = (None, 0, 0);
            self.missed_at = None;
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
