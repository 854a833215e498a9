//! The circuit breaker: a pure state machine with Resilience4j's parameters. It never looks at a clock.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::Value;

use crate::clock::Tick;
use crate::config;
use crate::config::{Parsed, Setting, ValueKind};

config! {
    /// When a breaker opens and how it closes again.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Config {
        /// Opens when this percentage of the calls in the window failed.
        failure_rate_threshold: f64 = 50.0 => "failure-rate-threshold": one(ValueKind::Percent);
        /// Opens when this percentage of the calls in the window was slow.
        slow_call_rate_threshold: Option<f64> = Some(80.0)
            => "slow-call-rate-threshold": one(ValueKind::Percent), unset("slow calls do not open it");
        /// A call that takes at least this long is slow.
        slow_call_duration: Duration = Duration::from_secs(5) => "slow-call-duration-ms": one(ValueKind::MILLIS);
        /// Which calls the rates are computed from: the last N, or those that ended within a time.
        window: Window = Window::Calls(100) => "sliding-window-size": one(WINDOW);
        /// How many calls the window needs before the rates count.
        minimum_calls: u32 = 10 => "minimum-number-of-calls": one(ValueKind::AT_LEAST_ONE);
        /// Opens after this many failures in a row, whatever the rates say.
        consecutive_failures: Option<u32> = None
            => "consecutive-failures": one(ValueKind::AT_LEAST_ONE), unset("the rates alone open it");
        /// How long it stays open before it lets probes through.
        wait_in_open: Duration = Duration::from_secs(60)
            => "wait-duration-in-open-state-ms": one(ValueKind::MILLIS);
        /// How many probes are let through, and decide whether it closes. Of a target, one that succeeds closes it.
        half_open_calls: u32 = 5
            => "permitted-number-of-calls-in-half-open-state": one(ValueKind::AT_LEAST_ONE);
    }
}

const WINDOW: ValueKind = ValueKind::Parsed(&Parsed {
    word: "number of calls, or time",
    rule: "a number of calls such as 100, up to a million, or a time such as 60s",
    secret: false,
    check: |text| match Window::parse(text) {
        Some(_) => Ok(()),
        None => Err(format!("must be {}", WINDOW.rule())),
    },
});

/// The calls that count towards the rates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Window {
    /// The last calls, this many of them.
    Calls(u32),
    /// The calls that ended within this time.
    Time(Duration),
}

impl Window {
    fn parse(text: &str) -> Option<Self> {
        let text = Value::from(text);
        let calls = Setting::read(&text, ValueKind::AT_LEAST_ONE).map(Self::Calls);
        calls.or_else(|_| Setting::read(&text, ValueKind::TIME).map(Self::Time)).ok()
    }
}

impl Setting for Window {
    fn read(value: &Value, kind: ValueKind) -> Result<Self, String> {
        let text: String = Setting::read(value, kind)?;
        Self::parse(&text).ok_or_else(|| format!("must be {}", kind.rule()))
    }

    fn written(&self) -> Value {
        match self {
            Self::Calls(calls) => calls.written(),
            Self::Time(time) => time.written(),
        }
    }

    fn broken_rules(&self, _: ValueKind) -> Vec<String> {
        match self {
            Self::Calls(calls) => calls.broken_rules(ValueKind::AT_LEAST_ONE),
            Self::Time(time) => time.broken_rules(ValueKind::TIME),
        }
    }
}

/// What a breaker is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Everything passes.
    Closed,
    /// Nothing passes.
    Open,
    /// A few probes pass.
    HalfOpen,
}

/// Leave to make one call. Hand it back to [`Breaker::record`], or to [`Breaker::cancel`] if the call
/// was never made.
///
/// It belongs to the state that gave it: a call that began before the breaker opened says nothing
/// about the probes, and is not counted among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "an admission that is neither recorded nor cancelled keeps a probe's place until the breaker reopens"]
pub struct Admission {
    epoch: u64,
}

/// The answer to a call that may not be made now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    /// When it makes sense to ask again; `None` while the probes are still running.
    pub until: Option<Tick>,
}

/// A circuit breaker.
///
/// ```
/// use std::time::Duration;
/// use backstop_core::breaker::{Breaker, Config, State};
/// use backstop_core::clock::Tick;
///
/// let mut breaker = Breaker::new(Config { consecutive_failures: Some(2), half_open_calls: 1, ..Config::default() });
/// let mut now = Tick::ZERO;
/// for _ in 0..2 {
///     let call = breaker.admit(now).unwrap();
///     breaker.record(call, false, Duration::from_millis(3), now);
/// }
/// assert_eq!(breaker.state(), State::Open);
/// assert!(breaker.admit(now).is_err());
/// assert_eq!(breaker.open_until(), Some(now + Duration::from_secs(60)));
///
/// now = now + Duration::from_secs(60);
/// let probe = breaker.admit(now).unwrap();
/// breaker.record(probe, true, Duration::from_millis(3), now);
/// assert_eq!(breaker.state(), State::Closed);
/// ```
#[derive(Debug, Clone)]
pub struct Breaker {
    config: Config,
    /// Raised with every change of state, so that late answers are told from fresh ones.
    epoch: u64,
    phase: Phase,
}

#[derive(Debug, Clone)]
enum Phase {
    Closed { calls: VecDeque<Call>, failed: usize, slow: usize, failures_in_a_row: u32 },
    Open { until: Tick },
    HalfOpen { admitted: u32, ended: u32, failed: u32, slow: u32 },
}

#[derive(Debug, Clone, Copy)]
struct Call {
    failed: bool,
    slow: bool,
    ended: Tick,
}

impl Breaker {
    /// A closed breaker.
    pub fn new(config: Config) -> Self {
        Self { config, epoch: 0, phase: Phase::closed() }
    }

    /// What the breaker is doing.
    pub fn state(&self) -> State {
        match self.phase {
            Phase::Closed { .. } => State::Closed,
            Phase::Open { .. } => State::Open,
            Phase::HalfOpen { .. } => State::HalfOpen,
        }
    }

    /// When an open breaker starts to let probes through; `None` while it is not open.
    pub fn open_until(&self) -> Option<Tick> {
        match self.phase {
            Phase::Open { until } => Some(until),
            Phase::Closed { .. } | Phase::HalfOpen { .. } => None,
        }
    }

    /// Moves an open breaker whose wait is over to half-open, and returns the state. A caller that makes no calls
    /// while the breaker is open (a paused consumer) asks here when it can go on.
    pub fn poll(&mut self, now: Tick) -> State {
        if let Phase::Open { until } = self.phase
            && now >= until
        {
            self.enter(Phase::HalfOpen { admitted: 0, ended: 0, failed: 0, slow: 0 });
        }
        self.state()
    }

    /// Asks for leave to make a call.
    pub fn admit(&mut self, now: Tick) -> Result<Admission, Refused> {
        self.poll(now);
        match &mut self.phase {
            Phase::Closed { .. } => {}
            Phase::Open { until } => return Err(Refused { until: Some(*until) }),
            Phase::HalfOpen { admitted, .. } if *admitted >= self.config.half_open_calls.max(1) => {
                return Err(Refused { until: None });
            }
            Phase::HalfOpen { admitted, .. } => *admitted += 1,
        }
        Ok(Admission { epoch: self.epoch })
    }

    /// Tells how an admitted call ended: whether it succeeded and how long it took.
    pub fn record(&mut self, admission: Admission, success: bool, took: Duration, now: Tick) {
        if admission.epoch != self.epoch {
            return;
        }
        let call = Call { failed: !success, slow: took >= self.config.slow_call_duration, ended: now };
        let opens = match &mut self.phase {
            Phase::Closed { calls, failed, slow, failures_in_a_row } => {
                calls.push_back(call);
                *failed += usize::from(call.failed);
                *slow += usize::from(call.slow);
                *failures_in_a_row = if call.failed { *failures_in_a_row + 1 } else { 0 };
                let too_old = |first: &Call, len: usize| match self.config.window {
                    Window::Calls(size) => len > size.max(1) as usize,
                    Window::Time(span) => now.since(first.ended) >= span,
                };
                while let Some(first) = calls.front().copied().filter(|first| too_old(first, calls.len())) {
                    calls.pop_front();
                    *failed -= usize::from(first.failed);
                    *slow -= usize::from(first.slow);
                }
                let row_is_full =
                    self.config.consecutive_failures.is_some_and(|most| *failures_in_a_row >= most);
                let enough = calls.len() >= self.config.minimum_of_window();
                row_is_full || (enough && self.config.rates_are_over(*failed, *slow, calls.len()))
            }
            Phase::HalfOpen { ended, failed, slow, .. } => {
                *ended += 1;
                *failed += u32::from(call.failed);
                *slow += u32::from(call.slow);
                let row_is_full = self.config.consecutive_failures.is_some_and(|most| *failed >= most);
                let decided = *ended >= self.config.half_open_calls.max(1);
                if !decided && !row_is_full {
                    return;
                }
                row_is_full || self.config.rates_are_over(*failed as usize, *slow as usize, *ended as usize)
            }
            Phase::Open { .. } => return,
        };
        if opens {
            self.enter(Phase::Open { until: now + self.config.wait_in_open });
        } else if self.state() == State::HalfOpen {
            self.enter(Phase::closed());
        }
    }

    /// Closes it, whatever was recorded: nobody has called for so long that it says nothing any more.
    pub fn close(&mut self) {
        self.enter(Phase::closed());
    }

    /// Gives back the leave for a call that was not made, so that a probe's place is free again.
    pub fn cancel(&mut self, admission: Admission) {
        if let Phase::HalfOpen { admitted, .. } = &mut self.phase
            && admission.epoch == self.epoch
        {
            *admitted = admitted.saturating_sub(1);
        }
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.epoch += 1;
    }
}

impl Phase {
    fn closed() -> Self {
        Phase::Closed { calls: VecDeque::new(), failed: 0, slow: 0, failures_in_a_row: 0 }
    }
}

impl Config {
    /// A minimum above the window's size could never be met, so the window's size bounds it.
    fn minimum_of_window(&self) -> usize {
        let minimum = match self.window {
            Window::Calls(size) => self.minimum_calls.min(size),
            Window::Time(_) => self.minimum_calls,
        };
        minimum.max(1) as usize
    }

    fn rates_are_over(&self, failed: usize, slow: usize, of: usize) -> bool {
        #[expect(clippy::cast_precision_loss, reason = "windows hold far fewer than 2^52 calls")]
        let percent = |part: usize| part as f64 * 100.0 / of as f64;
        percent(failed) >= self.failure_rate_threshold
            || self.slow_call_rate_threshold.is_some_and(|threshold| percent(slow) >= threshold)
    }
}

#[cfg(test)]
#[path = "breaker_tests.rs"]
mod tests;
