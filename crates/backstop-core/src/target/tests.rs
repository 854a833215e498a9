//! When a target is called and what its answers mean, decided without a socket.

use super::*;
use crate::SystemClock;
use crate::breaker;
use crate::failure::Kind;

const SECOND: Duration = Duration::from_secs(1);

/// A clock that only the test moves.
#[derive(Debug, Default)]
struct Still(Mutex<Tick>);

impl Still {
    fn advance(&self, by: Duration) {
        let mut tick = self.0.lock().unwrap();
        *tick = *tick + by;
    }
}

impl Clock for Still {
    fn now(&self) -> crate::Timestamp {
        crate::Timestamp::UNIX_EPOCH
    }

    fn ticks(&self) -> Tick {
        *self.0.lock().unwrap()
    }
}

fn target(breaker: breaker::Config) -> (Target, Arc<Still>) {
    let config = Config { breaker, pause: 64 * SECOND, disabled_pause: 600 * SECOND, ..Config::default() };
    let clock = Arc::new(Still::default());
    (Target::new("test", "t", &config, clock.clone()), clock)
}

fn after_failures(failures: u32) -> breaker::Config {
    breaker::Config {
        consecutive_failures: Some(failures),
        wait_in_open: 30 * SECOND,
        half_open_calls: 1,
        ..breaker::Config::default()
    }
}

fn ask(target: &Target, id: &str, verdict: Verdict) -> Result<Outcome, Failure> {
    target.admit([id]).expect("it may be called").answer(verdict)
}

fn unreachable() -> Verdict {
    Verdict::Unavailable { class: "connect", wait: None, why: "no route".to_owned() }
}

fn busy(wait: Duration) -> Verdict {
    Verdict::Unavailable { class: "http-503", wait: Some(wait), why: "busy".to_owned() }
}

fn failed() -> Verdict {
    Verdict::Failed(Failure::transient("http-500", "oops"))
}

/// How long to wait before the next probe, of an answer that says that the target is unavailable.
fn wait(answer: Result<Outcome, Failure>) -> Duration {
    match answer.expect_err("it is unavailable").kind() {
        Kind::Unavailable(Some(wait)) => wait,
        other => panic!("{other:?}"),
    }
}

fn refused(target: &Target) -> Option<Duration> {
    target.admit(["x"]).err().map(|failure| wait(Err(failure)))
}

#[test]
fn a_target_that_asks_for_time_is_not_called_for_the_longest_that_it_asked_for() {
    let (target, clock) = target(breaker::Config::default());
    let (one, other) = (target.admit(["1"]).ok().unwrap(), target.admit(["2"]).ok().unwrap());
    assert_eq!(wait(one.answer(busy(10 * SECOND))), 10 * SECOND);
    assert_eq!(wait(other.answer(busy(5 * SECOND))), 10 * SECOND);
    clock.advance(4 * SECOND);
    assert_eq!((refused(&target), target.wait()), (Some(6 * SECOND), Some(6 * SECOND)));
    clock.advance(6 * SECOND);
    assert_eq!((refused(&target), target.wait()), (None, None));
}

#[test]
fn an_open_circuit_is_waited_for() {
    let (target, clock) = target(after_failures(1));
    assert_eq!(wait(ask(&target, "1", unreachable())), 30 * SECOND);
    clock.advance(10 * SECOND);
    assert_eq!(refused(&target), Some(20 * SECOND));
}

#[test]
fn probes_come_soon_at_first_and_then_at_the_pause() {
    let (target, _) = target(after_failures(1_000));
    let waits: Vec<_> = (0..9).map(|n| wait(ask(&target, &n.to_string(), unreachable())).as_secs()).collect();
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 64, 64]);
    assert!(ask(&target, "9", Verdict::Done).is_ok());
    assert_eq!(wait(ask(&target, "10", unreachable())), SECOND, "it begins anew");
}

#[test]
fn a_success_after_an_outage_opens_no_circuit() {
    let (target, _) = target(breaker::Config { consecutive_failures: None, ..after_failures(1) });
    for id in 0..9 {
        wait(ask(&target, &id.to_string(), unreachable()));
    }
    ask(&target, "9", Verdict::Done).unwrap();
    assert_eq!(
        (target.status(), refused(&target)),
        (Status::Available, None),
        "nine of ten failed, and it is back"
    );
}

#[test]
fn one_event_that_always_fails_opens_no_circuit() {
    let (target, _) = target(after_failures(3));
    for _ in 0..20 {
        assert_eq!(ask(&target, "bad", failed()).unwrap_err().class(), "http-500");
    }
    assert_eq!(target.0.availability.lock().unwrap().breaker.state(), State::Closed);
    // Three different ones do.
    for id in ["2", "3"] {
        ask(&target, id, failed()).unwrap_err();
    }
    assert_eq!(target.status(), Status::Unavailable("http-500: oops".to_owned()));
}

#[test]
fn an_event_that_the_target_does_not_take_while_it_takes_others_is_an_attempt() {
    let (target, _) = target(after_failures(100));
    // Nobody knows yet what to make of it.
    for _ in 0..2 {
        wait(ask(&target, "bad", busy(SECOND)));
        target.enable();
        ask(&target, "good", Verdict::Done).unwrap();
    }
    let failure = ask(&target, "bad", busy(9 * SECOND)).unwrap_err();
    assert_eq!((failure.class(), failure.kind()), ("http-503", Kind::RetryAfter(9 * SECOND)));
    assert_eq!(target.status(), Status::Available, "it holds nobody");
}

#[test]
fn an_outage_under_load_is_no_events_own_trouble_and_one_failure_of_the_target() {
    let (target, clock) = target(after_failures(3));
    for outage in 0..3 {
        let under_way: Vec<_> =
            (0..20).map(|id| target.admit([id.to_string().as_str()]).ok().unwrap()).collect();
        // The last that it answers, while all these wait.
        ask(&target, &format!("last {outage}"), Verdict::Done).unwrap();
        clock.advance(SECOND);
        let waits: Vec<_> = under_way.into_iter().map(|permit| wait(permit.answer(unreachable()))).collect();
        assert!(waits.iter().all(|wait| *wait == SECOND), "a probe comes soon: {waits:?}");
        // Each of them arrives in the end.
        clock.advance(SECOND);
        for id in 0..20 {
            ask(&target, &id.to_string(), Verdict::Done).unwrap();
        }
    }
}

#[test]
fn a_circuit_that_nobody_asks_any_more_closes_by_itself() {
    let (target, clock) = target(after_failures(1));
    wait(ask(&target, "1", unreachable()));
    clock.advance(150 * SECOND);
    assert_eq!(target.status(), Status::Unavailable("no route".to_owned()));
    clock.advance(8 * SECOND); // twice the longer pause after it could have been probed
    assert_eq!((target.status(), target.paused()), (Status::Available, None));
}

/// Rules of time are tokio's here: the request waits for real, or as good as.
#[tokio::test(start_paused = true)]
async fn a_target_that_answers_nothing_for_5_s_is_unavailable_while_its_requests_go_on() {
    let (target, _) = target(default_breaker());
    let mut waiting = target.admit(["1"]).ok().unwrap();
    let never = waiting.watch(std::future::pending::<()>(), std::future::pending());
    assert!(tokio::time::timeout(6 * SECOND, never).await.is_err());
    assert_eq!(target.status(), Status::Unavailable("no answer for 5 s".to_owned()));
    assert!(refused(&target).is_some(), "nobody else waits for it");
    assert!(waiting.answer(Verdict::Done).is_ok(), "it came after all");
    assert_eq!((target.status(), refused(&target)), (Status::Available, None));

    // Others are answered meanwhile, so it is this one.
    let mut slow = target.admit(["2"]).ok().unwrap();
    ask(&target, "3", Verdict::Done).unwrap();
    let _ =
        tokio::time::timeout(6 * SECOND, slow.watch(std::future::pending::<()>(), std::future::pending()))
            .await;
    assert_eq!(target.status(), Status::Available);

    // Given up, it says nothing any more.
    let mut waiting = target.admit(["4"]).ok().unwrap();
    let _ =
        tokio::time::timeout(6 * SECOND, waiting.watch(std::future::pending::<()>(), std::future::pending()))
            .await;
    assert!(refused(&target).is_some());
    drop(waiting);
    assert_eq!(refused(&target), None);
}

/// Rules of time are tokio's here too.
#[tokio::test(start_paused = true)]
async fn a_target_to_which_the_way_is_lost_is_unavailable_after_1_s_and_not_before() {
    let (target, _) = target(default_breaker());
    let lost = || std::future::ready("all brokers are down".to_owned());
    let mut waiting = target.admit(["1"]).ok().unwrap();
    let soon = async {
        tokio::time::sleep(SECOND / 2).await;
        Verdict::Done
    };
    let verdict = waiting.watch(soon, lost()).await;
    assert_eq!(target.status(), Status::Available, "it was found again soon");
    waiting.answer(verdict).unwrap();

    let mut waiting = target.admit(["2"]).ok().unwrap();
    let never = waiting.watch(std::future::pending::<()>(), lost());
    assert!(tokio::time::timeout(2 * SECOND, never).await.is_err());
    assert_eq!(target.status(), Status::Unavailable("all brokers are down".to_owned()));
    assert!(refused(&target).is_some());
    assert!(waiting.answer(Verdict::Done).is_ok(), "it arrived after all");
    assert_eq!(target.status(), Status::Available);
}

#[test]
fn a_permit_that_is_dropped_frees_the_place_of_a_probe() {
    let (target, clock) = target(after_failures(1));
    wait(ask(&target, "1", unreachable()));
    clock.advance(30 * SECOND);
    let probe = target.admit(["2"]).ok().unwrap();
    assert_eq!(refused(&target), Some(SECOND), "one probe at a time");
    drop(probe);
    let blocked = Verdict::Blocked(Failure::permanent("blocked-address", "no"));
    ask(&target, "3", blocked).unwrap_err();
    assert_eq!(refused(&target), None, "a request that was not made frees it too");
}

#[test]
fn a_permit_from_before_it_opened_frees_no_probe_when_it_is_dropped() {
    let (target, clock) = target(after_failures(1));
    let given_up = target.admit(["0"]).ok().unwrap();
    wait(ask(&target, "1", unreachable()));
    clock.advance(30 * SECOND);
    let _probe = target.admit(["2"]).ok().unwrap();
    drop(given_up);
    assert!(refused(&target).is_some(), "one probe at a time");
}

#[test]
fn a_batch_counts_its_events_once_it_is_known_what_becomes_of_them() {
    let (target, _) = target(default_breaker());
    let ids = |events: usize| vec!["id"; events];
    let answer = |events, verdict| target.admit(ids(events)).ok().unwrap().answer(verdict);
    let _ = answer(7, Verdict::Done);
    let _ = answer(5, Verdict::Failed(Failure::permanent("http-400", "no")));
    let _ = answer(1, Verdict::Failed(Failure::permanent("http-400", "no")));
    let _ = answer(1, Verdict::Done);
    let _ = answer(3, busy(SECOND));
    assert!(target.admit(ids(4)).is_err(), "it asked us to wait");
    let metrics = &target.0.metrics;
    let counted = [&metrics.delivered, &metrics.failed, &metrics.held].map(telemetry::Counter::total);
    assert_eq!(counted, [8, 1, 7]);
    assert_eq!(metrics.request_duration.count(), 5, "one for each request, and none for what was not sent");
}

#[test]
fn what_a_target_says_of_itself_is_shown_without_passwords() {
    let (target, _) = target(default_breaker());
    let why = "moved to https://joe:s3cret@h/".to_owned();
    let told = ask(&target, "1", Verdict::Unavailable { class: "connect", wait: None, why }).unwrap_err();
    assert_eq!(target.status(), Status::Unavailable("moved to https://***@h/".to_owned()));
    assert_eq!(told.to_string(), "unavailable: the target is unavailable: moved to https://***@h/");
}

#[test]
fn after_a_good_probe_nothing_is_said_to_wait() {
    let (target, clock) = target(breaker::Config { half_open_calls: 2, ..after_failures(5) });
    for id in ["1", "2", "3", "4", "5"] {
        wait(ask(&target, id, unreachable()));
    }
    assert_eq!(target.0.metrics.available.value(), 0);
    clock.advance(30 * SECOND);
    assert_eq!(target.status(), Status::Unavailable("no route".to_owned()), "probes are due");

    ask(&target, "1", Verdict::Done).unwrap();
    assert_eq!(target.status(), Status::Available, "the only event that waited has arrived");
    assert_eq!(target.0.metrics.available.value(), 1);
}

#[test]
fn one_probe_that_succeeds_closes_the_circuit_however_many_were_admitted() {
    let (target, clock) = target(breaker::Config { half_open_calls: 5, ..after_failures(1) });
    wait(ask(&target, "1", unreachable()));
    clock.advance(30 * SECOND);
    ask(&target, "2", Verdict::Done).unwrap();
    let at_once: Vec<_> = (0..100).map(|id| target.admit([id.to_string().as_str()])).collect();
    assert!(at_once.iter().all(Result::is_ok), "what waited flows");

    // Those that fail decide together, as the settings say.
    drop(at_once);
    wait(ask(&target, "3", unreachable()));
    clock.advance(30 * SECOND);
    wait(ask(&target, "4", unreachable()));
    assert!(target.wait().is_some());
}

#[test]
fn a_target_that_refuses_an_event_for_good_is_there_and_one_that_fails_is_not() {
    let (refusing, _) = target(after_failures(1));
    for id in 0..20 {
        let refused = Verdict::Failed(Failure::permanent("http-422", "no"));
        ask(&refusing, &id.to_string(), refused).unwrap_err();
    }
    assert_eq!(refusing.status(), Status::Available);

    let (failing, _) = target(after_failures(1));
    ask(&failing, "1", failed()).unwrap_err();
    assert_eq!(failing.status(), Status::Unavailable("http-500: oops".to_owned()));
}

#[test]
fn a_target_that_is_gone_is_disabled_until_somebody_enables_it() {
    let (target, _) = target(after_failures(1));
    assert_eq!(wait(ask(&target, "1", Verdict::Gone("410".to_owned()))), 600 * SECOND);
    assert!(target.is_disabled() && target.status() == Status::Disabled);
    assert_eq!(refused(&target), Some(600 * SECOND));
    target.enable();
    assert_eq!(refused(&target), None);
}

#[test]
fn whoever_enables_a_target_does_not_wait_for_what_it_asked_for_before() {
    let (target, _) = target(breaker::Config::default());
    wait(ask(&target, "1", busy(3600 * SECOND)));
    assert!(refused(&target).is_some());
    target.enable();
    assert_eq!(refused(&target), None);
}

#[test]
fn the_real_clock_will_do_too() {
    let target = Target::new("test", "t", &Config::default(), Arc::new(SystemClock));
    assert!(ask(&target, "1", Verdict::Done).is_ok());
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

#[test]
fn a_target_says_since_when_it_is_unavailable() {
    let (target, clock) = target(default_breaker());
    wait(ask(&target, "1", busy(9 * SECOND)));
    let paused = target.paused().unwrap();
    assert_eq!((paused.state, paused.why.as_str()), ("unavailable", "busy"));
    assert_eq!(paused.since, crate::Timestamp::UNIX_EPOCH);
    clock.advance(10 * SECOND);
    assert!(target.paused().is_some(), "nobody has found it well yet");
    ask(&target, "2", Verdict::Done).unwrap();
    assert_eq!(target.paused(), None);
    target.disable();
    assert_eq!(target.paused().unwrap().state, "disabled");
    target.enable();
    assert_eq!(target.paused(), None);
}
