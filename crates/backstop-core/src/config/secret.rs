//! Texts that are never shown.

use std::fmt;

use serde::Deserialize;

/// A text that no message and no `Debug` shows.
///
/// ```
/// use backstop_core::config::Secret;
///
/// let secret = Secret::from("hunter2");
/// assert_eq!(format!("{secret:?}"), "Secret");
/// assert_eq!(secret.reveal(), "hunter2");
/// ```
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// The text, for the code that needs it to connect.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}
