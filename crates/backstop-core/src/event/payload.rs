//! Which texts may be a payload: valid JSON that every supported database can keep.

use serde::de::IgnoredAny;

use super::limits;

/// Says why a text cannot be a payload, or nothing if it can.
///
/// Databases refuse some valid JSON, and they would do so inside the caller's transaction, which a
/// refusal breaks on PostgreSQL. So the same texts are refused here, before anything is sent.
pub(super) fn objection(text: &str) -> Option<String> {
    if let Err(error) = serde_json::from_str::<IgnoredAny>(text) {
        return Some(format!("must be valid JSON ({error})"));
    }
    if depth(text) > limits::PAYLOAD_DEPTH {
        return Some(format!("must not be nested deeper than {} levels", limits::PAYLOAD_DEPTH));
    }
    bad_escape(text)
}

/// How deep the arrays and objects of valid JSON are nested.
fn depth(text: &str) -> usize {
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0_usize, 0, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Looks through the `\u` escapes of valid JSON for those that stand for no character.
fn bad_escape(text: &str) -> Option<String> {
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        rest = &rest[at..];
        let Some(unit) = unicode_escape(rest) else {
            rest = &rest[2..]; // `\n`, `\"`, `\\` and the like
            continue;
        };
        rest = &rest[6..];
        match unit {
            0 => return Some(r"must not contain \u0000, which databases cannot store".to_owned()),
            0xD800..=0xDBFF => match unicode_escape(rest) {
                Some(0xDC00..=0xDFFF) => rest = &rest[6..],
                _ => return Some(lone_surrogate(unit)),
            },
            0xDC00..=0xDFFF => return Some(lone_surrogate(unit)),
            _ => {}
        }
    }
    None
}

/// The code unit of a `\uXXXX` at the beginning of the text.
fn unicode_escape(text: &str) -> Option<u16> {
    let digits = text.strip_prefix(r"\u")?.get(..4)?;
    u16::from_str_radix(digits, 16).ok()
}

fn lone_surrogate(unit: u16) -> String {
    format!(r"must not contain the lone surrogate \u{unit:04x}, which is no character")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_databases_cannot_store_is_refused_with_the_reason() {
        for (text, reason) in [
            ("", "valid JSON"),
            ("{", "valid JSON"),
            ("{} {}", "valid JSON"),
            ("\"\u{1}\"", "valid JSON"),
            (r#""\u0000""#, r"\u0000"),
            (r#"{"a\u0000":1}"#, r"\u0000"),
            (r#""\ud800""#, "lone surrogate"),
            (r#""\udc00""#, "lone surrogate"),
            (r#""\udc00\ud800""#, "lone surrogate"),
            (r#""\ud83d\n\ude00""#, "lone surrogate"),
            (r#""\ud83dA""#, "lone surrogate"),
        ] {
            let objection = objection(text).unwrap_or_else(|| panic!("{text} was accepted"));
            assert!(objection.contains(reason), "{text}: {objection}");
        }
    }

    #[test]
    fn odd_but_sound_json_is_accepted() {
        for text in [
            "null",
            "1e400000",
            "-0.0",
            r#"{"a":1,"a":2}"#,
            r#""\\u0000""#,
            r#""\ud83d\ude00 \u00e9 \"\\ é 😀""#,
            " [1 , 2 ] ",
        ] {
            assert_eq!(objection(text), None, "{text}");
        }
        for text in [nested(128), format!(r#"["{}"]"#, "[".repeat(500)), r#"["\\[\"["]"#.to_owned()] {
            assert_eq!(objection(&text), None, "{text}");
        }
    }

    #[test]
    fn what_no_reader_could_take_apart_is_refused() {
        for text in [nested(129), nested(100_000), "[".repeat(200) + "{}" + &"]".repeat(200)] {
            assert!(objection(&text).unwrap().contains("deeper than 128 levels"));
        }
    }

    fn nested(levels: usize) -> String {
        "[".repeat(levels) + &"]".repeat(levels)
    }
}
