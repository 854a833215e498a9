//! Citations of rules in source code: `Rules: O-252, O-271..O-283.` in the doc comment of a test.

use std::fmt;

use super::book::RuleId;
use crate::fault::Fault;
use crate::source::{Comment, Source};

/// A rule, or all rules from one to another, that a test says it shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Citation {
    pub(super) first: RuleId,
    pub(super) last: RuleId,
    pub(super) path: String,
    pub(super) line: usize,
}

impl Citation {
    pub(super) fn covers(&self, id: &RuleId) -> bool {
        id.letters == self.first.letters && (self.first.number..=self.last.number).contains(&id.number)
    }

    pub(super) fn is_range(&self) -> bool {
        self.first != self.last
    }
}

impl fmt::Display for Citation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_range() { write!(f, "{}..{}", self.first, self.last) } else { write!(f, "{}", self.first) }
    }
}

/// Every citation of a file, and what is wrong with those that do not count.
pub(super) fn read(source: &Source) -> (Vec<Citation>, Vec<Fault>) {
    let path = source.path.as_str();
    let mut citations = Vec::new();
    let mut faults: Vec<Fault> = source.unreadable.iter().cloned().collect();
    for comment in &source.comments {
        for list in lists(comment) {
            if !list.complete {
                let what = "the list of rules does not end; close it with a full stop";
                faults.push(Fault::new(path, list.line, what));
            } else if !list.counts {
                let what =
                    "rules are cited where no test follows; move the citation to the test that shows them";
                faults.push(Fault::new(path, list.line, what));
            }
            for item in list.text.split(',').map(str::trim) {
                match parse(item) {
                    Some((first, last)) if list.complete && list.counts => {
                        citations.push(Citation { first, last, path: path.to_owned(), line: list.line });
                    }
                    Some(_) => {}
                    None => faults.push(Fault::new(
                        path,
                        list.line,
                        format!("`{item}` is not a rule; write ids such as `O-252` or `O-271..O-283`"),
                    )),
                }
            }
        }
    }
    (citations, faults)
}

/// The text between `Rules:` and its full stop.
struct List {
    text: String,
    line: usize,
    complete: bool,
    counts: bool,
}

fn lists(comment: &Comment) -> Vec<List> {
    let mut lists: Vec<List> = Vec::new();
    for line in &comment.lines {
        // In a doc test the citation stands on a hidden line, inside the code that is run.
        let hidden = line.text.strip_prefix("# //").filter(|_| line.in_code).map(str::trim);
        let content = if line.in_code { hidden.unwrap_or_default() } else { line.text.trim() };
        if let Some(open) = lists.last_mut().filter(|list| !list.complete && list.line < line.number) {
            open.text.push(' ');
            open.text.push_str(content);
            finish(open);
        } else if let Some(text) = content.strip_prefix("Rules:") {
            let counts = if line.in_code { line.is_run } else { comment.belongs_to_test };
            let mut list = List { text: text.trim().to_owned(), line: line.number, complete: false, counts };
            finish(&mut list);
            lists.push(list);
        }
    }
    lists
}

fn finish(list: &mut List) {
    if let Some(text) = list.text.strip_suffix('.').filter(|text| !text.ends_with('.')) {
        list.text = text.to_owned();
        list.complete = true;
    }
}

fn parse(item: &str) -> Option<(RuleId, RuleId)> {
    let (first, last) = item.split_once("..").unwrap_or((item, item));
    let (first, last) = (RuleId::parse(first.trim())?, RuleId::parse(last.trim())?);
    (first.letters == last.letters && first.number <= last.number).then_some((first, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cited(text: &str) -> Vec<String> {
        let (citations, faults) = read(&Source::skim("a.rs", text));
        assert_eq!(faults, []);
        citations.iter().map(ToString::to_string).collect()
    }

    fn faults(text: &str) -> Vec<Fault> {
        let (citations, faults) = read(&Source::skim("a.rs", text));
        assert_eq!(citations, []);
        faults
    }

    #[test]
    fn a_test_cites_rules_and_ranges() {
        let text =
            "/// A claim.\n///\n/// Rules: O-252, O-271..O-283.\n#[tokio::test]\nasync fn a_claim() {}\n";
        assert_eq!(cited(text), ["O-252", "O-271..O-283"]);
    }

    #[test]
    fn a_list_goes_on_until_its_full_stop() {
        let text = "/// Rules: O-1,\n/// O-2..O-4,\n/// O-9.\n/// O-10.\n#[test]\nfn a_claim() {}\n";
        assert_eq!(cited(text), ["O-1", "O-2..O-4", "O-9"]);
    }

    #[test]
    fn a_doc_test_cites_on_hidden_lines() {
        let text = "//! ```\n//! # // Rules: O-1,\n//! # // O-2.\n//! let x = 1;\n//! ```\n\n/// ```rust\n/// # // Rules: O-3.\n\
                    /// ```\npub fn f() {}\n";
        assert_eq!(cited(text), ["O-1", "O-2", "O-3"]);
    }

    #[test]
    fn a_citation_without_a_test_is_a_fault() {
        let found = faults("/// Rules: O-1.\npub fn not_a_test() {}\n");
        assert_eq!(found.len(), 1);
        assert!(found[0].to_string().starts_with("a.rs:1: rules are cited where no test follows"));
    }

    #[test]
    fn a_citation_in_an_example_that_is_not_run_is_a_fault() {
        assert_eq!(faults("/// ```text\n/// # // Rules: O-1.\n/// ```\nfn f() {}\n").len(), 1);
        assert_eq!(faults("/// ```ignore\n/// # // Rules: O-1.\n/// ```\nfn f() {}\n").len(), 1);
    }

    #[test]
    fn a_file_that_cannot_be_parsed_is_a_fault() {
        assert!(faults("/// Rules: O-1.\n#[test]\nfn f( {}\n")[0].to_string().starts_with("a.rs:3: "));
    }

    #[test]
    fn an_open_list_and_a_strange_id_are_faults() {
        assert!(faults("/// Rules: O-1\n#[test]\nfn f() {}\n")[0].what.contains("full stop"));
        assert!(faults("/// Rules: see above.\n#[test]\nfn f() {}\n")[0].what.contains("`see above`"));
        assert!(faults("/// Rules: O-9..O-2.\n#[test]\nfn f() {}\n")[0].what.contains("`O-9..O-2`"));
    }
}
