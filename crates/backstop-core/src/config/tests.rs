//! A Config declared here: what the macro makes of one, by every form that a setting can have.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;

use super::*;
use crate::setting;

crate::choice! {
    /// How loud.
    enum Level {
        /// Little.
        Quiet = "quiet",
        /// All.
        Loud = "LOUD",
    }
}

crate::config! {
    /// What two have in common.
    #[derive(Debug, Clone, PartialEq)]
    struct Shared {
        /// Who it is.
        who: Option<String> = None => "who": one(ValueKind::Name), unset("nobody");
        /// How long to
        /// wait.
        pause: Duration = Duration::from_secs(5) => "pause": one(ValueKind::TIME);
    }
}

crate::config! {
    /// A group.
    #[derive(Debug, Clone, PartialEq)]
    struct Inner {
        /// The most.
        most: u32 = 1 => "most": one(ValueKind::Number { min: 1, max: 9 });
        /// The share.
        share: f64 = 50.0 => "share-of-all": one(ValueKind::Percent);
    }
}

crate::config! {
    /// All forms.
    #[derive(Debug, Clone, PartialEq)]
    struct All {
        /// Where to.
        to: String = String::new() => "to": one(ValueKind::Text), required("it says where to");
        /// The wait, named with its unit.
        wait: Duration = Duration::from_millis(200) => "wait-ms": one(ValueKind::MILLIS);
        /// How loud.
        level: Level = Level::Quiet => "level": one(Level::KIND);
        /// Whether.
        on: bool = true => "on": one(ValueKind::Flag);
        /// Names.
        names: Vec<String> = Vec::new() => "names": many(ValueKind::Name), unset("none");
        /// Headers.
        headers: BTreeMap<String, Secret> = BTreeMap::new() => "headers": map(ValueKind::Text), unset("none");
        /// A group with another default.
        inner: Inner = Inner { most: 3, ..Inner::default() } => "inner": group;
        /// A list of groups.
        inners: Vec<Inner> = Vec::new() => "inners": groups;
        ..shared: Shared = Shared::default() => { who: Option<String>, pause: Duration }
    }
    rules: between;
    setters: Builder.config;
}

fn between(all: &All, faults: &mut Faults) {
    if all.wait > all.shared.pause {
        faults.add("wait-ms", "must not be longer than pause");
    }
}

#[derive(Default)]
struct Builder {
    config: All,
}

fn read(given: Value) -> Result<All, String> {
    serde_json::from_value(given).map_err(|error| error.to_string())
}

fn told(config: &impl Config) -> Vec<String> {
    let mut faults = Faults::default();
    config.check(&mut faults);
    faults.into_vec().iter().map(ToString::to_string).collect()
}

#[test]
fn what_is_not_given_has_its_default_also_in_a_group_that_has_its_own() {
    assert_eq!(read(json!({})), Ok(All::default()));
    let all = read(json!({"inner": {"share-of-all": 12.5}, "inners": [{"most": 9}, {}]})).unwrap();
    assert_eq!(all.inner, Inner { most: 3, share: 12.5 });
    assert_eq!(all.inners, [Inner { most: 9, share: 50.0 }, Inner::default()]);
}

#[test]
fn every_form_is_read_in_the_notation_of_a_file() {
    let all = read(json!({
        "to": "x", "wait-ms": 70, "level": "LOUD", "on": "false", "names": "a", "headers": {"k": "v"},
        "inner": {"most": "4"}, "who": "me", "pause": "1m",
    }));
    let mut expected = Builder::default()
        .to("x")
        .wait(Duration::from_millis(70))
        .level(Level::Loud)
        .on(false)
        .names(vec!["a".to_owned()])
        .headers(BTreeMap::from([("k".to_owned(), Secret::from("v"))]))
        .inners(Vec::new())
        .who("me")
        .pause(Duration::from_secs(60));
    expected.config.inner.most = 4;
    assert_eq!(all, Ok(expected.config));
}

#[test]
fn what_is_written_is_read_as_the_same_and_has_every_key() {
    let all = All { to: "x".to_owned(), inners: vec![Inner::default()], ..All::default() };
    assert_eq!(read(Value::Object(all.written())), Ok(all.clone()));
    let names: std::collections::BTreeSet<_> = All::KEYS.iter().map(|key| key.name.to_owned()).collect();
    assert_eq!(all.written().keys().cloned().collect::<std::collections::BTreeSet<_>>(), names);
    assert_eq!(names.len(), All::KEYS.len());
}

#[test]
fn the_table_has_meaning_and_default_as_the_file_would_write_them() {
    let key = |name: &str| All::KEYS.iter().find(|key| key.name == name).unwrap();
    assert_eq!(key("pause").meaning, "How long to wait.");
    let defaults = (All::GROUP.defaults)();
    assert_eq!(
        (&defaults["wait-ms"], &defaults["level"], &defaults["pause"]),
        (&json!("200ms"), &json!("quiet"), &json!("5s"))
    );
    let inner = key("inner").holds.group().unwrap();
    assert_eq!((inner.defaults)()["most"], json!(3), "that of the struct it stands in");
    assert!(matches!(key("to").holds, Holds::One(_, Absent::Required("it says where to"))));
    assert!(matches!(key("who").holds, Holds::One(_, Absent::Unset("nobody"))));
    assert!(matches!(key("on").holds, Holds::One(_, Absent::Default)));
}

#[test]
fn what_code_sets_is_held_to_the_rules_of_the_file_and_every_fault_is_told_at_once() {
    let mut wrong = Builder::default()
        .wait(Duration::from_micros(20))
        .names(vec!["A".to_owned(), "a".to_owned(), "b c".to_owned()])
        .inners(vec![Inner::default(), Inner { most: 0, ..Inner::default() }])
        .who("")
        .pause(Duration::MAX);
    wrong.config.inner = Inner { most: 10, share: 0.0 };
    assert_eq!(
        told(&wrong.config),
        [
            "to is required: it says where to",
            "wait-ms must be between 1 ms and 3650 days",
            "names must be a name of at most 40 lowercase letters, digits and dashes, not `A`",
            "names must be a name of at most 40 lowercase letters, digits and dashes, not `b c`",
            "inner.most must be between 1 and 9",
            "inner.share-of-all must be a percentage above 0 and up to 100, such as 50",
            "inners[1].most must be between 1 and 9",
            "who must be a name of at most 40 lowercase letters, digits and dashes",
            "pause must be between 1 ms and 3650 days",
        ]
    );
    let between = Builder::default().to("x").wait(Duration::from_secs(6)).config;
    assert_eq!(told(&between), ["wait-ms must not be longer than pause"]);
    assert_eq!(told(&Builder::default().to("x").config), [""; 0]);
    assert_eq!(setting::list(&[]), "");
}

#[test]
fn what_a_file_must_not_say_is_refused() {
    for (given, why) in [
        (json!({"tow": 1}), "there is an unknown key"),
        (json!({"inner": {"mots": 1}}), "there is an unknown key"),
        (json!({"inner": 1}), "inner must be keys with values"),
        (json!({"inners": [{"most": 0}]}), "inners most must be a whole number from 1 to 9, not `0`"),
        (json!({"level": "loud"}), "level must be one of quiet, LOUD, not `loud`"),
        (json!({"wait-ms": [1]}), "wait-ms must be a time from 1ms to 3650d"),
        (json!({"headers": []}), "headers must be names with values"),
    ] {
        let said = read(given).unwrap_err();
        assert!(said.starts_with(why), "{said}");
    }
}
