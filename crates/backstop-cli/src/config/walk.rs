//! The walk: the tree against the table of keys. It gathers every fault, and gives the values with all defaults.

use std::collections::BTreeMap;

use backstop_core::config::{Absent, Group, Holds, Key, ValueKind};
use serde_json::{Map, Value, json};

use super::fault::{Findings, Place};
use super::suggest::suggestion;
use super::surroundings::Surroundings;
use super::yaml::{Content, Entry, Node};

/// Where each key that was given stands, by its path.
#[derive(Debug, Default)]
pub(crate) struct Places(BTreeMap<String, Place>);

impl Places {
    /// Where a key stands, or what it would stand under.
    pub(crate) fn of(&self, path: &str) -> Place {
        let mut path = path;
        loop {
            if let Some(place) = self.0.get(path) {
                return place.clone();
            }
            match path.rfind(['.', '[']) {
                Some(end) => path = &path[..end],
                None => return Place::START,
            }
        }
    }

    /// Whether something was given at a path.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.0.contains_key(path)
    }
}

/// Walks the whole tree.
pub(crate) fn walk(
    root: &Node,
    keys: &'static [Key],
    surroundings: &Surroundings,
    findings: &mut Findings,
) -> (Value, Places) {
    let mut walk = Walk { surroundings, findings, places: Places::default() };
    let value = walk.group("", Group { keys, defaults: Map::new }, Some(root));
    (value, walk.places)
}

struct Walk<'a> {
    surroundings: &'a Surroundings,
    findings: &'a mut Findings,
    places: Places,
}

impl Walk<'_> {
    /// The values of a group's keys. Those of a `Config` that are not given, or wrong, are left out: it has defaults of its
    /// own.
    fn group(&mut self, path: &str, group: Group, node: Option<&Node>) -> Value {
        let Group { keys, defaults } = group;
        let of_config = defaults();
        let node = node.filter(|node| node.content != Content::Nothing);
        let entries = match node.map(|node| (&node.content, &node.place)) {
            Some((Content::Map(entries), _)) => entries.as_slice(),
            Some((Content::Refused, _)) | None => &[],
            Some((_, place)) => {
                let known = names(keys).collect::<Vec<_>>().join(", ");
                self.findings.fault(place.clone(), path, format!("must be keys with values: {known}"));
                &[]
            }
        };
        self.unknown(path, keys, entries);
        let place = node.map_or(Place::START, |node| node.place.clone());
        let mut values = Map::new();
        for key in keys {
            let path = join(path, key.name);
            let entry = entries.iter().find(|entry| entry.key == key.name);
            if let Some(Entry { place, .. }) = entry {
                self.places.0.insert(path.clone(), place.clone());
            }
            let value = self.key(&path, key, entry.map(|entry| &entry.node), &place);
            let value = value.or_else(|| (!of_config.contains_key(key.name)).then(|| stand_in(key)));
            values.extend(value.map(|value| (key.name.to_owned(), value)));
        }
        Value::Object(values)
    }

    fn unknown(&mut self, path: &str, keys: &'static [Key], entries: &[Entry]) {
        for Entry { key, place, .. } in entries {
            if names(keys).any(|name| name == key) || key.is_empty() {
                continue;
            }
            let (key, what) = match key
                .split_once(':')
                .filter(|(before, _)| names(keys).any(|name| name == *before))
            {
                _ if key == "<<" => {
                    (key.as_str(), "merge keys are not supported; write the values out".to_owned())
                }
                Some((before, _)) => (before, "a space must follow the colon".to_owned()),
                None => (shown(key).unwrap_or("…"), format!("there is no such key{}", closest(key, keys))),
            };
            self.findings.fault(place.clone(), &join(path, key), what);
        }
    }

    fn key(&mut self, path: &str, key: &'static Key, node: Option<&Node>, parent: &Place) -> Option<Value> {
        let given = node.filter(|node| node.content != Content::Nothing);
        match key.holds {
            Holds::One(kind, absent) => match given {
                Some(node) => self.one(path, kind, node),
                None => self.absent(path, kind, absent, parent),
            },
            Holds::Many(kind, absent) => match given {
                Some(node) => Some(self.many(path, kind, node)),
                None => self.absent(path, kind, absent, parent).map(|value| json!([value])),
            },
            Holds::Map(kind, absent) => match given {
                Some(node) => self.map(path, kind, node),
                None => self.absent(path, kind, absent, parent),
            },
            Holds::Group(group) => Some(self.group(path, group, given)),
            // `log:` alone is a choice too.
            Holds::Choice(group) => node.map(|node| self.group(path, group, Some(node))),
            Holds::Groups(group) => Some(self.groups(path, group, given, GoesBy::Number)),
            Holds::GroupOrGroups(group) => match given {
                Some(Node { content: Content::Map(_), .. }) => {
                    let one = self.group(path, group, given);
                    Some(Value::Array(vec![with_path(one, group, path)]))
                }
                _ => Some(self.groups(path, group, given, GoesBy::Name)),
            },
        }
    }

    fn groups(&mut self, path: &str, group: Group, node: Option<&Node>, goes_by: GoesBy) -> Value {
        let items = match node.map(|node| (&node.content, &node.place)) {
            Some((Content::List(items), _)) => items.as_slice(),
            Some((Content::Refused, _)) | None => &[],
            Some((_, place)) => {
                self.findings.fault(place.clone(), path, "must be a list; begin each item with a dash");
                &[]
            }
        };
        let mut groups = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let named = item.name().filter(|name| ValueKind::Name.read(name).is_ok());
            let named = named.filter(|_| goes_by == GoesBy::Name).map(|name| join(path, name));
            // Of two with one name the second goes by its number: each fault stands at its own lines.
            let path =
                named.filter(|path| !self.places.has(path)).unwrap_or_else(|| format!("{path}[{index}]"));
            self.places.0.insert(path.clone(), item.place.clone());
            let values = self.group(&path, group, Some(item));
            groups.push(with_path(values, group, &path));
        }
        Value::Array(groups)
    }

    fn one(&mut self, path: &str, kind: ValueKind, node: &Node) -> Option<Value> {
        let refusal = match &node.content {
            Content::Scalar { text, .. } => match self.read(kind, text, &node.place, path) {
                Ok(value) => return Some(value),
                Err(refusal) => refusal + &suggestion(text, kind.words().iter().copied()),
            },
            Content::Refused => format!("must be {}", kind.rule()),
            Content::List(_) => format!("must be {}, not a list", kind.rule()),
            Content::Map(_) | Content::Nothing => format!("must be {}, not more keys", kind.rule()),
        };
        self.findings.fault(node.place.clone(), path, refusal);
        None
    }

    fn many(&mut self, path: &str, kind: ValueKind, node: &Node) -> Value {
        let values: Vec<_> = match &node.content {
            Content::List(items) => {
                let items = items.iter().enumerate();
                items.filter_map(|(index, item)| self.one(&format!("{path}[{index}]"), kind, item)).collect()
            }
            Content::Scalar { text, .. } if matches!(node.place, Place::Variable(_)) => {
                let each = text.split(',').map(|text| Node {
                    place: node.place.clone(),
                    content: Content::Scalar { text: text.trim().to_owned(), quoted: false },
                });
                each.filter_map(|item| self.one(path, kind, &item)).collect()
            }
            _ => self.one(path, kind, node).into_iter().collect(),
        };
        if values.is_empty() && !matches!(&node.content, Content::List(items) if items.is_empty()) {
            self.findings.nothing_left(path);
        }
        Value::Array(values)
    }

    /// Names of the user's choice with their values.
    fn map(&mut self, path: &str, kind: ValueKind, node: &Node) -> Option<Value> {
        let Content::Map(entries) = &node.content else {
            self.findings.fault(node.place.clone(), path, "must be names with values");
            return None;
        };
        let mut values = Map::new();
        for Entry { key, place, node } in entries {
            let path = join(path, shown(key).unwrap_or("…"));
            self.places.0.insert(path.clone(), place.clone());
            values.extend(self.one(&path, kind, node).map(|value| (key.clone(), value)));
        }
        Some(Value::Object(values))
    }

    /// Reads a value. Secrets are fetched from where they are kept.
    fn read(&mut self, kind: ValueKind, text: &str, place: &Place, path: &str) -> Result<Value, String> {
        if !kind.is_secret() {
            return kind.read(text);
        }
        match self.surroundings.secret(text) {
            Some(secret) => kind.read(&secret?),
            // Who sets a variable has kept the secret out of the file already.
            None if matches!(kind, ValueKind::Secret) && matches!(place, Place::File { .. }) => {
                Err("must be env:NAME or file:PATH; a secret does not belong in this file".to_owned())
            }
            None => {
                let shown = matches!(place, Place::File { .. }) && has_password(text);
                let value = kind.read(text)?;
                if shown {
                    let what = "the password is in the file; prefer env:NAME or file:PATH";
                    self.findings.warn(place.clone(), path, what);
                }
                Ok(value)
            }
        }
    }

    fn absent(&mut self, path: &str, kind: ValueKind, absent: Absent, parent: &Place) -> Option<Value> {
        match absent {
            Absent::Is(default) => kind.read(default).ok(),
            Absent::Default | Absent::Unset(_) => None,
            Absent::Required(why) => {
                let place = self.place_of_absent(path, parent);
                self.findings.fault(place, path, format!("is required: {why}"));
                None
            }
        }
    }

    /// Where the group stands in which something is missing.
    fn place_of_absent(&self, path: &str, parent: &Place) -> Place {
        if *parent == Place::START { self.places.of(path) } else { parent.clone() }
    }
}

/// How one of several groups is called in paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GoesBy {
    /// A component, which has a name of its own.
    Name,
    Number,
}

/// The closest to a key that is not known here: one of its neighbours, or one in a group beside it.
fn closest(given: &str, keys: &'static [Key]) -> String {
    let here = suggestion(given, names(keys));
    if !here.is_empty() {
        return here;
    }
    for key in keys {
        if let Holds::Group(below) = key.holds
            && below.keys.iter().any(|below| below.name == given)
        {
            return format!("; `{given}` belongs under `{}`", key.name);
        }
    }
    format!("; known are {}", names(keys).collect::<Vec<_>>().join(", "))
}

/// A key as it may be repeated: what stands there by a slip may be a URL with its password.
pub(super) fn shown(key: &str) -> Option<&str> {
    let plain = |c: char| c.is_alphanumeric() || "_-. ".contains(c);
    (key.chars().count() <= 40 && key.chars().all(plain)).then_some(key)
}

/// Whether a URL has a password in it.
fn has_password(url: &str) -> bool {
    let Some((_, rest)) = url.split_once("://") else { return false };
    let (place, parameters) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = place.split('/').next().unwrap_or_default();
    authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'))
        || parameters.split('&').any(|parameter| parameter.starts_with("password="))
}

fn names(keys: &'static [Key]) -> impl Iterator<Item = &'static str> {
    keys.iter().map(|key| key.name)
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// A group with its own path, so that its user can say which one it was; a `Config` knows no path.
fn with_path(mut values: Value, group: Group, path: &str) -> Value {
    let of_config = (group.defaults)();
    if let Value::Object(values) = &mut values
        && group.keys.iter().any(|key| !of_config.contains_key(key.name))
    {
        values.insert("path".to_owned(), json!(path));
    }
    values
}

/// Stands in for a value that is missing or wrong while the rest is checked.
fn stand_in(key: &Key) -> Value {
    match key.holds {
        Holds::One(_, Absent::Unset(_)) | Holds::Choice(_) => Value::Null,
        Holds::One(ValueKind::Flag, _) => json!(false),
        Holds::One(ValueKind::Number { .. }, _) => json!(1),
        Holds::One(ValueKind::Time { .. }, _) => json!("1ms"),
        Holds::One(ValueKind::Choice(words), _) => json!(words.first()),
        Holds::One(..) => json!(""),
        _ => json!([]),
    }
}
