//! Targets: where relays send, each with its availability: whether it may be called now, and why not.
//!
//! A relay asks for leave ([`Target::admit`]), makes its request, judges it ([`Verdict`]), and the [`Permit`] turns the
//! verdict into the handler's answer. While a target is *unavailable* the answer says so ([`Failure::unavailable`]): the
//! route is held with no attempt counted, and a [breaker](crate::breaker) paces the probes, so an outage of an hour costs
//! nothing. Where other events succeed meanwhile it is the event that the target does not take, and the attempt counts.

mod availability;
mod config;
mod report;
mod verdict;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::breaker::{Admission, Breaker, State};
use crate::clock::{Clock, Tick, after};
use crate::inspect::Paused;
use crate::{Failure, Outcome, telemetry};

pub use config::{Config, DEFAULT_SOURCE, default_breaker};
pub use verdict::{Verdict, unwritable};

use availability::{Availability, Request};

/// Where a relay's events go, as an operator sees it. A cheap handle: clones share its state.
///
/// ```
/// use std::sync::Arc;
/// use backstop_core::SystemClock;
/// use backstop_core::failure::Kind;
/// use backstop_core::target::{Config, Status, Target, Verdict};
///
/// let target = Target::new("webhook", "billing", &Config::default(), Arc::new(SystemClock));
/// let permit = target.admit(["42"]).expect("nothing speaks against it");
/// let unreachable = Verdict::Unavailable { class: "connect", wait: None, why: "no route to host".to_owned() };
/// let failure = permit.answer(unreachable).unwrap_err();
/// assert!(matches!(failure.kind(), Kind::Unavailable(Some(_))));
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
        let availability = Availability::new(Breaker::new(config.breaker.clone()), config.pace());
        let name = name.into();
        let metrics = telemetry::Target::of(kind, &name);
        metrics.available.set(1);
        Self(Arc::new(Inner {
            kind,
            name: name.text,
            clock,
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
        let now = self.0.clock.now();
        let since = availability.since.unwrap_or(now);
        let next_probe = availability.next_probe(self.0.clock.ticks()).and_then(|wait| after(now, wait));
        let target = Some(self.name().to_owned());
        Some(Paused { target, next_probe, ..Paused::since(since, state, why) })
    }

    /// Whether nothing is sent to it: it said that it is gone, or [`disable`](Self::disable) was called.
    pub fn is_disabled(&self) -> bool {
        self.availability().disabled
    }

    /// Stops sending. Its events wait until it is enabled again.
    pub fn disable(&self) {
        let mut availability = self.availability();
        availability.disabled = true;
        availability.note_since(&Status::Disabled, &*self.0.clock);
        drop(availability);
        self.0.metrics.available.set(0);
    }

    /// Sends again, at once.
    pub fn enable(&self) {
        let mut availability = self.availability();
        availability.enable();
        let status = availability.status(self.0.clock.ticks());
        availability.note_since(&status, &*self.0.clock);
        let is_available = status == Status::Available;
        drop(availability);
        self.0.metrics.available.set(u64::from(is_available));
    }

    /// How long it is not called, if so.
    pub fn wait(&self) -> Option<Duration> {
        self.availability().wait(self.0.clock.ticks())
    }

    /// Leave to make one request with these events, by their ids; or why it must not be made, and when to ask again. Events are
    /// counted one by one, and only when it is known what becomes of them: a batch that is refused counts for nothing, since
    /// each of its events is then sent alone.
    pub fn admit<'a>(&self, ids: impl IntoIterator<Item = &'a str>) -> Result<Permit, Failure> {
        let (ids, began): (Vec<_>, _) = (ids.into_iter().map(str::to_owned).collect(), self.0.clock.ticks());
        let mut availability = self.availability();
        let admitted = availability.admit(began);
        let answered_before = availability.answered();
        drop(availability);
        match admitted {
            Ok(admission) => {
                let (target, admission) = (self.clone(), Some(admission));
                Ok(Permit { target, admission, began, ids, answered_before, is_overdue: false })
            }
            Err(unavailable) => {
                self.0.metrics.held.add(ids.len() as u64);
                Err(unavailable)
            }
        }
    }

    fn count(&self, answer: &Result<Outcome, Failure>, events: u64, status: &Status) {
        let metrics = &self.0.metrics;
        match answer {
            Ok(_) => metrics.delivered.add(events),
            Err(failure) if failure.is_unavailable() => metrics.held.add(events),
            // Of a batch that was refused each event is sent, and counted, alone.
            Err(_) if events == 1 => metrics.failed.increment(),
            Err(_) => {}
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

/// Leave to make one request. Dropped without a verdict it gives the breaker its place back.
pub struct Permit {
    target: Target,
    admission: Option<Admission>,
    began: Tick,
    ids: Vec<String>,
    /// How many requests the target had answered when this one began.
    answered_before: u64,
    /// Whether it was found to be overdue.
    is_overdue: bool,
}

/// A request that waits longer than this for its answer, while none is answered, makes its target unavailable for others.
const OVERDUE: Duration = Duration::from_secs(5);

/// The same where the client has lost its way to the target: it may find another in less time.
const LOST: Duration = Duration::from_secs(1);

impl Permit {
    /// Makes the request. If there is no answer for 5 s, and the target answers nothing else either, it counts as unavailable
    /// from then on; the request itself goes on, since its answer may still come. The same after 1 s if the client has lost its
    /// way to the target: `lost` ends with the reason, and otherwise never.
    pub async fn watch<T>(
        &mut self,
        request: impl Future<Output = T>,
        lost: impl Future<Output = String>,
    ) -> T {
        let mut request = std::pin::pin!(request);
        // Nearly all are answered by then, and need not be watched more closely.
        if let Ok(answer) = tokio::time::timeout(LOST, &mut request).await {
            return answer;
        }
        let why = tokio::select! {
            answer = &mut request => return answer,
            why = lost => why,
            () = tokio::time::sleep(OVERDUE.saturating_sub(LOST)) => {
                format!("no answer for {} s", OVERDUE.as_secs())
            }
        };
        self.note_overdue(&why);
        request.await
    }

    fn note_overdue(&mut self, why: &str) {
        let (target, clock) = (self.target.clone(), &self.target.0.clock);
        let mut availability = target.availability();
        self.is_overdue = availability.overdue(self.answered_before, why);
        let status = availability.status(clock.ticks());
        availability.note_since(&status, &**clock);
        drop(availability);
        target.0.metrics.available.set(u64::from(status == Status::Available));
    }

    /// Notes what the request said about the target, and answers what becomes of its events.
    pub fn answer(mut self, verdict: Verdict) -> Result<Outcome, Failure> {
        let target = self.target.clone();
        let clock = &target.0.clock;
        let now = clock.ticks();
        let took = now.since(self.began);
        if !matches!(verdict, Verdict::Blocked(_)) {
            target.0.metrics.request_duration.record(took);
        }
        let mut availability = target.availability();
        if std::mem::take(&mut self.is_overdue) {
            availability.no_longer_overdue();
        }
        let before = availability.breaker.state();
        let request = Request { ids: &self.ids, began: self.began, took, now };
        let answer = availability.judge(verdict, &request, &mut self.admission);
        let (after, status) = (availability.breaker.state(), availability.status(now));
        availability.note_since(&status, &**clock);
        // Whoever reads the log may be slow, and nobody else should wait for that.
        drop(availability);
        tell_changes(target.name(), before, after, &status);
        target.count(&answer, self.ids.len() as u64, &status);
        answer
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut availability = self.target.availability();
        if self.is_overdue {
            availability.no_longer_overdue();
        }
        if let Some(admission) = self.admission.take() {
            availability.breaker.cancel(admission);
        }
    }
}

fn tell_changes(name: &str, before: State, after: State, status: &Status) {
    match (before, after, status) {
        (_, _, Status::Disabled) => {
            tracing::warn!(target_name = name, "the target is gone and disabled; its events wait");
        }
        (State::Closed, State::Open, Status::Unavailable(why)) => {
            tracing::warn!(
                target_name = name,
                why,
                "the target is unavailable: circuit open; its events wait"
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
