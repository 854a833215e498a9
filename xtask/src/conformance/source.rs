//! Doc comments in Rust source, and whether what follows them is a test.

/// Consecutive lines of one doc comment.
#[derive(Debug, Default)]
pub(super) struct Comment {
    pub(super) lines: Vec<Line>,
    /// Whether the item it documents is a test function.
    pub(super) belongs_to_test: bool,
}

#[derive(Debug)]
pub(super) struct Line {
    pub(super) number: usize,
    /// What stands after `///` or `//!`, without the space.
    pub(super) text: String,
    /// Inside a code fence.
    pub(super) in_code: bool,
    /// Inside a code fence that `cargo test` compiles.
    pub(super) is_run: bool,
}

/// All doc comments of a file, top to bottom.
pub(super) fn comments(source: &str) -> Vec<Comment> {
    let mut reader = Reader::default();
    for (number, line) in (1..).zip(source.lines()) {
        reader.read(number, line.trim());
    }
    reader.close(false);
    reader.done
}

#[derive(Default)]
struct Reader {
    done: Vec<Comment>,
    current: Comment,
    /// The current comment is of the `//!` kind, which documents what it stands in.
    about_file: bool,
    /// The fence we are in: whether it is run.
    fence: Option<bool>,
    /// A test attribute has been seen since the last item.
    marked: bool,
    /// Open brackets of an attribute that spans lines.
    attribute_depth: i32,
    /// Open braces, and at which depth each macro that makes tests was entered.
    depth: i32,
    test_macros: Vec<i32>,
}

impl Reader {
    fn read(&mut self, number: usize, line: &str) {
        if self.attribute_depth > 0 {
            self.attribute_depth += balance(line, '[', ']');
        } else if let Some(text) = line.strip_prefix("//!") {
            self.about_file = true;
            self.document(number, text);
        } else if let Some(text) = line.strip_prefix("///").filter(|text| !text.starts_with('/')) {
            if self.about_file {
                self.close(false);
            }
            self.document(number, text);
        } else if line.starts_with("#[") {
            self.marked |= is_test_attribute(line);
            self.attribute_depth = balance(line, '[', ']').max(0);
        } else if line.is_empty() || line.starts_with("//") {
            // Neither comes between a comment and its item.
        } else {
            let is_function = line.contains("fn ");
            let is_test = is_function && (self.marked || !self.test_macros.is_empty());
            let about_item = !self.about_file;
            self.close(is_test && about_item);
            self.marked = false;
            self.enter(line);
        }
    }

    fn document(&mut self, number: usize, text: &str) {
        let text = text.strip_prefix(' ').unwrap_or(text);
        let mut in_code = self.fence.is_some();
        if let Some(info) = text.trim_start().strip_prefix("```") {
            self.fence = if in_code { None } else { Some(runs(info)) };
            in_code = false;
        }
        let is_run = in_code && self.fence == Some(true);
        self.current.lines.push(Line { number, text: text.to_owned(), in_code, is_run });
    }

    fn close(&mut self, belongs_to_test: bool) {
        self.fence = None;
        self.about_file = false;
        let comment = std::mem::take(&mut self.current);
        if !comment.lines.is_empty() {
            self.done.push(Comment { belongs_to_test, ..comment });
        }
    }

    fn enter(&mut self, line: &str) {
        if makes_tests(line) {
            self.test_macros.push(self.depth);
        }
        self.depth += balance(line, '{', '}');
        if self.test_macros.last().is_some_and(|outside| self.depth <= *outside) {
            self.test_macros.pop();
        }
    }
}

/// Recognises `#[test]`, `#[tokio::test(…)]` and their like.
fn is_test_attribute(line: &str) -> bool {
    let path: String = line[2..].chars().take_while(|c| c.is_alphanumeric() || "_:".contains(*c)).collect();
    matches!(path.rsplit("::").next(), Some("test" | "rstest" | "test_case"))
}

/// Recognises `proptest! {` and every other macro whose name ends in `test` or `tests`.
fn makes_tests(line: &str) -> bool {
    let Some((name, rest)) = line.split_once('!') else { return false };
    let plain = name.chars().all(|c| c.is_alphanumeric() || "_:".contains(c));
    plain
        && ["test", "tests", "suite"].iter().any(|end| name.ends_with(end))
        && rest.trim_end().ends_with('{')
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

/// How many more brackets a line opens than it closes, outside of text in quotes.
fn balance(line: &str, open: char, close: char) -> i32 {
    let mut balance = 0;
    let mut quoted = false;
    let mut previous = ' ';
    for c in line.chars() {
        match c {
            '"' if previous != '\\' && previous != '\'' => quoted = !quoted,
            _ if quoted || previous == '\'' => {}
            c if c == open => balance += 1,
            c if c == close => balance -= 1,
            _ => {}
        }
        previous = c;
    }
    balance
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tests_found(source: &str) -> Vec<bool> {
        comments(source).iter().map(|comment| comment.belongs_to_test).collect()
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
    }

    #[test]
    fn a_comment_about_the_file_belongs_to_no_test() {
        assert_eq!(tests_found("//! file\n\nuse x;\n#[test]\nfn a() {}\n"), [false]);
        assert_eq!(tests_found("//! file\n\n/// a\n#[test]\nfn a() {}\n"), [false, true]);
        assert_eq!(tests_found("//! file\n#[test]\nfn a() {}\n"), [false]);
    }

    #[test]
    fn only_examples_that_are_compiled_count_as_run() {
        assert!(["", "rust", "no_run", "compile_fail,E0596", "rust,edition2024"].into_iter().all(runs));
        assert!(!["text", "ignore", "rust,ignore", "toml", "sql"].into_iter().any(runs));
    }

    #[test]
    fn code_in_a_comment_is_told_apart_by_its_fence() {
        let comment = &comments("/// ```\n/// run\n/// ```\n/// ```text\n/// shown\n/// ```\nfn a() {}\n")[0];
        let seen: Vec<_> = comment.lines.iter().map(|line| (line.in_code, line.is_run)).collect();
        assert_eq!(
            seen,
            [(false, false), (true, true), (false, false), (false, false), (true, false), (false, false)]
        );
    }
}
