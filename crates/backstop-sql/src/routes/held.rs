//! Routes that are held: what their handlers need is unavailable, so their events are neither read nor written until a probe
//! succeeds.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use backstop_core::clock::{Tick, after};
use backstop_core::failure::Kind;
use backstop_core::inspect::Paused;
use backstop_core::suspects::Suspects;
use backstop_core::{Clock, Event, Failure, Outcome, SystemClock, Timestamp};
use chrono::SecondsFormat;
use tokio::sync::Notify;

use super::registry::{Registry, Route};

/// The pauses between probes where the handler names none: doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How often a target that is known to be unavailable is asked, without a probe, whether it still is.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// A probe of which nothing is heard for so long is followed by another.
const LOST_AFTER: Duration = Duration::from_secs(60);

/// Health names this many held routes, and counts the others: the report lists them all.
const MOST_TOLD: usize = 10;

/// The routes that this process holds, for all who take part in delivering. Cheap to clone.
pub(crate) struct HeldRoutes<P>(Arc<Inner<P>>);

impl<P> Clone for HeldRoutes<P> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// An event that is in a handler's hands, or was.
pub(crate) trait Asked {
    fn event(&self) -> &Event;

    /// Whether it is to find out if its route, which is held, can be opened.
    fn is_probe(&self) -> bool;
}

struct Inner<P> {
    registry: Registry,
    /// Whether a route that is held holds all others, since nothing may overtake its event.
    strict_order: bool,
    held: Mutex<Held<P>>,
    /// How many there are, for those who only want to know that there is none.
    count: AtomicUsize,
    /// Told when a route begins or ceases to be held.
    changed: Notify,
}

/// Decides when routes are probed. Pure: time is passed in.
#[derive(Debug)]
struct Held<P> {
    routes: HashMap<Arc<str>, HeldRoute<P>>,
    /// Raised when a route is opened.
    openings: u64,
    suspects: Suspects,
}

impl<P> Default for Held<P> {
    fn default() -> Self {
        Self { routes: HashMap::new(), openings: 0, suspects: Suspects::default() }
    }
}

#[derive(Debug)]
struct HeldRoute<P> {
    why: String,
    since: Timestamp,
    probe_at: Tick,
    /// Before this it is not probed, even if its target says that it is back.
    not_before: Tick,
    misses: u32,
    /// Until when a probe is waited for.
    probing_until: Tick,
    /// The last row that was a probe: the next one is another.
    passed: Option<P>,
}

/// A route that is to be probed, and the row behind which to look for an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Probe<P> {
    pub(crate) route: Arc<str>,
    pub(crate) after: Option<P>,
}

impl<P> HeldRoute<P> {
    /// How long it is until it is probed; none while a probe is on its way.
    fn next_probe(&self, now: Tick) -> Option<Duration> {
        (self.probing_until <= now).then(|| self.probe_at.since(now))
    }
}

impl<P: Clone> Held<P> {
    /// Holds a route, or goes on holding it. Tells whether that is news. Of answers that were under way together only the first,
    /// and then those of probes, set the pace.
    fn hold(
        &mut self,
        route: &Arc<str>,
        failure: &Failure,
        probe: bool,
        now: Tick,
        moment: Timestamp,
    ) -> bool {
        let is_new = !self.routes.contains_key(route);
        let held = self.routes.entry(route.clone()).or_insert_with(|| HeldRoute {
            why: String::new(),
            since: moment,
            probe_at: now,
            not_before: now,
            misses: 0,
            probing_until: now,
            passed: None,
        });
        held.why = failure.to_string();
        if is_new || probe {
            let pause = FIRST_PAUSE.saturating_mul(1 << held.misses.min(10)).min(LONGEST_PAUSE);
            let wait = match failure.kind() {
                Kind::Unavailable(Some(wait)) => wait,
                _ => pause,
            };
            held.misses += 1;
            (held.probe_at, held.not_before, held.probing_until) = (now + wait, now + pause.min(wait), now);
        }
        is_new
    }

    /// Lets events of a route flow again. Tells since when it was held.
    fn open(&mut self, route: &str) -> Option<Timestamp> {
        let held = self.routes.remove(route)?;
        self.openings += 1;
        Some(held.since)
    }

    /// The routes to probe now. Those whose targets say that they would refuse are asked again soon, and those whose targets say
    /// that they are back are probed before their time.
    fn due(&mut self, now: Tick, availability: impl Fn(&str) -> Availability) -> Vec<Probe<P>> {
        let mut due = Vec::new();
        for (route, held) in self.routes.iter_mut().filter(|(_, held)| held.probing_until <= now) {
            match availability(route) {
                Availability::Known(Some(wait)) => held.probe_at = now + wait.min(ASK_EVERY),
                Availability::Known(None) if held.not_before <= now => {
                    due.push(Probe { route: route.clone(), after: held.passed.clone() });
                }
                Availability::Unknown if held.probe_at <= now => {
                    due.push(Probe { route: route.clone(), after: held.passed.clone() });
                }
                Availability::Known(None) | Availability::Unknown => {}
            }
        }
        due
    }

    /// An event of a route is on its way as a probe.
    fn probing(&mut self, route: &str, place: Option<P>, now: Tick) {
        if let Some(held) = self.routes.get_mut(route) {
            held.passed = place;
            (held.probe_at, held.probing_until) = (now + LOST_AFTER, now + LOST_AFTER);
        }
    }

    /// There is nothing to probe it with just now, or the probe came to nothing.
    fn later(&mut self, route: &str, now: Tick) {
        if let Some(held) = self.routes.get_mut(route) {
            let pause = FIRST_PAUSE.saturating_mul(1 << held.misses.min(10)).min(LONGEST_PAUSE);
            (held.probe_at, held.not_before, held.probing_until) = (now + pause, now + pause, now);
        }
    }

    fn next_probe(&self, now: Tick) -> Option<Duration> {
        self.routes.values().map(|held| held.probe_at.since(now)).min()
    }
}

/// What is known of what a route's handler needs, without calling it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Availability {
    /// For how long it is not called; none if it is back.
    Known(Option<Duration>),
    Unknown,
}

impl Availability {
    fn of(route: Option<&Route>) -> Self {
        let Some(target) = route.and_then(|route| backstop_core::Handler::target(&route.handler)) else {
            return Self::Unknown;
        };
        match (target.wait(), target.paused()) {
            (Some(wait), _) => Self::Known(Some(wait)),
            (None, None) => Self::Known(None),
            // It may be called, and nobody has done so yet.
            (None, Some(_)) => Self::Unknown,
        }
    }
}

impl<P: Clone> HeldRoutes<P> {
    pub(crate) fn new(registry: Registry, strict_order: bool) -> Self {
        let (held, count, changed) = (Mutex::default(), AtomicUsize::new(0), Notify::new());
        Self(Arc::new(Inner { registry, strict_order, held, count, changed }))
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.0.registry
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.count.load(Ordering::Acquire) == 0
    }

    /// Whether nothing at all may be delivered but a probe.
    pub(crate) fn holds_all(&self) -> bool {
        self.0.strict_order && !self.is_empty()
    }

    /// Whether the route of that name is held.
    pub(crate) fn holds(&self, route: &str) -> bool {
        !self.is_empty() && (self.0.strict_order || self.lock().routes.contains_key(route))
    }

    /// Whether an event must not be handled now.
    pub(crate) fn keeps(&self, event: &Event) -> bool {
        if self.is_empty() {
            return false;
        }
        let route = self.0.registry.route(event.aggregate_type(), event.event_type());
        route.is_some_and(|route| self.holds(&route.name))
    }

    /// Takes note of what a handler said of an event. None if the event is to be let go as it is, since its route is held.
    pub(crate) fn answered(
        &self,
        route: &Route,
        asked: &impl Asked,
        answer: Result<Outcome, Failure>,
    ) -> Option<Result<Outcome, Failure>> {
        match &answer {
            Err(failure) if failure.is_unavailable() => {
                let (now, id) = (SystemClock.ticks(), asked.event().id());
                if self.lock().suspects.is_its_own(id, route.successes(), now) {
                    // It says nothing about the route, and the next probe is another.
                    self.probe_lost(asked);
                    let message = failure.message().unwrap_or_default();
                    return Some(Err(Failure::transient(failure.class().to_owned(), message)));
                }
                self.hold(&route.name, failure, asked);
                return None;
            }
            // The handler was there and failed: what it needs may be back or not.
            Err(failure) if failure.is_recoverable() => {
                if asked.is_probe() {
                    self.hold(&route.name, failure, asked);
                }
            }
            // It began before the route was held, or while it was open: only a probe says that it is back.
            _ if !asked.is_probe() => {}
            // What is first in order has been delivered, so the others may follow.
            _ if self.0.strict_order => self.all().iter().for_each(|route| self.open(route)),
            _ => self.open(&route.name),
        }
        Some(answer)
    }

    /// A probe came to nothing: the event is not this node's any more, or has no handler.
    pub(crate) fn probe_lost(&self, asked: &impl Asked) {
        if !asked.is_probe() {
            return;
        }
        let event = asked.event();
        let route = self.0.registry.route(event.aggregate_type(), event.event_type());
        match route {
            Some(route) if !self.0.strict_order => self.later(&route.name),
            _ => self.all().iter().for_each(|route| self.later(route)),
        }
    }

    /// A route is probed later.
    pub(crate) fn later(&self, route: &str) {
        self.lock().later(route, SystemClock.ticks());
    }

    fn hold(&self, route: &Arc<str>, failure: &Failure, asked: &impl Asked) {
        let mut held = self.lock();
        let is_new = held.hold(route, failure, asked.is_probe(), SystemClock.ticks(), SystemClock.now());
        self.counted(&held);
        drop(held);
        if is_new {
            tracing::warn!(
                route = &**route,
                event_id = asked.event().id(),
                %failure,
                "a route is held: its events wait in the table until a probe succeeds"
            );
        }
    }

    fn open(&self, route: &str) {
        if self.is_empty() {
            return;
        }
        let mut held = self.lock();
        let Some(since) = held.open(route) else { return };
        self.counted(&held);
        drop(held);
        tracing::info!(route, held_since = %since, "a route is open again");
    }

    /// No event waits on a route, so there is nothing to hold.
    pub(crate) fn nothing_waits(&self, route: &str) {
        self.open(route);
    }

    pub(crate) fn due(&self) -> Vec<Probe<P>> {
        let now = SystemClock.ticks();
        let routes: HashMap<_, _> =
            self.0.registry.all().into_iter().map(|route| (route.name.clone(), route)).collect();
        self.lock().due(now, |name| Availability::of(routes.get(name)))
    }

    pub(crate) fn probing(&self, route: &str, place: Option<P>) {
        self.lock().probing(route, place, SystemClock.ticks());
    }

    /// How long it is until a route is to be probed, if one is held.
    pub(crate) fn next_probe(&self) -> Option<Duration> {
        if self.is_empty() { None } else { self.lock().next_probe(SystemClock.ticks()) }
    }

    /// How often a route was opened: what was passed over before is to be read then.
    pub(crate) fn openings(&self) -> u64 {
        self.lock().openings
    }

    /// Waits until a route begins or ceases to be held, or is to be probed at another time.
    pub(crate) async fn changed(&self) {
        self.0.changed.notified().await;
    }

    /// Why the events of a route are not handled now, if they are not.
    pub(crate) fn paused(&self, route: &str) -> Option<Paused> {
        let route = self.0.registry.named(route)?;
        let tell = |held: &HeldRoute<P>| (held.why.clone(), held.since, held.next_probe(SystemClock.ticks()));
        let held = self.lock().routes.get(&route.name).map(tell);
        // One that is not held may be asked for the last time for a while: its target is not to be kept awake by those who look.
        let Some((why, since, wait)) = held else { return route.paused() };
        let own = wait.and_then(|wait| after(SystemClock.now(), wait));
        let next_probe = own.and_then(|own| match Availability::of(Some(&route)) {
            // It is for the target to say, and a disabled one names no time.
            Availability::Known(Some(_)) => route.paused()?.next_probe,
            Availability::Known(None) | Availability::Unknown => Some(own),
        });
        let target = backstop_core::Handler::target(&route.handler).map(|target| target.name().to_owned());
        Some(Paused { target, next_probe, ..Paused::since(since, "held", why) })
    }

    /// The names of the routes that are held, in their order.
    pub(crate) fn all(&self) -> Vec<Arc<str>> {
        if self.is_empty() {
            return Vec::new();
        }
        let mut all: Vec<_> = self.lock().routes.keys().cloned().collect();
        all.sort();
        all
    }

    /// Which routes are held, for what, since when, and when the next probe comes; none if there are none.
    pub(crate) fn told(&self) -> Option<String> {
        let held = self.all();
        if held.is_empty() {
            return None;
        }
        let moment = |at: Timestamp| at.to_rfc3339_opts(SecondsFormat::Secs, true);
        let tell = |route: &Arc<str>| {
            let Some(paused) = self.paused(route) else { return route.to_string() };
            let probe =
                paused.next_probe.map(|at| format!(", next probe at {}", moment(at))).unwrap_or_default();
            format!("{route} since {}{probe} ({})", moment(paused.since), paused.why)
        };
        let mut told: Vec<_> = held.iter().take(MOST_TOLD).map(tell).collect();
        if held.len() > MOST_TOLD {
            told.push(format!("and {} others", held.len() - MOST_TOLD));
        }
        Some(format!("routes are held, and their events wait: {}", told.join(", ")))
    }

    fn counted(&self, held: &Held<P>) {
        self.0.count.store(held.routes.len(), Ordering::Release);
        self.0.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Held<P>> {
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn unknown(_: &str) -> Availability {
        Availability::Unknown
    }

    fn held(failure: &Failure) -> (Held<i64>, Arc<str>) {
        let (mut held, route): (Held<i64>, Arc<str>) = (Held::default(), Arc::from("Order/OrderPlaced"));
        assert!(held.hold(&route, failure, false, Tick::ZERO, Timestamp::UNIX_EPOCH));
        (held, route)
    }

    #[test]
    fn probes_come_soon_at_first_then_every_five_seconds() {
        let down = Failure::unavailable("no route");
        let (mut held, route) = held(&down);
        let mut now = Tick::ZERO;
        let mut waits = Vec::new();
        for _ in 0..8 {
            let wait = held.next_probe(now).unwrap();
            waits.push(wait.as_millis());
            assert!(held.due(now, unknown).is_empty());
            now = now + wait;
            assert_eq!(held.due(now, unknown).len(), 1);
            held.probing(&route, None, now);
            assert!(held.due(now, unknown).is_empty(), "one at a time");
            assert!(!held.hold(&route, &down, true, now, Timestamp::UNIX_EPOCH), "that is no news");
        }
        assert_eq!(waits, [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
    }

    #[test]
    fn a_time_that_the_handler_names_is_kept() {
        let (mut held, _) = held(&Failure::unavailable("closed").probe_after(60 * SECOND));
        assert!(held.due(Tick::ZERO + 59 * SECOND, unknown).is_empty());
        assert_eq!(held.due(Tick::ZERO + 60 * SECOND, unknown).len(), 1);
    }

    #[test]
    fn a_target_that_says_no_is_not_probed_and_one_that_says_yes_is_probed_at_once() {
        let (mut held, _) = held(&Failure::unavailable("disabled").probe_after(3_600 * SECOND));
        let never = |_: &str| Availability::Known(Some(3_600 * SECOND));
        assert!(held.due(Tick::ZERO + 7_200 * SECOND, never).is_empty());
        assert_eq!(held.next_probe(Tick::ZERO + 7_200 * SECOND), Some(ASK_EVERY), "it is asked again soon");
        assert_eq!(held.due(Tick::ZERO + SECOND, |_| Availability::Known(None)).len(), 1);
    }

    #[test]
    fn each_probe_looks_behind_the_one_before_and_a_lost_one_is_followed_by_another() {
        let (mut held, route) = held(&Failure::unavailable("no route"));
        let place = 7;
        let now = Tick::ZERO + SECOND;
        assert_eq!(held.due(now, unknown)[0].after, None);
        held.probing(&route, Some(place), now);
        assert!(held.due(now + LOST_AFTER / 2, unknown).is_empty());
        assert_eq!(held.due(now + LOST_AFTER, unknown)[0].after, Some(place));
    }

    #[test]
    fn answers_that_were_under_way_together_do_not_slow_the_probes_down() {
        let down = Failure::unavailable("no route");
        let (mut held, route) = held(&down);
        for _ in 0..50 {
            assert!(!held.hold(&route, &down, false, Tick::ZERO, Timestamp::UNIX_EPOCH));
        }
        assert_eq!(held.next_probe(Tick::ZERO), Some(FIRST_PAUSE));
    }

    #[test]
    fn a_route_that_nothing_can_probe_just_now_is_asked_for_later() {
        let (mut held, route) = held(&Failure::unavailable("no route"));
        let now = Tick::ZERO + SECOND;
        held.probing(&route, None, now);
        held.later(&route, now);
        assert!(held.due(now, unknown).is_empty() && held.due(now, |_| Availability::Known(None)).is_empty());
        assert_eq!(held.due(now + SECOND, unknown).len(), 1);
    }

    #[test]
    fn a_route_is_opened_once() {
        let (mut held, route) = held(&Failure::unavailable("no route"));
        assert!(held.open(&route).is_some());
        assert!(held.open(&route).is_none() && held.routes.is_empty());
        assert_eq!((held.openings, held.next_probe(Tick::ZERO)), (1, None));
    }
}
