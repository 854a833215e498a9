//! Adding up what `cargo test` prints.

/// The counts of a whole run, over all its test programs and doc tests.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) passed: usize,
    pub(super) failed: usize,
    /// The names of failed tests, in the order they were told.
    pub(super) failures: Vec<String>,
    /// The names listed since the last `failures:`; they count once the program has summed up.
    listed: Vec<String>,
    listing: bool,
    /// What a program that has not summed up yet said it would run.
    unfinished: Option<String>,
}

impl Tally {
    /// Takes in one line of output.
    pub(super) fn read(&mut self, line: &str) {
        let line = without_colours(line);
        let line = line.trim_end();
        if let Some((passed, failed)) = result(line) {
            self.passed += passed;
            self.failed += failed;
            self.failures.append(&mut self.listed);
            self.listing = false;
            self.unfinished = None;
        } else if is_announcement(line) {
            self.close();
            self.unfinished = Some(line.to_owned());
        } else if line == "failures:" {
            // Told twice: first with the output of each, then the names alone, which is the list we keep.
            self.listed.clear();
            self.listing = true;
        } else if let Some(name) =
            line.strip_prefix("    ").filter(|name| self.listing && !name.starts_with(' '))
        {
            self.listed.push(name.to_owned());
        } else {
            self.listing = false;
        }
    }

    /// Ends a program: one that never summed up has crashed, and counts as a failure.
    pub(super) fn close(&mut self) {
        if let Some(announcement) = self.unfinished.take() {
            self.failed += 1;
            self.failures
                .push(format!("a test program crashed after it said `{announcement}`; its output is above"));
            self.listed.clear();
        }
    }
}

/// Reads `test result: ok. 3 passed; 0 failed; …`.
fn result(line: &str) -> Option<(usize, usize)> {
    let counts = line.strip_prefix("test result: ")?;
    let count = |what: &str| {
        counts.split([';', '.']).find_map(|part| part.trim().strip_suffix(what)?.trim().parse().ok())
    };
    Some((count("passed")?, count("failed")?))
}

/// Recognises `running 3 tests`.
fn is_announcement(line: &str) -> bool {
    line.strip_prefix("running ")
        .and_then(|rest| rest.strip_suffix(" tests").or_else(|| rest.strip_suffix(" test")))
        .is_some_and(|count| count.parse::<usize>().is_ok())
}

fn without_colours(line: &str) -> String {
    let mut pieces = line.split("\u{1b}[");
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |text, piece| text + piece.split_once('m').map_or(piece, |(_, rest)| rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(output: &str) -> Tally {
        let mut tally = Tally::default();
        output.lines().for_each(|line| tally.read(line));
        tally.close();
        tally
    }

    #[test]
    fn every_program_and_doc_test_is_summed() {
        let tally = tally(
            "\nrunning 2 tests\ntest a ... ok\ntest b ... ok\n\n\
             test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\n\
             \nrunning 1 test\ntest src/lib.rs - x (line 3) ... ok\n\n\
             test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s\n",
        );
        assert_eq!((tally.passed, tally.failed), (3, 0));
        assert!(tally.failures.is_empty());
    }

    #[test]
    fn failed_tests_are_named_once() {
        let tally = tally(
            "running 3 tests\ntest a ... ok\ntest m::b ... FAILED\ntest c ... FAILED\n\nfailures:\n\n\
             ---- m::b stdout ----\nfailures:\n    not a test\n\n---- c stdout ----\n\n\nfailures:\n    c\n    m::b\n\n\
             test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n",
        );
        assert_eq!((tally.passed, tally.failed), (1, 2));
        assert_eq!(tally.failures, ["c", "m::b"]);
    }

    #[test]
    fn a_program_that_crashes_counts_as_a_failure() {
        let tally = tally(
            "running 5 tests\ntest a ... ok\nrunning 1 test\ntest b ... ok\n\n\
             test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n",
        );
        assert_eq!((tally.passed, tally.failed), (1, 1));
        assert!(tally.failures[0].contains("running 5 tests"));
    }

    #[test]
    fn colours_do_not_hide_a_result() {
        let line = "test result: \u{1b}[31mFAILED\u{1b}[0m. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out";
        assert_eq!(result(&without_colours(line)), Some((0, 1)));
    }

    #[test]
    fn prose_about_running_tests_is_no_announcement() {
        assert!(!is_announcement("running all tests"));
        assert!(is_announcement("running 1 test"));
    }
}
