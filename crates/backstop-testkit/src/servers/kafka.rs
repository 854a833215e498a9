//! A prefix of its own for each test's topics and groups in Kafka.

use super::name;
use super::service::Service;

const SERVICE: Service =
    Service { label: "Kafka", folder: "kafka", variable: "BACKSTOP_TEST_KAFKA_BOOTSTRAP" };

/// A part of a Kafka cluster that nobody else uses: all topics and groups with a prefix of its own.
///
/// Topics are not removed, so that a test that has failed can be looked into.
///
/// ```no_run
/// # backstop_testkit::suite::block_on(async {
/// let Some(kafka) = backstop_testkit::servers::kafka().await else { return };
/// println!("ask {} for the topic {}", kafka.bootstrap(), kafka.topic("orders"));
/// # });
/// ```
#[derive(Debug, Clone)]
pub struct KafkaSpace {
    bootstrap: String,
    prefix: String,
}

/// Finds the cluster of `BACKSTOP_TEST_KAFKA_BOOTSTRAP`; `None` if there is none, and then the test is
/// marked as [skipped](crate::skip()).
pub async fn kafka() -> Option<KafkaSpace> {
    Some(KafkaSpace::at(SERVICE.answering_place(9092).await?))
}

impl KafkaSpace {
    /// A part of the cluster at that address.
    pub(super) fn at(bootstrap: String) -> Self {
        // Hyphens, because Kafka's metrics take dots and underscores for the same.
        Self { bootstrap, prefix: format!("{}-", name::fresh('-')) }
    }

    /// The address, or addresses, for a client.
    pub fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// What every topic and every group begins with.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The topic of that name.
    pub fn topic(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_test_has_topics_of_its_own() {
        let (Some(one), Some(two)) = tokio::join!(kafka(), kafka()) else { return };
        assert_eq!(one.bootstrap(), two.bootstrap());
        assert_ne!(one.topic("orders"), two.topic("orders"));
        let legal = |c: char| c.is_ascii_alphanumeric() || c == '-';
        assert!(one.topic("orders").chars().all(legal));
    }
}
