//! Who is connected: whether a client is being answered, and if not, since when it idles.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::Request;
use backstop_core::clock::Tick;
use backstop_core::{Clock, SystemClock};
use hyper::service::Service;
use tokio::sync::Notify;

/// Where a request comes from, beside it in its extensions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) SocketAddr);

/// All who are connected.
#[derive(Debug, Default)]
pub(crate) struct Clients(Vec<Arc<Client>>);

/// One of them.
#[derive(Debug)]
pub(crate) struct Client {
    peer: SocketAddr,
    state: Mutex<State>,
    /// Told to go, to make room for another.
    pub(crate) leaves: Notify,
}

#[derive(Debug)]
struct State {
    answering: usize,
    idle_since: Tick,
}

impl Clients {
    pub(crate) fn add(&mut self, peer: SocketAddr) -> Arc<Client> {
        let state = Mutex::new(State { answering: 0, idle_since: SystemClock.ticks() });
        let client = Arc::new(Client { peer, state, leaves: Notify::new() });
        // Those that have left are held by nobody else.
        self.0.retain(|client| Arc::strong_count(client) > 1);
        self.0.push(client.clone());
        client
    }

    /// Lets the one go that has idled the longest; nobody if all are being answered.
    pub(crate) fn make_room(&mut self) {
        let idle =
            self.0.iter().enumerate().filter_map(|(place, client)| Some((client.idle_since()?, place)));
        if let Some((_, place)) = idle.min() {
            self.0.swap_remove(place).leaves.notify_one();
        }
    }
}

impl Client {
    /// Since when it is not being answered; none while it is. One that never ends its request idles.
    pub(crate) fn idle_since(&self) -> Option<Tick> {
        let state = self.lock();
        (state.answering == 0).then_some(state.idle_since)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that is being answered, to its end.
struct Answering(Arc<Client>);

impl Answering {
    fn begin(client: Arc<Client>) -> Self {
        client.lock().answering += 1;
        Self(client)
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.answering -= 1;
        state.idle_since = SystemClock.ticks();
    }
}

/// Answers the requests of a client.
#[derive(Debug, Clone)]
pub(crate) struct Serving<S> {
    pub(crate) client: Arc<Client>,
    pub(crate) inner: S,
}

impl<S, B> Service<Request<B>> for Serving<S>
where
    S: Service<Request<B>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn call(&self, mut request: Request<B>) -> Self::Future {
        let answering = Answering::begin(self.client.clone());
        request.extensions_mut().insert(Peer(self.client.peer));
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            drop(answering);
            answer
        })
    }
}
