//! Emitters whose sink is closed, side by side, until they are done or killed: each event that is safe is told on
//! a line of its own. The tests run it as a process of its own; the environment names the directory.
//!
//! `BACKSTOP_DLQ_DIR=/tmp/dlq cargo run -p backstop-disk --example failing_emitters -- 256 10 a`

use std::io::Write;

use backstop_core::{CloudEvent, Event, Failure, SharedSink, Sink};
use backstop_disk::dlq::DlqSink;

#[tokio::main]
async fn main() {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [emitters, events, name] = &arguments[..] else {
        eprintln!("usage: failing_emitters EMITTERS EVENTS-OF-EACH NAME");
        std::process::exit(2);
    };
    let closed =
        SharedSink::new(|_: CloudEvent| async { Err::<(), _>(Failure::transient("http-503", "closed")) });
    let sink = DlqSink::from_env(closed.clone());
    if sink.is(&closed) {
        say("unwrapped");
    }
    let (emitters, events): (u32, u32) = (emitters.parse().unwrap_or(1), events.parse().unwrap_or(1));
    let tasks: Vec<_> = (0..emitters)
        .map(|emitter| tokio::spawn(emit(sink.clone(), events, format!("{name}.{emitter}"))))
        .collect();
    for task in tasks {
        if task.await.is_err() {
            std::process::exit(1);
        }
    }
}

async fn emit(sink: SharedSink, events: u32, name: String) {
    for number in 0..events {
        let id = format!("{name}.{number}");
        let event = Event::of("OrderPlaced").id(&id).payload_json(r#"{"n":1.10}"#).build();
        let event = event.map(|event| CloudEvent::of(&event, "/emitters"));
        let Ok(Ok(event)) = event else { return say(&format!("not an event: {id}")) };
        match sink.emit(event).await {
            Ok(()) => say(&id),
            Err(failure) => say(&format!("refused {id}: {failure}")),
        }
    }
}

/// One write for a line: a process that is killed says it or does not.
fn say(line: &str) {
    let _ = std::io::stdout().write_all(format!("{line}\n").as_bytes());
}
