//! The reference of settings says what the code says: no setting more, none less, and the same defaults.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use backstop_core::config::{Config as _, Holds, Key};
use backstop_sql::outbox::{Config, purge};

const BUILDER: &str = include_str!("../../src/outbox/builder.rs");

/// A setting as the code or the page tells it: the modes that offer it, and its default.
type Settings = BTreeMap<String, (String, String)>;

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/outbox-settings.md");
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()))
}

/// The modes that an `impl` block is for, by the words of its first line.
fn modes(line: &str) -> Option<&'static str> {
    let known = [
        ("M: Mode>", "all"),
        ("M: Delivering>", "single, multi, ordered"),
        ("M: Tunable>", "single, multi"),
        ("Builder<DB, $mode>", "single, ordered"),
        ("Builder<DB, MultiNode>", "multi"),
    ];
    known.into_iter().find(|(words, _)| line.contains(words)).map(|(_, modes)| modes)
}

/// What a method's documentation says of its default.
fn default_in(docs: &str) -> String {
    match docs.split_once("Defaults to ") {
        Some((_, default)) => default.trim().to_owned(),
        None if docs.contains("Required;") => "required".to_owned(),
        None => "—".to_owned(),
    }
}

/// The public methods of a source's `impl` blocks that give the builder back, with their documentation.
fn methods<'a>(source: &'a str, mut enter: impl FnMut(&'a str) -> Option<&'static str>) -> Settings {
    let (mut modes, mut docs, mut found) = (None, String::new(), Settings::new());
    let mut lines = source.lines().peekable();
    while let Some(line) = lines.next() {
        let line = line.trim();
        if line.starts_with("impl") {
            modes = enter(line);
        } else if let Some(doc) = line.strip_prefix("///") {
            docs += doc;
        } else if let (Some(method), Some(modes)) = (line.strip_prefix("pub fn "), modes) {
            let mut signature = line.to_owned();
            while !signature.ends_with('{') {
                signature += lines.next().unwrap().trim();
            }
            let name = method.split(['(', '<']).next().unwrap().to_owned();
            if signature.ends_with("-> Self {") {
                found.insert(name, (modes.to_owned(), default_in(&docs)));
            }
            docs.clear();
        } else if !line.starts_with("#[") {
            docs.clear();
        }
    }
    found
}

/// The rows of the page's tables with as many columns.
fn rows(page: &str, columns: usize) -> Settings {
    let cells = |line: &str| {
        line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect::<Vec<_>>()
    };
    let rows =
        page.lines().filter(|line| line.starts_with("| `")).map(cells).filter(|row| row.len() == columns);
    rows.map(|row| {
        let modes = row.get(3).cloned().unwrap_or_default();
        (row[0].trim_matches('`').to_owned(), (modes, row[1].clone()))
    })
    .collect()
}

fn assert_same(told: &Settings, coded: &Settings) {
    let (told_names, coded_names): (Vec<_>, Vec<_>) = (told.keys().collect(), coded.keys().collect());
    assert_eq!(told_names, coded_names, "the page (left) and the code (right)");
    for (name, (modes, default)) in told {
        let (coded_modes, coded_default) = &coded[name];
        assert_eq!(modes, coded_modes, "modes of {name}");
        let plain = coded_default.replace("[`", "`").replace("`]", "`");
        assert!(plain.starts_with(default.as_str()), "default of {name}: {default:?} and {plain:?}");
        assert_eq!(default == "—", plain == "—", "default of {name}");
    }
}

/// Rules: O-180.
#[test]
fn the_reference_lists_every_setting_with_its_modes_and_default_and_none_by_tenant() {
    let coded = methods(BUILDER, modes);
    assert!(coded.len() > 25, "{coded:?}");
    assert_same(&rows(&page(), 4), &coded);
    assert!(coded.keys().all(|setting| !setting.contains("tenant")), "{coded:?}");
}

#[test]
fn the_reference_lists_the_settings_of_the_purge() {
    let told = rows(&page(), 3);
    let mut coded: Vec<_> = leaves(purge::Config::KEYS, "").into_iter().map(|key| method_of(&key)).collect();
    coded.retain(|name| name != "enabled"); // what is given to the builder is
    coded.sort();
    assert_eq!(told.keys().cloned().collect::<Vec<_>>(), coded);
}

/// Methods for what is no plain value, so that no settings file could hold it, and those that take plain ones together.
const NOT_PLAIN: [&str; 16] = [
    "config",
    "connections",
    "dead_letters",
    "dead_letters_of",
    "hook",
    "interceptor",
    "interceptors",
    "metrics_recorder",
    "on",
    "on_bound",
    "on_global",
    "otherwise",
    "purger",
    "registry",
    "store",
    "tracker",
];

#[test]
fn what_a_settings_file_can_say_a_builder_can_and_the_other_way_round() {
    let keys: BTreeSet<_> = leaves(Config::KEYS, "").iter().map(|key| method_of(key)).collect();
    let methods = methods(BUILDER, modes).into_keys().filter(|name| !NOT_PLAIN.contains(&name.as_str()));
    assert_eq!(keys, methods.collect(), "settings (left) and methods (right)");
}

/// The keys that hold values, with the groups that they are in.
fn leaves(keys: &[Key], group: &str) -> Vec<String> {
    let each = keys.iter().flat_map(|key| {
        let path = format!("{group}{}", key.name);
        match key.holds {
            Holds::Group(below) => leaves(below.keys, &format!("{path}.")),
            _ => vec![path],
        }
    });
    each.collect()
}

/// The method that sets what a key sets.
fn method_of(key: &str) -> String {
    let name = match key {
        "claim-locking.enabled" | "claim-locking.lock-timeout" => "claim-locking",
        "claim-locking.owner-id" => "claim-locking-as",
        "metrics.enabled" | "metrics.name-prefix" => "metrics-prefix",
        "retry.base-delay-ms" | "retry.max-delay-ms" => "retry-policy",
        purge if purge.starts_with("purge.") => "purge",
        other => other.rsplit('.').next().unwrap_or(other),
    };
    name.trim_end_matches("-ms").trim_end_matches("-seconds").replace('-', "_")
}
