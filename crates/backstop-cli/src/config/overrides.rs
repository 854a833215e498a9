//! Environment variables that take the place of values in the file: `BACKSTOP__SERVER__ADDRESS` is `server.address`.
//!
//! There are two underscores between keys, and one in place of a dash, so `BACKSTOP__OUTBOX__CLAIM_LOCKING__ENABLED`
//! is `outbox.claim-locking.enabled`. Where `outbox` is a list, the name of one follows:
//! `BACKSTOP__OUTBOX__ORDERS__MODE`.

use super::fault::{Findings, Place};
use super::suggest::suggestion;
use super::surroundings::Surroundings;
use super::yaml::{Content, Entry, Node};

const PREFIX: &str = "BACKSTOP__";

/// Puts the variables' values into the tree, where the walk finds them like any other.
pub(crate) fn apply(root: &mut Node, surroundings: &Surroundings, findings: &mut Findings) {
    for (name, value) in surroundings.beginning(PREFIX) {
        let place = Place::Variable(name.to_owned());
        let Some(value) = value else {
            findings.fault(place, "", "is not UTF-8 text");
            continue;
        };
        let keys: Vec<String> = name[PREFIX.len()..].split("__").map(kebab).collect();
        if keys.iter().any(String::is_empty) {
            findings.fault(
                place,
                "",
                "names no key; write two underscores between keys, as in BACKSTOP__SERVER__ADDRESS",
            );
            continue;
        }
        if let Err(what) = put(root, &keys, value, &place) {
            findings.fault(place, &keys.join("."), what);
        }
    }
}

fn kebab(part: &str) -> String {
    part.to_lowercase().replace('_', "-")
}

/// Follows the keys, making mappings where there is nothing yet, and puts the value at the end.
fn put(node: &mut Node, keys: &[String], value: &str, place: &Place) -> Result<(), String> {
    let [key, rest @ ..] = keys else {
        // An empty variable is one that is not set, as everywhere.
        if !value.is_empty() {
            node.content = Content::Scalar { text: value.to_owned(), quoted: false };
            node.place = place.clone();
        }
        return Ok(());
    };
    if matches!(node.content, Content::Nothing) {
        *node = Node { place: place.clone(), content: Content::Map(Vec::new()) };
    }
    match &mut node.content {
        Content::Map(entries) => {
            let index = entries.iter().position(|entry| entry.key == *key).unwrap_or_else(|| {
                let node = Node { place: place.clone(), content: Content::Nothing };
                entries.push(Entry { key: key.clone(), place: place.clone(), node });
                entries.len() - 1
            });
            put(&mut entries[index].node, rest, value, place)
        }
        Content::List(items) => {
            let names: Vec<String> = items.iter().filter_map(Node::name).map(kebab).collect();
            match items.iter_mut().find(|item| item.name().map(kebab).as_ref() == Some(key)) {
                Some(item) if !rest.is_empty() => put(item, rest, value, place),
                Some(_) => Err("names no key; the name of a key must follow".to_owned()),
                None if names.is_empty() => {
                    Err("the items of this list can be set only in the file".to_owned())
                }
                None => {
                    let closest = suggestion(key, names.iter().map(String::as_str));
                    Err(format!("nothing in the list has the name `{key}`{closest}"))
                }
            }
        }
        _ => Err("goes through a value that has no keys of its own".to_owned()),
    }
}
