//! The breaker against a model that keeps every call and recomputes everything from it.

use proptest::prelude::*;

use super::*;

const QUICK: Duration = Duration::from_millis(1);

/// A breaker that only knows its history.
struct Model {
    config: Config,
    state: State,
    opened: Tick,
    history: Vec<(bool, bool, Tick)>,
    probes_admitted: u32,
}

impl Model {
    fn admits(&mut self, now: Tick) -> bool {
        if self.state == State::Open && now.since(self.opened) >= self.config.wait_in_open {
            self.state = State::HalfOpen;
            self.history.clear();
            self.probes_admitted = 0;
        }
        match self.state {
            State::Closed => true,
            State::HalfOpen if self.probes_admitted < self.config.half_open_calls => {
                self.probes_admitted += 1;
                true
            }
            State::Open | State::HalfOpen => false,
        }
    }

    fn record(&mut self, success: bool, took: Duration, now: Tick) {
        self.history.push((!success, took >= self.config.slow_call_duration, now));
        let row = self.history.iter().rev().take_while(|(failed, ..)| *failed).count();
        let seen: Vec<_> = match (self.state, self.config.window) {
            (State::HalfOpen, _) => self.history.clone(),
            (_, Window::Calls(size)) => self.history.iter().rev().take(size as usize).copied().collect(),
            (_, Window::Time(span)) => {
                self.history.iter().filter(|(.., at)| now.since(*at) < span).copied().collect()
            }
        };
        let over_share = |count: usize, percent: f64| {
            let count = f64::from(u32::try_from(count).unwrap());
            count * 100.0 / f64::from(u32::try_from(seen.len()).unwrap()) >= percent
        };
        let failed = seen.iter().filter(|(failed, ..)| *failed).count();
        let slow = seen.iter().filter(|(_, slow, _)| *slow).count();
        let over = over_share(failed, self.config.failure_rate_threshold)
            || self.config.slow_call_rate_threshold.is_some_and(|most| over_share(slow, most));
        let failures = self.history.iter().filter(|(failed, ..)| *failed).count();
        let in_a_row = if self.state == State::HalfOpen { failures } else { row };
        let row_full = self.config.consecutive_failures.is_some_and(|most| in_a_row >= most as usize);
        let decided = match self.state {
            State::HalfOpen => self.history.len() >= self.config.half_open_calls as usize,
            _ => seen.len() >= self.config.minimum_of_window(),
        };
        if row_full || (decided && over) {
            self.state = State::Open;
            self.opened = now;
            self.history.clear();
        } else if self.state == State::HalfOpen && decided {
            self.state = State::Closed;
            self.history.clear();
        }
    }
}

fn configs() -> impl Strategy<Value = Config> {
    let window = prop_oneof![
        (1_u32..12).prop_map(Window::Calls),
        (1_u64..60).prop_map(|seconds| Window::Time(Duration::from_secs(seconds))),
    ];
    (1.0_f64..=100.0, 1.0_f64..=100.0, window, 1_u32..8, proptest::option::of(1_u32..5), 1_u64..30, 1_u32..5)
        .prop_map(|(failures, slow, window, minimum_calls, consecutive_failures, wait, half_open_calls)| {
            Config {
                failure_rate_threshold: failures,
                slow_call_rate_threshold: Some(slow),
                slow_call_duration: Duration::from_secs(1),
                window,
                minimum_calls,
                consecutive_failures,
                wait_in_open: Duration::from_secs(wait),
                half_open_calls,
            }
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn the_breaker_does_what_the_model_does(
        config in configs(),
        calls in proptest::collection::vec((any::<bool>(), any::<bool>(), 0_u64..20), 1..80),
    ) {
        let mut breaker = Breaker::new(config.clone());
        let mut model = Model {
            config, state: State::Closed, opened: Tick::ZERO, history: Vec::new(), probes_admitted: 0,
        };
        let mut now = Tick::ZERO;
        for (success, slow, pause) in calls {
            now = now + Duration::from_secs(pause);
            let admission = breaker.admit(now);
            prop_assert_eq!(admission.is_ok(), model.admits(now));
            if let Ok(admission) = admission {
                let took = if slow { Duration::from_secs(1) } else { QUICK };
                breaker.record(admission, success, took, now);
                model.record(success, took, now);
            }
            prop_assert_eq!(breaker.state(), model.state);
        }
    }
}

fn failing(breaker: &mut Breaker, times: u32, now: Tick) {
    for _ in 0..times {
        let call = breaker.admit(now).unwrap();
        breaker.record(call, false, QUICK, now);
    }
}

#[test]
fn rates_mean_nothing_before_the_minimum_of_calls() {
    let mut breaker = Breaker::new(Config::default());
    failing(&mut breaker, 9, Tick::ZERO);
    assert_eq!(breaker.state(), State::Closed);
    failing(&mut breaker, 1, Tick::ZERO);
    assert_eq!(breaker.state(), State::Open);
}

#[test]
fn a_refusal_tells_when_to_ask_again() {
    let mut breaker = Breaker::new(Config::default());
    failing(&mut breaker, 10, Tick::ZERO);
    let until = Tick::ZERO + Duration::from_secs(60);
    assert_eq!(breaker.admit(Tick::ZERO + Duration::from_secs(59)), Err(Refused { until: Some(until) }));
    assert_eq!(breaker.poll(until), State::HalfOpen);
}

#[test]
fn slow_calls_open_it_like_failures() {
    let mut breaker = Breaker::new(Config::default());
    for _ in 0..10 {
        let call = breaker.admit(Tick::ZERO).unwrap();
        breaker.record(call, true, Duration::from_secs(5), Tick::ZERO);
    }
    assert_eq!(breaker.state(), State::Open);
}

#[test]
fn no_more_probes_pass_than_are_permitted_and_a_cancelled_one_makes_room() {
    let mut breaker = Breaker::new(Config::default());
    failing(&mut breaker, 10, Tick::ZERO);
    let later = Tick::ZERO + Duration::from_secs(60);
    let probes: Vec<_> = (0..5).map(|_| breaker.admit(later).unwrap()).collect();
    assert_eq!(breaker.admit(later), Err(Refused { until: None }));
    breaker.cancel(probes[0]);
    assert!(breaker.admit(later).is_ok());
}

#[test]
fn a_call_from_before_it_opened_is_not_counted_as_a_probe() {
    let mut breaker = Breaker::new(Config { half_open_calls: 1, ..Config::default() });
    let straggler = breaker.admit(Tick::ZERO).unwrap();
    failing(&mut breaker, 10, Tick::ZERO);
    let later = Tick::ZERO + Duration::from_secs(60);
    assert_eq!(breaker.poll(later), State::HalfOpen);
    breaker.record(straggler, true, QUICK, later);
    assert_eq!(breaker.state(), State::HalfOpen);
    let probe = breaker.admit(later).unwrap();
    breaker.record(probe, false, QUICK, later);
    assert_eq!(breaker.state(), State::Open);
}

#[test]
fn a_stale_cancel_frees_no_probe() {
    let mut breaker = Breaker::new(Config { half_open_calls: 1, ..Config::default() });
    let from_closed = breaker.admit(Tick::ZERO).unwrap();
    failing(&mut breaker, 10, Tick::ZERO);
    let mut later = Tick::ZERO + Duration::from_secs(60);
    let from_probes = breaker.admit(later).unwrap();
    breaker.cancel(from_closed);
    assert_eq!(breaker.admit(later), Err(Refused { until: None }), "the only probe is under way");

    // It reopens, and the probes of the next round are not those of the last.
    breaker.record(from_probes, false, QUICK, later);
    later = later + Duration::from_secs(60);
    let _probe = breaker.admit(later).unwrap();
    breaker.cancel(from_probes);
    breaker.cancel(from_closed);
    assert_eq!(breaker.admit(later), Err(Refused { until: None }));
}

#[test]
fn one_probe_passes_even_where_none_is_permitted() {
    let mut breaker = Breaker::new(Config { half_open_calls: 0, ..Config::default() });
    failing(&mut breaker, 10, Tick::ZERO);
    let later = Tick::ZERO + Duration::from_secs(60);
    let probe = breaker.admit(later).expect("without one it would never close again");
    assert_eq!(breaker.admit(later), Err(Refused { until: None }));
    breaker.record(probe, true, QUICK, later);
    assert_eq!(breaker.state(), State::Closed);
}

#[test]
fn a_minimum_that_the_window_cannot_hold_is_met_by_a_full_window() {
    let mut breaker =
        Breaker::new(Config { window: Window::Calls(4), minimum_calls: 10, ..Config::default() });
    failing(&mut breaker, 3, Tick::ZERO);
    assert_eq!(breaker.state(), State::Closed);
    failing(&mut breaker, 1, Tick::ZERO);
    assert_eq!(breaker.state(), State::Open);
}

#[test]
fn a_window_is_written_as_a_number_of_calls_or_as_a_time() {
    let read = |text: &str| serde_json::from_str::<Config>(&format!(r#"{{"sliding-window-size": {text}}}"#));
    assert_eq!(read("20").unwrap().window, Window::Calls(20));
    assert_eq!(read("\"60s\"").unwrap().window, Window::Time(Duration::from_secs(60)));
    for wrong in ["0", "\"0s\"", "\"soon\"", "1000001"] {
        assert!(read(wrong).unwrap_err().to_string().contains("a number of calls such as 100"), "{wrong}");
    }
}

#[test]
fn what_could_never_open_or_close_it_is_refused() {
    let mut faults = crate::setting::Faults::default();
    let wrong = Config {
        failure_rate_threshold: 0.0,
        slow_call_rate_threshold: Some(f64::INFINITY),
        window: Window::Calls(0),
        minimum_calls: 0,
        consecutive_failures: Some(0),
        half_open_calls: 0,
        wait_in_open: Duration::ZERO,
        ..Config::default()
    };
    crate::config::Config::check(&wrong, &mut faults);
    assert_eq!(faults.into_vec().len(), 7);
}
