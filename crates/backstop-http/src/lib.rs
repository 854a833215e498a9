//! Events as webhooks: an HTTP relay that is a [`Handler`](backstop_core::Handler), so an outbox can be pointed at a URL.
//!
//! ```no_run
//! use std::time::Duration;
//! use backstop_http::Webhook;
//!
//! # fn main() -> Result<(), backstop_http::Error> {
//! let webhook = Webhook::to("https://example.com/hooks")
//!     .secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
//!     .timeout(Duration::from_secs(10))
//!     .build()?;
//! // Outbox::multi_node(pool).on("Order", "OrderPlaced", webhook).start().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Each event is one `POST` in a format of CloudEvents 1.0, signed as
//! [Standard Webhooks](https://www.standardwebhooks.com) describes. The target's answer decides what happens to the
//! event:
//!
//! | answer | what happens to the event |
//! |---|---|
//! | 2xx | done |
//! | none in time, no connection, 429, 503 | its route is held; no attempt is counted unless others succeed, so an outage buries nothing |
//! | 408, 425, other 5xx, an answer that is not HTTP | tried again by the outbox's retry; the attempt is counted |
//! | 410 | the target is [disabled](Target::is_disabled); its routes are held |
//! | 3xx | dead: redirects are not followed |
//! | other 4xx | dead |
//!
//! A target that fails again and again is no longer called for a while, by its [breaker](backstop_core::breaker), and `Retry-After` is
//! honoured. Addresses that are not public are refused when the connection is made, after the name is resolved,
//! unless [`allow_network`](WebhookBuilder::allow_network) names them.

mod batch;
mod builder;
mod client;
mod config;
mod connections;
mod connector;
mod encoding;
mod error;
mod guard;
mod network;
mod retry_after;
mod signature;
mod stream;
mod tls;
mod url;
mod verdict;
mod webhook;

pub use backstop_core::setting::SettingFault;
pub use backstop_core::target::{Status, Target};
pub use builder::WebhookBuilder;
pub use config::{Config, Format};
pub use connections::Connections;
pub use error::Error;
pub use webhook::Webhook;
