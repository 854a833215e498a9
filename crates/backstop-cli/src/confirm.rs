//! Asking before something is changed.

use std::io::{self, BufRead, IsTerminal, Write};

use anyhow::{Context, bail};

/// Whether the operator wants it. Where nobody can be asked, it must have been said before.
pub(crate) fn is_wanted(question: &str, yes: bool) -> anyhow::Result<bool> {
    if yes {
        return Ok(true);
    }
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        bail!(
            "nobody can be asked whether to {question}: standard input is no terminal; look with --dry-run, then say --yes"
        );
    }
    eprint!("{question}? [y/N] ");
    io::stderr().flush().context("cannot write to standard error")?;
    is_yes(&mut stdin.lock())
}

/// Nothing but a yes is one.
fn is_yes(from: &mut impl BufRead) -> anyhow::Result<bool> {
    let mut answer = String::new();
    from.read_line(&mut answer).context("cannot read the answer")?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_yes_is_a_yes() {
        for (answer, wanted) in [
            ("y\n", true),
            ("Yes\n", true),
            (" YES \r\n", true),
            ("\n", false),
            ("", false),
            ("n\n", false),
            ("yes please\n", false),
        ] {
            assert_eq!(is_yes(&mut answer.as_bytes()).unwrap(), wanted, "{answer:?}");
        }
    }

    #[test]
    fn who_has_said_yes_is_not_asked() {
        assert!(is_wanted("replay 3 dead events", true).unwrap());
    }
}
