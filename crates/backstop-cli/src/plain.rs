//! Text for a terminal, which obeys control sequences. Files, rows and answers of others are hostile text.

use backstop_core::Timestamp;

/// The text without characters that a terminal acts upon, or that hide or reorder what is around them.
pub(crate) fn plain(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || is_invisible(c) {
            kept.extend(c.escape_unicode());
        } else {
            kept.push(c);
        }
    }
    kept
}

/// An error with its causes, none of them said twice, as lines that are plain.
pub(crate) fn told(error: &anyhow::Error) -> String {
    let mut told = String::new();
    let mut last = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if told.is_empty() {
            told.clone_from(&cause);
        } else if !last.contains(&cause) {
            told.extend([": ", &cause]);
        } else {
            continue;
        }
        last = cause;
    }
    told.lines().map(plain).collect::<Vec<_>>().join("\n")
}

/// JSON that means the same and shows a terminal nothing that it acts upon.
pub(crate) fn escaped(json: &str) -> String {
    let mut kept = String::with_capacity(json.len());
    for c in json.chars() {
        // In a string JSON has escaped these; elsewhere they are room.
        if c < ' ' {
            kept.push(' ');
        } else if c.is_control() || is_invisible(c) {
            kept.extend(c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            kept.push(c);
        }
    }
    kept
}

/// A moment, to the millisecond.
pub(crate) fn moment(at: Timestamp) -> String {
    at.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

/// Whether a character hides or reorders what is around it.
pub(crate) fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn a_terminal_is_told_nothing_by_an_event() {
        assert_eq!(plain("a\x1b[2Jb\n\u{202e}é\u{9b}"), "a\\u{1b}[2Jb\\u{a}\\u{202e}é\\u{9b}");
        assert_eq!(plain("ordinary – 日本語 😀"), "ordinary – 日本語 😀");
    }

    #[test]
    fn an_error_tells_each_cause_once_and_nothing_to_the_terminal() {
        let source = std::io::Error::other("refused \x1b[2J");
        let error = anyhow::Error::new(source).context("cannot connect: refused \x1b[2J").context("outbox");
        assert_eq!(told(&error), "outbox: cannot connect: refused \\u{1b}[2J");
        assert_eq!(told(&anyhow!("two faults\none\r\ntwo").context("f")), "f: two faults\none\ntwo");
    }

    #[test]
    fn json_means_the_same_after_it_was_escaped() {
        let json = "{\"a\":\t\"\u{9b}2J\u{202e}\u{e0041}\u{7f}é\"}";
        let plain = escaped(json);
        assert_eq!(plain, r#"{"a": "\u009b2J\u202e\udb40\udc41\u007fé"}"#);
        let read = |json: &str| serde_json::from_str::<serde_json::Value>(json).unwrap();
        assert_eq!(read(&plain), read(json));
    }
}
