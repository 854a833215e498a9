//! What can be wrong with a webhook's settings.

/// An error of this crate.
///
/// ```
/// use backstop_http::Webhook;
///
/// let error = Webhook::to("ftp://example.com").secret("hunter2").build().unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "the webhook cannot be built: url must begin with https:// or http://; \
///      secret must be whsec_ followed by the base64 text of 24 to 64 bytes"
/// );
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Settings that cannot be used, all of them.
    #[error("the webhook cannot be built: {}", list(.faults))]
    Settings {
        /// Every fault, in the order of the settings.
        faults: Vec<SettingFault>,
    },
}

/// One setting that cannot be used, and the rule it breaks. It never quotes a secret.
///
/// ```
/// use backstop_http::{Error, Webhook};
///
/// let Err(Error::Settings { faults, .. }) = Webhook::to("https://example.com").batched(0, Default::default()).build()
/// else { unreachable!("a batch holds events") };
/// assert_eq!((faults[0].setting, faults[0].rule.as_str()), ("batched", "must allow at least 1 event"));
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingFault {
    /// The setting, by the name of its method.
    pub setting: &'static str,
    /// The rule, worded to follow the setting: "must not be empty".
    pub rule: String,
}

fn list(faults: &[SettingFault]) -> String {
    let faults: Vec<_> =
        faults.iter().map(|SettingFault { setting, rule }| format!("{setting} {rule}")).collect();
    faults.join("; ")
}

/// The faults found so far.
#[derive(Default)]
pub(crate) struct Faults(Vec<SettingFault>);

impl Faults {
    pub(crate) fn add(&mut self, setting: &'static str, rule: impl Into<String>) {
        self.0.push(SettingFault { setting, rule: rule.into() });
    }

    /// Keeps the value, or notes the rule it breaks.
    pub(crate) fn keep<T>(&mut self, setting: &'static str, value: Result<T, String>) -> Option<T> {
        value.map_err(|rule| self.add(setting, rule)).ok()
    }

    pub(crate) fn into_result(self) -> Result<(), Error> {
        if self.0.is_empty() { Ok(()) } else { Err(self.into_error()) }
    }

    pub(crate) fn into_error(self) -> Error {
        Error::Settings { faults: self.0 }
    }
}
