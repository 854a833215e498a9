//! Settings that are declared once: [`config!`](crate::config!) makes the plain struct, its table of keys, how it is read
//! from a file, its setters, and its check, which holds code and file to the same rules.
//!
//! ```
//! use std::time::Duration;
//! use backstop_core::config::{Config as _, ValueKind};
//! use backstop_core::setting::{self, Faults};
//!
//! backstop_core::config! {
//!     /// How a warehouse is reached.
//!     #[derive(Debug, Clone, PartialEq)]
//!     pub struct Config {
//!         /// Where it is.
//!         host: String = String::new() => "host": one(ValueKind::Text), required("it says where orders go");
//!         /// How long an answer may take.
//!         timeout: Duration = Duration::from_secs(15) => "timeout-ms": one(ValueKind::MILLIS);
//!     }
//! }
//!
//! // From a settings file, where times have units; what is not given has its default.
//! let read: Config = serde_json::from_str(r#"{"host": "h", "timeout-ms": "2s"}"#)?;
//! assert_eq!(read, Config { host: "h".to_owned(), timeout: Duration::from_secs(2) });
//!
//! // From code, with the same rules.
//! let mut faults = Faults::default();
//! Config { timeout: Duration::ZERO, ..Config::default() }.check(&mut faults);
//! assert_eq!(
//!     setting::list(&faults.into_vec()),
//!     "host is required: it says where orders go; timeout-ms must be between 1 ms and 3650 days",
//! );
//! assert_eq!(Config::KEYS[1].meaning, "How long an answer may take.");
//! # Ok::<(), serde_json::Error>(())
//! ```

mod declare;
mod key;
mod kind;
mod secret;
mod value;

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize as _, Deserializer};
use serde_json::{Map, Value};

use crate::setting::Faults;

pub use key::{Absent, Group, Holds, Key, join};
pub use kind::{Parsed, Plain, ValueKind};
pub use secret::Secret;
pub use value::{Given, Setting};

/// What [`config!`](crate::config!) needs by name, wherever it is used.
#[doc(hidden)]
pub mod hidden {
    pub use {serde, serde_json};
}

/// The settings of one component: plain data that [`config!`](crate::config!) declares.
pub trait Config: Default + 'static {
    /// Every key, in the order of the reference.
    const KEYS: &'static [Key];

    /// The keys as a group of a settings file.
    const GROUP: Group = Group { keys: Self::KEYS, defaults: || Self::default().written() };

    /// Takes the values that are given, and leaves the others as they are.
    fn take(&mut self, given: &mut Map<String, Value>) -> Result<(), Unreadable>;

    /// All values as a settings file writes them. Secrets are among them.
    fn written(&self) -> Map<String, Value>;

    /// Records every rule that a value breaks, by its key.
    fn check(&self, faults: &mut Faults);
}

/// A value, or a key, that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable(String);

impl Unreadable {
    /// A rule that a key breaks.
    pub fn at(key: &str, rule: impl fmt::Display) -> Self {
        Self(format!("{key} {rule}"))
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unreadable {}

/// Reads settings from whatever serde reads, in the notation of a settings file. An unknown key is an error.
pub fn read<'de, C: Config, D: Deserializer<'de>>(deserializer: D) -> Result<C, D::Error> {
    let mut given = Map::deserialize(deserializer)?;
    let mut config = C::default();
    config.take(&mut given).and_then(|()| nothing_left(&given)).map_err(D::Error::custom)?;
    Ok(config)
}

/// Refuses keys that nobody has taken. They are not repeated, since they may be anything.
pub fn nothing_left(given: &Map<String, Value>) -> Result<(), Unreadable> {
    if given.is_empty() { Ok(()) } else { Err(Unreadable("there is an unknown key".to_owned())) }
}

#[cfg(test)]
mod tests;
