//! Why the dashboard could not be opened.

use std::net::SocketAddr;

/// Why the dashboard could not be opened. Each message is a sentence that says what to do.
///
/// ```
/// use backstop_admin::{Admin, AdminError};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let error = Admin::new().bind("0.0.0.0:7878".parse().unwrap()).await.unwrap_err();
/// assert!(matches!(error, AdminError::NotLoopback { .. }));
/// # });
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError {
    /// The address can be reached from other machines.
    #[error(
        "refused to listen on {address}: it can be reached from other machines and there are no access \
         tokens; add one, or use 127.0.0.1 or [::1]"
    )]
    NotLoopback {
        /// The address that was asked for.
        address: SocketAddr,
    },

    /// Another process listens there.
    #[error(
        "port {} on {} is in use; choose another, or 0 for a free one",
        .address.port(), .address.ip()
    )]
    PortInUse {
        /// The address that was asked for.
        address: SocketAddr,
    },

    /// The port is reserved for privileged processes.
    #[error(
        "port {} on {} needs more rights than this process has; choose one above 1023",
        .address.port(), .address.ip()
    )]
    PortNotPermitted {
        /// The address that was asked for.
        address: SocketAddr,
    },

    /// The system refused for another reason.
    #[error("could not listen on {address}")]
    Bind {
        /// The address that was asked for.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },

    /// There is a metrics recorder already, and a process can have only one.
    #[error(
        "this process already has a metrics recorder; install only one, before the first metric is counted"
    )]
    RecorderInstalled,
}
