//! The reference page of the settings file, rendered from the table of keys.

use backstop_core::config::{Absent, Group, Holds, Key};
use serde_json::{Map, Value};

use super::keys::ROOT;

const HEAD: &str = "\
# Settings of the daemon

Every key of the file that `backstop serve --config backstop.yaml` reads. This page is printed by `backstop reference`
from the table that `backstop check` checks against, and a test compares the two.

- `outbox` is one outbox, or a list of them, each with a `name`; so are `queue` and `dlq`.
- **Times** are a whole number and a unit: `500ms`, `10s`, `5m`, `1h`, `7d`. Keys that end in `-ms` or `-seconds` also
  take a number alone, in that unit.
- **Secrets** are kept elsewhere: `env:NAME` takes an environment variable, `file:PATH` the content of a file. A
  relative path starts in the directory of the settings file. Neither is ever printed.
- **Environment variables** take the place of values: `BACKSTOP__` and the keys, two underscores between them and one for
  a dash. `BACKSTOP__OUTBOX__CLAIM_LOCKING__ENABLED=true` is `outbox.claim-locking.enabled: true`. Where `outbox` is a
  list, the name of one follows: `BACKSTOP__OUTBOX__ORDERS__MODE=ordered`. Lists are written with commas. The items
  of a list of groups, such as `handlers`, can be set only in the file.
- Anchors, aliases, merge keys and tags are refused, as is a file beyond 1 MiB, 20000 values or 16 levels.
";

/// The page.
pub(crate) fn page() -> String {
    let mut page = HEAD.to_owned();
    section(&mut page, "", Group { keys: ROOT, defaults: Map::new });
    page
}

/// The tables of a group and of the groups in it.
fn section(page: &mut String, path: &str, Group { keys, defaults }: Group) {
    let defaults = defaults();
    let rows: String = keys.iter().filter_map(|key| row(key, defaults.get(key.name))).collect();
    if !rows.is_empty() {
        page.push_str("\n| key | value | default | meaning |\n|---|---|---|---|\n");
        page.push_str(&rows);
    }
    for key in keys {
        let Some(below) = key.holds.group() else { continue };
        let of = if matches!(key.holds, Holds::Groups(_)) { "[]" } else { "" };
        let path = if path.is_empty() { key.name.to_owned() } else { format!("{path}.{}", key.name) };
        let level = if path.contains('.') { "###" } else { "##" };
        let path = format!("{path}{of}");
        *page += &["\n", level, " `", &path, "`\n\n", key.meaning, "\n"].concat();
        section(page, &path, below);
    }
}

/// A key with its default: that of the `Config` it belongs to, where there is one.
fn row(key: &Key, default: Option<&Value>) -> Option<String> {
    let (before, kind, absent, behind) = match key.holds {
        Holds::One(kind, absent) => ("", kind, absent, ""),
        Holds::Many(kind, absent) => ("", kind, absent, ", or a list"),
        Holds::Map(kind, absent) => ("names, each with a ", kind, absent, ""),
        _ => return None,
    };
    let default = default.and_then(|value| match value {
        Value::String(text) => Some(format!("`{text}`")),
        Value::Number(_) | Value::Bool(_) => Some(format!("`{value}`")),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    });
    let default = match absent {
        Absent::Required(_) => "required".to_owned(),
        Absent::Is(default) => format!("`{default}`"),
        Absent::Unset(words) => default.unwrap_or_else(|| words.to_owned()),
        Absent::Default => default.unwrap_or_default(),
    };
    Some(format!("| `{}` | {before}{}{behind} | {default} | {} |\n", key.name, kind.word(), key.meaning))
}
