//! One producer of librdkafka: it reports each record's end to whoever waits for it.

use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseRecord, Producer as _, ProducerContext, ThreadedProducer};
use tokio::sync::oneshot;

use crate::record::Record;

/// How a record ended: confirmed by the brokers, or why not.
pub(crate) type Ended = Result<(), RDKafkaErrorCode>;

/// A producer with a thread of its own that takes the reports.
pub(crate) struct Producer {
    /// Present until it is dropped.
    threaded: Option<ThreadedProducer<Reports>>,
}

impl Producer {
    pub(crate) fn new(config: &ClientConfig) -> KafkaResult<Self> {
        config.create_with_context(Reports::default()).map(|threaded| Self { threaded: Some(threaded) })
    }

    /// Hands a record over; the receiver hears how it ended.
    pub(crate) fn send(
        &self,
        topic: &str,
        record: &Record<'_>,
    ) -> Result<oneshot::Receiver<Ended>, RDKafkaErrorCode> {
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
    pub(crate) fn is_broken(&self) -> bool {
        self.threaded.as_ref().is_none_or(|threaded| threaded.client().fatal_error().is_some())
    }

    /// What the connection last complained about.
    pub(crate) fn complaint(&self) -> Option<String> {
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

/// Hears what librdkafka has to say.
#[derive(Debug, Default)]
struct Reports {
    complaint: Mutex<Option<String>>,
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
        // "All brokers are down" follows upon the reason and says less.
        if error.rdkafka_error_code() != Some(RDKafkaErrorCode::AllBrokersDown) {
            *self.complaint() = Some(reason.to_owned());
        }
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
        }
        // Whoever stopped waiting will bring the event again.
        let _ = waiting.send(ended);
    }
}
