//! The hot path: hands events to the dispatcher when their transaction has committed and they are in the table.

use std::collections::HashSet;
use std::sync::Arc;

use backstop_core::clock::Tick;
use backstop_core::lifecycle::Lifecycle;
use backstop_core::{Event, Shutdown};
use tokio::sync::mpsc;

use super::feed::{Feed, Offer};
use super::ledger::Writing;
use crate::store::{Claim, Store};

/// At most this many events are looked for at once.
const TOGETHER: usize = 500;

pub(super) struct HotPath {
    feed: Feed,
    /// The claim that the rows were born with, where several nodes share the table.
    claim: Option<Claim>,
    /// Events whose commit was only reported by a caller: they are looked for before they are delivered.
    unchecked: mpsc::Sender<(Event, Writing)>,
    lookup: Lifecycle,
}

impl HotPath {
    /// Starts looking for events that are said to be committed. Up to `capacity` of them may wait for that.
    pub(super) fn start(
        feed: Feed,
        claim: Option<Claim>,
        store: Arc<dyn Store>,
        capacity: usize,
    ) -> Arc<Self> {
        let (unchecked, waiting) = mpsc::channel(capacity);
        Arc::new_cyclic(|hot_path| {
            let hot_path = hot_path.clone();
            let lookup =
                Lifecycle::started(move |shutdown| look_up_until(shutdown, waiting, store, hot_path));
            Self { feed, claim, unchecked, lookup }
        })
    }

    /// The events that must not be handled now, because their routes are held.
    pub(super) fn held<'e>(&self, events: &'e [Event]) -> impl Iterator<Item = &'e Event> {
        events.iter().filter(|event| self.feed.held().keeps(event))
    }

    /// Events were committed that were to wait in the table, because their routes were held. If one is open by now, the poller
    /// may have looked before they were there.
    pub(super) fn left_to_the_poller(&self, ids: &HashSet<String>, events: &[Event]) {
        let mut left = events.iter().filter(|event| ids.contains(event.id()));
        if left.any(|event| !self.feed.held().keeps(event)) {
            self.feed.leases().scheduled().notify_one();
        }
    }

    /// Takes the ids of events that were inserted from `since` on, before their transaction commits; but for those that wait in
    /// the table.
    pub(super) async fn written(&self, events: &[Event], waiting: &HashSet<String>, since: Tick) -> Writing {
        self.feed.leases().write(events, waiting, since).await
    }

    /// Delivers events that were seen in the table within their transaction, which has committed.
    pub(super) fn deliver(&self, events: &[Event], writing: Writing) {
        for event in events {
            self.offer(event, writing);
        }
    }

    /// Delivers events whose transaction is said to have committed, as soon as they are found in the table: a driver
    /// says so even if the database rolled back the transaction or a part of it.
    pub(super) fn deliver_if_found(&self, events: &[Event], writing: Writing) {
        for event in events {
            if event.is_delayed() {
                self.offer(event, writing);
            } else if self.unchecked.try_send((event.clone(), writing)).is_err() {
                self.feed.refuse_hot(event);
                self.leave(event, writing);
            }
        }
    }

    pub(super) fn rolled_back(&self, events: &[Event], writing: Writing) {
        for event in events {
            self.feed.leases().give_up(event.id(), writing);
        }
    }

    /// Nobody knows whether the transaction committed: the poller finds out.
    pub(super) fn abandoned(&self, events: &[Event], writing: Writing) {
        for event in events {
            self.leave(event, writing);
        }
    }

    /// Stops looking; events that were not found yet are left to the poller.
    pub(super) async fn close(&self) {
        self.lookup.close("hot path").await;
    }

    fn offer(&self, event: &Event, writing: Writing) {
        if event.is_delayed() {
            self.feed.note_delayed();
        } else if let Some(lease) = self.feed.leases().commit(event.id(), writing, self.claim.as_ref())
            && self.feed.offer_hot(event, self.claim.clone(), lease) == Offer::Refused
        {
            self.disown(event);
        }
    }

    /// Leaves an event to the poller that finds it in the table.
    fn leave(&self, event: &Event, writing: Writing) {
        if self.feed.leases().give_up(event.id(), writing) {
            self.disown(event);
        }
    }

    /// Nobody delivers this row from memory, so its claim must not keep the pollers from it.
    fn disown(&self, event: &Event) {
        if let Some(claim) = &self.claim {
            self.feed.leases().disown(event.id().to_owned(), claim.clone());
        }
    }

    async fn look_up(&self, store: &dyn Store, events: &[(Event, Writing)]) {
        let ids: Vec<_> = events.iter().map(|(event, _)| event.id().to_owned()).collect();
        match store.present(None, &ids).await {
            Ok(found) => {
                let found: HashSet<_> = found.into_iter().collect();
                for (event, writing) in events {
                    if found.contains(event.id()) {
                        self.offer(event, *writing);
                    } else {
                        tracing::warn!(
                            event_id = event.id(),
                            event_type = event.event_type(),
                            "an event was declared committed but is not in the table: its transaction, or a part of \
                             it, was rolled back"
                        );
                        self.feed.leases().give_up(event.id(), *writing);
                    }
                }
            }
            Err(error) => {
                tracing::warn!(%error, events = events.len(), "cannot check that events were committed; the poller delivers them");
                for (event, writing) in events {
                    self.leave(event, *writing);
                }
            }
        }
    }
}

async fn look_up_until(
    shutdown: Shutdown,
    mut waiting: mpsc::Receiver<(Event, Writing)>,
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
        while let Some((event, writing)) = waiting.recv().await {
            hot_path.leave(&event, writing);
        }
    }
}
