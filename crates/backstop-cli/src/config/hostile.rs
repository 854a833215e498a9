//! Hostile settings from a seed: whatever stands where a secret may stand is in no fault, no warning, no `Debug` and no log.

use backstop_testkit::logs::Logs;
use backstop_testkit::servers::directory;

use super::{Surroundings, check};

const CANARY: &str = "c4n4ryS3cret";

/// What may stand around a secret, and what a careless hand leaves unescaped.
const NOISE: [&str; 20] = [
    "", "", "", "1", "12", ":", "/", "//", "?", "#", "@", "&x=", "%", "%2F", "[", "]", " ", "\\n", "\\e[2J",
    "whsec_",
];

const REFERENCES: [&str; 8] = ["", "", "env:", "file:", "file:/", "env: ", "file:./", "ENV:"];

/// A secret, or what a slip makes of it, as it stands in a file.
fn secret(random: &mut fastrand::Rng) -> String {
    let mut some = |choices: &[&str]| random.choice(choices.iter().copied()).unwrap_or_default().to_owned();
    let secret = some(&NOISE) + &some(&NOISE) + CANARY + &some(&NOISE);
    let url = match some(&["login", "path", "query", "bare"]).as_str() {
        "login" => {
            some(&["postgres", "mysql", "sqlite", "https", "http", "kafka"])
                + &some(&["://", "://", ":", "//"])
                + &format!("user:{secret}@{}", some(&["h", "h:1/d", "127.0.0.1:80", "h:x"]))
        }
        "path" => some(&["https", "http", "htps"]) + &some(&["://", "://", ":/"]) + "h/x/" + &secret,
        "query" => {
            some(&["postgres://u@h/d", "mysql://u@h/d", "sqlite:a.db", "https://h/"])
                + &some(&["?password=", "?sslpasswrod=", "?mode=", "?", "?sslmode="])
                + &secret
        }
        _ => secret,
    };
    some(&REFERENCES) + &url
}

/// Settings with secrets where they belong, or beside it.
fn hostile(random: &mut fastrand::Rng) -> String {
    let [url, hook, key, hash] = [(); 4].map(|()| format!("\"{}\"", secret(random)));
    // Where no secret belongs, a URL with its password comes by mistake.
    let scheme = random.choice(["https://", "env:http://", ""]).unwrap_or_default();
    let astray = format!("\"{scheme}user:{CANARY}@h\"");
    let space = random.choice(["", " ", " ", " ", " "]).unwrap_or_default();
    // librdkafka is asked about properties where all else is well.
    let (brokers, name) =
        random.choice([("h:1", "x.y"), ("h:1", &astray), (&astray, "x")]).unwrap_or_default();
    let names = random.choice([("a", "b"), ("a", "a")]).unwrap_or_default();
    format!(
        "outbox:
  - name: {}
    database: {{url:{space}{url}}}
    handlers: [{{event-type: T, http: {{url: {hook}, secrets: [{key}], allowed-networks: {astray},
      headers: {{x-a: {key}, {astray}: {hook}, content-type: {hash}}}}}}}]
  - name: {}
    database: {{url: {key}, time-zone: {astray}}}
    handlers: [{{event-type: T, kafka: {{bootstrap-servers: {brokers}, topic: t,
      properties: {{sasl.password: {key}, {name}: {hook}, acks: {hash}}}}}}}]
server: {{address: {astray}, hosts: [{astray}], tokens: [{{name: a, sha256: {hash}}}]}}
",
        names.0, names.1
    )
}

#[test]
fn no_hostile_settings_show_their_secrets() {
    let beside = directory();
    let mut random = fastrand::Rng::with_seed(13);
    let logs = Logs::catch_all();
    let (mut lines, mut readable) = (0, 0);
    for round in 0..2_000 {
        let text = hostile(&mut random);
        let variable = secret(&mut random);
        let names = [
            "BACKSTOP__OUTBOX__A__DATABASE__URL",
            "BACKSTOP__OUTBOX__B__DATABASE__URL",
            "BACKSTOP__OUTBOX__C__MODE",
            "C4",
        ];
        let name = names[round % names.len()];
        let checked = check("f.yaml", &text, &Surroundings::of(&[(name, &variable)], beside.path()));
        let said = [checked.faults(), checked.warnings()].concat();
        lines += said.len();
        readable += usize::from(checked.settings.is_some());
        for line in said {
            assert!(!line.contains(CANARY), "{line}\nin\n{text}\n{name}={variable}");
            assert!(!line.contains(char::is_control), "{line:?}");
        }
        let debug = format!(
            "{:?}",
            checked.settings.as_ref().map(|it| (&it.outbox[0].database, &it.outbox[0].handlers))
        );
        assert!(!debug.contains(CANARY), "{debug}");
    }
    assert!(!logs.all().contains(CANARY), "{}", logs.all());
    assert!(lines > 10_000 && readable > 1_000, "{lines} lines, {readable} readable");
}
