//! What the brokers' answer, or its absence, means for an event: the mapping of codes, as a pure function.

use std::time::Duration;

use backstop_core::Failure;
use backstop_core::target::Verdict;
use rdkafka::error::RDKafkaErrorCode as Code;

use crate::connection::Unconfirmed;

/// Whether the record itself was refused, so that the same record would be refused again.
pub(crate) fn concerns_the_record(code: Code) -> bool {
    matches!(
        code,
        Code::MessageSizeTooLarge
            | Code::MessageBatchTooLarge
            | Code::InvalidMessage
            | Code::InvalidMessageSize
            | Code::InvalidRecord
            | Code::InvalidDifferentRecord
            | Code::PolicyViolation
            | Code::UnsupportedForMessageFormat
            | Code::InvalidArgument
            | Code::BadMessage
    )
}

/// Judges a record that was not confirmed, for which `timeout` was allowed.
pub(crate) fn judge(Unconfirmed { code, complaint }: Unconfirmed, topic: &str, timeout: Duration) -> Verdict {
    if concerns_the_record(code) {
        return Verdict::Failed(Failure::permanent(class(code), format!("the record was refused: {code}")));
    }
    // A broker that stumbles over a record may stumble over it each time, so these attempts are counted.
    if code == Code::Unknown {
        return Verdict::Failed(Failure::transient(class(code), "the broker failed without giving a reason"));
    }
    let why = match code {
        Code::MessageTimedOut => format!("the brokers did not confirm a record within {timeout:?}"),
        Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownPartition => {
            format!("there is no topic {topic}; create it, and the events go out")
        }
        Code::TopicAuthorizationFailed => {
            format!("writing to the topic {topic} is not allowed; grant it, and the events go out")
        }
        Code::InvalidTimestamp => {
            "the brokers refuse the time of a record; set this machine's clock, or theirs".to_owned()
        }
        Code::NotEnoughReplicas | Code::NotEnoughReplicasAfterAppend => {
            format!("too few replicas of the topic {topic} are in sync")
        }
        other => other.to_string(),
    };
    let why = match complaint {
        Some(complaint) => format!("{why} ({complaint})"),
        None => why,
    };
    Verdict::Unavailable { class: "no-confirmation", wait: None, why }
}

/// `MessageSizeTooLarge` is `kafka-message-size-too-large`.
fn class(code: Code) -> String {
    let mut class = "kafka".to_owned();
    for letter in format!("{code:?}").chars() {
        if letter.is_ascii_uppercase() {
            class.push('-');
        }
        class.push(letter.to_ascii_lowercase());
    }
    class
}

#[cfg(test)]
mod tests {
    use backstop_core::failure::Kind;

    use super::*;

    fn judged(code: Code) -> Verdict {
        let unconfirmed = Unconfirmed { code, complaint: Some("refused".to_owned()) };
        judge(unconfirmed, "orders", Duration::from_secs(10))
    }

    #[test]
    fn what_concerns_the_brokers_is_an_outage() {
        for code in [
            Code::MessageTimedOut,
            Code::BrokerTransportFailure,
            Code::AllBrokersDown,
            Code::Resolve,
            Code::SSL,
            Code::Authentication,
            Code::RequestTimedOut,
            Code::LeaderNotAvailable,
            Code::NotLeaderForPartition,
            Code::NetworkException,
            Code::NotEnoughReplicas,
            Code::NotEnoughReplicasAfterAppend,
            Code::KafkaStorageError,
            Code::ThrottlingQuotaExceeded,
            Code::UnknownTopicOrPartition,
            Code::TopicAuthorizationFailed,
            Code::ClusterAuthorizationFailed,
            Code::SaslAuthenticationFailed,
            Code::OutOfOrderSequenceNumber,
            Code::UnknownProducerId,
            Code::InvalidProducerEpoch,
            Code::Fatal,
            Code::QueueFull,
            Code::InvalidTimestamp,
            Code::PurgeQueue,
            Code::PurgeInflight,
        ] {
            assert!(matches!(judged(code), Verdict::Unavailable { wait: None, .. }), "{code:?}");
        }
    }

    #[test]
    fn what_concerns_the_record_is_its_end() {
        for code in [Code::MessageSizeTooLarge, Code::InvalidRecord, Code::PolicyViolation] {
            let Verdict::Failed(failure) = judged(code) else { panic!("{code:?}") };
            assert_eq!(failure.kind(), Kind::Permanent, "{code:?}");
        }
        let Verdict::Failed(failure) = judged(Code::MessageSizeTooLarge) else { panic!() };
        assert_eq!(failure.class(), "kafka-message-size-too-large");
    }

    #[test]
    fn an_unexpected_error_is_counted() {
        let Verdict::Failed(failure) = judged(Code::Unknown) else { panic!() };
        assert_eq!((failure.class(), failure.kind()), ("kafka-unknown", Kind::Transient));
    }

    #[test]
    fn the_operator_is_told_what_to_do() {
        let Verdict::Unavailable { why, .. } = judged(Code::UnknownTopicOrPartition) else { panic!() };
        assert_eq!(why, "there is no topic orders; create it, and the events go out (refused)");
        let Verdict::Unavailable { why, .. } = judged(Code::MessageTimedOut) else { panic!() };
        assert_eq!(why, "the brokers did not confirm a record within 10s (refused)");
    }
}
