//! The hot path: hands events to the dispatcher when their transaction has committed and they are in the table.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
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
    /// The events that are written, and of which nobody has said yet what became of them.
    written: Mutex<HashMap<String, Written>>,
    writings: AtomicU64,
    /// Events whose commit is somebody's word: they are looked for before they are delivered.
    told: mpsc::Sender<(Event, Writing)>,
    lookup: Lifecycle,
}

/// Which writing of an id it was. After a savepoint was rolled back, or a row deleted, another event can be written under
/// the same id: what is said of the first then says nothing of the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Writing(u64);

/// What was written last under an id.
struct Written {
    writing: Writing,
    /// None where this process holds the id already.
    reserved: Option<Reserved>,
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
        let (written, writings) = <_>::default();
        let hot_path = Arc::new(Self { feed, claim, written, writings, told, lookup });
        let weak = Arc::downgrade(&hot_path);
        hot_path.lookup.start(
            move |shutdown| look_up_until(shutdown, waiting, store, weak),
            "the hot path was closed and cannot be started again",
        )?;
        Ok(hot_path)
    }

    /// Takes the ids of events that were inserted from `since` on, before their transaction commits: from then on the
    /// poller can see their rows, and must leave them to the hot path.
    pub(super) async fn written(&self, events: &[Event], since: Tick) -> Writing {
        // What had this id before is gone, or this one could not have been inserted. Its claim must not be given back any
        // more, since this one has the same.
        self.feed.unheld().forget_all(events.iter().map(Event::id)).await;
        let writing = Writing(self.writings.fetch_add(1, Ordering::Relaxed));
        for event in events {
            let before = self.lock().remove(event.id()).and_then(|before| before.reserved);
            let reserved = self.feed.reserve_written(event, since, before);
            if !event.is_delayed() {
                self.lock().insert(event.id().to_owned(), Written { writing, reserved });
            } else if let Some(reserved) = reserved {
                self.feed.letting_go().let_go(reserved.hold);
            }
        }
        writing
    }

    /// Delivers events that were seen in the table within their transaction, which has committed.
    pub(super) fn committed(&self, events: &[Event], writing: Writing) {
        for event in events {
            self.offer(event, writing);
        }
    }

    /// Delivers events whose transaction is said to have committed, as soon as they are found in the table: a driver says
    /// so even where the database rolled the transaction back, and a part of one may have been.
    pub(super) fn said_to_be_committed(&self, events: &[Event], writing: Writing) {
        for event in events {
            if event.is_delayed() {
                self.offer(event, writing);
            } else if self.told.try_send((event.clone(), writing)).is_err() {
                self.feed.refuse_hot(event);
                self.leave(event, writing);
            }
        }
    }

    pub(super) fn rolled_back(&self, events: &[Event], writing: Writing) {
        for event in events {
            self.give_up(event, writing);
        }
    }

    /// Nobody knows whether the transaction committed: the poller finds out.
    pub(super) fn abandoned(&self, events: &[Event], writing: Writing) {
        for event in events {
            self.leave(event, writing);
        }
    }

    /// Stops looking; what is still looked for is left to the table.
    pub(super) async fn close(&self) {
        self.lookup.close("hot path").await;
    }

    fn offer(&self, event: &Event, writing: Writing) {
        let reserved = match self.take(event, writing) {
            Some(written) => written.reserved,
            None if event.is_delayed() => None,
            None => return,
        };
        if self.feed.offer_hot(event, self.claim.clone(), reserved) == Offer::Refused {
            self.disown(event);
        }
    }

    /// Leaves an event to whoever finds it in the table.
    fn leave(&self, event: &Event, writing: Writing) {
        if self.give_up(event, writing) {
            self.disown(event);
        }
    }

    /// Lets go of an event, unless another one was written under its id since.
    fn give_up(&self, event: &Event, writing: Writing) -> bool {
        let written = self.take(event, writing);
        let was_last = written.is_some();
        if let Some(reserved) = written.and_then(|written| written.reserved) {
            self.feed.letting_go().let_go(reserved.hold);
        }
        was_last
    }

    /// What this writing of the event has taken, if it was the last of its id.
    fn take(&self, event: &Event, writing: Writing) -> Option<Written> {
        let mut written = self.lock();
        written.get(event.id()).filter(|written| written.writing == writing)?;
        written.remove(event.id())
    }

    /// Nobody delivers this row from memory, so its claim must not keep the pollers from it.
    fn disown(&self, event: &Event) {
        if let (Some(claim), false) = (&self.claim, event.is_delayed()) {
            self.feed.unheld().add(event.id().to_owned(), claim.clone());
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
                            "an event was said to be committed and is not in the table: its transaction, or a part of \
                             it, was rolled back"
                        );
                        self.give_up(event, *writing);
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

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Written>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
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
