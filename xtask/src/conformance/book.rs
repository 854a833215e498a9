//! A rule book, `docs/conformance/<area>.md`: a status, and a table row for every rule.

use std::fmt;

use crate::fault::Fault;

/// The name of a rule, such as `O-252`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RuleId {
    pub(super) letters: String,
    pub(super) number: u32,
    /// How the number is written, zeros and all.
    digits: String,
}

impl RuleId {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (letters, digits) = text.split_once('-')?;
        let lettered = !letters.is_empty() && letters.chars().all(|c| c.is_ascii_uppercase());
        let numbered = digits.chars().all(|c| c.is_ascii_digit());
        let number = digits.parse().ok().filter(|_| lettered && numbered)?;
        Some(Self { letters: letters.to_owned(), number, digits: digits.to_owned() })
    }
}

impl fmt::Display for RuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.letters, self.digits)
    }
}

/// What the project does with a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stand {
    /// Kept as it is.
    Kept,
    /// Kept differently, which the row explains after `departs:`. Shown by tests like any other.
    Departs,
    /// Without meaning here, which the row explains after `n/a —`.
    NotApplicable,
}

#[derive(Debug)]
pub(super) struct Rule {
    pub(super) id: RuleId,
    pub(super) text: String,
    pub(super) stand: Stand,
}

#[derive(Debug)]
pub(super) struct Book {
    pub(super) area: String,
    pub(super) finished: bool,
    pub(super) rules: Vec<Rule>,
}

impl Book {
    /// Reads a book; what cannot be understood in it is a fault.
    pub(super) fn parse(area: &str, path: &str, text: &str) -> (Self, Vec<Fault>) {
        let mut faults = Vec::new();
        let finished = text.lines().find_map(|line| line.trim().strip_prefix("Status: ")).and_then(status);
        if finished.is_none() {
            let what =
                "the book has no status; write a line `Status: growing` or `Status: finished` near the top";
            faults.push(Fault::new(path, 1, what));
        }
        let mut rules: Vec<Rule> = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let Some(rule) = row(line) else { continue };
            if rules.iter().any(|known| known.id == rule.id) {
                faults.push(Fault::new(
                    path,
                    number,
                    format!("{} is in the book twice; remove one of them", rule.id),
                ));
            } else {
                rules.push(rule);
            }
        }
        (Self { area: area.to_owned(), finished: finished.unwrap_or(false), rules }, faults)
    }

    pub(super) fn find(&self, id: &RuleId) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.id == *id)
    }
}

fn status(value: &str) -> Option<bool> {
    match value.split(|c: char| !c.is_alphabetic()).next()? {
        "finished" => Some(true),
        "growing" => Some(false),
        _ => None,
    }
}

/// Reads `| O-252 | … | the rule | … |`. The rule's text is the longest cell: tables differ in their small columns.
fn row(line: &str) -> Option<Rule> {
    let inner = line.trim().strip_prefix('|')?.trim_end().strip_suffix('|')?;
    let mut cells = cells(inner).into_iter();
    let id = RuleId::parse(&cells.next()?)?;
    let cells: Vec<String> = cells.collect();
    let text = cells.iter().max_by_key(|cell| cell.chars().count()).cloned().unwrap_or_default();
    let stand = if cells.iter().any(|cell| *cell == "n/a" || cell.starts_with("n/a ")) {
        Stand::NotApplicable
    } else if cells.iter().any(|cell| cell.contains("departs:")) {
        Stand::Departs
    } else {
        Stand::Kept
    };
    Some(Rule { id, text, stand })
}

/// Splits a row at its bars; `\|` is a bar inside a cell.
fn cells(row: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut characters = row.chars().peekable();
    while let Some(c) = characters.next() {
        match (c, cells.last_mut()) {
            ('\\', Some(cell)) if characters.peek() == Some(&'|') => {
                characters.next();
                cell.push('|');
            }
            ('|', _) => cells.push(String::new()),
            (c, Some(cell)) => cell.push(c),
            (_, None) => {}
        }
    }
    cells.iter().map(|cell| cell.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn book(text: &str) -> (Book, Vec<Fault>) {
        Book::parse("outbox", "docs/conformance/outbox.md", text)
    }

    #[test]
    fn rows_become_rules_with_their_stand() {
        let (book, faults) = book(
            "# Outbox\n\nStatus: growing\n\n| id | § | rule |\n|---|---|---|\n| O-001 | 1 | One thing. |\n\
             | O-002 | 2 | n/a — a Java package. |\n| O-003 | 3 | Two things. departs: one is enough. |\n",
        );
        assert!(faults.is_empty());
        assert!(!book.finished);
        let stands: Vec<_> = book.rules.iter().map(|rule| (rule.id.to_string(), rule.stand)).collect();
        let expected = [("O-001", Stand::Kept), ("O-002", Stand::NotApplicable), ("O-003", Stand::Departs)];
        assert_eq!(stands, expected.map(|(id, stand)| (id.to_owned(), stand)));
        assert_eq!(book.rules[0].text, "One thing.");
    }

    #[test]
    fn a_bar_inside_a_cell_does_not_split_it() {
        let (book, _) = book("Status: finished\n| O-1 | 1 | `a \\| b` holds always. |\n");
        assert!(book.finished);
        assert_eq!(book.rules[0].text, "`a | b` holds always.");
    }

    #[test]
    fn a_missing_status_and_a_rule_told_twice_are_faults() {
        let (book, faults) = book("| O-1 | a rule |\n| O-1 | again |\n");
        assert_eq!(book.rules.len(), 1);
        assert_eq!(faults.iter().map(|fault| fault.line).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn only_letters_and_digits_make_an_id() {
        assert!(RuleId::parse("O-103").is_some());
        assert!(RuleId::parse("OA-7").is_some());
        for wrong in ["O-", "-1", "o-1", "O1", "O-1a", "O-+1", "---"] {
            assert!(RuleId::parse(wrong).is_none(), "{wrong}");
        }
    }
}
