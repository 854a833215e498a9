//! `cargo xtask conformance`: the rule books, and which of their rules the tests show.

mod book;
mod citation;

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::fault::Fault;
use crate::say::say;
use crate::source::{self, Source};
use crate::workspace::{Workspace, entries, file_name, read};
use book::{Book, Rule, Stand};
use citation::Citation;

/// Open rules are shown cut to about a terminal's width.
const WIDTH: usize = 100;

/// All books and all citations, read once.
pub(crate) struct Conformance {
    books: Vec<Book>,
    citations: Vec<Citation>,
    faults: Vec<Fault>,
}

/// How far an area is.
struct Progress<'a> {
    book: &'a Book,
    shown: usize,
    departs: usize,
    not_applicable: usize,
    open: Vec<&'a Rule>,
}

pub(crate) fn run(workspace: &Workspace, area: Option<&str>) -> Result<ExitCode> {
    let conformance = Conformance::read(workspace, &source::all(workspace)?)?;
    if conformance.books.is_empty() {
        say!("there is no rule book under docs/conformance yet");
    }
    let areas: Vec<&str> = conformance.books.iter().map(|book| book.area.as_str()).collect();
    if let Some(area) = area.filter(|area| !areas.contains(area)) {
        bail!("there is no rule book for `{area}`; choose one of: {}", areas.join(", "));
    }
    for book in conformance.books.iter().filter(|book| area.is_none_or(|area| area == book.area)) {
        conformance.progress(book).print();
    }
    for warning in conformance.warnings() {
        say!("warning: {warning}");
    }
    let faults = conformance.faults();
    for fault in &faults {
        say!("{fault}");
    }
    Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Conformance {
    pub(crate) fn read(workspace: &Workspace, sources: &[Source]) -> Result<Self> {
        let mut books = Vec::new();
        let mut citations = Vec::new();
        let mut faults = Vec::new();
        for path in entries(&workspace.path("docs/conformance"))? {
            let name = file_name(&path);
            // The folder's own README is about books, not one of them.
            let Some(area) = name.strip_suffix(".md").filter(|area| *area != "README") else { continue };
            let (book, wrong) = Book::parse(area, &workspace.shown(&path), &read(&path)?);
            books.push(book);
            faults.extend(wrong);
        }
        for source in sources {
            let (cited, wrong) = citation::read(source);
            citations.extend(cited);
            faults.extend(wrong);
        }
        Ok(Self { books, citations, faults })
    }

    /// Everything that must be put right: unreadable books and citations, ids that no book has, and open rules
    /// of areas that are called finished.
    pub(crate) fn faults(&self) -> Vec<Fault> {
        let mut faults = self.faults.clone();
        let unknown = self.citations.iter().filter(|citation| self.cited(citation).is_empty());
        faults.extend(unknown.map(|citation| {
            let what =
                format!("cites {citation}, which no book has; correct the id or add the rule to its book");
            Fault::new(&citation.path, citation.line, what)
        }));
        for book in self.books.iter().filter(|book| book.finished) {
            faults.extend(self.progress(book).open.iter().map(|rule| {
                let what = format!(
                    "no test shows {} although the area is finished; write one that cites it",
                    rule.id
                );
                Fault::new(format!("docs/conformance/{}.md", book.area), 1, what)
            }));
        }
        faults.sort();
        faults
    }

    /// Citations of rules that have no meaning here: either the book or the test is wrong.
    pub(crate) fn warnings(&self) -> Vec<Fault> {
        let mut warnings = Vec::new();
        for citation in self.citations.iter().filter(|citation| !citation.is_range()) {
            for rule in self.cited(citation).into_iter().filter(|rule| rule.stand == Stand::NotApplicable) {
                let what = format!("cites {}, which is n/a; correct the book or drop the citation", rule.id);
                warnings.push(Fault::new(&citation.path, citation.line, what));
            }
        }
        warnings
    }

    /// The rules that a citation names and that exist.
    fn cited(&self, citation: &Citation) -> Vec<&Rule> {
        if !citation.is_range() {
            return self.books.iter().filter_map(|book| book.find(&citation.first)).collect();
        }
        self.books.iter().flat_map(|book| &book.rules).filter(|rule| citation.covers(&rule.id)).collect()
    }

    fn progress<'a>(&'a self, book: &'a Book) -> Progress<'a> {
        let count = |stand| book.rules.iter().filter(|rule| rule.stand == stand).count();
        let is_shown = |rule: &Rule| self.citations.iter().any(|citation| citation.covers(&rule.id));
        let to_show = book.rules.iter().filter(|rule| rule.stand != Stand::NotApplicable);
        let (shown, open): (Vec<_>, Vec<_>) = to_show.partition(|rule| is_shown(rule));
        Progress {
            book,
            shown: shown.len(),
            departs: count(Stand::Departs),
            not_applicable: count(Stand::NotApplicable),
            open,
        }
    }
}

impl Progress<'_> {
    fn print(&self) {
        let status = if self.book.finished { "finished" } else { "growing" };
        say!(
            "{} ({status}): {} rules, {} shown, {} departs, {} n/a, {} open",
            self.book.area,
            self.book.rules.len(),
            self.shown,
            self.departs,
            self.not_applicable,
            self.open.len()
        );
        for rule in &self.open {
            say!("{}", cut(&format!("  open {}: {}", rule.id, rule.text)));
        }
    }
}

fn cut(line: &str) -> String {
    if line.chars().count() <= WIDTH {
        return line.to_owned();
    }
    line.chars().take(WIDTH - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conformance(book: &str, source: &str) -> Conformance {
        let (book, mut faults) = Book::parse("outbox", "docs/conformance/outbox.md", book);
        let (citations, wrong) = citation::read(&Source::skim("a.rs", source));
        faults.extend(wrong);
        Conformance { books: vec![book], citations, faults }
    }

    const ROWS: &str = "| O-1 | one |\n| O-2 | n/a — nothing |\n| O-5 | departs: five |\n| O-9 | nine |\n";

    #[test]
    fn a_range_shows_only_the_rules_that_exist() {
        let found =
            conformance(&format!("Status: growing\n{ROWS}"), "/// Rules: O-1..O-7.\n#[test]\nfn a() {}\n");
        let progress = found.progress(&found.books[0]);
        assert_eq!((progress.shown, progress.departs, progress.not_applicable), (2, 1, 1));
        assert_eq!(progress.open.iter().map(|rule| rule.id.to_string()).collect::<Vec<_>>(), ["O-9"]);
        assert_eq!(found.faults(), []);
    }

    #[test]
    fn a_cited_rule_that_no_book_has_is_a_fault() {
        let source = "/// Rules: O-3, Q-1, O-6..O-8.\n#[test]\nfn a() {}\n";
        let found = conformance(&format!("Status: growing\n{ROWS}"), source);
        let told: Vec<_> = found.faults().into_iter().map(|fault| fault.what).collect();
        assert_eq!(told.len(), 3);
        for id in ["O-3", "Q-1", "O-6..O-8"] {
            assert!(told.iter().any(|what| what.contains(&format!("cites {id},"))), "{id}");
        }
    }

    #[test]
    fn open_rules_are_faults_only_where_the_area_is_finished() {
        let source = "/// Rules: O-1, O-5.\n#[test]\nfn a() {}\n";
        assert_eq!(conformance(&format!("Status: growing\n{ROWS}"), source).faults(), []);
        let faults = conformance(&format!("Status: finished\n{ROWS}"), source).faults();
        assert_eq!(faults.len(), 1);
        assert!(faults[0].what.starts_with("no test shows O-9"));
    }

    #[test]
    fn citing_a_rule_without_meaning_is_a_warning() {
        let found = conformance(&format!("Status: growing\n{ROWS}"), "/// Rules: O-2.\n#[test]\nfn a() {}\n");
        assert_eq!(found.warnings().len(), 1);
        assert_eq!(found.faults(), []);
    }

    #[test]
    fn a_long_rule_is_cut_to_the_width() {
        assert_eq!(cut(&"x".repeat(200)).chars().count(), WIDTH);
        assert_eq!(cut("short"), "short");
    }
}
