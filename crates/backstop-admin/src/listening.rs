//! The open dashboard: connections accepted, limited and closed.

use std::fmt;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use backstop_core::Shutdown;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How many clients are connected at the same time; the others wait to be accepted.
const CONNECTIONS: usize = 128;

/// How long a client may take to send a request's head, and how long it may idle between two.
const HEAD_PATIENCE: Duration = Duration::from_secs(10);

/// How much of a request's head is read.
const HEAD_LIMIT: usize = 16 * 1024;

/// How long a connection lives: a client that never reads its answer does not keep its place.
const LIFE: Duration = Duration::from_secs(60);

/// How long a request that is being answered may take to finish once its connection is to end.
const LINGER: Duration = Duration::from_secs(2);

/// The dashboard on its port, ready to [`serve`](Listening::serve).
///
/// ```
/// use backstop_admin::Admin;
/// use backstop_core::Shutdown;
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let dashboard = Admin::new().bind("127.0.0.1:0".parse().unwrap()).await?;
/// assert_ne!(dashboard.address().port(), 0); // the port that was found
///
/// let shutdown = Shutdown::new();
/// let serving = tokio::spawn(dashboard.serve(shutdown.child()));
/// shutdown.begin();
/// serving.await.unwrap();
/// # Ok::<(), backstop_admin::AdminError>(())
/// # }).unwrap();
/// ```
pub struct Listening {
    listener: TcpListener,
    address: SocketAddr,
    router: Router,
}

impl Listening {
    pub(crate) fn new(listener: TcpListener, address: SocketAddr, router: Router) -> Self {
        Self { listener, address, router }
    }

    /// Where the dashboard is: the port is the one it got if a free one was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The dashboard's address, for a browser.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Answers until the shutdown begins, then finishes the requests it holds. A client that hangs delays
    /// the end by two seconds at most.
    pub async fn serve(self, shutdown: Shutdown) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                () = shutdown.begun() => break,
                Some(_) = connections.join_next() => {}
                accepted = self.listener.accept(), if connections.len() < CONNECTIONS => match accepted {
                    Ok((stream, _)) => {
                        connections.spawn(converse(stream, self.router.clone(), shutdown.clone()));
                    }
                    Err(error) => sit_out(&error, &shutdown).await,
                },
            }
        }
        // A new client is refused at once rather than left waiting for an answer that never comes.
        drop(self.listener);
        while connections.join_next().await.is_some() {}
    }
}

impl fmt::Debug for Listening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listening").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Answers one client until it leaves, its time is over, or the shutdown begins.
async fn converse(stream: TcpStream, router: Router, shutdown: Shutdown) {
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_PATIENCE)
            .max_buf_size(HEAD_LIMIT)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
    );
    // How a client leaves is its own affair: no outcome of a connection is a fault of ours.
    let left = timeout(LIFE, shutdown.interrupts(connection.as_mut())).await;
    if !matches!(left, Ok(Some(_))) {
        connection.as_mut().graceful_shutdown();
        let _ = timeout(LINGER, connection).await;
    }
}

/// Waits out what keeps connections from being accepted, such as too many open files.
async fn sit_out(error: &std::io::Error, shutdown: &Shutdown) {
    if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset) {
        return;
    }
    tracing::warn!(%error, "the admin server cannot accept connections; trying again in 1 s");
    shutdown.interrupts(tokio::time::sleep(Duration::from_secs(1))).await;
}
