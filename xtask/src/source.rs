//! Our Rust files, parsed: their doc comments, which of them stand on tests, and what is switched off.

mod comment;

use std::num::NonZero;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::thread;

use anyhow::Result;
use proc_macro2::{Delimiter, Group, TokenTree};
use syn::parse::discouraged::Speculative as _;
use syn::parse::{Parse, ParseStream, Parser as _};
use syn::visit::{self, Visit};
use syn::{AttrStyle, Attribute, Ident, ItemFn, Macro, MacroDelimiter, Token, Visibility, token};

pub(crate) use comment::Comment;
use comment::Doc;

use crate::fault::Fault;
use crate::workspace::{Workspace, read};

/// One file, and what was found in it.
pub(crate) struct Source {
    /// As it is shown to people.
    pub(crate) path: String,
    pub(crate) text: String,
    /// All doc comments, top to bottom.
    pub(crate) comments: Vec<Comment>,
    /// The lines of `#[ignore]`.
    pub(crate) ignored: Vec<usize>,
    /// Why it could not be parsed; then nothing was found in it.
    pub(crate) unreadable: Option<Fault>,
}

/// Without any of these there is nothing to find in a file. Most have none, and parsing is what takes the time.
const WORDS: [&str; 2] = ["Rules:", "#[ignore"];

/// Every Rust file of ours, sorted by path.
pub(crate) fn all(workspace: &Workspace) -> Result<Vec<Source>> {
    let files = workspace.rust_files()?;
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let look = |path: &PathBuf| Ok(Source::skim(workspace.shown(path), read(path)?));
    // Neighbours are alike, so that dealing them out in turn gives every thread as much to do.
    let (files, look) = (&files, &look);
    let share =
        |first| move || files.iter().skip(first).step_by(threads).map(look).collect::<Result<Vec<_>>>();
    let mut sources = Vec::new();
    thread::scope(|scope| {
        let shares: Vec<_> = (0..threads).map(|first| scope.spawn(share(first))).collect();
        for share in shares {
            sources.extend(share.join().unwrap_or_else(|panic| resume_unwind(panic))?);
        }
        Ok::<_, anyhow::Error>(())
    })?;
    sources.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(sources)
}

impl Source {
    /// Parses a file if there may be something to find in it.
    pub(crate) fn skim(path: impl Into<String>, text: impl Into<String>) -> Self {
        let (path, text) = (path.into(), text.into());
        if WORDS.iter().any(|word| text.contains(word)) {
            return Self::parse(path, text);
        }
        Self { path, text, comments: Vec::new(), ignored: Vec::new(), unreadable: None }
    }

    fn parse(path: impl Into<String>, text: impl Into<String>) -> Self {
        let (path, text) = (path.into(), text.into());
        let mut reader = Reader::default();
        let unreadable = match syn::parse_file(&text) {
            Ok(file) => {
                reader.visit_file(&file);
                None
            }
            Err(error) => {
                let what = format!("this cannot be parsed as Rust: {error}; correct it");
                Some(Fault::new(&path, error.span().start().line, what))
            }
        };
        let comments = reader.comments();
        reader.ignored.sort_unstable();
        Self { path, text, comments, ignored: reader.ignored, unreadable }
    }
}

#[derive(Default)]
struct Reader {
    /// The comments of functions, each with all its lines.
    of_functions: Vec<Comment>,
    /// The lines of doc comments on everything else.
    of_others: Vec<Doc>,
    ignored: Vec<usize>,
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        self.function(&function.attrs, is_test(&function.attrs));
        visit::visit_block(self, &function.block);
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        self.note_ignored(attribute);
        self.of_others.extend(comment::docs(attribute));
    }

    /// The parser sees no items in what a macro is given, so it is searched for functions and attributes.
    fn visit_macro(&mut self, called: &'ast Macro) {
        let functions_are_tests = makes_tests(called);
        let search = |input: ParseStream<'_>| self.search(input, functions_are_tests);
        // It takes any token, so it cannot fail.
        let _ = search.parse2(called.tokens.clone());
    }
}

impl Reader {
    fn function(&mut self, attributes: &[Attribute], is_test: bool) {
        for attribute in attributes {
            self.note_ignored(attribute);
        }
        let (outer, inner): (Vec<_>, Vec<_>) =
            attributes.iter().partition(|attribute| matches!(attribute.style, AttrStyle::Outer));
        // What stands inside the braces documents the function as well, and is no place for citations.
        for (attributes, belongs_to_test) in [(outer, is_test), (inner, false)] {
            let docs: Vec<Doc> = attributes.into_iter().flat_map(comment::docs).collect();
            self.of_functions.extend(Comment::of(&docs, belongs_to_test));
        }
    }

    /// Takes what it knows, and passes over everything else token by token.
    fn search(&mut self, input: ParseStream<'_>, functions_are_tests: bool) -> syn::Result<()> {
        while !input.is_empty() {
            let attributed = input.peek(Token![#]);
            let calls = input.peek(Ident) && input.peek2(Token![!]) && input.peek3(token::Brace);
            if let Some(function) = attributed.then(|| ahead(input, Function::parse)).flatten() {
                self.function(&function.attributes, functions_are_tests || is_test(&function.attributes));
                self.search_group(&function.body)?;
            } else if let Some(attributes) = attributed.then(|| ahead(input, attributes)).flatten() {
                for attribute in &attributes {
                    self.visit_attribute(attribute);
                }
            } else if let Some(called) = calls.then(|| ahead(input, Macro::parse)).flatten() {
                self.visit_macro(&called);
            } else if let TokenTree::Group(group) = input.parse()? {
                self.search_group(&group)?;
            }
        }
        Ok(())
    }

    fn search_group(&mut self, group: &Group) -> syn::Result<()> {
        let search = |input: ParseStream<'_>| self.search(input, false);
        search.parse2(group.stream())
    }

    fn note_ignored(&mut self, attribute: &Attribute) {
        if attribute.path().is_ident("ignore") {
            self.ignored.push(comment::first_line(attribute));
        }
    }

    fn comments(&mut self) -> Vec<Comment> {
        let mut comments = std::mem::take(&mut self.of_functions);
        let runs = self.of_others.chunk_by(Doc::is_followed_by);
        comments.extend(runs.filter_map(|run| Comment::of(run, false)));
        comments.sort_by_key(|comment| comment.lines.first().map(|line| line.number));
        comments
    }
}

/// A function as the macros take it: `async fn name(store) { … }`, or `fn name(x in 0..9) { … }`.
struct Function {
    attributes: Vec<Attribute>,
    body: Group,
}

impl Parse for Function {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let attributes = input.call(Attribute::parse_outer)?;
        input.parse::<Visibility>()?;
        input.parse::<Option<Token![async]>>()?;
        input.parse::<Token![fn]>()?;
        // From here to the braces it is the macro's own language.
        loop {
            match input.parse()? {
                TokenTree::Group(body) if body.delimiter() == Delimiter::Brace => {
                    return Ok(Self { attributes, body });
                }
                TokenTree::Punct(end) if end.as_char() == ';' => {
                    return Err(input.error("a function without a body"));
                }
                _ => {}
            }
        }
    }
}

/// The attributes in front of something, or else those about what they stand in.
fn attributes(input: ParseStream<'_>) -> syn::Result<Vec<Attribute>> {
    if input.peek2(Token![!]) { Attribute::parse_inner(input) } else { Attribute::parse_outer(input) }
}

/// What comes next, if it is that; else nothing is taken from the input.
fn ahead<T>(input: ParseStream<'_>, parser: fn(ParseStream<'_>) -> syn::Result<T>) -> Option<T> {
    let fork = input.fork();
    let found = parser(&fork).ok()?;
    input.advance_to(&fork);
    Some(found)
}

/// Recognises `#[test]`, `#[tokio::test(…)]` and their like.
fn is_test(attributes: &[Attribute]) -> bool {
    let last =
        |attribute: &Attribute| attribute.path().segments.last().map(|segment| segment.ident.to_string());
    attributes
        .iter()
        .any(|attribute| matches!(last(attribute).as_deref(), Some("test" | "rstest" | "test_case")))
}

/// Recognises `proptest! { … }`, `suite! { … }` and every other macro whose name ends in `test`, `tests` or `suite`.
fn makes_tests(called: &Macro) -> bool {
    let name = called.path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default();
    let named = ["test", "tests", "suite"].iter().any(|end| name.ends_with(end));
    named && matches!(called.delimiter, MacroDelimiter::Brace(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(source: &str) -> Source {
        let parsed = Source::parse("a.rs", source);
        assert_eq!(parsed.unreadable, None);
        parsed
    }

    fn tests_found(source: &str) -> Vec<bool> {
        parsed(source).comments.iter().map(|comment| comment.belongs_to_test).collect()
    }

    #[test]
    fn a_test_attribute_below_or_above_the_comment_makes_a_test() {
        assert_eq!(tests_found("/// a\n#[test]\nfn a() {}\n"), [true]);
        assert_eq!(tests_found("#[test]\n/// a\nfn a() {}\n"), [true]);
        assert_eq!(
            tests_found("/// a\n#[tokio::test(flavor = \"multi_thread\")]\n// why\nasync fn a() {}\n"),
            [true]
        );
        assert_eq!(tests_found("/// a\n#[tokio::test(\n  flavor = \"x\",\n)]\nasync fn a() {}\n"), [true]);
        assert_eq!(tests_found("/// a\n#[cfg(test)]\nmod a {}\n"), [false]);
    }

    #[test]
    fn a_mark_holds_for_one_item_only() {
        assert_eq!(tests_found("/// a\n#[test]\nfn a() {}\n/// b\nfn b() {}\n"), [true, false]);
    }

    #[test]
    fn functions_inside_a_macro_that_makes_tests_are_tests() {
        let source = "proptest! {\n/// a\nfn a(x in 0..9) {\nassert!(x < 9, \"}\");\n}\n/// b\nfn b() {}\n}\n/// c\nfn c() {}\n";
        assert_eq!(tests_found(source), [true, true, false]);
        let source = "proptest! {\n#![proptest_config(Config::with_cases(9))]\n/// a\n#[test]\nfn a((x, y) in pair()) {}\n}\n";
        assert_eq!(tests_found(source), [true]);
    }

    #[test]
    fn functions_of_a_suite_are_tests_and_what_stands_in_them_is_not() {
        let source = "backstop_testkit::suite! {\n    over {\n        sqlite: fresh_sqlite,\n        /// where it runs\n        \
                      #[cfg(unix)]\n        postgres: fresh_postgres,\n    }\n\n    /// a\n    async fn a(mut store) {\n        \
                      /// helps\n        fn help() {}\n    }\n\n    /// b\n    #[cfg(unix)]\n    async fn b(_) {}\n}\n";
        let seen: Vec<_> = parsed(source)
            .comments
            .iter()
            .map(|comment| (comment.lines[0].number, comment.lines[0].text.clone(), comment.belongs_to_test))
            .collect();
        let expected = [(4, "where it runs", false), (9, "a", true), (11, "helps", false), (15, "b", true)];
        assert_eq!(seen, expected.map(|(line, text, is_test)| (line, text.to_owned(), is_test)));
    }

    #[test]
    fn tests_are_found_wherever_they_are_nested() {
        assert_eq!(tests_found("mod a {\n/// a\n#[test]\nfn a() {}\n}\n"), [true]);
        assert_eq!(tests_found("mod a {\nx::suite! {\nover { }\n/// a\nasync fn a(_) {}\n}\n}\n"), [true]);
        let source = "macro_rules! both {\n($name:ident $(#[$other:meta])*) => {\n/// a\n#[test]\nfn $name() {}\n\
                      proptest! {\n/// b\nfn b(x in 0..9) {}\n}\n};\n}\n";
        assert_eq!(tests_found(source), [true, true]);
    }

    #[test]
    fn functions_inside_other_macros_are_tests_only_if_they_say_so() {
        let source = "words! {\n/// a\nfn a() {}\n/// b\nfn b();\n/// c\n#[test]\nfn c() {}\n}\n";
        assert_eq!(tests_found(source), [false, false, true]);
        assert_eq!(tests_found("suite! {\nover {\n/// a\nfn a() {}\n}\n}\n"), [false]);
        assert_eq!(tests_found("suite!(\n/// a\nfn a() {}\n);\n"), [false]);
    }

    #[test]
    fn a_comment_about_the_file_belongs_to_no_test() {
        assert_eq!(tests_found("//! file\n\nuse x;\n#[test]\nfn a() {}\n"), [false]);
        assert_eq!(tests_found("//! file\n\n/// a\n#[test]\nfn a() {}\n"), [false, true]);
        assert_eq!(tests_found("//! file\n#[test]\nfn a() {}\n"), [false]);
        assert_eq!(tests_found("#[test]\nfn a() {\n//! inside\n}\n"), [false]);
    }

    #[test]
    fn comments_on_neighbours_are_not_one() {
        assert_eq!(tests_found("struct A {\n/// x\nx: u8,\n/// y\n/// too\ny: u8,\n}\n"), [false, false]);
        assert_eq!(tests_found("words! {\n/// x\nx,\n/// y\n/// too\ny,\n}\n"), [false, false]);
    }

    #[test]
    fn words_in_text_are_no_comments() {
        assert_eq!(tests_found("const A: &str = \"\n/// a\n#[ignore]\n\";\n"), [false; 0]);
    }

    #[test]
    fn what_is_ignored_is_found_in_macros_too() {
        assert_eq!(parsed("#[test]\n#[ignore = \"slow\"]\nfn a() {}\n").ignored, [2]);
        assert_eq!(parsed("x::suite! {\nover { }\n#[ignore]\nasync fn a(_) {}\n}\n").ignored, [3]);
        assert_eq!(parsed("fn a() {\nlet text = \"\n#[ignore]\n\";\n}\n").ignored, [0; 0]);
    }

    #[test]
    fn a_file_that_is_no_rust_is_told_with_its_line() {
        let fault = Source::parse("a.rs", "//! x\nfn a() {}\nfn b( {}\n").unreadable.unwrap();
        assert_eq!((fault.path.as_str(), fault.line), ("a.rs", 3));
        assert!(fault.what.contains("correct it"), "{fault}");
    }
}
