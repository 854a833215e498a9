//! Whether the environment asks for a dead-letter directory.

use std::ffi::OsString;

use backstop_core::SharedSink;
use tracing::warn;

use super::config::Setup;
use super::sink::DlqSink;

/// The variables that name the directory; the first that is set and not empty counts.
const VARIABLES: [&str; 2] = ["BACKSTOP_DLQ_DIR", "CELLOS_DLQ_DIR"];

/// Wraps the sink, or returns it as it is.
pub(super) fn activate(inner: SharedSink, look_up: impl Fn(&str) -> Option<OsString>) -> SharedSink {
    let Some((variable, directory)) = named(look_up) else { return inner };
    match DlqSink::open(inner.clone(), Setup::at(&directory)) {
        Ok(sink) => SharedSink::new(sink),
        Err(error) => {
            warn!(
                variable,
                directory = ?directory,
                error = %error,
                "the dead-letter directory cannot be used: failed events will not be kept"
            );
            inner
        }
    }
}

fn named(look_up: impl Fn(&str) -> Option<OsString>) -> Option<(&'static str, OsString)> {
    VARIABLES.into_iter().find_map(|name| Some((name, look_up(name).filter(|value| !value.is_empty())?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(set: &[(&str, &str)]) -> Option<(&'static str, OsString)> {
        named(|name| set.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into()))
    }

    /// Rules: D-007, D-040, D-041, D-048.
    #[test]
    fn the_first_variable_that_is_set_and_not_empty_counts_and_there_is_no_default() {
        let (ours, theirs) = (("BACKSTOP_DLQ_DIR", "/ours"), ("CELLOS_DLQ_DIR", "/theirs"));
        assert_eq!(chosen(&[]), None);
        assert_eq!(chosen(&[("BACKSTOP_DLQ_DIR", ""), ("CELLOS_DLQ_DIR", "")]), None);
        assert_eq!(chosen(&[ours, theirs]), Some(("BACKSTOP_DLQ_DIR", "/ours".into())));
        assert_eq!(chosen(&[theirs]), Some(("CELLOS_DLQ_DIR", "/theirs".into())));
        assert_eq!(chosen(&[("BACKSTOP_DLQ_DIR", ""), theirs]), Some(("CELLOS_DLQ_DIR", "/theirs".into())));
        assert_eq!(chosen(&[("BACKSTOP_DLQ_DIR", "  ")]), Some(("BACKSTOP_DLQ_DIR", "  ".into())));
    }
}
