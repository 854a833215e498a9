//! JSON text to values and back: the one seam through which headers and typed payloads pass.

use std::collections::BTreeMap;

use serde::{Serialize, de::DeserializeOwned};
use serde_json::error::Category;

/// Why a text could not be written or read as JSON.
///
/// It says what kind of fault is where, and never quotes the text: payloads and headers must not reach a log through
/// an error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{fault} at line {line} column {column}")]
pub struct CodecError {
    fault: &'static str,
    line: usize,
    column: usize,
}

impl From<serde_json::Error> for CodecError {
    fn from(error: serde_json::Error) -> Self {
        let fault = match error.classify() {
            Category::Io => "the text cannot be read",
            Category::Syntax => "the text is not JSON",
            Category::Data => "the JSON does not have the shape that was asked for",
            Category::Eof => "the JSON ends too soon",
        };
        Self { fault, line: error.line(), column: error.column() }
    }
}

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
    /// hold any of them for "no headers". A name whose value is `null` is left out; a value that is
    /// neither a string nor `null` is an error.
    fn parse_string_map(&self, text: Option<&str>) -> Result<BTreeMap<String, String>, CodecError> {
        match text.map(str::trim) {
            None | Some("" | "null") => Ok(BTreeMap::new()),
            Some(text) => {
                let map: BTreeMap<_, Option<_>> = self.read(text)?;
                Ok(map.into_iter().filter_map(|(name, value)| Some((name, value?))).collect())
            }
        }
    }
}

/// A [`Codec`] for headers alone, which makes trait objects: what stores hold. Every codec is one.
pub trait HeaderCodec: Send + Sync + 'static {
    /// Writes headers as JSON text.
    fn write_headers(&self, headers: &BTreeMap<String, String>) -> Result<String, CodecError>;

    /// Reads headers, as [`Codec::parse_string_map`] does.
    fn read_headers(&self, text: Option<&str>) -> Result<BTreeMap<String, String>, CodecError>;
}

impl<C: Codec> HeaderCodec for C {
    fn write_headers(&self, headers: &BTreeMap<String, String>) -> Result<String, CodecError> {
        self.write(headers)
    }

    fn read_headers(&self, text: Option<&str>) -> Result<BTreeMap<String, String>, CodecError> {
        self.parse_string_map(text)
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

    #[test]
    fn an_error_tells_where_the_fault_is_but_never_quotes_the_text() {
        let error = Json.read::<Vec<u8>>(r#"[1, "4111-1111"]"#).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the JSON does not have the shape that was asked for at line 1 column 15"
        );
        assert!(!format!("{error:?}").contains("4111"));
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
        for wrong in [
            r#"{"a":1}"#,
            r#"{"a":true}"#,
            r#"{"a":["b"]}"#,
            r#"{"a":{"b":null}}"#,
            r#"{"a":null,"b":1}"#,
            r#"["a"]"#,
            "[null]",
            "{",
            "nul",
        ] {
            assert!(Json.parse_string_map(Some(wrong)).is_err(), "{wrong}");
        }
    }

    /// Rules: O-108.
    #[test]
    fn a_null_value_is_left_out() {
        for text in [r#"{"a":null}"#, r#"{ "a" : null , "b" : null }"#] {
            assert_eq!(Json.parse_string_map(Some(text)).unwrap(), BTreeMap::new(), "{text}");
        }
        let map = Json.parse_string_map(Some(r#"{"b":"2","a":null,"c":"null","d":""}"#)).unwrap();
        let expected = [("b", "2"), ("c", "null"), ("d", "")];
        assert_eq!(map, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    }
}
