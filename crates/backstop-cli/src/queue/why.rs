//! `backstop queue why`: where an event is, in a sentence, and what can be done.

use anyhow::bail;
use backstop_sql::queue::{Found, Whereabouts};
use serde_json::json;

use super::{args, nowhere, open};
use crate::config::settings::Queue;
use crate::output::Output;
use crate::plain::{escaped, moment, plain};

pub(super) async fn run(args: &args::One) -> anyhow::Result<()> {
    let (queue, operations) = open(&args.which).await?;
    let (Some(found), Some(state)) = (operations.find(args.id).await?, operations.why(args.id).await?) else {
        bail!(nowhere(args.id, &queue))
    };
    let advice = advice(&found, &state, &queue);
    let mut output = Output::new();
    if args.json {
        let told = json!({
            "id": args.id, "queue": queue.name, "state": word(&state), "told": state.to_string(), "advice": advice,
            "asked_at": found.asked_at,
        });
        output.line(&escaped(&told.to_string()))?;
    } else {
        output.line(&plain(&format!("{} in queue {} {state}", args.id, queue.name)))?;
        for line in advice {
            output.line(&plain(&line))?;
        }
        output.line(&format!("asked at {}, by the database's clock", moment(found.asked_at)))?;
    }
    output.end()
}

/// Where it stands in a word, for other programs.
fn word(state: &Whereabouts) -> &'static str {
    match state {
        Whereabouts::Waiting { .. } => "waiting",
        Whereabouts::Delayed { .. } => "delayed",
        Whereabouts::Handled { .. } => "handled",
        Whereabouts::Stuck { .. } => "stuck",
        Whereabouts::Completed { .. } => "completed",
        Whereabouts::Failed { .. } => "failed",
        _ => "unknown",
    }
}

/// What can be done, a sentence to a line.
fn advice(found: &Found, state: &Whereabouts, queue: &Queue) -> Vec<String> {
    let (id, name) = (found.listed.id, &queue.name);
    let mut lines = Vec::new();
    let has_ended = found.listed.status.has_ended();
    match &found.event {
        Err(why) => lines.push(format!("its row cannot be read: {why}")),
        Ok(event) if !has_ended && !queue.handlers.is_empty() && !has_handler(queue, event.event_type()) => {
            let event_type = match event.event_type() {
                "" => "for events without a type".to_owned(),
                event_type => format!("for event type {event_type}"),
            };
            lines.push(format!(
                "the settings file has no handler {event_type}, so it fails when it is taken; add one, and restart `backstop \
                 serve`"
            ));
        }
        Ok(_) => {}
    }
    lines.push(match state {
        Whereabouts::Waiting { .. } if queue.handlers.is_empty() => {
            "the settings file has no handlers for this queue: another program must take it".to_owned()
        }
        Whereabouts::Waiting { .. } => "if that is long ago: `backstop serve` must run for this queue, and its /health says \
             whether the event's route is held, because a target is unavailable or disabled (`backstop target list`); earlier \
             events come first"
            .to_owned(),
        Whereabouts::Delayed { .. } => "it comes by itself".to_owned(),
        Whereabouts::Handled { .. } => format!(
            "if its worker has died, another one takes it over when that moment is {:?} ago (abandoned-timeout)",
            queue.config().abandoned_timeout
        ),
        Whereabouts::Stuck { .. } => format!(
            "it comes by itself when a worker looks, one such event after the other; is `backstop serve` running? To have it \
             taken like any other: `backstop queue requeue {id} --queue {name}`"
        ),
        Whereabouts::Completed { .. } => {
            "its handler has answered done; look at the receiver for what came of it".to_owned()
        }
        Whereabouts::Failed { .. } => {
            format!("remove the cause, then `backstop queue requeue {id} --queue {name}`")
        }
        _ => "nothing is known about what to do".to_owned(),
    });
    lines
}

fn has_handler(queue: &Queue, event_type: &str) -> bool {
    let is_for = |kinds: &[String]| kinds.iter().any(|kind| kind == event_type);
    queue.handlers.iter().any(|handler| handler.is_for_the_rest() || is_for(&handler.event_type))
}
