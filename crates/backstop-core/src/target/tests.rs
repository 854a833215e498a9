//! How long events are put off, decided without a socket.

use super::*;
use crate::SystemClock;

const SECOND: Duration = Duration::from_secs(1);

fn standing(config: Config) -> Standing {
    Standing { breaker: Breaker::new(config), held_until: None, disabled: false, trouble: None }
}

fn pace() -> Pace {
    Pace { pause: SECOND, park: 60 * SECOND }
}

#[test]
fn a_target_that_asks_for_time_is_held_for_the_longest_that_it_asked_for() {
    let mut standing = standing(Config::default());
    let now = Tick::ZERO;
    assert_eq!(standing.wait(Some(10 * SECOND), now, pace(), Jitter::NONE), 11 * SECOND);
    assert_eq!(standing.wait(Some(5 * SECOND), now, pace(), Jitter::NONE), 6 * SECOND);
    assert_eq!(standing.admit(now + 4 * SECOND, pace(), Jitter::NONE), Err(7 * SECOND));
    assert!(standing.admit(now + 10 * SECOND, pace(), Jitter::NONE).is_ok());
}

#[test]
fn an_open_breaker_is_waited_for_and_the_wait_is_spread() {
    let config = Config { consecutive_failures: Some(1), wait_in_open: 30 * SECOND, ..Config::default() };
    let mut standing = standing(config);
    let call = standing.breaker.admit(Tick::ZERO).unwrap();
    standing.breaker.record(call, false, SECOND, Tick::ZERO);
    assert_eq!(standing.wait(None, Tick::ZERO, pace(), Jitter::new(0.0)), 30 * SECOND + SECOND / 2);
    assert_eq!(
        standing.admit(Tick::ZERO + 10 * SECOND, pace(), Jitter::new(1.0)),
        Err(20 * SECOND + SECOND * 3 / 2)
    );
}

#[test]
fn without_anything_to_wait_for_the_pause_is_all() {
    let mut standing = standing(Config::default());
    assert_eq!(standing.wait(None, Tick::ZERO, pace(), Jitter::NONE), SECOND);
    standing.disabled = true;
    assert_eq!(standing.admit(Tick::ZERO, pace(), Jitter::NONE), Err(60 * SECOND));
}

#[test]
fn a_permit_that_is_dropped_frees_the_place_of_a_probe() {
    let config = Config {
        consecutive_failures: Some(1),
        wait_in_open: Duration::ZERO,
        half_open_calls: 1,
        ..Config::default()
    };
    let target = Target::new("test", "t", config, pace(), Arc::new(SystemClock));
    let away = Verdict::Unavailable { wait: None, why: "away".to_owned() };
    target.admit(Jitter::NONE).ok().unwrap().rule(away, Jitter::NONE);

    let probe = target.admit(Jitter::NONE).ok().unwrap();
    assert!(target.admit(Jitter::NONE).is_err(), "one probe at a time");
    drop(probe);
    let blocked = Verdict::Blocked(Refusal::permanent("blocked-address", "no"));
    target.admit(Jitter::NONE).ok().unwrap().rule(blocked, Jitter::NONE);
    assert!(target.admit(Jitter::NONE).is_ok(), "a request that was not made frees it too");
}

#[test]
fn a_batch_counts_its_events_once_it_is_known_what_becomes_of_them() {
    let target = Target::new("test", "t", default_breaker(), pace(), Arc::new(SystemClock));
    let rule =
        |events, verdict| target.admit_many(events, Jitter::NONE).ok().unwrap().rule(verdict, Jitter::NONE);
    rule(7, Verdict::Done);
    rule(5, Verdict::Failed(Refusal::permanent("http-400", "no")));
    rule(1, Verdict::Failed(Refusal::permanent("http-400", "no")));
    rule(1, Verdict::Done);
    rule(3, Verdict::Unavailable { wait: Some(SECOND), why: "busy".to_owned() });
    assert!(target.admit_many(4, Jitter::NONE).is_err(), "it asked for patience");
    let metrics = &target.0.metrics;
    let counted = [&metrics.delivered, &metrics.failed, &metrics.put_off].map(telemetry::Counter::total);
    assert_eq!(counted, [8, 1, 7]);
}

#[test]
fn what_a_target_says_of_itself_is_shown_without_passwords() {
    let target = Target::new("test", "t", default_breaker(), pace(), Arc::new(SystemClock));
    let why = "moved to https://joe:s3cret@h/".to_owned();
    let away = Verdict::Unavailable { wait: Some(SECOND), why };
    target.admit(Jitter::NONE).ok().unwrap().rule(away, Jitter::NONE);
    assert_eq!(target.status(), Status::Unavailable("moved to https://***@h/".to_owned()));
}

#[test]
fn after_one_good_probe_of_two_nothing_is_said_to_wait() {
    let clock = Arc::new(SystemClock);
    let config = Config { wait_in_open: Duration::ZERO, ..default_breaker() };
    let target = Target::new("test", "t", config, pace(), clock);
    for _ in 0..5 {
        let away = Verdict::Unavailable { wait: None, why: "away".to_owned() };
        target.admit(Jitter::NONE).ok().unwrap().rule(away, Jitter::NONE);
    }
    assert_eq!(target.status(), Status::Unavailable("away".to_owned()), "probes are due");
    assert_eq!(target.0.metrics.available.value(), 0);

    target.admit(Jitter::NONE).ok().unwrap().rule(Verdict::Done, Jitter::NONE);
    assert_eq!(target.status(), Status::Available, "the only event that waited has arrived");
    assert_eq!(target.0.metrics.available.value(), 1);
}
