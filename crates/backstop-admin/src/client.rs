//! Who is connected: whether a client is being answered, and if not, since when it idles.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::Request;
use backstop_core::clock::Tick;
use backstop_core::{Clock, SystemClock};
use hyper::service::Service;
use tokio::sync::Notify;

/// All who are connected.
#[derive(Debug, Default)]
pub(crate) struct Clients(Vec<Arc<Client>>);

/// One of them, beside each of its requests in their extensions.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) peer: SocketAddr,
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
    /// Since when it is not being answered; none while it is. One that has not
    /// sent the whole of its request idles.
    pub(crate) fn idle_since(&self) -> Option<Tick> {
        let state = self.lock();
        (state.answering == 0).then_some(state.idle_since)
    }

    /// From now on it is being answered, until what is returned goes.
    pub(crate) fn answering(self: &Arc<Self>) -> Answering {
        self.lock().answering += 1;
        Answering(self.clone())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that is being answered, to its end.
#[derive(Debug)]
pub(crate) struct Answering(Arc<Client>);

impl Drop for Answering {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.answering -= 1;
        state.idle_since = SystemClock.ticks();
    }
}

/// Answers the requests of a client, each of which says whose it is.
#[derive(Debug, Clone)]
pub(crate) struct Serving<S> {
    pub(crate) client: Arc<Client>,
    pub(crate) inner: S,
}

impl<S: Service<Request<B>>, B> Service<Request<B>> for Serving<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn call(&self, mut request: Request<B>) -> Self::Future {
        request.extensions_mut().insert(self.client.clone());
        self.inner.call(request)
    }
}
