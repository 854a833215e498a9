//! JSON text to values and back: the one seam through which headers and typed payloads pass.

use std::collections::BTreeMap;

use serde::{Serialize, de::DeserializeOwned};

/// Why a text could not be written or read as JSON.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct CodecError(#[from] serde_json::Error);

/// Turns values into JSON text and back. [`Json`] is the standard one.
///
/// ```
/// use backstop_core::codec::{Codec, Json};
///
/// let headers = Json.parse_string_map(Some(r#"{"x-tenant":"acme"}"#))?;
/// assert_eq!(headers["x-tenant"], "acme");
/// assert!(Json.parse_string_map(None)?.is_empty());
/// # Ok::<(), backstop_core::codec::CodecError>(())
/// ```
pub trait Codec: Send + Sync + 'static {
    /// Writes a value as JSON text.
    fn write<T: Serialize + ?Sized>(&self, value: &T) -> Result<String, CodecError>;

    /// Reads a value of type `T` from JSON text.
    fn read<T: DeserializeOwned>(&self, text: &str) -> Result<T, CodecError>;

    /// Reads a map of strings. Absent, blank and `null` texts are the empty map, because a column may
    /// hold any of them for "no headers"; a value that is not a string is an error.
    fn parse_string_map(&self, text: Option<&str>) -> Result<BTreeMap<String, String>, CodecError> {
        match text.map(str::trim) {
            None | Some("" | "null") => Ok(BTreeMap::new()),
            Some(text) => self.read(text),
        }
    }
}

/// The standard codec: `serde_json`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Json;

impl Codec for Json {
    fn write<T: Serialize + ?Sized>(&self, value: &T) -> Result<String, CodecError> {
        Ok(serde_json::to_string(value)?)
    }

    fn read<T: DeserializeOwned>(&self, text: &str) -> Result<T, CodecError> {
        Ok(serde_json::from_str(text)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rules: O-103, O-104.
    #[test]
    fn a_value_becomes_text_and_a_value_again() {
        let text = Json.write(&vec![("a", 1)]).unwrap();
        assert_eq!(text, r#"[["a",1]]"#);
        assert_eq!(Json.read::<Vec<(String, u8)>>(&text).unwrap(), [("a".to_owned(), 1)]);
        assert!(Json.read::<Vec<bool>>(&text).is_err());
    }

    /// Rules: O-105, O-106, O-107.
    #[test]
    fn no_text_blank_text_and_null_are_the_empty_map() {
        for text in [None, Some(""), Some(" \t\n"), Some("null"), Some(" null "), Some("{}")] {
            assert_eq!(Json.parse_string_map(text).unwrap(), BTreeMap::new(), "{text:?}");
        }
    }

    /// Rules: O-108.
    #[test]
    fn any_other_text_is_read_as_a_map_of_strings() {
        let map = Json.parse_string_map(Some(r#"{"b":"2","a":"1"}"#)).unwrap();
        assert_eq!(map, BTreeMap::from([("a".into(), "1".into()), ("b".into(), "2".into())]));
        for wrong in [r#"{"a":null}"#, r#"{"a":1}"#, r#"["a"]"#, "{", "nul"] {
            assert!(Json.parse_string_map(Some(wrong)).is_err(), "{wrong}");
        }
    }
}
