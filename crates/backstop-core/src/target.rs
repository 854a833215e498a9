//! Targets: the other ends that relays send to, each with a standing: whether it may be called now, and what
//! its last answers said about it.
//!
//! A relay asks for leave ([`Target::admit`]), makes its request, judges it ([`Verdict`]) and lets the
//! [`Permit`] rule what becomes of the event ([`Ruling`]). A target that is *away* puts events off, with no try
//! counted and paced by a [breaker](crate::breaker), so that an outage of an hour buries nothing.

mod config;
mod report;
mod verdict;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::breaker::{Admission, Breaker, State};
use crate::clock::{Clock, Tick};
use crate::failure::Kind;
use crate::redact::redacted;
use crate::retry::Jitter;
use crate::{Failure, Outcome, telemetry};

pub use config::{Config, DEFAULT_SOURCE, default_breaker};
pub use verdict::{Refusal, Ruling, Verdict};

use config::Pace;

/// Where a relay's events go, as an operator sees it. A cheap handle: clones share one standing.
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
/// assert!(matches!(permit.rule(away, Jitter::random()), Ok(Outcome::RetryAfter(_))));
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
    standing: Mutex<Standing>,
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

struct Standing {
    breaker: Breaker,
    /// Until when the target asked to be left alone.
    held_until: Option<Tick>,
    disabled: bool,
    /// Why the last try that says something about the target went wrong; none after a good one.
    trouble: Option<String>,
}

/// What can be said about a target.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// It is called.
    Available,
    /// It is left alone for now; the text says why.
    Unavailable(String),
    /// It said that it is gone, or somebody disabled it: nothing is sent until it is enabled.
    Disabled,
}

impl Target {
    /// A target that is available. `kind` is the word for what it is: `webhook`, `topic`.
    pub fn new(kind: &'static str, name: impl Into<Name>, config: &Config, clock: Arc<dyn Clock>) -> Self {
        let breaker = Breaker::new(config.breaker.clone());
        let standing = Standing { breaker, held_until: None, disabled: false, trouble: None };
        let name = name.into();
        let metrics = telemetry::Target::of(kind, &name);
        metrics.available.set(1);
        let pace = config.pace();
        Self(Arc::new(Inner { kind, name: name.text, clock, pace, standing: Mutex::new(standing), metrics }))
    }

    /// Its name, as operators know it.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Whether it is called now, and if not, why.
    pub fn status(&self) -> Status {
        self.standing().status(self.0.clock.ticks())
    }

    /// A ruling as a sink tells it. What is put off has failed there: whoever calls a sink keeps what it does not take.
    pub fn told_to_sender(&self, ruling: Ruling) -> Result<(), Failure> {
        match ruling {
            Ok(Outcome::Done) => Ok(()),
            Err(refusal) => Err(refusal.into()),
            Ok(Outcome::RetryAfter(wait)) => {
                let standing = self.standing();
                let what = if standing.disabled { "is disabled" } else { "is unavailable for now" };
                let why = standing.trouble.as_deref().unwrap_or("it gave no reason");
                let why = format!("the target {what}: {why}");
                drop(standing);
                Err(Failure::retry_after(wait).class_is("unavailable").message_is(why))
            }
            Ok(other) => Err(Failure::permanent("refused", other.reason().unwrap_or_default())),
        }
    }

    /// Whether its events are parked: it said that it is gone, or [`disable`](Self::disable) was called.
    pub fn is_disabled(&self) -> bool {
        self.standing().disabled
    }

    /// Stops sending. Events are parked: put off, with no try counted, until it is enabled again.
    pub fn disable(&self) {
        self.standing().disabled = true;
        self.0.metrics.available.set(0);
    }

    /// Sends again. An event that was parked comes when its time is over.
    pub fn enable(&self) {
        let mut standing = self.standing();
        standing.disabled = false;
        standing.held_until = None;
        let is_available = standing.status(self.0.clock.ticks()) == Status::Available;
        drop(standing);
        self.0.metrics.available.set(u64::from(is_available));
    }

    /// Leave to make one request with one event, or how long to put the event off.
    pub fn admit(&self, jitter: Jitter) -> Result<Permit, Duration> {
        self.admit_many(1, jitter)
    }

    /// Leave to make one request with so many events, or how long to put them off. They are counted one by one, and only
    /// when it is known what becomes of them: a batch that is refused counts for nothing, since each of its events is then
    /// sent alone.
    pub fn admit_many(&self, events: u64, jitter: Jitter) -> Result<Permit, Duration> {
        let Inner { pace, clock, .. } = &*self.0;
        let now = clock.ticks();
        let mut standing = self.standing();
        let admitted = standing.admit(now, *pace, jitter);
        drop(standing);
        match admitted {
            Ok(admission) => {
                Ok(Permit { target: self.clone(), admission: Some(admission), began: now, events })
            }
            Err(wait) => {
                self.0.metrics.put_off.add(events);
                Err(wait)
            }
        }
    }

    fn count(&self, ruling: &Ruling, events: u64, status: &Status) {
        let metrics = &self.0.metrics;
        match ruling {
            Ok(Outcome::Done) => metrics.delivered.add(events),
            Ok(Outcome::RetryAfter(_)) => metrics.put_off.add(events),
            // Of a batch that was refused each event is tried, and counted, alone.
            _ if events == 1 => metrics.failed.increment(),
            _ => {}
        }
        metrics.available.set(u64::from(*status == Status::Available));
    }

    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.0.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target").field("name", &self.name()).field("status", &self.status()).finish()
    }
}

impl Standing {
    fn status(&mut self, now: Tick) -> Status {
        let held = self.held_until.is_some_and(|until| until > now);
        let left_alone = match self.breaker.poll(now) {
            State::Open => true,
            // A probe that went well says enough: the next may be days away.
            State::HalfOpen => self.trouble.is_some(),
            State::Closed => false,
        };
        if self.disabled {
            Status::Disabled
        } else if held || left_alone {
            Status::Unavailable(self.trouble.clone().unwrap_or_else(|| "it asked for patience".to_owned()))
        } else {
            Status::Available
        }
    }

    fn admit(&mut self, now: Tick, pace: Pace, jitter: Jitter) -> Result<Admission, Duration> {
        if self.disabled {
            return Err(pace.park);
        }
        if let Some(until) = self.held_until.filter(|until| *until > now) {
            return Err(until.since(now).saturating_add(pace.spread(jitter)));
        }
        self.breaker.admit(now).map_err(|refused| match refused.until {
            Some(until) => until.since(now).saturating_add(pace.spread(jitter)),
            None => pace.spread(jitter),
        })
    }

    /// How long to put off an event whose target turned out to be away.
    fn wait(&mut self, asked: Option<Duration>, now: Tick, pace: Pace, jitter: Jitter) -> Duration {
        let asked = asked.filter(|wait| !wait.is_zero());
        if let Some(wait) = asked {
            self.held_until = self.held_until.max(Some(now + wait));
        }
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

/// Leave to make one request. Dropped without a verdict it gives the breaker its place back.
pub struct Permit {
    target: Target,
    admission: Option<Admission>,
    began: Tick,
    events: u64,
}

impl Permit {
    /// Notes what the request said about the target, and rules what becomes of the event.
    pub fn rule(mut self, verdict: Verdict, jitter: Jitter) -> Ruling {
        let target = self.target.clone();
        let Inner { clock, pace, .. } = &*target.0;
        let now = clock.ticks();
        let took = now.since(self.began);
        if !matches!(verdict, Verdict::Blocked(_)) {
            target.0.metrics.request_duration.record(took);
        }
        let mut standing = target.standing();
        let before = standing.breaker.state();
        // What says nothing about the target leaves the admission to be given back.
        if let Some(good) = speaks_well(&verdict)
            && let Some(admission) = self.admission.take()
        {
            standing.breaker.record(admission, good, took, now);
        }
        let ruling = match verdict {
            Verdict::Done => Ok(Outcome::Done),
            Verdict::Failed(refusal) => {
                standing.trouble = (refusal.kind != Kind::Permanent)
                    .then(|| redacted(&format!("{}: {}", refusal.class, refusal.message)).into_owned());
                Err(refusal)
            }
            Verdict::Blocked(refusal) => Err(refusal),
            Verdict::Gone(why) => {
                standing.disabled = true;
                standing.trouble = Some(redacted(&why).into_owned());
                Ok(Outcome::RetryAfter(pace.park))
            }
            Verdict::Unavailable { wait, why } => {
                standing.trouble = Some(redacted(&why).into_owned());
                Ok(Outcome::RetryAfter(standing.wait(wait, now, *pace, jitter)))
            }
        };
        if ruling == Ok(Outcome::Done) {
            standing.trouble = None;
        }
        let (after, status) = (standing.breaker.state(), standing.status(now));
        // Whoever reads the log may be slow, and nobody else should wait for that.
        drop(standing);
        tell_changes(target.name(), before, after, &status);
        target.count(&ruling, self.events, &status);
        ruling
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(admission) = self.admission.take() {
            self.target.standing().breaker.cancel(admission);
        }
    }
}

/// What a verdict says about the target's health, if anything. A refusal is an answer like any other.
fn speaks_well(verdict: &Verdict) -> Option<bool> {
    match verdict {
        Verdict::Done => Some(true),
        Verdict::Failed(refusal) => Some(refusal.kind == Kind::Permanent),
        Verdict::Unavailable { .. } => Some(false),
        Verdict::Gone(_) | Verdict::Blocked(_) => None,
    }
}

fn tell_changes(name: &str, before: State, after: State, status: &Status) {
    match (before, after, status) {
        (_, _, Status::Disabled) => {
            tracing::warn!(target_name = name, "the target is gone and disabled; its events are deferred");
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
