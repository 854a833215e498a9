//! A doc comment line by line, and which of its lines are code that `cargo test` runs.

use syn::{AttrStyle, Attribute, Expr, ExprLit, Lit, Meta};

/// The lines of one doc comment.
#[derive(Debug)]
pub(crate) struct Comment {
    pub(crate) lines: Vec<Line>,
    /// Whether the item it documents is a test function.
    pub(crate) belongs_to_test: bool,
}

#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) number: usize,
    /// What stands after `///` or `//!`, without the space.
    pub(crate) text: String,
    /// Inside a code fence.
    pub(crate) in_code: bool,
    /// Inside a code fence that `cargo test` compiles.
    pub(crate) is_run: bool,
}

/// A line of documentation as the parser gives it.
#[derive(Debug)]
pub(super) struct Doc {
    number: usize,
    text: String,
    /// Of the `//!` kind, which documents what it stands in.
    inner: bool,
}

impl Doc {
    /// Whether the next one goes on with the same comment.
    pub(super) fn is_followed_by(&self, next: &Self) -> bool {
        self.inner == next.inner && self.number + 1 == next.number
    }
}

/// The lines of an attribute, if it is documentation.
pub(super) fn docs(attribute: &Attribute) -> Vec<Doc> {
    let Meta::NameValue(meta) = &attribute.meta else { return Vec::new() };
    let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = &meta.value else { return Vec::new() };
    if !meta.path.is_ident("doc") {
        return Vec::new();
    }
    let inner = !matches!(attribute.style, AttrStyle::Outer);
    // `lines` would lose an empty one.
    let doc = |(number, text): (usize, &str)| Doc { number, text: text.to_owned(), inner };
    (first_line(attribute)..).zip(text.value().split('\n')).map(doc).collect()
}

/// The line on which an attribute begins.
pub(super) fn first_line(attribute: &Attribute) -> usize {
    attribute.pound_token.span.start().line
}

impl Comment {
    /// The comment that these lines make; none of no lines.
    pub(super) fn of(docs: &[Doc], belongs_to_test: bool) -> Option<Self> {
        // The fence we are in: whether it is run.
        let mut fence = None;
        let line = |doc: &Doc| {
            let text = doc.text.strip_prefix(' ').unwrap_or(&doc.text);
            let mut in_code = fence.is_some();
            if let Some(info) = text.trim_start().strip_prefix("```") {
                fence = if in_code { None } else { Some(runs(info)) };
                in_code = false;
            }
            let is_run = in_code && fence == Some(true);
            Line { number: doc.number, text: text.to_owned(), in_code, is_run }
        };
        let lines: Vec<Line> = docs.iter().map(line).collect();
        (!lines.is_empty()).then_some(Self { lines, belongs_to_test })
    }
}

/// Whether an example with this fence is compiled by `cargo test`.
fn runs(info: &str) -> bool {
    const RUST: [&str; 6] = ["", "rust", "should_panic", "compile_fail", "no_run", "standalone_crate"];
    // `E0596` names the error that must come.
    let is_code = |word: &str| word.strip_prefix('E').is_some_and(|code| code.parse::<u16>().is_ok());
    info.split(',')
        .map(str::trim)
        .all(|word| RUST.contains(&word) || word.starts_with("edition") || is_code(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Source;

    #[test]
    fn only_examples_that_are_compiled_count_as_run() {
        assert!(["", "rust", "no_run", "compile_fail,E0596", "rust,edition2024"].into_iter().all(runs));
        assert!(!["text", "ignore", "rust,ignore", "toml", "sql"].into_iter().any(runs));
    }

    #[test]
    fn code_in_a_comment_is_told_apart_by_its_fence() {
        let source = "/// ```\n/// run\n/// ```\n/// ```text\n/// shown\n/// ```\nfn a() {}\n";
        let comment = &Source::parse("a.rs", source).comments[0];
        let seen: Vec<_> = comment.lines.iter().map(|line| (line.in_code, line.is_run)).collect();
        assert_eq!(
            seen,
            [(false, false), (true, true), (false, false), (false, false), (true, false), (false, false)]
        );
    }
}
