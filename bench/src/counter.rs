//! A handler that does nothing but count.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use backstop_core::Event;
use tokio::sync::Notify;

/// Counts down to the last event.
#[derive(Debug, Clone)]
pub(crate) struct Counter {
    left: Arc<AtomicU32>,
    all: Arc<Notify>,
}

impl Counter {
    pub(crate) fn new(events: u32) -> Self {
        Self { left: Arc::new(AtomicU32::new(events)), all: Arc::new(Notify::new()) }
    }

    pub(crate) fn count(&self) {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.all.notify_one();
        }
    }

    pub(crate) async fn all(&self) {
        self.all.notified().await;
    }

    pub(crate) fn handler(&self) -> impl Fn(Event) -> std::future::Ready<()> + Send + Sync + 'static {
        let this = self.clone();
        move |_| {
            this.count();
            std::future::ready(())
        }
    }
}
