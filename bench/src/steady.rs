//! Events that come in at a steady rate whatever becomes of them, and how long each is on its way.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use backstop_core::Event;
use tokio::sync::Notify;

/// Tasks that write side by side, so that one that is slow does not hold the others up.
const WRITERS: u32 = 8;

/// How long the last events may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// When each event was written and when its handler was called, in nanoseconds.
pub(crate) struct Stamps {
    begin: Instant,
    per_second: u32,
    written: Vec<AtomicU64>,
    handled: Vec<AtomicU64>,
    left: AtomicU32,
    all: Notify,
}

/// Milliseconds, and how many events were written in a second.
pub(crate) struct Figures {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) most: f64,
    pub(crate) rate: f64,
}

impl Stamps {
    pub(crate) fn new(per_second: u32, seconds: u32) -> Arc<Self> {
        let events = per_second * seconds;
        let none = || (0..events).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Self {
            begin: Instant::now(),
            per_second,
            written: none(),
            handled: none(),
            left: AtomicU32::new(events),
            all: Notify::new(),
        })
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// An event is on its way from now on.
    pub(crate) fn written(&self, number: usize) {
        self.written[number].store(self.now(), Ordering::Relaxed);
    }

    pub(crate) fn handler(
        self: &Arc<Self>,
    ) -> impl Fn(Event) -> std::future::Ready<()> + Send + Sync + 'static {
        let this = self.clone();
        move |event| {
            let now = this.now();
            if this.handled[number(&event)].swap(now, Ordering::Relaxed) == 0
                && this.left.fetch_sub(1, Ordering::Relaxed) == 1
            {
                this.all.notify_one();
            }
            std::future::ready(())
        }
    }

    /// Writes one event after the other, each at its time, and waits until all were handled.
    pub(crate) async fn write_all<F>(
        self: &Arc<Self>,
        write: impl Fn(u32) -> F + Clone + Send + Sync + 'static,
    ) -> Result<Figures>
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        let begin = tokio::time::Instant::now() + Duration::from_millis(100);
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| tokio::spawn(self.clone().write_some(begin, writer, write.clone())))
            .collect();
        for writer in writers {
            writer.await??;
        }
        let took = begin.elapsed();
        let handled = tokio::time::timeout(PATIENCE, self.all.notified()).await;
        let left = self.left.load(Ordering::Relaxed);
        ensure!(handled.is_ok(), "{left} events were not handled within {PATIENCE:?}");
        let mut waited = self.waited();
        waited.sort_by(f64::total_cmp);
        let share = |share: f64| waited[((waited.len() - 1) as f64 * share).round() as usize];
        let rate = self.written.len() as f64 / took.as_secs_f64();
        Ok(Figures { p50: share(0.5), p99: share(0.99), most: share(1.0), rate })
    }

    /// Every `WRITERS`-th event. Times are counted from the beginning, so that a late one delays no other.
    async fn write_some<F>(
        self: Arc<Self>,
        begin: tokio::time::Instant,
        writer: u32,
        write: impl Fn(u32) -> F,
    ) -> Result<()>
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        for number in (writer..u32::try_from(self.written.len())?).step_by(WRITERS as usize) {
            tokio::time::sleep_until(begin + Duration::from_secs(1) / self.per_second * number).await;
            write(number).await?;
        }
        Ok(())
    }

    /// Milliseconds, without those of the first second.
    fn waited(&self) -> Vec<f64> {
        let both = self.written.iter().zip(&self.handled).skip(self.per_second as usize);
        // Another node may be told of a commit before the one that commits is.
        both.map(|(written, handled)| {
            handled.load(Ordering::Relaxed).saturating_sub(written.load(Ordering::Relaxed)) as f64 / 1e6
        })
        .collect()
    }
}

/// The event of a number, with about 200 bytes of payload.
pub(crate) fn event(number: u32) -> Result<Event> {
    let payload = serde_json::json!({ "order": number, "text": "x".repeat(170) });
    Ok(Event::of("OrderPlaced").aggregate("Order", number.to_string()).json(&payload)?)
}

/// The number of an event.
pub(crate) fn number(event: &Event) -> usize {
    event.aggregate_id().and_then(|id| id.parse().ok()).expect("the event's number is its aggregate")
}
