//! The dashboard: one page that says where events are, and the API, health and metrics behind it.
//!
//! It looks at components through [`Inspect`](backstop_core::inspect::Inspect) and knows none of them, so anything
//! that implements that trait can appear on the page. It listens on loopback, and elsewhere only for holders of a
//! [`Token`].
//!
//! | path | what it answers |
//! |---|---|
//! | `/` | the dashboard |
//! | `/api/v1/components` | a [`Report`](backstop_core::inspect::Report) of each component, as JSON |
//! | `/api/v1/operations` | to a `POST` with a token of role operator: does an [`Operation`](backstop_core::operate::Operation), and tells what has changed |
//! | `/health` | 200 while every component works, 503 when one is down; who has no token learns no more than that |
//! | `/live` | 200 as long as the process answers at all: what is to be restarted does not |
//! | `/ready` | 200 when it has started, does not end yet, and no component is down; 503 otherwise |
//! | `/metrics` | Prometheus text |
//!
//! ```
//! use std::pin::Pin;
//! use std::sync::Arc;
//! use backstop_admin::Admin;
//! use backstop_core::Shutdown;
//! use backstop_core::inspect::{Health, Inspect, Report};
//!
//! struct Orders;
//!
//! impl Inspect for Orders {
//!     fn report(&self) -> Pin<Box<dyn Future<Output = Report> + Send + '_>> {
//!         Box::pin(async { Report::of("outbox", "orders", Health::Up) })
//!     }
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let shutdown = Shutdown::new();
//! let dashboard = Admin::new().watch(Arc::new(Orders)).bind("127.0.0.1:0".parse().unwrap()).await?;
//! println!("the dashboard is at {}", dashboard.url());
//! # shutdown.begin();
//! dashboard.serve(shutdown).await; // until the shutdown begins
//! # Ok::<(), backstop_admin::AdminError>(())
//! # }).unwrap();
//! ```

mod access;
mod admin;
mod answer;
mod client;
mod config;
mod error;
mod guard;
mod health;
mod listening;
pub mod metrics;
mod operations;
mod page;
mod readiness;
mod routes;
mod tls;
mod watched;

pub use access::{Role, Token};
pub use admin::Admin;
pub use config::{Config, TokenConfig};
pub use error::AdminError;
pub use listening::Listening;
pub use readiness::Readiness;
pub use tls::Tls;
