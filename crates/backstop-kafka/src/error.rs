//! What can be wrong with a publisher's settings.

use backstop_core::setting::{self, SettingFault};

/// An error of this crate.
///
/// ```
/// use backstop_kafka::Publisher;
///
/// let error = Publisher::to("", "no spaces please").build().unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "the publisher cannot be built: bootstrap-servers must name at least one broker, as host:port; \
///      topic must have 1 to 249 letters, digits, dots, hyphens and underscores, not `no spaces please`"
/// );
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Settings that cannot be used, all of them.
    #[error("the publisher cannot be built: {}", setting::list(.faults))]
    Settings {
        /// Every fault, in the order of the settings.
        faults: Vec<SettingFault>,
    },
}

impl From<Vec<SettingFault>> for Error {
    fn from(faults: Vec<SettingFault>) -> Self {
        Self::Settings { faults }
    }
}
