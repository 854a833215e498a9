//! The hot path: hands events to the dispatcher when their transaction has committed and they are in the table.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use backstop_core::clock::Tick;
use backstop_core::{Event, Shutdown};
use tokio::sync::mpsc;

use super::feed::{Feed, Offer, Reserved};
use super::lifecycle::Lifecycle;
use crate::Error;
use crate::store::{Claim, Store};

/// At most so many events are looked for at once.
const TOGETHER: usize = 500;

pub(super) struct HotPath {
    feed: Feed,
    /// The claim that the rows were born with, where several nodes share the table.
    claim: Option<Claim>,
    /// The ids of events that are written and not committed yet.
    reserved: Mutex<HashMap<String, Reserved>>,
    /// Events whose commit is somebody's word: they are looked for before they are delivered.
    told: mpsc::Sender<Event>,
    lookup: Lifecycle,
}

impl HotPath {
    /// Starts looking for events that are said to be committed. So many of them may wait for that.
    pub(super) fn start(
        feed: Feed,
        claim: Option<Claim>,
        store: Arc<dyn Store>,
        capacity: usize,
    ) -> Result<Arc<Self>, Error> {
        let (told, waiting) = mpsc::channel(capacity);
        let lookup = Lifecycle::default();
        let hot_path = Arc::new(Self { feed, claim, reserved: Mutex::default(), told, lookup });
        let weak = Arc::downgrade(&hot_path);
        hot_path.lookup.start(
            move |shutdown| look_up_until(shutdown, waiting, store, weak),
            "the hot path was closed and cannot be started again",
        )?;
        Ok(hot_path)
    }

    /// Takes the ids of events that were inserted from `since` on, before their transaction commits: from then on the
    /// poller can see their rows, and must leave them to the hot path.
    pub(super) fn written(&self, events: &[Event], since: Tick) {
        for event in events.iter().filter(|event| !event.is_delayed()) {
            if let Some(reserved) = self.feed.reserve(event, since) {
                self.reserved().insert(event.id().to_owned(), reserved);
            }
        }
    }

    /// Delivers events that were seen in the table within their transaction, which has committed.
    pub(super) fn committed(&self, events: &[Event]) {
        for event in events {
            self.offer(event);
        }
    }

    /// Delivers events whose transaction is said to have committed, as soon as they are found in the table: a driver says
    /// so even where the database rolled the transaction back, and a part of one may have been.
    pub(super) fn said_to_be_committed(&self, events: &[Event]) {
        for event in events {
            if event.is_delayed() {
                self.offer(event);
            } else if let Err(refused) = self.told.try_send(event.clone()) {
                self.feed.refuse_hot(&refused.into_inner());
                self.leave(event);
            }
        }
    }

    pub(super) fn rolled_back(&self, events: &[Event]) {
        for event in events {
            self.give_up(event.id());
        }
    }

    /// Nobody knows whether the transaction committed: the poller finds out.
    pub(super) fn abandoned(&self, events: &[Event]) {
        for event in events {
            self.leave(event);
        }
    }

    /// Stops looking; what is still looked for is left to the table.
    pub(super) async fn close(&self) {
        self.lookup.close("hot path").await;
    }

    fn offer(&self, event: &Event) {
        let reserved = self.reserved().remove(event.id());
        if self.feed.offer_hot(event, self.claim.clone(), reserved) == Offer::Refused {
            self.disown(event);
        }
    }

    /// Leaves an event to whoever finds it in the table.
    fn leave(&self, event: &Event) {
        self.give_up(event.id());
        self.disown(event);
    }

    fn give_up(&self, id: &str) {
        if let Some(reserved) = self.reserved().remove(id) {
            self.feed.letting_go().let_go(reserved.hold);
        }
    }

    /// Nobody delivers this row from memory, so its claim must not keep the pollers from it.
    fn disown(&self, event: &Event) {
        if let (Some(claim), false) = (&self.claim, event.is_delayed()) {
            self.feed.unheld().add(event.id().to_owned(), claim.clone());
        }
    }

    async fn look_up(&self, store: &dyn Store, events: &[Event]) {
        let ids: Vec<_> = events.iter().map(|event| event.id().to_owned()).collect();
        match store.present(None, &ids).await {
            Ok(found) => {
                let found: HashSet<_> = found.into_iter().collect();
                for event in events {
                    if found.contains(event.id()) {
                        self.offer(event);
                    } else {
                        tracing::warn!(
                            event_id = event.id(),
                            event_type = event.event_type(),
                            "an event was said to be committed and is not in the table: its transaction, or a part of \
                             it, was rolled back"
                        );
                        self.give_up(event.id());
                    }
                }
            }
            Err(error) => {
                tracing::warn!(%error, events = events.len(), "cannot look for committed events; the poller does");
                for event in events {
                    self.leave(event);
                }
            }
        }
    }

    fn reserved(&self) -> MutexGuard<'_, HashMap<String, Reserved>> {
        self.reserved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn look_up_until(
    shutdown: Shutdown,
    mut waiting: mpsc::Receiver<Event>,
    store: Arc<dyn Store>,
    hot_path: std::sync::Weak<HotPath>,
) {
    let mut events = Vec::new();
    while let Some(1..) = shutdown.interrupts(waiting.recv_many(&mut events, TOGETHER)).await {
        let Some(hot_path) = hot_path.upgrade() else { return };
        hot_path.look_up(&*store, &events).await;
        events.clear();
    }
    waiting.close();
    if let Some(hot_path) = hot_path.upgrade() {
        while let Some(event) = waiting.recv().await {
            hot_path.leave(&event);
        }
    }
}
