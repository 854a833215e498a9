//! Source files: each opens with a sentence, stays readable in length, and switches no test off.

use super::Findings;
use crate::fault::Fault;
use crate::source::Source;

/// Past this a second noun is likely hiding in the file.
const LONG: usize = 600;
const TOO_LONG: usize = 800;

pub(super) fn check(sources: &[Source], findings: &mut Findings) {
    for source in sources {
        look_at(source, findings);
    }
}

fn look_at(source: &Source, findings: &mut Findings) {
    let Source { path, text, ignored, .. } = source;
    if !text.lines().next().is_some_and(|line| line.starts_with("//! ")) {
        let what =
            "the file does not open with a `//!` line; begin with one sentence that says what lives here";
        findings.faults.push(Fault::new(path, 1, what));
    }
    for number in ignored {
        let what = "the test is ignored; make it pass, make it skip with a reason, or remove it";
        findings.faults.push(Fault::new(path, *number, what));
    }
    let length = text.lines().count();
    if length > LONG {
        let what = format!("the file has {length} lines; look for a second noun and give it a file");
        let into = if length > TOO_LONG { &mut findings.faults } else { &mut findings.warnings };
        into.push(Fault::new(path, length, what));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(text: &str) -> Findings {
        let mut findings = Findings::default();
        look_at(&Source::skim("a.rs", text), &mut findings);
        findings
    }

    #[test]
    fn a_file_opens_with_a_sentence() {
        assert_eq!(look("//! What lives here.\nfn a() {}\n").faults, []);
        assert_eq!(look("fn a() {}\n").faults.len(), 1);
        assert_eq!(look("").faults.len(), 1);
    }

    #[test]
    fn an_ignored_test_is_told_with_its_line() {
        let findings = look("//! x\n#[test]\n#[ignore = \"slow\"]\nfn a() {}\n");
        assert_eq!(findings.faults[0].line, 3);
    }

    #[test]
    fn a_long_file_is_a_warning_and_a_very_long_one_a_fault() {
        let file = |lines: usize| "//! x\n".repeat(lines);
        assert!(look(&file(LONG)).warnings.is_empty());
        assert_eq!(look(&file(LONG + 1)).warnings.len(), 1);
        assert_eq!(look(&file(TOO_LONG + 1)).faults.len(), 1);
    }
}
