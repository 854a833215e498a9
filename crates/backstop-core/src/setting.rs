//! Settings that cannot be used: every fault is gathered, and all are told at once.

use std::fmt;

/// One setting that cannot be used, and the rule it breaks. It never quotes a secret.
///
/// ```
/// use backstop_core::setting::Faults;
///
/// let mut faults = Faults::default();
/// faults.add("timeout", "must be longer than zero");
/// let faults = faults.into_result().unwrap_err();
/// assert_eq!(faults[0].to_string(), "timeout must be longer than zero");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingFault {
    /// The setting, by the name of its method.
    pub setting: &'static str,
    /// The rule, worded to follow the setting: "must not be empty".
    pub rule: String,
}

impl fmt::Display for SettingFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.setting, self.rule)
    }
}

/// The faults found so far.
#[derive(Debug, Default)]
pub struct Faults(Vec<SettingFault>);

impl Faults {
    /// Notes a rule that a setting breaks.
    pub fn add(&mut self, setting: &'static str, rule: impl Into<String>) {
        self.0.push(SettingFault { setting, rule: rule.into() });
    }

    /// Keeps the value, or notes the rule it breaks.
    pub fn keep<T>(&mut self, setting: &'static str, value: Result<T, String>) -> Option<T> {
        value.map_err(|rule| self.add(setting, rule)).ok()
    }

    /// Whether none was found.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them.
    pub fn into_vec(self) -> Vec<SettingFault> {
        self.0
    }

    /// All of them, or that there are none.
    pub fn into_result(self) -> Result<(), Vec<SettingFault>> {
        if self.is_empty() { Ok(()) } else { Err(self.0) }
    }
}

/// All faults in one line.
pub fn list(faults: &[SettingFault]) -> String {
    let told: Vec<_> = faults.iter().map(ToString::to_string).collect();
    told.join("; ")
}
