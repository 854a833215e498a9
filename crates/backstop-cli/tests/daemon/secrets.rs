//! Secrets in settings, files and answers: none is printed, logged, stored or shown, at whatever level.

use std::process::Command;

use crate::receiver::Receiver;
use crate::support::Place;

const CANARY: &str = "c4n4ryS3cret";

fn on(url: &str) -> String {
    format!("outbox: {{database: {{url: '{url}'}}, handlers: [{{event-type: T, log: }}]}}\n")
}

#[test]
fn no_command_prints_the_secret_of_a_database_url_however_much_it_is_to_say() {
    for url in [
        format!("postgres://u@127.0.0.1:1/d?sslpasswrod={CANARY}"),
        format!("postgres:u:{CANARY}@127.0.0.1:1/d"),
        format!("mysql:u:{CANARY}@127.0.0.1:1/d"),
        format!("mysql://u:12/{CANARY}@127.0.0.1:1/d"),
        format!("sqlite:u:{CANARY}@127.0.0.1/d"),
        format!("env:postgres://u:{CANARY}@127.0.0.1:1/d"),
        format!("env:whsec_{CANARY}"),
        format!("file:{CANARY}"),
        format!("{CANARY}:x"),
    ] {
        for place in [
            Place::with(&on(&url)),
            Place::with(&on("sqlite:a.db")).variable("BACKSTOP__OUTBOX__DATABASE__URL", &url),
        ] {
            for command in ["check", "migrate", "serve"] {
                let ended = place.run(&["-vv", command]).with(1);
                let said = ended.said + &ended.complained;
                assert!(!said.contains(CANARY), "{command} {url}: {said}");
                assert!(said.contains("outbox.database.url: "), "{command} {url}: {said}");
            }
        }
    }
}

#[test]
fn a_wrong_password_is_told_once_and_without_it() {
    let Ok(url) = std::env::var("BACKSTOP_TEST_MYSQL_URL") else {
        return backstop_testkit::skip("BACKSTOP_TEST_MYSQL_URL is not set");
    };
    let (_, place) = url.split_once('@').unwrap();
    let place = Place::with(&on("env:URL")).variable("URL", format!("mysql://nobody:{CANARY}@{place}"));
    for command in ["migrate", "serve"] {
        let complained = place.run(&["-vv", command]).with(1).complained;
        let lines: Vec<_> = complained.lines().filter(|line| line.starts_with("error: ")).collect();
        assert!(lines[0].contains("refuses this user and password: Access denied"), "{complained}");
        assert_eq!(lines[0].matches("Access denied").count(), 1, "{complained}");
        assert!(!complained.contains(CANARY), "{complained}");
    }
}

#[tokio::test]
async fn neither_the_token_of_a_webhook_nor_the_password_in_its_answer_is_logged_stored_or_shown() {
    let receiver = Receiver::answering(422);
    receiver.say(&format!("no such hook: https://joe:{CANARY}@hooks.example/x?token={CANARY}\x1b[2J"));
    let settings = "\
outbox:
  name: orders
  database: {url: 'sqlite:orders.db'}
  poller: {interval-ms: 50}
  handlers:
    - {event-type: OrderPlaced, aggregate-type: Order, http: {url: env:HOOK, allowed-networks: 127.0.0.0/8}}
    - {event-type: OrderPaid, aggregate-type: Order, http: {url: file:hook, allowed-networks: 127.0.0.0/8}}
server: {address: '127.0.0.1:0'}
";
    let hook = format!("{}/{CANARY}?token={CANARY}", receiver.url());
    let place = Place::with(settings).variable("HOOK", &hook).variable("BACKSTOP_LOG", "trace");
    std::fs::write(place.file("hook"), hook + "\n").unwrap();
    let daemon = place.serve();
    let orders = place.orders().await;
    orders.insert("o-1").await;
    orders.insert_typed("o-2", "OrderPaid").await;
    orders.until("o-1", 3).await;
    orders.until("o-2", 3).await;
    assert!(receiver.next().unwrap().head.contains("/hooks/c4n4ry"), "it was sent there");
    receiver.answer(503);
    orders.insert("o-3").await;
    let target = daemon.component("webhook", |target| target["flows"][1]["total"].as_u64() > Some(0));

    let mut shown = format!("{target}");
    for path in ["/health", "/metrics", "/api/v1/components", "/"] {
        shown += &daemon.get(path, "").1;
    }
    shown += &orders.errors().await.join("\n");
    let ended = daemon.end("-TERM").with(0);
    shown += &(ended.said + &ended.complained);
    assert!(shown.contains("https://***@hooks.example/x?token=***"), "{shown}");
    assert!(!shown.contains(CANARY) && !shown.contains(&CANARY.to_lowercase()), "{shown}");
    assert!(!shown.contains('\x1b'), "{shown}");
}

#[test]
fn pipes_and_devices_are_refused_as_files_and_not_waited_for() {
    let place = Place::with(&on("file:pipe"));
    assert!(Command::new("mkfifo").arg(place.file("pipe")).status().unwrap().success());
    let told = place.run(&["check"]).with(1).complained;
    assert!(told.contains("in pipe: it is a pipe, not a regular file"), "{told}");
    for (file, what) in [("pipe", "a pipe"), ("/dev/zero", "a device"), (".", "a directory")] {
        let told = place.run(&["check", "--config", file]).with(1).complained;
        assert_eq!(told, format!("error: cannot read {file}: it is {what}, not a regular file\n"));
    }
}

#[test]
fn pipes_and_devices_that_the_environment_names_are_refused_too() {
    let hook =
        "outbox: {database: {url: 'sqlite:a.db'}, handlers: [{event-type: T, http: {url: 'https://h/'}}]}\n";
    for (settings, name) in [
        (on("postgres://u@127.0.0.1:1/d"), "PGPASSFILE"),
        (on("postgres://u@127.0.0.1:1/d"), "PGSSLROOTCERT"),
        (on("mysql://u@127.0.0.1:1/d"), "SSL_CERT_FILE"),
        (hook.to_owned(), "SSL_CERT_FILE"),
    ] {
        let place = Place::with(&settings);
        let pipe = place.file("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let told = place.variable(name, pipe.display().to_string()).run(&["check"]).with(1).complained;
        assert!(told.contains(&format!("the environment variable {name} names")), "{told}");
        assert!(told.contains("not a regular file"), "{told}");
    }
}

#[test]
fn nothing_in_a_file_reaches_the_terminal_as_a_command() {
    let settings = "\
outbox:
  database: {url: 'sqlite:a.db', table: \"\\e[2J\"}
  mode: \"\\e]0;title\\a\"
  dlq: \"x\\ry\"
  \"\\e[31mkey\": 1
  handlers: [{event-type: T, log: }]
dlq: {directory: \"d\\e[2J\\u009b\"}
";
    let good = "outbox: {database: {url: 'sqlite:a.db'}, handlers: [{event-type: T, log: }]}\n\
                dlq: {directory: \"d\\e[2J\\u009b2J\\u202E\"}\n";
    for (text, code) in [(settings, 1), (good, 0)] {
        let ended = Place::with(text).run(&["check"]).with(code);
        let said = ended.said + &ended.complained;
        let acts = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!said.contains(acts), "{said:?}");
        assert!(said.contains(r"\u{1b}[2J"), "{said}");
    }
}
