//! `backstop dlq redrive` to a web server: what it takes is removed, and nothing else.

use crate::receiver::Receiver;
use crate::{FIRST, complained, dlq, filled, left, text};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const LOCAL: [&str; 2] = ["--allow-network", "127.0.0.0/8"];

#[test]
fn an_entry_is_removed_when_the_server_has_taken_it() {
    let (place, receiver, secrets) =
        (filled(), Receiver::answering(202), backstop_testkit::servers::directory());
    std::fs::write(secrets.file("hook"), SECRET).unwrap();
    let (url, secret) = (receiver.url(), format!("file:{}", text(&secrets.file("hook"))));
    let to = ["redrive", text(place.path()), "--to", &url, "--secret", &secret, "--type", "OrderPlaced"];
    let output = dlq(&[&to[..], &LOCAL].concat());
    assert!(output.status.success(), "{output:?}");
    assert!(complained(&output).contains("2 delivered, 0 failed"), "{output:?}");
    assert_eq!(left(&place), 2, "what is of another type, and what is damaged");
    for id in ["42", "43"] {
        let request = receiver.next().unwrap();
        assert_eq!(request.header("content-type"), Some("application/cloudevents+json"));
        assert!(request.header("webhook-signature").unwrap().starts_with("v1,"), "{}", request.head);
        let event: serde_json::Value = serde_json::from_str(&request.body).unwrap();
        assert_eq!((&event["id"], &event["source"]), (&id.into(), &"/shop".into()));
    }
}

#[test]
fn what_the_server_does_not_take_stays_and_is_counted() {
    let (place, receiver) = (filled(), Receiver::answering(500));
    let url = receiver.url();
    let to = [&["redrive", text(place.path()), "--to", &url][..], &LOCAL].concat();
    for status in [500, 422, 301] {
        receiver.answer(status);
        let output = dlq(&to);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let told = complained(&output);
        assert!(told.contains("0 delivered, 3 failed") && told.contains(&status.to_string()), "{told}");
        assert_eq!(left(&place), 4, "{status}");
    }
    receiver.answer(200);
    let output = dlq(&to);
    assert!(complained(&output).contains("3 delivered, 0 failed"), "{output:?}");
    assert_eq!(left(&place), 1, "the damaged one");
    // Nobody signs what no secret was given for.
    assert_eq!(receiver.next().unwrap().header("webhook-signature"), None);
}

#[test]
fn a_server_that_is_away_or_busy_ends_it_when_patience_is_over() {
    let place = filled();
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let busy = Receiver::answering(503);
    for (url, why) in [(format!("http://{closed}/"), "cannot connect"), (busy.url(), "503")] {
        let impatient = ["redrive", text(place.path()), "--to", &url, "--patience", "1ms"];
        let output = dlq(&[&impatient[..], &LOCAL].concat());
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let told = complained(&output);
        assert!(told.contains("0 delivered, 0 failed") && told.contains(why), "{told}");
        assert!(told.contains(&format!("nothing was sent from {FIRST} on; start again")), "{told}");
        assert_eq!(left(&place), 4);
    }
    assert!(busy.next().is_some());
}

#[test]
fn a_server_that_was_busy_gets_everything_once_it_is_not() {
    let (place, receiver) = (filled(), Receiver::answering(429));
    let url = receiver.url();
    let output = std::thread::scope(|scope| {
        let arguments = [&["redrive", text(place.path()), "--to", &url][..], &LOCAL].concat();
        let redrive = scope.spawn(move || dlq(&arguments));
        receiver.next().unwrap();
        receiver.answer(200);
        redrive.join().unwrap()
    });
    assert!(output.status.success(), "{output:?}");
    let told = complained(&output);
    assert!(told.contains("the target asks for") && told.contains("429"), "{told}");
    assert!(told.contains("3 delivered, 0 failed"), "{told}");
    assert_eq!(left(&place), 1, "the damaged one");
}

#[test]
fn bad_input_is_told_in_a_sentence() {
    let place = filled();
    let path = text(place.path());
    for (arguments, told) in [
        (&["--to", "http://127.0.0.1:9/"][..], "127.0.0.1"),
        (&["--to", "https://"], "--to must be a URL"),
        (&["--to", "https://example.com", "--secret", SECRET], "give env:NAME or file:PATH"),
        (&["--to", "https://example.com", "--secret", "env:NOT_SET"], "NOT_SET is not set"),
        (&["--to", "https://example.com", "--allow-network", "here"], "--allow-network must be a network"),
        (&["--to", "-", "--secret", "env:X"], "are for a URL"),
    ] {
        let output = dlq(&[&["redrive", path][..], arguments].concat());
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {output:?}");
        assert!(complained(&output).contains(told), "{arguments:?}: {}", complained(&output));
        assert!(!complained(&output).contains("MfKQ9r8G"), "no secret is shown");
    }
    assert_eq!(left(&place), 4);
}
