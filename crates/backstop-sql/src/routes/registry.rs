//! Which handler an event goes to.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use backstop_core::event::{AggregateType, EventType, GLOBAL};
use backstop_core::handler::SharedHandler;
use backstop_core::inspect::Paused;
use backstop_core::target::Target;
use backstop_core::{Clock, Delivery, Event, Failure, Handler, IntoHandler, Outcome, SystemClock, Timestamp};

use crate::Error;

/// Handlers by aggregate type and event type: exactly one for each pair, and no fallback from one pair to
/// another. One more may be [for the rest](Self::otherwise). Clones share the same handlers.
///
/// ```
/// use backstop_core::Event;
/// use backstop_sql::outbox::Registry;
///
/// let registry = Registry::new();
/// registry.register("Order", "OrderPlaced", |_: Event| async {})?;
/// registry.register_global("Tick", |_: Event| async {})?; // for events without an aggregate type
///
/// assert!(registry.handler_for("Order", "OrderPlaced").is_some());
/// assert!(registry.handler_for("Order", "Tick").is_none());
/// assert!(registry.register("Order", "OrderPlaced", |_: Event| async {}).is_err());
/// # Ok::<(), backstop_sql::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Registry {
    routes: Arc<RwLock<Routes>>,
    /// Whether the aggregate type of an event does not matter.
    by_type: bool,
}

#[derive(Default)]
struct Routes {
    of: HashMap<String, HashMap<String, Route>>,
    /// For all events that have no other handler.
    rest: Option<Route>,
}

/// A handler, and the name of its route.
#[derive(Clone)]
pub(crate) struct Route {
    pub(crate) name: Arc<str>,
    pub(crate) handler: SharedHandler,
    deferrals: Arc<Mutex<Deferrals>>,
    /// How many events its handler has taken.
    successes: Arc<AtomicU64>,
}

/// What a handler has deferred since it answered anything else. One event that it defers, however often, says nothing about the
/// others.
#[derive(Debug, Default)]
struct Deferrals {
    first: Option<(String, Timestamp)>,
    /// Since when it has deferred every event, if there were several.
    since: Option<Timestamp>,
}

impl Deferrals {
    fn add(&mut self, id: &str, now: Timestamp) {
        let (first, since) = self.first.get_or_insert_with(|| (id.to_owned(), now));
        if *first != id {
            self.since = Some(*since);
        }
    }
}

impl Route {
    fn new(name: impl Into<Arc<str>>, handler: SharedHandler) -> Self {
        Self { name: name.into(), handler, deferrals: Arc::default(), successes: Arc::default() }
    }

    /// Notes what its handler said of an event.
    pub(crate) fn answered(&self, id: &str, answer: &Result<Outcome, Failure>) {
        let mut deferrals = self.deferrals.lock().unwrap_or_else(PoisonError::into_inner);
        match answer {
            Ok(Outcome::RetryAfter(_)) => deferrals.add(id, SystemClock.now()),
            _ => *deferrals = Deferrals::default(),
        }
        drop(deferrals);
        if matches!(answer, Ok(Outcome::Done)) {
            self.successes.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// How many events its handler has taken.
    pub(crate) fn successes(&self) -> u64 {
        self.successes.load(Ordering::Acquire)
    }

    /// Why its events are not handled now, if they are not.
    pub(crate) fn paused(&self) -> Option<Paused> {
        if let Some(target) = self.handler.target() {
            return target.paused();
        }
        let since = self.deferrals.lock().unwrap_or_else(PoisonError::into_inner).since?;
        Some(Paused::since(since, "deferred", "its handler asks to come back later"))
    }
}

impl Registry {
    /// A registry without handlers.
    pub fn new() -> Self {
        Self::default()
    }

    /// A registry in which the event type alone decides. Handlers are registered as [global](Self::register_global).
    pub(crate) fn by_type() -> Self {
        Self { by_type: true, ..Self::default() }
    }

    /// Registers the handler of a pair. A second one for the same pair is an error.
    pub fn register<By>(
        &self,
        aggregate_type: impl AggregateType,
        event_type: impl EventType,
        handler: impl IntoHandler<By>,
    ) -> Result<(), Error> {
        let (aggregate_type, event_type) = (aggregate_type.name(), event_type.name());
        let mut routes = self.routes.write().unwrap_or_else(PoisonError::into_inner);
        let of_aggregate = routes.of.entry(aggregate_type.to_owned()).or_default();
        if of_aggregate.contains_key(event_type) {
            return Err(Error::Duplicate {
                aggregate_type: aggregate_type.to_owned(),
                event_type: event_type.to_owned(),
            });
        }
        let name = if aggregate_type == GLOBAL { String::new() } else { format!("{aggregate_type}/") };
        let route = Route::new(format!("{name}{event_type}"), handler.into_handler());
        of_aggregate.insert(event_type.to_owned(), route);
        Ok(())
    }

    /// Registers the handler of events that name no aggregate type.
    pub fn register_global<By>(
        &self,
        event_type: impl EventType,
        handler: impl IntoHandler<By>,
    ) -> Result<(), Error> {
        self.register(GLOBAL, event_type, handler)
    }

    /// Registers the handler of all events that have no other handler; without it they are dead at once. A second one is
    /// an error.
    pub fn otherwise<By>(&self, handler: impl IntoHandler<By>) -> Result<(), Error> {
        let mut routes = self.routes.write().unwrap_or_else(PoisonError::into_inner);
        if routes.rest.is_some() {
            return Err(Error::Duplicate { aggregate_type: "*".to_owned(), event_type: "*".to_owned() });
        }
        routes.rest = Some(Route::new("*", handler.into_handler()));
        Ok(())
    }

    /// Registers a handler that knows its own pair.
    pub fn register_bound(&self, handler: BoundHandler) -> Result<(), Error> {
        let (aggregate_type, event_type) = (handler.aggregate_type.clone(), handler.event_type.clone());
        self.register(aggregate_type, event_type, handler)
    }

    /// The handler of a pair, if there is one.
    pub fn handler_for(&self, aggregate_type: &str, event_type: &str) -> Option<SharedHandler> {
        Some(self.route(aggregate_type, event_type)?.handler)
    }

    /// The route of a pair, if there is one.
    pub(crate) fn route(&self, aggregate_type: &str, event_type: &str) -> Option<Route> {
        let routes = self.routes.read().unwrap_or_else(PoisonError::into_inner);
        let aggregate_type = if self.by_type { GLOBAL } else { aggregate_type };
        let own = routes.of.get(aggregate_type).and_then(|of| of.get(event_type));
        own.or(routes.rest.as_ref()).cloned()
    }

    /// All routes.
    pub(crate) fn all(&self) -> Vec<Route> {
        self.routes.read().unwrap_or_else(PoisonError::into_inner).all().cloned().collect()
    }

    /// The names of all routes, in their order.
    pub(crate) fn names(&self) -> Vec<String> {
        let routes = self.routes.read().unwrap_or_else(PoisonError::into_inner);
        let mut names: Vec<_> = routes.all().map(|route| route.name.to_string()).collect();
        names.sort();
        names
    }

    /// The route of that name.
    pub(crate) fn named(&self, name: &str) -> Option<Route> {
        let routes = self.routes.read().unwrap_or_else(PoisonError::into_inner);
        routes.all().find(|route| &*route.name == name).cloned()
    }
}

impl Routes {
    fn all(&self) -> impl Iterator<Item = &Route> {
        self.of.values().flat_map(HashMap::values).chain(&self.rest)
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let routes = self.routes.read().unwrap_or_else(PoisonError::into_inner);
        let pairs =
            routes.of.iter().flat_map(|(aggregate, of)| of.keys().map(move |event| (aggregate, event)));
        f.debug_set().entries(pairs).finish()
    }
}

/// A handler that knows which events it is for, so that it can be passed around and registered by itself.
///
/// ```
/// use backstop_core::Event;
/// use backstop_sql::outbox::{BoundHandler, Registry};
///
/// let shipping = BoundHandler::new("Order", "OrderPlaced", |_: Event| async {});
/// assert_eq!((shipping.aggregate_type(), shipping.event_type()), ("Order", "OrderPlaced"));
/// Registry::new().register_bound(shipping)?;
/// # Ok::<(), backstop_sql::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct BoundHandler {
    aggregate_type: String,
    event_type: String,
    handler: SharedHandler,
}

impl BoundHandler {
    /// Binds a handler to a pair.
    pub fn new<By>(
        aggregate_type: impl AggregateType,
        event_type: impl EventType,
        handler: impl IntoHandler<By>,
    ) -> Self {
        Self {
            aggregate_type: aggregate_type.name().to_owned(),
            event_type: event_type.name().to_owned(),
            handler: handler.into_handler(),
        }
    }

    /// The aggregate type it is for.
    pub fn aggregate_type(&self) -> &str {
        &self.aggregate_type
    }

    /// The event type it is for.
    pub fn event_type(&self) -> &str {
        &self.event_type
    }
}

impl Handler for BoundHandler {
    async fn handle(&self, event: Event) -> Result<Outcome, Failure> {
        self.handler.handle(event).await
    }

    async fn deliver(&self, delivery: Delivery) -> Result<Outcome, Failure> {
        self.handler.deliver(delivery).await
    }

    fn target(&self) -> Option<&Target> {
        self.handler.target()
    }
}
