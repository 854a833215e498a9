//! Which entries are meant.

use backstop_core::Timestamp;

use super::entry::{Entry, Place};
use super::name;

/// Which entries are meant: all of them, or those for which every condition holds.
///
/// ```
/// use backstop_disk::dlq::Filter;
///
/// let timeouts = Filter::all().event_type("OrderPlaced").error_contains("timeout");
/// let one = Filter::only("1767225600000-42.jsonl".parse()?);
/// # let _ = (timeouts, one);
/// # Ok::<(), backstop_disk::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    pub(super) place: Option<Place>,
    event_id: Option<String>,
    event_type: Option<String>,
    source: Option<String>,
    error: Option<String>,
    target: Option<String>,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
}

impl Filter {
    /// Everything.
    pub fn all() -> Self {
        Self::default()
    }

    /// The one entry at a place.
    pub fn only(place: Place) -> Self {
        Self { place: Some(place), ..Self::default() }
    }

    /// Events with this id.
    pub fn event_id(mut self, id: impl Into<String>) -> Self {
        self.event_id = Some(id.into());
        self
    }

    /// Events of this type.
    pub fn event_type(mut self, event_type: impl Into<String>) -> Self {
        self.event_type = Some(event_type.into());
        self
    }

    /// Events from this source.
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Events whose error contains this text.
    pub fn error_contains(mut self, text: impl Into<String>) -> Self {
        self.error = Some(text.into());
        self
    }

    /// Events that were to go to this target. Only entries with [`Details`](super::Details) know that.
    pub fn target(mut self, target: impl Into<String>) -> Self {
        self.target = Some(target.into());
        self
    }

    /// Events that failed at this moment or later. If given several times, the latest counts.
    pub fn since(mut self, moment: Timestamp) -> Self {
        self.since = self.since.max(Some(moment));
        self
    }

    /// Events that failed before this moment. If given several times, the earliest counts.
    pub fn until(mut self, moment: Timestamp) -> Self {
        self.until = Some(self.until.map_or(moment, |until| until.min(moment)));
        self
    }

    /// Whether an entry is meant.
    pub fn matches(&self, entry: &Entry) -> bool {
        let is = |wanted: &Option<String>, value: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| value == Some(wanted))
        };
        let target = entry.details.as_ref().and_then(|details| details.target.as_deref());
        self.place.as_ref().is_none_or(|place| *place == entry.place)
            && is(&self.event_id, Some(entry.event.id()))
            && is(&self.event_type, Some(entry.event.event_type()))
            && is(&self.source, Some(entry.event.source()))
            && is(&self.target, target)
            && self.error.as_deref().is_none_or(|text| entry.error.contains(text))
            && self.since.is_none_or(|since| entry.failed_at.is_some_and(|at| at >= since))
            && self.until.is_none_or(|until| entry.failed_at.is_some_and(|at| at < until))
    }

    /// Whether it has more conditions than a span of time.
    pub(super) fn is_narrow(&self) -> bool {
        Self { since: None, until: None, ..self.clone() } != Self::default()
    }

    /// Whether a file may hold entries that match, as far as its name says, so that the others need not be opened.
    pub(super) fn may_be_in(&self, file: &str) -> bool {
        if self.place.as_ref().is_some_and(|place| place.file() != file) {
            return false;
        }
        match name::failed_at(file) {
            None => true,
            Some(begun) => {
                // In a file with many events the later ones failed after it was begun.
                let one_moment = !file.contains("-rolling-");
                self.until.is_none_or(|until| begun < until)
                    && self.since.is_none_or(|since| begun >= since || !one_moment)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use backstop_core::{Clock, CloudEvent};
    use backstop_testkit::clock::ManualClock;
    use std::time::Duration;

    use super::*;
    use crate::dlq::Details;
    use backstop_core::burial::Cause;

    fn entry() -> Entry {
        let now = ManualClock::new().now();
        Entry {
            place: Place::new("1893456000000-1.jsonl", 1),
            failed_at: Some(now),
            event: CloudEvent::from_json(r#"{"id":"1","source":"/a","type":"t"}"#).unwrap(),
            error: "timeout: no answer".to_owned(),
            details: Some(Details::of(&Cause::new("e", now), Some("warehouse"))),
        }
    }

    #[test]
    fn every_condition_must_hold() {
        let second = Duration::from_secs(1);
        let (entry, now) = (entry(), ManualClock::new().now());
        for (filter, holds) in [
            (Filter::all(), true),
            (Filter::only(entry.place.clone()), true),
            (Filter::only(Place::new("1893456000000-1.jsonl", 2)), false),
            (Filter::all().event_id("1"), true),
            (Filter::all().event_id("2"), false),
            (Filter::all().event_type("t"), true),
            (Filter::all().event_type("T"), false),
            (Filter::all().source("/a"), true),
            (Filter::all().source("/b"), false),
            (Filter::all().error_contains("no ans"), true),
            (Filter::all().error_contains("refused"), false),
            (Filter::all().target("warehouse"), true),
            (Filter::all().target("billing"), false),
            (Filter::all().since(now).until(now + second), true),
            (Filter::all().since(now + second), false),
            (Filter::all().until(now), false),
            (Filter::all().until(now).until(now + second), false),
            (Filter::all().since(now + second).since(now), false),
            (Filter::all().event_type("t").source("/b"), false),
        ] {
            assert_eq!(filter.matches(&entry), holds, "{filter:?}");
        }
    }

    #[test]
    fn without_a_time_an_entry_is_in_no_span() {
        let timeless = Entry { failed_at: None, details: None, ..entry() };
        let now = ManualClock::new().now();
        assert!(!Filter::all().since(now).matches(&timeless) && !Filter::all().until(now).matches(&timeless));
        assert!(!Filter::all().target("warehouse").matches(&timeless));
    }

    #[test]
    fn a_name_tells_which_files_need_not_be_opened() {
        let now = ManualClock::new().now();
        let (before, after) = (now - Duration::from_secs(9), now + Duration::from_secs(9));
        let (one, many) = ("1893456000000-1.jsonl", "1893456000000-rolling-0.jsonl");
        assert!(Filter::all().since(before).until(after).may_be_in(one));
        assert!(!Filter::all().until(before).may_be_in(one) && !Filter::all().until(before).may_be_in(many));
        assert!(!Filter::all().since(after).may_be_in(one));
        assert!(Filter::all().since(after).may_be_in(many));
        assert!(Filter::all().since(after).may_be_in("notes.jsonl"));
    }
}
