//! How long events are deferred, decided without a socket.

use super::*;
use crate::SystemClock;
use crate::breaker;

const SECOND: Duration = Duration::from_secs(1);

fn availability(config: breaker::Config) -> Availability {
    Availability::new(Breaker::new(config), SECOND)
}

fn pace() -> Pace {
    patience(default_breaker()).pace()
}

fn patience(breaker: breaker::Config) -> Config {
    Config { breaker, pause: SECOND, disabled_pause: 60 * SECOND, ..Config::default() }
}

#[test]
fn a_target_that_asks_for_time_is_held_for_the_longest_that_it_asked_for() {
    let mut availability = availability(breaker::Config::default());
    let now = Tick::ZERO;
    assert_eq!(availability.wait(Some(10 * SECOND), now, pace(), Jitter::NONE), 11 * SECOND);
    assert_eq!(availability.wait(Some(5 * SECOND), now, pace(), Jitter::NONE), 6 * SECOND);
    assert_eq!(availability.admit(now + 4 * SECOND, pace(), Jitter::NONE), Err(7 * SECOND));
    assert!(availability.admit(now + 10 * SECOND, pace(), Jitter::NONE).is_ok());
}

#[test]
fn an_open_breaker_is_waited_for_and_the_wait_is_spread() {
    let config = breaker::Config {
        consecutive_failures: Some(1),
        wait_in_open: 30 * SECOND,
        ..breaker::Config::default()
    };
    let mut availability = availability(config);
    let call = availability.breaker.admit(Tick::ZERO).unwrap();
    availability.breaker.record(call, false, SECOND, Tick::ZERO);
    assert_eq!(availability.wait(None, Tick::ZERO, pace(), Jitter::new(0.0)), 30 * SECOND + SECOND / 2);
    assert_eq!(
        availability.admit(Tick::ZERO + 10 * SECOND, pace(), Jitter::new(1.0)),
        Err(20 * SECOND + SECOND * 3 / 2)
    );
}

#[test]
fn without_anything_to_wait_for_the_pause_is_all() {
    let mut availability = availability(breaker::Config::default());
    assert_eq!(availability.wait(None, Tick::ZERO, pace(), Jitter::NONE), SECOND);
    availability.disabled = true;
    assert_eq!(availability.admit(Tick::ZERO, pace(), Jitter::NONE), Err(60 * SECOND));
}

#[test]
fn a_permit_that_is_dropped_frees_the_place_of_a_probe() {
    let config = breaker::Config {
        consecutive_failures: Some(1),
        wait_in_open: Duration::ZERO,
        half_open_calls: 1,
        ..breaker::Config::default()
    };
    let target = Target::new("test", "t", &patience(config), Arc::new(SystemClock));
    let away = Verdict::Unavailable { wait: None, why: "away".to_owned() };
    let _ = target.admit(Jitter::NONE).ok().unwrap().answer(away, Jitter::NONE);

    let probe = target.admit(Jitter::NONE).ok().unwrap();
    assert!(target.admit(Jitter::NONE).is_err(), "one probe at a time");
    drop(probe);
    let blocked = Verdict::Blocked(Failure::permanent("blocked-address", "no"));
    let _ = target.admit(Jitter::NONE).ok().unwrap().answer(blocked, Jitter::NONE);
    assert!(target.admit(Jitter::NONE).is_ok(), "a request that was not made frees it too");
}

#[test]
fn a_batch_counts_its_events_once_it_is_known_what_becomes_of_them() {
    let target = Target::new("test", "t", &patience(default_breaker()), Arc::new(SystemClock));
    let answer =
        |events, verdict| target.admit_many(events, Jitter::NONE).ok().unwrap().answer(verdict, Jitter::NONE);
    let _ = answer(7, Verdict::Done);
    let _ = answer(5, Verdict::Failed(Failure::permanent("http-400", "no")));
    let _ = answer(1, Verdict::Failed(Failure::permanent("http-400", "no")));
    let _ = answer(1, Verdict::Done);
    let _ = answer(3, Verdict::Unavailable { wait: Some(SECOND), why: "busy".to_owned() });
    assert!(target.admit_many(4, Jitter::NONE).is_err(), "it asked for patience");
    let metrics = &target.0.metrics;
    let counted = [&metrics.delivered, &metrics.failed, &metrics.deferred].map(telemetry::Counter::total);
    assert_eq!(counted, [8, 1, 7]);
    assert_eq!(metrics.request_duration.count(), 5, "one for each request, and none for what was not sent");
}

#[test]
fn what_a_target_says_of_itself_is_shown_without_passwords() {
    let target = Target::new("test", "t", &patience(default_breaker()), Arc::new(SystemClock));
    let why = "moved to https://joe:s3cret@h/".to_owned();
    let away = Verdict::Unavailable { wait: Some(SECOND), why };
    let _ = target.admit(Jitter::NONE).ok().unwrap().answer(away, Jitter::NONE);
    assert_eq!(target.status(), Status::Unavailable("moved to https://***@h/".to_owned()));
}

#[test]
fn after_one_good_probe_of_two_nothing_is_said_to_wait() {
    let clock = Arc::new(SystemClock);
    let config = breaker::Config { wait_in_open: Duration::ZERO, ..default_breaker() };
    let target = Target::new("test", "t", &patience(config), clock);
    for _ in 0..5 {
        let away = Verdict::Unavailable { wait: None, why: "away".to_owned() };
        let _ = target.admit(Jitter::NONE).ok().unwrap().answer(away, Jitter::NONE);
    }
    assert_eq!(target.status(), Status::Unavailable("away".to_owned()), "probes are due");
    assert_eq!(target.0.metrics.available.value(), 0);

    let _ = target.admit(Jitter::NONE).ok().unwrap().answer(Verdict::Done, Jitter::NONE);
    assert_eq!(target.status(), Status::Available, "the only event that waited has arrived");
    assert_eq!(target.0.metrics.available.value(), 1);
}

#[test]
fn a_permit_from_before_it_opened_frees_no_probe_when_it_is_dropped() {
    let config = breaker::Config {
        consecutive_failures: Some(1),
        wait_in_open: Duration::ZERO,
        half_open_calls: 1,
        ..breaker::Config::default()
    };
    let target = Target::new("test", "t", &patience(config), Arc::new(SystemClock));
    let given_up = target.admit(Jitter::NONE).ok().unwrap();
    let away = Verdict::Unavailable { wait: None, why: "away".to_owned() };
    let _ = target.admit(Jitter::NONE).ok().unwrap().answer(away, Jitter::NONE);

    let _probe = target.admit(Jitter::NONE).ok().unwrap();
    drop(given_up);
    assert!(target.admit(Jitter::NONE).is_err(), "one probe at a time");
}

fn opening_at_once() -> Target {
    let config = breaker::Config { consecutive_failures: Some(1), ..breaker::Config::default() };
    Target::new("test", "t", &patience(config), Arc::new(SystemClock))
}

#[test]
fn a_target_that_refuses_an_event_for_good_is_there_and_one_that_fails_is_not() {
    let refusing = opening_at_once();
    for _ in 0..20 {
        let refused = Verdict::Failed(Failure::permanent("http-422", "no"));
        let _ = refusing.admit(Jitter::NONE).ok().unwrap().answer(refused, Jitter::NONE);
    }
    assert_eq!(refusing.status(), Status::Available);

    let failing = opening_at_once();
    let failed = Verdict::Failed(Failure::transient("http-500", "oops"));
    let _ = failing.admit(Jitter::NONE).ok().unwrap().answer(failed, Jitter::NONE);
    assert_eq!(failing.status(), Status::Unavailable("http-500: oops".to_owned()));
}

#[test]
fn a_target_that_is_gone_is_disabled_until_somebody_enables_it() {
    let target = opening_at_once();
    let gone = Verdict::Gone("410".to_owned());
    let answer = target.admit(Jitter::NONE).ok().unwrap().answer(gone, Jitter::NONE);
    assert_eq!(answer.unwrap(), Outcome::RetryAfter(pace().disabled_pause));
    assert!(target.is_disabled() && target.status() == Status::Disabled);
    assert_eq!(target.admit(Jitter::NONE).err(), Some(pace().disabled_pause));
    target.enable();
    assert!(target.admit(Jitter::NONE).is_ok());
}

#[test]
fn whoever_enables_a_target_does_not_wait_for_what_it_asked_for_before() {
    let target = Target::new("test", "t", &patience(breaker::Config::default()), Arc::new(SystemClock));
    let busy = Verdict::Unavailable { wait: Some(3600 * SECOND), why: "busy".to_owned() };
    let _ = target.admit(Jitter::NONE).ok().unwrap().answer(busy, Jitter::NONE);
    assert!(target.admit(Jitter::NONE).is_err());
    target.enable();
    assert!(target.admit(Jitter::NONE).is_ok());
}

#[tokio::test]
async fn an_operator_enables_what_is_disabled_and_nothing_else() {
    use crate::inspect::Inspect;
    use crate::operate::{Operation, Refused};

    let target = Target::new("webhook", "billing", &Config::default(), Arc::new(crate::SystemClock));
    let operable = target.operable().unwrap();
    assert_eq!(operable.operate(&Operation::Enable).await.unwrap().changed, 0);
    target.disable();
    assert_eq!(operable.operate(&Operation::Enable).await.unwrap().changed, 1);
    assert_eq!(target.status(), Status::Available);
    let replay = Operation::Replay { ids: vec!["a".to_owned()] };
    assert_eq!(operable.operate(&replay).await, Err(Refused::NotOffered));
}

/// The wall clock stands still; the other is moved by hand.
#[derive(Debug, Clone, Default)]
struct ByHand(Arc<Mutex<Duration>>);

impl ByHand {
    fn advance(&self, by: Duration) {
        *self.0.lock().unwrap() += by;
    }
}

impl Clock for ByHand {
    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH
    }

    fn ticks(&self) -> Tick {
        Tick::ZERO + *self.0.lock().unwrap()
    }
}

/// As where several nodes share a table, and another has delivered what waited here.
#[test]
fn a_target_that_nothing_waits_for_any_more_is_not_said_to_be_away_for_ever() {
    let clock = ByHand::default();
    let config = breaker::Config {
        consecutive_failures: Some(1),
        wait_in_open: 300 * SECOND,
        ..breaker::Config::default()
    };
    let target = Target::new("test", "t", &patience(config), Arc::new(clock.clone()));
    let away = || Verdict::Unavailable { wait: None, why: "away".to_owned() };
    let _ = target.admit(Jitter::NONE).ok().unwrap().answer(away(), Jitter::NONE);
    clock.advance(359 * SECOND);
    assert_eq!(target.status(), Status::Unavailable("away".to_owned()), "a probe may come any moment");
    let _ = target.admit(Jitter::NONE).ok().unwrap().answer(away(), Jitter::NONE);
    clock.advance(301 * SECOND);
    assert!(target.paused().is_some());
    assert_eq!(target.0.metrics.available.value(), 0);
    clock.advance(60 * SECOND);
    assert_eq!((target.status(), target.paused()), (Status::Available, None));
    assert_eq!(target.0.metrics.available.value(), 1);
}

#[test]
fn a_target_says_since_when_it_is_away() {
    let clock = ByHand::default();
    let target = Target::new("test", "t", &patience(default_breaker()), Arc::new(clock.clone()));
    let busy = Verdict::Unavailable { wait: Some(9 * SECOND), why: "busy".to_owned() };
    let _ = target.admit(Jitter::NONE).ok().unwrap().answer(busy, Jitter::NONE);
    let (why, since) = ("busy".to_owned(), Timestamp::UNIX_EPOCH);
    assert_eq!(target.paused(), Some(Paused { state: "unavailable", why, since }));
    clock.advance(10 * SECOND);
    assert_eq!(target.paused(), None, "it asked for no longer");
    target.disable();
    assert_eq!(target.paused().unwrap().state, "disabled");
    target.enable();
    assert_eq!(target.paused(), None);
}
