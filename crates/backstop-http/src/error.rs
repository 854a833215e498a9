//! What can be wrong with a webhook's settings.

use backstop_core::setting::{self, SettingFault};

/// An error of this crate.
///
/// ```
/// use backstop_http::Webhook;
///
/// let error = Webhook::to("ftp://example.com").secret("hunter2").build().unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "the webhook cannot be built: url must begin with https:// or http://; \
///      secrets must be whsec_ followed by the base64 text of 24 to 64 bytes"
/// );
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Settings that cannot be used, all of them.
    #[error("the webhook cannot be built: {}", setting::list(.faults))]
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
