//! Checking settings: every fault is gathered before any is reported.

use std::time::Duration;

use backstop_core::setting;

use crate::{Error, TimeZone};

/// The faults found so far, and the rules that outboxes have.
#[derive(Debug, Default)]
pub(super) struct Faults(setting::Faults);

impl Faults {
    pub(super) fn add(&mut self, setting: &'static str, rule: &'static str) {
        self.0.add(setting, rule);
    }

    pub(super) fn at_least_one(&mut self, setting: &'static str, value: usize) {
        if value == 0 {
            self.add(setting, "must be at least 1");
        }
    }

    pub(super) fn longer_than_zero(&mut self, setting: &'static str, value: Duration) {
        if value.is_zero() {
            self.add(setting, "must be longer than zero");
        }
    }

    /// A store of one's own knows its zone itself: one that is given beside it would be forgotten.
    pub(super) fn time_zone(&mut self, zone: &str, own_store: bool) {
        match TimeZone::new(zone) {
            Err(_) => {
                self.add(
                    "time_zone",
                    "must be UTC or a fixed distance from it such as +02:00, at most 14 hours",
                );
            }
            Ok(zone) if own_store && !zone.is_utc() => {
                self.add("time_zone", "means nothing with a store of your own: give it to that store");
            }
            Ok(_) => {}
        }
    }

    /// An error with all the faults, if there are any.
    pub(super) fn none(self) -> Result<(), Error> {
        self.0.into_result().map_err(|faults| Error::Settings { faults })
    }
}
