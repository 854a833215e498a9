//! A network that misbehaves on demand: a TCP proxy in front of a server.

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use crate::{lock, url};

/// A TCP proxy on a free loopback port that can be slow, silent, cut and closed.
///
/// It begins by passing everything on. [`black_hole`](Self::black_hole), [`hold_answers`](Self::hold_answers)
/// and [`refuse`](Self::refuse) each replace the others, [`delay`](Self::delay) goes with all of them, and
/// [`restore`](Self::restore) ends all four.
/// It runs on the runtime it was made on, and ends, with all its connections, when it is dropped.
///
/// ```
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
/// use tokio::net::{TcpListener, TcpStream};
/// use backstop_testkit::proxy::Proxy;
///
/// # backstop_testkit::suite::block_on(async {
/// let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
/// let proxy = Proxy::to(server.local_addr().unwrap().to_string()).await;
///
/// let mut client = TcpStream::connect(proxy.address()).await.unwrap();
/// let (mut accepted, _) = server.accept().await.unwrap();
/// accepted.write_all(b"hello").await.unwrap();
/// let mut word = [0; 5];
/// client.read_exact(&mut word).await.unwrap();
/// assert_eq!(&word, b"hello");
///
/// proxy.cut();
/// assert!(client.read(&mut word).await.is_err());
/// # });
/// ```
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    network: Arc<Network>,
    accepting: AbortHandle,
}

/// What the test has asked for, shared with every connection.
#[derive(Debug, Default)]
struct Network {
    weather: watch::Sender<Weather>,
    connections: watch::Sender<usize>,
    /// Cancelled to end all present connections, and replaced for those to come.
    cut: Mutex<CancellationToken>,
    /// Cancelled to strand all present connections, and replaced for those to come.
    strand: Mutex<CancellationToken>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Weather {
    mode: Mode,
    delay: Duration,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
enum Mode {
    #[default]
    Pass,
    BlackHole,
    HoldAnswers,
    Refuse,
}

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    There,
    Back,
}

impl Mode {
    fn holds(self, way: Way) -> bool {
        match self {
            Self::Pass | Self::Refuse => false,
            Self::BlackHole => true,
            Self::HoldAnswers => way == Way::Back,
        }
    }
}

impl Proxy {
    /// Starts a proxy in front of `host:port`. Nobody needs to listen there yet.
    ///
    /// # Panics
    ///
    /// If the machine has no free port.
    pub async fn to(target: impl Into<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free loopback port for the proxy");
        let address = listener.local_addr().expect("a bound socket has an address");
        let network = Arc::<Network>::default();
        let accepting = tokio::spawn(accept(listener, target.into(), Arc::clone(&network))).abort_handle();
        Self { address, network, accepting }
    }

    /// Starts a proxy in front of the server that a URL names, which must name a port too.
    /// [`through`](Self::through) then leads any such URL through the proxy.
    ///
    /// # Panics
    ///
    /// If the machine has no free port.
    pub async fn in_front_of(url: &str) -> Self {
        Self::to(url::address(url, 0)).await
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The same URL with the proxy's host and port, or the proxy's address in place of a plain
    /// `host:port`.
    ///
    /// ```
    /// # backstop_testkit::suite::block_on(async {
    /// let url = "postgres://shop:secret@127.0.0.1:5432/orders?sslmode=disable";
    /// let proxy = backstop_testkit::proxy::Proxy::in_front_of(url).await;
    /// let expected = format!("postgres://shop:secret@{}/orders?sslmode=disable", proxy.address());
    /// assert_eq!(proxy.through(url), expected);
    /// # });
    /// ```
    pub fn through(&self, url: &str) -> String {
        url::with_address(url, self.address)
    }

    /// From now on whatever is sent takes this much longer, in each direction.
    pub fn delay(&self, delay: Duration) {
        self.network.weather.send_modify(|weather| weather.delay = delay);
    }

    /// Ends all present connections at once with a reset, towards both sides. New ones are served.
    pub fn cut(&self) {
        mem::take(&mut *lock(&self.network.cut)).cancel();
    }

    /// Nothing gets through present connections any more, in either direction, and neither side notices, as when a
    /// firewall forgets them. New ones are served, and [`restore`](Self::restore) changes nothing; only
    /// [`cut`](Self::cut) ends them.
    pub fn strand(&self) {
        mem::take(&mut *lock(&self.network.strand)).cancel();
    }

    /// From now on nothing gets through in either direction, not even the end of a connection. Present
    /// connections stay open; new ones are accepted, and silent.
    ///
    /// What is sent meanwhile waits, as it would in the senders' machines, and arrives after
    /// [`restore`](Self::restore). If it should never arrive, call [`cut`](Self::cut) first.
    pub fn black_hole(&self) {
        self.network.weather.send_modify(|weather| weather.mode = Mode::BlackHole);
    }

    /// From now on everything reaches the server and none of its answers come back: the server does what it is asked
    /// to do, and the answer does not arrive. It waits as in a [`black_hole`](Self::black_hole); [`cut`](Self::cut)
    /// then loses it for good.
    pub fn hold_answers(&self) {
        self.network.weather.send_modify(|weather| weather.mode = Mode::HoldAnswers);
    }

    /// From now on new connections are closed at once. Present ones go on.
    pub fn refuse(&self) {
        self.network.weather.send_modify(|weather| weather.mode = Mode::Refuse);
    }

    /// From now on everything passes again, at once.
    pub fn restore(&self) {
        self.network.weather.send_replace(Weather::default());
    }

    /// How many connections are open. One that was just cut may still be counted for a moment.
    pub fn connections(&self) -> usize {
        *self.network.connections.borrow()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

async fn accept(listener: TcpListener, target: String, network: Arc<Network>) {
    loop {
        let Ok((client, _)) = listener.accept().await else {
            // Out of file descriptors, or the like: asking again at once would only spin.
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        if network.weather.borrow().mode == Mode::Refuse {
            reset(client);
            continue;
        }
        // Joined before the task starts: a cut that follows must not miss it.
        let (cut, strand) = (lock(&network.cut).clone(), lock(&network.strand).clone());
        let open = Open::count(Arc::clone(&network));
        tokio::spawn(serve(client, target.clone(), cut, strand, open));
    }
}

async fn serve(
    mut client: TcpStream,
    target: String,
    cut: CancellationToken,
    strand: CancellationToken,
    open: Open,
) {
    let weather = open.0.weather.subscribe();
    let connected = cut.run_until_cancelled(connect(&target, weather.clone())).await;
    let Some(Ok(mut server)) = connected else { return reset(client) };
    let ended = tokio::select! {
        // The cut comes first: what was held back must not slip through when the network is restored after it.
        biased;
        () = cut.cancelled() => false,
        () = strand.cancelled() => {
            cut.cancelled().await;
            false
        }
        ended = link(&mut client, &mut server, weather) => ended.is_ok(),
    };
    if !ended {
        reset(client);
        reset(server);
    }
}

async fn connect(target: &str, mut weather: watch::Receiver<Weather>) -> io::Result<TcpStream> {
    pass(&mut weather, Way::There).await;
    let server = TcpStream::connect(target).await?;
    server.set_nodelay(true)?;
    Ok(server)
}

async fn link(
    client: &mut TcpStream,
    server: &mut TcpStream,
    weather: watch::Receiver<Weather>,
) -> io::Result<()> {
    client.set_nodelay(true)?;
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let there = carry(Way::There, from_client, to_server, weather.clone());
    let back = carry(Way::Back, from_server, to_client, weather);
    tokio::try_join!(there, back).map(drop)
}

/// Carries one direction to its end, and passes the end on too.
async fn carry(
    way: Way,
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut weather: watch::Receiver<Weather>,
) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let count = from.read(&mut buffer).await?;
        let delay = weather.borrow().delay;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        pass(&mut weather, way).await;
        if count == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..count]).await?;
    }
}

/// Waits while the network holds back what goes that way.
async fn pass(weather: &mut watch::Receiver<Weather>, way: Way) {
    // An error means that the proxy is gone, and then the cut ends the connection.
    let _ = weather.wait_for(|weather| !weather.mode.holds(way)).await;
}

/// Closes a connection so that its other side notices at once, whatever it is doing.
fn reset(connection: TcpStream) {
    // If it fails the connection is closed in the ordinary way, which the other side notices as well.
    let _ = connection.set_zero_linger();
    drop(connection);
}

/// Counts a connection for as long as it is open.
struct Open(Arc<Network>);

impl Open {
    fn count(network: Arc<Network>) -> Self {
        network.connections.send_modify(|count| *count += 1);
        Self(network)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.connections.send_modify(|count| *count -= 1);
    }
}
