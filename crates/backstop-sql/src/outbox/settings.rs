//! Checking settings: every fault is gathered before any is reported.

use std::time::Duration;

use crate::Error;
use crate::error::SettingFault;

/// The faults found so far.
#[derive(Debug, Default)]
pub(super) struct Faults(Vec<SettingFault>);

impl Faults {
    pub(super) fn add(&mut self, setting: &'static str, rule: &'static str) {
        self.0.push(SettingFault { setting, rule });
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

    /// An error with all the faults, if there are any.
    pub(super) fn none(self) -> Result<(), Error> {
        if self.0.is_empty() { Ok(()) } else { Err(Error::Settings { faults: self.0 }) }
    }
}
