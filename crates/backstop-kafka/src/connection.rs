//! The way to the brokers: records are sent together, or alone if the batch may have been the reason for a refusal,
//! by producers of librdkafka that report the result of each record to its sender.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{mem, thread};

use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseRecord, Producer as _, ProducerContext, ThreadedProducer};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep};

use crate::record::Record;
use crate::verdict::concerns_the_record;

/// How long to wait for room in librdkafka's queue before looking again.
const QUEUE_FULL: Duration = Duration::from_millis(5);

/// Producers for one cluster.
pub(crate) struct Connection {
    together: Slot,
    alone: Slot,
    timeout: Duration,
    way: Way,
}

/// Whether a broker is connected, as far as the client has said so. Cheap to clone.
#[derive(Debug, Clone)]
struct Way(watch::Sender<Option<String>>);

impl Way {
    /// All brokers are down, and nothing was confirmed since.
    fn lost(&self, why: String) {
        self.0.send_replace(Some(why));
    }

    fn found(&self) {
        self.0.send_if_modified(|lost| lost.take().is_some());
    }

    /// Waits until it is lost, and tells why.
    async fn until_lost(&self) -> String {
        let mut lost = self.0.subscribe();
        let why = lost.wait_for(Option::is_some).await.ok().and_then(|why| why.clone());
        // The sender is a field of this very value.
        why.unwrap_or_default()
    }
}

/// Why a record was not confirmed, and what the connection complained about.
#[derive(Debug)]
pub(crate) struct Unconfirmed {
    pub(crate) code: RDKafkaErrorCode,
    pub(crate) complaint: Option<String>,
}

impl Connection {
    /// Checks the configuration by making a producer, which connects in the background.
    pub(crate) fn open(config: ClientConfig, timeout: Duration) -> KafkaResult<Self> {
        let mut single = config.clone();
        single.set("batch.num.messages", "1").set("linger.ms", "0");
        let way = Way(watch::Sender::new(None));
        let together = Slot::new(config, way.clone());
        together.producer()?;
        Ok(Self { together, alone: Slot::new(single, way.clone()), timeout, way })
    }

    /// Waits until the client says that all brokers are down, unless a record was confirmed since it said so. A connection that
    /// idled out says so too, and is made again when it is needed.
    pub(crate) async fn lost(&self) -> String {
        self.way.until_lost().await
    }

    /// Sends a record and waits for the brokers' confirmation.
    pub(crate) async fn publish(&self, topic: &str, record: &Record<'_>) -> Result<(), Unconfirmed> {
        match self.send(&self.together, topic, record).await {
            // Brokers judge whole batches: a small record is refused with a batch that is too large.
            Err(refused) if concerns_the_record(refused.code) => self.send(&self.alone, topic, record).await,
            other => other,
        }
    }

    async fn send(&self, slot: &Slot, topic: &str, record: &Record<'_>) -> Result<(), Unconfirmed> {
        let until = Instant::now() + self.timeout;
        loop {
            let producer = slot.producer().map_err(|error| Unconfirmed {
                code: error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail),
                complaint: Some(error.to_string()),
            })?;
            let ended = match producer.send(topic, record) {
                Ok(end) => heard(end).await,
                Err(RDKafkaErrorCode::QueueFull) if Instant::now() < until => {
                    sleep(QUEUE_FULL).await;
                    continue;
                }
                Err(code) => Err(code),
            };
            return ended.map_err(|code| Unconfirmed { code, complaint: producer.complaint() });
        }
    }
}

/// How a record ended. If no report comes, nobody has said that the brokers have the record.
async fn heard(end: oneshot::Receiver<Ended>) -> Ended {
    end.await.unwrap_or(Err(RDKafkaErrorCode::PurgeQueue))
}

/// A producer that is made when it is first needed, and made anew when it is broken: an idempotent one cannot
/// go on after brokers have lost count of its records.
struct Slot {
    config: ClientConfig,
    producer: Mutex<Option<Arc<Producer>>>,
    way: Way,
}

impl Slot {
    fn new(config: ClientConfig, way: Way) -> Self {
        Self { config, producer: Mutex::new(None), way }
    }

    fn producer(&self) -> KafkaResult<Arc<Producer>> {
        let mut kept = self.producer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(producer) = kept.as_ref().filter(|producer| !producer.is_broken()) {
            return Ok(Arc::clone(producer));
        }
        if kept.is_some() {
            tracing::warn!(
                "the producer met a fatal error and is replaced; its unconfirmed records are sent again"
            );
        }
        let fresh = Arc::new(Producer::new(&self.config, self.way.clone())?);
        Ok(Arc::clone(kept.insert(fresh)))
    }
}

/// How a record ended: confirmed by the brokers, or why not.
type Ended = Result<(), RDKafkaErrorCode>;

/// A producer with a thread of its own that takes the reports.
struct Producer {
    /// Present until it is dropped.
    threaded: Option<ThreadedProducer<Reports>>,
}

impl Producer {
    fn new(config: &ClientConfig, way: Way) -> KafkaResult<Self> {
        let reports = Reports { complaint: Mutex::default(), way };
        config.create_with_context(reports).map(|threaded| Self { threaded: Some(threaded) })
    }

    /// Hands a record over; the receiver is told how it ended.
    fn send(&self, topic: &str, record: &Record<'_>) -> Result<oneshot::Receiver<Ended>, RDKafkaErrorCode> {
        let Some(threaded) = &self.threaded else { return Err(RDKafkaErrorCode::Fatal) };
        let (ended, end) = oneshot::channel();
        let outgoing: BaseRecord<'_, str, str, _> = BaseRecord::with_opaque_to(topic, Box::new(ended))
            .payload(&*record.value)
            .headers(record.headers());
        let outgoing = match record.key {
            Some(key) => outgoing.key(key),
            None => outgoing,
        };
        match threaded.send(outgoing) {
            Ok(()) => Ok(end),
            Err((error, _)) => Err(error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail)),
        }
    }

    /// Whether it met an error after which it takes nothing any more.
    fn is_broken(&self) -> bool {
        self.threaded.as_ref().is_none_or(|threaded| threaded.client().fatal_error().is_some())
    }

    /// What the connection last complained about.
    fn complaint(&self) -> Option<String> {
        self.threaded.as_ref()?.context().complaint().clone()
    }
}

impl Drop for Producer {
    /// Ends its thread elsewhere: waiting for it would hold up a worker of the runtime.
    fn drop(&mut self) {
        if let Some(threaded) = self.threaded.take() {
            let _ =
                thread::Builder::new().name("backstop-kafka-end".to_owned()).spawn(move || drop(threaded));
        }
    }
}

/// Receives librdkafka's reports and messages.
#[derive(Debug)]
struct Reports {
    complaint: Mutex<Option<String>>,
    way: Way,
}

impl Reports {
    fn complaint(&self) -> MutexGuard<'_, Option<String>> {
        self.complaint.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientContext for Reports {
    /// All of it is detail: what it means for events is told by their target.
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!(?level, facility, "librdkafka: {message}");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, "librdkafka: {reason}");
        if error.rdkafka_error_code() != Some(RDKafkaErrorCode::AllBrokersDown) {
            *self.complaint() = Some(reason.to_owned());
            return;
        }
        // It follows upon the reason, and says less.
        let why = self.complaint().clone().map(|complaint| format!(" ({complaint})")).unwrap_or_default();
        self.way.lost(format!("all brokers are down{why}"));
    }
}

impl ProducerContext for Reports {
    type DeliveryOpaque = Box<oneshot::Sender<Ended>>;

    fn delivery(&self, result: &DeliveryResult<'_>, waiting: Self::DeliveryOpaque) {
        let ended = match result {
            Ok(_) => Ok(()),
            Err((error, _)) => Err(error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail)),
        };
        if ended.is_ok() {
            drop(mem::take(&mut *self.complaint()));
            self.way.found();
        }
        // A caller that stopped waiting will bring the event again.
        let _ = waiting.send(ended);
    }
}

#[cfg(test)]
mod tests {
    use backstop_core::target::Verdict;

    use super::*;
    use crate::verdict::judge;

    #[tokio::test]
    async fn a_lost_report_is_not_a_delivery_and_the_event_waits() {
        let (report, end) = oneshot::channel();
        drop(report);
        let code = heard(end).await.unwrap_err();
        let verdict = judge(Unconfirmed { code, complaint: None }, "orders", Duration::from_secs(10));
        assert!(matches!(verdict, Verdict::Unavailable { wait: None, .. }), "{verdict:?}");
    }

    #[tokio::test]
    async fn a_report_is_passed_on_as_it_is() {
        for told in [Ok(()), Err(RDKafkaErrorCode::MessageTimedOut)] {
            let (report, end) = oneshot::channel();
            report.send(told).unwrap();
            assert_eq!(heard(end).await, told);
        }
    }
}
