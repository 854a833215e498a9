//! The file that `backstop init` writes: a template whose defaults come from the table of keys.

use backstop_core::config::{Absent, Group, Holds};
use serde_json::{Map, Value};

use super::keys::ROOT;

const TEMPLATE: &str = include_str!("starter.yaml");
/// Stands in the template for the default of the key before it.
const DEFAULT: &str = "{default}";

/// The file, commented.
pub(crate) fn text() -> String {
    let mut path: Vec<(usize, &str)> = Vec::new();
    let mut text = String::new();
    for line in TEMPLATE.lines() {
        let indent = line.len() - line.trim_start().len();
        if let Some((key, _)) =
            line.trim_start().split_once(':').filter(|(key, _)| !key.starts_with(['#', '-']))
        {
            path.retain(|(outer, _)| *outer < indent);
            path.push((indent, key));
        }
        let keys: Vec<_> = path.iter().map(|(_, key)| *key).collect();
        let filled = line.replace(DEFAULT, &default_of(&keys).unwrap_or_default());
        text.extend([&filled, "\n"]);
    }
    text
}

/// What holds where a key is not given, as the file writes it.
fn default_of(path: &[&str]) -> Option<String> {
    let mut group = Group { keys: ROOT, defaults: Map::new };
    let (last, groups) = path.split_last()?;
    for name in groups {
        group = group.keys.iter().find(|key| key.name == *name)?.holds.group()?;
    }
    let key = group.keys.iter().find(|key| key.name == *last)?;
    match (key.holds, (group.defaults)().get(*last)) {
        (_, Some(Value::String(text))) => Some(text.clone()),
        (_, Some(value)) => Some(value.to_string()),
        (Holds::One(_, Absent::Is(default)), None) => Some(default.to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_of_the_template_is_filled_in_from_the_table() {
        assert_eq!(default_of(&["outbox", "dispatcher", "worker-count"]).as_deref(), Some("4"));
        assert_eq!(default_of(&["outbox", "no-such-key"]), None);
        let (asked, text) = (TEMPLATE.matches(DEFAULT).count(), text());
        assert!(asked > 10, "{asked}");
        assert!(!text.contains(DEFAULT) && !text.lines().any(|line| line.ends_with(": ")), "{text}");
        assert!(text.contains("    worker-count: 4\n"), "{text}");
    }
}
