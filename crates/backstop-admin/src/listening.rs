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
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::client::{Clients, Serving};

/// How many clients are connected at the same time. For one more, the one that idles the longest has to go: those who only
/// hold connections must not keep `/health` from anybody.
const CONNECTIONS: usize = 128;

/// How long a client may take to agree on TLS and to send a request's head, and how long it may idle between two.
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
    tls: Option<TlsAcceptor>,
    router: Router,
}

impl Listening {
    pub(crate) fn new(
        listener: TcpListener,
        address: SocketAddr,
        tls: Option<TlsAcceptor>,
        router: Router,
    ) -> Self {
        Self { listener, address, tls, router }
    }

    /// Where the dashboard is: the port is the one it got if a free one was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The dashboard's address, for a browser.
    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Answers until the shutdown begins, then finishes the requests it holds. A client that hangs delays
    /// the end by two seconds at most.
    pub async fn serve(self, shutdown: Shutdown) {
        let (mut connections, mut clients) = (JoinSet::new(), Clients::default());
        loop {
            tokio::select! {
                biased;
                () = shutdown.begun() => break,
                Some(_) = connections.join_next() => {}
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, peer)) => {
                        if connections.len() >= CONNECTIONS {
                            clients.make_room();
                            let _ = shutdown.interrupts(connections.join_next()).await;
                        }
                        let serving = Serving {
                            client: clients.add(peer),
                            inner: TowerToHyperService::new(self.router.clone()),
                        };
                        connections.spawn(welcome(stream, self.tls.clone(), serving, shutdown.clone()));
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

type Answers = Serving<TowerToHyperService<Router>>;

/// Agrees with a client on how to speak, and answers it.
async fn welcome(stream: TcpStream, tls: Option<TlsAcceptor>, serving: Answers, shutdown: Shutdown) {
    let client = serving.client.clone();
    let Some(tls) = tls else { return converse(stream, serving, shutdown).await };
    tokio::select! {
        biased;
        () = shutdown.begun() => {}
        () = client.leaves.notified() => {}
        // How a handshake fails is the client's affair, too.
        agreed = timeout(HEAD_PATIENCE, tls.accept(stream)) => if let Ok(Ok(stream)) = agreed {
            converse(stream, serving, shutdown.clone()).await;
        },
    }
}

/// Answers one client until it leaves, has to go, its time is over, or the shutdown begins.
async fn converse<S>(stream: S, serving: Answers, shutdown: Shutdown)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let client = serving.client.clone();
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_PATIENCE)
            .max_buf_size(HEAD_LIMIT)
            .serve_connection(TokioIo::new(stream), serving)
    );
    // How a client leaves is its own affair: no outcome of a connection is a fault of ours.
    let left = tokio::select! {
        left = timeout(LIFE, shutdown.interrupts(connection.as_mut())) => matches!(left, Ok(Some(_))),
        // One that has sent a request meanwhile is answered.
        () = client.leaves.notified() => client.idle_since().is_some(),
    };
    if !left {
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
