//! Signatures as Standard Webhooks describes them, and the ids of messages.

use std::fmt;

use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use ring::{digest, hmac};

const PREFIX: &str = "whsec_";
/// How long a secret may be, in bytes: what Standard Webhooks recommends.
const BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// How long a signature is, with what parts it from another: base64 of 32 bytes, and ` v1,`.
const SIGNATURE_CHARS: usize = 48;

/// How long the id of a message is: `msg_`, and 16 bytes in hexadecimal.
const ID_CHARS: usize = 36;

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Reads base64 with and without its padding, since secrets are found both ways.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A secret that both sides know.
#[derive(Clone)]
pub(crate) struct Secret(hmac::Key);

impl Secret {
    /// Reads `whsec_…`. The fault does not quote it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let bytes = text.trim().strip_prefix(PREFIX).and_then(|encoded| LENIENT.decode(encoded).ok());
        match bytes {
            Some(bytes) if BYTES.contains(&bytes.len()) => {
                Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, &bytes)))
            }
            _ => Err("must be whsec_ followed by the base64 text of 24 to 64 bytes".to_owned()),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

/// The value of `webhook-signature`: one signature for each secret, so that a receiver may know either.
pub(crate) fn sign(secrets: &[Secret], id: &str, timestamp: i64, body: &[u8]) -> String {
    let beginning = format!("{id}.{timestamp}.");
    let mut signatures = String::with_capacity(secrets.len() * SIGNATURE_CHARS);
    for Secret(key) in secrets {
        let mut signing = hmac::Context::with_key(key);
        signing.update(beginning.as_bytes());
        signing.update(body);
        signatures.push_str(if signatures.is_empty() { "v1," } else { " v1," });
        STANDARD.encode_string(signing.sign(), &mut signatures);
    }
    signatures
}

/// The value of `webhook-id`: the same whenever the same events are sent, and none of their ids.
pub(crate) fn message_id<'a>(source: &str, event_ids: impl IntoIterator<Item = &'a str>) -> String {
    let mut hash = digest::Context::new(&digest::SHA256);
    let mut add = |part: &str| {
        // With its length, so that no two lists of parts are the same bytes.
        hash.update(&(part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    };
    add(source);
    event_ids.into_iter().for_each(add);
    let hash = hash.finish();
    let mut id = String::with_capacity(ID_CHARS);
    id.push_str("msg_");
    for byte in &hash.as_ref()[..16] {
        id.extend([byte >> 4, byte & 0xf].map(|digit| char::from(HEX[usize::from(digit)])));
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    /// The vector that the reference libraries of Standard Webhooks test with.
    #[test]
    fn the_reference_vector_is_met() {
        let secret = Secret::parse(SECRET).unwrap();
        let body = br#"{"test": 2432232314}"#;
        let signature = sign(&[secret], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn each_secret_signs_and_the_signatures_are_parted_by_spaces() {
        let [old, new] =
            [SECRET, "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"].map(|it| Secret::parse(it).unwrap());
        let both = sign(&[old.clone(), new.clone()], "msg_1", 1, b"{}");
        assert_eq!(both, format!("{} {}", sign(&[old], "msg_1", 1, b"{}"), sign(&[new], "msg_1", 1, b"{}")));
    }

    #[test]
    fn a_secret_that_is_none_is_refused_and_never_shown() {
        for text in
            ["", "whsec_", "hunter2", "whsec_hunter2", "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAA==", &too_long()]
        {
            let fault = Secret::parse(text).unwrap_err();
            assert!(!fault.contains("hunter2"), "{fault}");
        }
        assert!(
            Secret::parse("whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA").is_ok(),
            "without padding"
        );
        assert!(!format!("{:?}", Secret::parse(SECRET).unwrap()).contains("Mf"));
    }

    fn too_long() -> String {
        format!("whsec_{}", STANDARD.encode([7; 65]))
    }

    #[test]
    fn the_id_of_a_message_is_stable_and_hides_the_events() {
        let id = message_id("/s", ["evt-1"]);
        assert_eq!(id, message_id("/s", ["evt-1"]));
        assert!(id.starts_with("msg_") && id.len() == 36 && !id.contains("evt"), "{id}");
        for other in
            [message_id("/t", ["evt-1"]), message_id("/s", ["evt-2"]), message_id("/s", ["evt-1", ""])]
        {
            assert_ne!(id, other);
        }
        assert_ne!(message_id("/s", ["ab", "c"]), message_id("/s", ["a", "bc"]));
    }
}
