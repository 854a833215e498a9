//! From a backlog on PostgreSQL to a web server, and the same requests by a client alone.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use backstop_core::event::cloudevents;
use backstop_core::{Event, Handler, Outcome};
use backstop_http::{Webhook, WebhookBuilder};
use backstop_sql::Outbox;
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use sqlx::PgPool;
use tokio::net::TcpListener;

use super::ours::relayed;
use crate::contender::Drained;
use crate::processor::WEB_SERVER;

/// How many requests are under way at once.
pub(super) const IN_FLIGHT: usize = 64;

/// How long a server takes to answer.
#[derive(Clone, Copy)]
pub(super) enum Server {
    /// Nothing: all that is measured is the work of both sides.
    AtOnce,
    /// [`WORK`], as one that writes to its own database.
    AtWork,
}

const WORK: Duration = Duration::from_millis(5);

impl Server {
    /// Its address, on a thread of its own: it reads each request and says 204.
    fn address(self) -> Result<SocketAddr> {
        static ADDRESSES: [OnceLock<Option<SocketAddr>>; 2] = [const { OnceLock::new() }; 2];
        ADDRESSES[self as usize].get_or_init(|| self.start()).context("no web server could be started")
    }

    fn start(self) -> Option<SocketAddr> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").ok()?;
        listener.set_nonblocking(true).ok()?;
        let address = listener.local_addr().ok()?;
        self.start_on(listener).ok()?;
        Some(address)
    }

    /// Serves, on a thread of its own, whoever comes to a listener that does not block.
    pub(super) fn start_on(self, listener: std::net::TcpListener) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::Builder::new().name(WEB_SERVER.to_owned());
        thread.spawn(move || runtime.block_on(self.serve(listener)))?;
        Ok(())
    }

    async fn serve(self, listener: std::net::TcpListener) -> Result<()> {
        let listener = TcpListener::from_std(listener)?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let taken = service_fn(move |request| self.taken(request));
            let connection = hyper::server::conn::http1::Builder::new();
            tokio::spawn(connection.serve_connection(TokioIo::new(stream), taken));
        }
    }

    async fn taken(self, mut request: Request<Incoming>) -> Result<Response<Empty<Bytes>>, Infallible> {
        while let Some(Ok(_)) = request.frame().await {}
        if let Self::AtWork = self {
            tokio::time::sleep(WORK).await;
        }
        let mut response = Response::new(Empty::new());
        *response.status_mut() = StatusCode::NO_CONTENT;
        Ok(response)
    }
}

fn order() -> Result<Event> {
    let payload = serde_json::json!({"order": 12345, "text": "x".repeat(170)});
    Ok(Event::of("OrderPlaced").aggregate("Order", "12345").json(&payload)?)
}

/// A signed webhook to a server here.
pub(super) fn webhook(server: SocketAddr) -> WebhookBuilder {
    let webhook = Webhook::to(format!("http://{server}/hooks")).allow_network("127.0.0.0/8");
    webhook.secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").idle_connections(IN_FLIGHT)
}

/// The client by itself: the same body again and again.
pub(super) async fn raw_client(events: u32, server: Server) -> Result<Drained> {
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let body = Bytes::from(cloudevents::to_json(&order()?, "/outbox/outbox")?);
    let url: hyper::Uri = format!("http://{}/hooks", server.address()?).parse()?;
    side_by_side(events, move || {
        let (client, body, url) = (client.clone(), body.clone(), url.clone());
        async move {
            let request =
                Request::post(url).header("content-type", cloudevents::CONTENT_TYPE).body(Full::new(body))?;
            let mut response = client.request(request).await?;
            while response.frame().await.transpose()?.is_some() {}
            ensure!(response.status().is_success());
            Ok(())
        }
    })
    .await
}

/// The webhook by itself, without an outbox.
pub(super) async fn handler(events: u32) -> Result<Drained> {
    let (webhook, event) = (webhook(Server::AtOnce.address()?).build()?, order()?);
    side_by_side(events, move || {
        let (webhook, event) = (webhook.clone(), event.clone());
        async move {
            let outcome = webhook.handle(event).await.map_err(|failure| anyhow::anyhow!("{failure}"))?;
            ensure!(outcome == Outcome::Done, "{outcome:?}");
            Ok(())
        }
    })
    .await
}

/// The outbox, with a webhook for a handler that sends an event in each request.
pub(super) async fn single_node(pool: PgPool, events: u32, server: Server) -> Result<Drained> {
    relay(pool, events, webhook(server.address()?).build()?).await
}

/// The same with as many events in a request as are under way.
pub(super) async fn single_node_batched(pool: PgPool, events: u32) -> Result<Drained> {
    let webhook = webhook(Server::AtOnce.address()?);
    let webhook = webhook.batched(IN_FLIGHT, Duration::from_millis(1)).build()?;
    relay(pool, events, webhook).await
}

async fn relay(pool: PgPool, events: u32, webhook: Webhook) -> Result<Drained> {
    let start = Instant::now();
    let outbox = Outbox::single_node(pool)
        .batch_size(500)
        .worker_count(IN_FLIGHT)
        .on("Order", "OrderPlaced", webhook)
        .start()
        .await?;
    relayed(outbox, start, events).await
}

async fn side_by_side<F>(events: u32, call: impl Fn() -> F + Send + Sync + 'static) -> Result<Drained>
where
    F: Future<Output = Result<()>> + Send,
{
    let (call, left) = (Arc::new(call), Arc::new(AtomicU32::new(events)));
    let start = Instant::now();
    let tasks: Vec<_> = (0..IN_FLIGHT)
        .map(|_| {
            let (call, left) = (Arc::clone(&call), Arc::clone(&left));
            tokio::spawn(async move {
                let take = |left: u32| left.checked_sub(1);
                while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
                    call().await?;
                }
                anyhow::Ok(())
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    Ok(Drained { events, took: start.elapsed() })
}
