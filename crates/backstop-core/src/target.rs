//! Targets: where relays send, each with its availability: whether it may be called now, and why not.
//!
//! A relay asks for leave ([`Target::admit`]), makes its request, judges it ([`Verdict`]), and the [`Permit`] turns the
//! verdict into the handler's answer. While a target is *unavailable* its events are deferred: no attempt is counted,
//! and a [breaker](crate::breaker) paces the probes, so an outage of an hour buries nothing.

mod config;
mod report;
mod verdict;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::breaker::{Admission, Breaker, State};
use crate::clock::{Clock, Tick};
use crate::inspect::Paused;
use crate::redact::redacted;
use crate::retry::Jitter;
use crate::{Failure, Outcome, Timestamp, telemetry};

pub use config::{Config, DEFAULT_SOURCE, default_breaker};
pub use verdict::{Verdict, unwritable};

use config::Pace;

/// Where a relay's events go, as an operator sees it. A cheap handle: clones share its state.
///
/// ```
/// use std::sync::Arc;
/// use backstop_core::retry::Jitter;
/// use backstop_core::{Outcome, SystemClock};
/// use backstop_core::target::{Config, Status, Target, Verdict};
///
/// let target = Target::new("webhook", "billing", &Config::default(), Arc::new(SystemClock));
/// let permit = target.admit(Jitter::random()).expect("nothing speaks against it");
/// let away = Verdict::Unavailable { wait: None, why: "no route to host".to_owned() };
/// assert!(matches!(permit.answer(away, Jitter::random()), Ok(Outcome::RetryAfter(_))));
///
/// target.disable(); // as an answer of 410 does
/// assert_eq!(target.status(), Status::Disabled);
/// target.enable();
/// ```
#[derive(Clone)]
pub struct Target(Arc<Inner>);

struct Inner {
    kind: &'static str,
    name: String,
    clock: Arc<dyn Clock>,
    pace: Pace,
    availability: Mutex<Availability>,
    metrics: telemetry::Target,
}

/// What a target is called.
///
/// ```
/// use backstop_core::target::Name;
///
/// let name = Name::from("https://example.com").component("orders".to_owned());
/// # assert_ne!(name, Name::from("https://example.com"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    text: String,
    component: Option<String>,
    number: u32,
}

impl Name {
    /// The component that sends to it, by its name: the label `component` of its metrics. Defaults to none.
    pub fn component(mut self, name: impl Into<Option<String>>) -> Self {
        self.component = name.into();
        self
    }

    /// Which of a component's targets with this name it is. From 2 on its metrics carry it as the label `number`. Defaults
    /// to 1.
    pub fn number(mut self, number: u32) -> Self {
        self.number = number;
        self
    }

    /// What its metrics carry.
    pub(crate) fn labels(&self) -> impl Iterator<Item = (&'static str, String)> {
        let component = self.component.clone().map(|component| ("component", component));
        let number = (self.number > 1).then(|| ("number", self.number.to_string()));
        std::iter::once(("name", self.text.clone())).chain(component).chain(number)
    }
}

impl From<String> for Name {
    fn from(name: String) -> Self {
        Self { text: name, component: None, number: 1 }
    }
}

impl From<&str> for Name {
    fn from(name: &str) -> Self {
        name.to_owned().into()
    }
}

struct Availability {
    breaker: Breaker,
    /// Until when the target asked us to wait.
    held_until: Option<Tick>,
    disabled: bool,
    /// Why the last request that says something about the target went wrong; none after a good one.
    trouble: Option<String>,
    /// Since when it is not available, while it is not.
    since: Option<Timestamp>,
    /// By when somebody has asked for leave, or will again who was told to wait for an open circuit.
    asked_by: Tick,
    /// When nobody has asked for so long, nothing waits for it.
    quiet: Duration,
}

/// The shortest time after which nothing waits for a target that nobody asks for.
const QUIET: Duration = Duration::from_secs(60);

/// What can be said about a target.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// It is called.
    Available,
    /// It is not called for now; the text says why.
    Unavailable(String),
    /// It said that it is gone, or somebody disabled it: nothing is sent until it is enabled.
    Disabled,
}

impl Target {
    /// A target that is available. `kind` is the word for what it is: `webhook`, `topic`.
    pub fn new(kind: &'static str, name: impl Into<Name>, config: &Config, clock: Arc<dyn Clock>) -> Self {
        let breaker = Breaker::new(config.breaker.clone());
        let availability = Availability::new(breaker, config.pause);
        let name = name.into();
        let metrics = telemetry::Target::of(kind, &name);
        metrics.available.set(1);
        let pace = config.pace();
        Self(Arc::new(Inner {
            kind,
            name: name.text,
            clock,
            pace,
            availability: Mutex::new(availability),
            metrics,
        }))
    }

    /// Its name, as operators know it.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Whether it is called now, and if not, why.
    pub fn status(&self) -> Status {
        let status = self.availability().status(self.0.clock.ticks());
        // What time alone has changed is seen by nobody else.
        self.0.metrics.available.set(u64::from(status == Status::Available));
        status
    }

    /// Why its events are not sent now, and since when; none while it is called.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use backstop_core::SystemClock;
    /// # use backstop_core::target::{Config, Target};
    /// let target = Target::new("webhook", "billing", &Config::default(), Arc::new(SystemClock));
    /// assert_eq!(target.paused(), None);
    /// target.disable();
    /// assert_eq!(target.paused().unwrap().state, "disabled");
    /// ```
    pub fn paused(&self) -> Option<Paused> {
        let status = self.status();
        let availability = self.availability();
        let (state, why) = match status {
            Status::Available => return None,
            Status::Unavailable(why) => ("unavailable", why),
            Status::Disabled => (
                "disabled",
                availability.trouble.clone().unwrap_or_else(|| "somebody disabled it".to_owned()),
            ),
        };
        let since = availability.since.unwrap_or_else(|| self.0.clock.now());
        Some(Paused { state, why, since })
    }

    /// A relay's answer as the answer of a sink. There a deferred event counts as failed: the caller of a sink keeps
    /// the events that it does not take.
    pub fn as_sink_answer(&self, answer: Result<Outcome, Failure>) -> Result<(), Failure> {
        match answer {
            Ok(Outcome::Done) => Ok(()),
            Err(failure) => Err(failure),
            Ok(Outcome::RetryAfter(wait)) => {
                let availability = self.availability();
                let what = if availability.disabled { "is disabled" } else { "is unavailable for now" };
                let why = availability.trouble.as_deref().unwrap_or("it gave no reason");
                let why = format!("the target {what}: {why}");
                drop(availability);
                Err(Failure::retry_after(wait).class_is("unavailable").message_is(why))
            }
            Ok(other) => Err(Failure::permanent("refused", other.reason().unwrap_or_default())),
        }
    }

    /// Whether nothing is sent to it: it said that it is gone, or [`disable`](Self::disable) was called.
    pub fn is_disabled(&self) -> bool {
        self.availability().disabled
    }

    /// Stops sending. Its events are deferred until it is enabled again.
    pub fn disable(&self) {
        let mut availability = self.availability();
        availability.disabled = true;
        availability.note_since(&Status::Disabled, &*self.0.clock);
        drop(availability);
        self.0.metrics.available.set(0);
    }

    /// Sends again. A deferred event is delivered when its delay is over.
    pub fn enable(&self) {
        let mut availability = self.availability();
        availability.disabled = false;
        availability.held_until = None;
        let status = availability.status(self.0.clock.ticks());
        availability.note_since(&status, &*self.0.clock);
        let is_available = status == Status::Available;
        drop(availability);
        self.0.metrics.available.set(u64::from(is_available));
    }

    /// Leave to make one request with one event, or how long to defer the event.
    pub fn admit(&self, jitter: Jitter) -> Result<Permit, Duration> {
        self.admit_many(1, jitter)
    }

    /// Leave to make one request with this many events, or how long to defer them. They are counted one by one, and
    /// only when their fate is known: a batch that is refused is not counted, since each of its events is then sent
    /// alone.
    pub fn admit_many(&self, events: u64, jitter: Jitter) -> Result<Permit, Duration> {
        let Inner { pace, clock, .. } = &*self.0;
        let now = clock.ticks();
        let mut availability = self.availability();
        let admitted = availability.admit(now, *pace, jitter);
        drop(availability);
        match admitted {
            Ok(admission) => {
                Ok(Permit { target: self.clone(), admission: Some(admission), began: now, events })
            }
            Err(wait) => {
                self.0.metrics.deferred.add(events);
                Err(wait)
            }
        }
    }

    fn count(&self, answer: &Result<Outcome, Failure>, events: u64, status: &Status) {
        let metrics = &self.0.metrics;
        match answer {
            Ok(Outcome::Done) => metrics.delivered.add(events),
            Ok(Outcome::RetryAfter(_)) => metrics.deferred.add(events),
            // Of a batch that was refused each event is sent, and counted, alone.
            _ if events == 1 => metrics.failed.increment(),
            _ => {}
        }
        metrics.available.set(u64::from(*status == Status::Available));
    }

    fn availability(&self) -> MutexGuard<'_, Availability> {
        self.0.availability.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target").field("name", &self.name()).field("status", &self.status()).finish()
    }
}

impl Availability {
    fn new(breaker: Breaker, pause: Duration) -> Self {
        Self {
            breaker,
            held_until: None,
            disabled: false,
            trouble: None,
            since: None,
            asked_by: Tick::ZERO,
            quiet: QUIET.max(pause.saturating_mul(2)),
        }
    }

    fn status(&mut self, now: Tick) -> Status {
        let held = self.held_until.is_some_and(|until| until > now);
        let circuit_open = match self.breaker.poll(now) {
            State::Open => true,
            // A probe that went well says enough: the next may be days away. So does it when nobody comes to probe: nothing
            // waits for the target here, and another node may have delivered what did.
            State::HalfOpen => self.trouble.is_some() && now.since(self.asked_by) < self.quiet,
            State::Closed => false,
        };
        if self.disabled {
            Status::Disabled
        } else if held || circuit_open {
            Status::Unavailable(self.trouble.clone().unwrap_or_else(|| "it asked us to wait".to_owned()))
        } else {
            Status::Available
        }
    }

    /// Keeps the moment at which it ceased to be available.
    fn note_since(&mut self, status: &Status, clock: &dyn Clock) {
        match status {
            Status::Available => self.since = None,
            _ => _ = self.since.get_or_insert_with(|| clock.now()),
        }
    }

    fn admit(&mut self, now: Tick, pace: Pace, jitter: Jitter) -> Result<Admission, Duration> {
        self.asked_by = self.asked_by.max(now).max(self.breaker.open_until().unwrap_or(now));
        if self.disabled {
            return Err(pace.disabled_pause);
        }
        if let Some(until) = self.held_until.filter(|until| *until > now) {
            return Err(until.since(now).saturating_add(pace.spread(jitter)));
        }
        self.breaker.admit(now).map_err(|refused| match refused.until {
            Some(until) => until.since(now).saturating_add(pace.spread(jitter)),
            None => pace.spread(jitter),
        })
    }

    /// How long to defer an event whose target turned out to be unavailable.
    fn wait(&mut self, asked: Option<Duration>, now: Tick, pace: Pace, jitter: Jitter) -> Duration {
        let asked = asked.filter(|wait| !wait.is_zero());
        if let Some(wait) = asked {
            self.held_until = self.held_until.max(Some(now + wait));
        }
        self.asked_by = self.asked_by.max(self.breaker.open_until().unwrap_or(now));
        let reopens = self.breaker.open_until().map(|until| until.since(now));
        asked.max(reopens).unwrap_or_default().saturating_add(pace.spread(jitter))
    }
}

impl Pace {
    /// Half to one and a half of the pause, so that events which wait for the same thing do not come at once.
    fn spread(self, jitter: Jitter) -> Duration {
        self.pause.mul_f64(jitter.factor())
    }
}

/// Leave to make one request. If it is dropped without a verdict, it gives the breaker its place back.
pub struct Permit {
    target: Target,
    admission: Option<Admission>,
    began: Tick,
    events: u64,
}

impl Permit {
    /// Records what the request says about the target, and gives the handler's answer for the event.
    pub fn answer(mut self, verdict: Verdict, jitter: Jitter) -> Result<Outcome, Failure> {
        let target = self.target.clone();
        let Inner { clock, pace, .. } = &*target.0;
        let now = clock.ticks();
        let took = now.since(self.began);
        if !matches!(verdict, Verdict::Blocked(_)) {
            target.0.metrics.request_duration.record(took);
        }
        let mut availability = target.availability();
        let before = availability.breaker.state();
        // What says nothing about the target leaves the admission to be given back.
        if let Some(good) = speaks_well(&verdict)
            && let Some(admission) = self.admission.take()
        {
            availability.breaker.record(admission, good, took, now);
        }
        let answer = match verdict {
            Verdict::Done => Ok(Outcome::Done),
            Verdict::Failed(failure) => {
                availability.trouble = failure.is_recoverable().then(|| failure.to_string());
                Err(failure)
            }
            Verdict::Blocked(failure) => Err(failure),
            Verdict::Gone(why) => {
                availability.disabled = true;
                availability.trouble = Some(redacted(&why).into_owned());
                Ok(Outcome::RetryAfter(pace.disabled_pause))
            }
            Verdict::Unavailable { wait, why } => {
                availability.trouble = Some(redacted(&why).into_owned());
                Ok(Outcome::RetryAfter(availability.wait(wait, now, *pace, jitter)))
            }
        };
        if matches!(answer, Ok(Outcome::Done)) {
            availability.trouble = None;
        }
        let (after, status) = (availability.breaker.state(), availability.status(now));
        availability.note_since(&status, &**clock);
        // Whoever reads the log may be slow, and nobody else should wait for that.
        drop(availability);
        tell_changes(target.name(), before, after, &status);
        target.count(&answer, self.events, &status);
        answer
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(admission) = self.admission.take() {
            self.target.availability().breaker.cancel(admission);
        }
    }
}

/// What a verdict says about the target's health, if anything. A permanent failure is an answer like any other.
fn speaks_well(verdict: &Verdict) -> Option<bool> {
    match verdict {
        Verdict::Done => Some(true),
        Verdict::Failed(failure) => Some(!failure.is_recoverable()),
        Verdict::Unavailable { .. } => Some(false),
        Verdict::Gone(_) | Verdict::Blocked(_) => None,
    }
}

fn tell_changes(name: &str, before: State, after: State, status: &Status) {
    match (before, after, status) {
        (_, _, Status::Disabled) => {
            tracing::warn!(
                target_name = name,
                "the target says that it is gone, and is now disabled; its events are deferred"
            );
        }
        (State::Closed, State::Open, Status::Unavailable(why)) => {
            tracing::warn!(
                target_name = name,
                why,
                "the target is unavailable: circuit open; its events are deferred"
            );
        }
        (State::HalfOpen, State::Open, Status::Unavailable(why)) => {
            tracing::debug!(target_name = name, why, "the target is still unavailable");
        }
        (State::HalfOpen, State::Closed, _) => tracing::info!(target_name = name, "the target is back"),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
