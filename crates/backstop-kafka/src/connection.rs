//! The way to the brokers: records are sent together, and alone where company may be what was refused.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rdkafka::config::ClientConfig;
use rdkafka::error::{KafkaResult, RDKafkaErrorCode};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use crate::producer::{Ended, Producer};
use crate::record::Record;
use crate::verdict::concerns_the_record;

/// How long to wait for room in librdkafka's queue before looking again.
const QUEUE_FULL: Duration = Duration::from_millis(5);

/// Producers for one cluster.
pub(crate) struct Connection {
    together: Slot,
    alone: Slot,
    timeout: Duration,
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
        let together = Slot::new(config);
        together.producer()?;
        Ok(Self { together, alone: Slot::new(single), timeout })
    }

    /// Sends a record and waits for the brokers' confirmation.
    pub(crate) async fn publish(&self, topic: &str, record: &Record<'_>) -> Result<(), Unconfirmed> {
        match self.send(&self.together, topic, record).await {
            // Brokers judge whole batches: a small record is too large in too large a company.
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

/// How a record ended. A report that never comes is none: nobody has said that the brokers have the record.
async fn heard(end: oneshot::Receiver<Ended>) -> Ended {
    end.await.unwrap_or(Err(RDKafkaErrorCode::PurgeQueue))
}

/// A producer that is made when it is first needed, and made anew when it is broken: an idempotent one cannot
/// go on after brokers have lost count of its records.
struct Slot {
    config: ClientConfig,
    producer: Mutex<Option<Arc<Producer>>>,
}

impl Slot {
    fn new(config: ClientConfig) -> Self {
        Self { config, producer: Mutex::new(None) }
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
        let fresh = Arc::new(Producer::new(&self.config)?);
        Ok(Arc::clone(kept.insert(fresh)))
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
        let ended = heard(end).await.map_err(|code| Unconfirmed { code, complaint: None });
        let verdict = judge(ended, "orders", Duration::from_secs(10));
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
