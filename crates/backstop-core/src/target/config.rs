//! What every target can be set up with, whatever its relay.

use std::time::Duration;

use crate::breaker;
use crate::config;
use crate::config::{Parsed, ValueKind};

/// The `source` of events where none is set: an outbox by its default name.
pub const DEFAULT_SOURCE: &str = "/outbox/outbox";

/// Longer times mean nothing, and adding them up would overflow.
const YEAR: Duration = Duration::from_secs(365 * 86_400);
const WAIT: ValueKind = ValueKind::time(Duration::from_millis(1), YEAR);

config! {
    /// What every target can be set up with, whatever its relay.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Config {
        /// The `source` of every event: a URI reference that names the system that sends it.
        source: Option<String> = None
            => "source": one(SOURCE), unset("`/outbox/` and the name of the outbox");
        /// How long to wait between two probes of a target that is unavailable and names no time of its own, while the
        /// circuit is closed; the first probes come sooner.
        pause: Duration = Duration::from_secs(5) => "pause": one(WAIT);
        /// How long those who send to it by themselves, such as a redrive, wait while the target is disabled. An outbox asks
        /// all the time.
        disabled_pause: Duration = Duration::from_secs(3_600) => "disabled-pause": one(WAIT);
        /// When the circuit opens, and how it closes again.
        breaker: breaker::Config = default_breaker() => "breaker": group;
    }
}

/// The breaker of a target unless another is given: after 5 failures in a row, or when half of the last 100 calls
/// failed, it opens for 30 s; then one probe decides. It opens early, because a refused call costs no event an attempt, and
/// slowness never opens it: a target that answers late still answers.
pub fn default_breaker() -> breaker::Config {
    breaker::Config {
        consecutive_failures: Some(5),
        slow_call_rate_threshold: None,
        wait_in_open: Duration::from_secs(30),
        half_open_calls: 1,
        ..breaker::Config::default()
    }
}

const SOURCE: ValueKind = ValueKind::Parsed(&Parsed {
    word: "URI reference",
    rule: "a URI reference such as /shop/orders",
    secret: false,
    check: |text| {
        let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        if is_plain { Ok(()) } else { Err(format!("must be {}", SOURCE.rule())) }
    },
});

impl Config {
    /// The source that is set, or the default.
    pub fn source_or_default(&self) -> &str {
        self.source.as_deref().unwrap_or(DEFAULT_SOURCE)
    }

    pub(super) fn pace(&self) -> Pace {
        let Self { pause, disabled_pause, ref breaker, .. } = *self;
        Pace { pause, disabled_pause, wait_in_open: breaker.wait_in_open }
    }
}

/// How long to wait for a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pace {
    /// While the target is unavailable and names no time of its own.
    pub(super) pause: Duration,
    /// While it is disabled.
    pub(super) disabled_pause: Duration,
    /// While its circuit is open.
    pub(super) wait_in_open: Duration,
}
