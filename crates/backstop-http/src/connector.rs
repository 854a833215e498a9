//! The resolving connector: resolve, filter, connect to exactly what the filter let through.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Uri;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tower_service::Service;

use crate::guard::Guard;
use crate::stream::Stream;
use crate::url;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error(
        "{host} is at {address}, which is not public; allow it with `allowed-networks` if that is intended"
    )]
    Blocked { host: String, address: IpAddr },
    #[error("cannot resolve {host}: {source}")]
    Resolve { host: String, source: io::Error },
    #[error("{host} has no address")]
    NoAddress { host: String },
    #[error("cannot connect to {host}: {source}")]
    Connect { host: String, source: io::Error },
    #[error("the TLS handshake with {host} failed: {source}")]
    Tls { host: String, source: io::Error },
    #[error("no connection to {host} within {limit:?}")]
    TimedOut { host: String, limit: Duration },
}

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Asks for the addresses of a name, once for each connection.
type Resolver = Arc<dyn Fn(String, u16) -> BoxFuture<io::Result<Vec<SocketAddr>>> + Send + Sync>;

/// Opens connections to targets.
#[derive(Clone)]
pub(crate) struct Connector {
    resolver: Resolver,
    guard: Arc<Guard>,
    /// Absent for a target without TLS.
    tls: Option<TlsConnector>,
    limit: Duration,
}

impl Connector {
    pub(crate) fn new(guard: Guard, tls: Option<TlsConnector>, limit: Duration) -> Self {
        let resolver: Resolver = Arc::new(|host, port| Box::pin(resolve(host, port)));
        Self { resolver, guard: Arc::new(guard), tls, limit }
    }

    async fn open(self, uri: Uri) -> Result<Stream, ConnectError> {
        let host = url::host(&uri).to_owned();
        let opening = async {
            let found = (self.resolver)(host.clone(), url::port(&uri)).await;
            let found = found.map_err(|source| ConnectError::Resolve { host: host.clone(), source })?;
            let allowed = self.guard.filter(&found).map_err(|blocked| match blocked {
                Some(address) => ConnectError::Blocked { host: host.clone(), address },
                None => ConnectError::NoAddress { host: host.clone() },
            })?;
            let stream = self.connect(&host, &allowed).await?;
            match &self.tls {
                Some(tls) => encrypt(tls, &host, stream).await,
                None => Ok(Stream::Plain(TokioIo::new(stream))),
            }
        };
        let opened = timeout(self.limit, opening).await;
        opened.unwrap_or_else(|_| Err(ConnectError::TimedOut { host: host.clone(), limit: self.limit }))
    }

    /// Tries one address after the other. Each gets its share of the time, so that one that swallows packets does not
    /// use up the time of the others.
    async fn connect(&self, host: &str, addresses: &[SocketAddr]) -> Result<TcpStream, ConnectError> {
        let share = self.limit / u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
        let mut last = io::Error::from(io::ErrorKind::TimedOut);
        for address in addresses {
            match timeout(share, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    // Only a delay is lost where it cannot be set.
                    let _ = stream.set_nodelay(true);
                    return Ok(stream);
                }
                Ok(Err(error)) => last = error,
                Err(_) => last = io::ErrorKind::TimedOut.into(),
            }
        }
        Err(ConnectError::Connect { host: host.to_owned(), source: last })
    }
}

async fn resolve(host: String, port: u16) -> io::Result<Vec<SocketAddr>> {
    Ok(tokio::net::lookup_host((host, port)).await?.collect())
}

async fn encrypt(tls: &TlsConnector, host: &str, stream: TcpStream) -> Result<Stream, ConnectError> {
    let failed = |source| ConnectError::Tls { host: host.to_owned(), source };
    let name = ServerName::try_from(host.to_owned());
    let name = name.map_err(|error| failed(io::Error::new(io::ErrorKind::InvalidInput, error)))?;
    let stream = tls.connect(name, stream).await.map_err(failed)?;
    Ok(Stream::Tls(Box::new(TokioIo::new(stream))))
}

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = ConnectError;
    type Future = BoxFuture<Result<Stream, ConnectError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(self.clone().open(uri))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::net::TcpListener;

    use super::*;

    fn uri() -> Uri {
        Uri::from_static("http://example.com/")
    }

    /// A listener that is asked afterwards whether anybody came.
    fn watched(address: &str) -> (std::net::TcpListener, SocketAddr) {
        let listener = std::net::TcpListener::bind((address, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    /// Whether somebody connected; on loopback that is known as soon as the other side knows it.
    fn was_reached(listener: &std::net::TcpListener) -> bool {
        listener.accept().is_ok()
    }

    /// A name with these addresses, of which those in one network are allowed.
    fn named(addresses: Vec<SocketAddr>, allowed: &str) -> Connector {
        let resolver: Resolver = Arc::new(move |_, _| {
            let answer = addresses.clone();
            Box::pin(async { Ok(answer) })
        });
        let guard = Guard::new(vec![allowed.parse().unwrap()]);
        Connector { resolver, ..Connector::new(guard, None, Duration::from_secs(5)) }
    }

    #[tokio::test]
    async fn a_blocked_address_sees_no_connection_even_beside_an_allowed_one() {
        let ((good, good_address), (bad, bad_address)) = (watched("127.0.0.1"), watched("127.0.0.2"));
        for addresses in [[bad_address, good_address], [good_address, bad_address]] {
            named(addresses.to_vec(), "127.0.0.1").call(uri()).await.map(drop).unwrap();
            assert!(was_reached(&good), "{addresses:?}");
            assert!(!was_reached(&bad), "{addresses:?}");
        }
        // A connection to it would have been seen.
        named(vec![bad_address], "127.0.0.2").call(uri()).await.map(drop).unwrap();
        assert!(was_reached(&bad));
    }

    #[tokio::test]
    async fn a_blocked_address_is_no_way_out_when_the_allowed_one_does_not_answer() {
        let ((gone, gone_address), (bad, bad_address)) = (watched("127.0.0.1"), watched("127.0.0.2"));
        drop(gone);
        for addresses in [[bad_address, gone_address], [gone_address, bad_address]] {
            let failed = named(addresses.to_vec(), "127.0.0.1").call(uri()).await.err().unwrap();
            assert!(matches!(failed, ConnectError::Connect { .. }), "{failed}");
        }
        let blocked = named(vec![bad_address], "127.0.0.1").call(uri()).await.err().unwrap();
        assert!(matches!(blocked, ConnectError::Blocked { .. }), "{blocked}");
        assert!(!was_reached(&bad));
    }

    /// An address that lets connections in until it has enough, and then swallows packets, as a firewall does.
    #[cfg(target_os = "linux")]
    async fn swallowing() -> (TcpListener, SocketAddr, Vec<TcpStream>) {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        let mut waiting = Vec::new();
        while let Ok(stream) = timeout(Duration::from_millis(200), TcpStream::connect(address)).await {
            waiting.push(stream.unwrap());
        }
        (listener, address, waiting)
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn an_address_that_swallows_packets_leaves_time_for_the_others() {
        let (_listener, silent, _waiting) = swallowing().await;
        let (good, good_address) = watched("127.0.0.1");
        let connector = named(vec![silent, good_address], "127.0.0.1");
        let mut connector = Connector { limit: Duration::from_millis(600), ..connector };
        connector.call(uri()).await.map(drop).unwrap();
        assert!(was_reached(&good));
    }

    /// A name whose meaning changes with every question.
    fn rebinding(answers: Vec<Vec<SocketAddr>>) -> (Connector, Arc<AtomicUsize>) {
        let asked = Arc::<AtomicUsize>::default();
        let counting = Arc::clone(&asked);
        let resolver: Resolver = Arc::new(move |_, _| {
            let answer = answers[counting.fetch_add(1, Ordering::SeqCst)].clone();
            Box::pin(async { Ok(answer) })
        });
        let guard = Guard::new(vec!["127.0.0.0/8".parse().unwrap()]);
        (Connector { resolver, ..Connector::new(guard, None, Duration::from_secs(5)) }, asked)
    }

    #[tokio::test]
    async fn a_name_is_resolved_once_for_a_connection_and_checked_anew_for_the_next() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (good, bad) = (listener.local_addr().unwrap(), "10.0.0.1:80".parse().unwrap());
        let (mut connector, asked) = rebinding(vec![vec![bad, good], vec![bad], vec![]]);
        assert!(matches!(connector.call(uri()).await, Ok(Stream::Plain(_))));
        assert_eq!(asked.load(Ordering::SeqCst), 1, "what was checked is what was connected to");
        let blocked = connector.call(uri()).await.err().unwrap();
        assert!(matches!(blocked, ConnectError::Blocked { address, .. } if address == bad.ip()), "{blocked}");
        assert!(matches!(connector.call(uri()).await, Err(ConnectError::NoAddress { .. })));
    }
}
