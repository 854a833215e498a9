//! Texts that go into a column.

/// Longer error texts are cut: a stack trace must not blow up the row.
const MAX_ERROR_CHARS: usize = 4_000;

/// The text in at most [`MAX_ERROR_CHARS`] characters, with a mark where it was cut. NUL, which a text
/// column may refuse, becomes visible.
pub(crate) fn cut(error: &str) -> String {
    let error = error.replace('\0', "␀");
    match error.char_indices().nth(MAX_ERROR_CHARS) {
        None => error,
        Some(_) => error.chars().take(MAX_ERROR_CHARS - 3).chain("...".chars()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rules: O-268.
    #[test]
    fn errors_are_cut_at_4000_characters_with_a_mark_and_never_inside_one() {
        assert_eq!(cut("short"), "short");
        let exact = "é".repeat(4_000);
        assert_eq!(cut(&exact), exact);
        let long = cut(&"é".repeat(4_001));
        assert_eq!(long.chars().count(), 4_000);
        assert!(long.ends_with("é..."));
    }
}
