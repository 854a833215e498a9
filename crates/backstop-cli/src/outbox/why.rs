//! `backstop outbox why`: where an event is, in a sentence, and what can be done.

use anyhow::bail;
use backstop_core::Event;
use backstop_sql::outbox::{EventState, Whereabouts};
use backstop_sql::store::Rights;
use serde_json::json;

use super::{args, nowhere, open, state};
use crate::config::settings::{Mode, Outbox};
use crate::output::Output;
use crate::plain::{escaped, moment, plain};

pub(super) async fn run(args: &args::One) -> anyhow::Result<()> {
    let (outbox, dead) = open(&args.which, Rights::default()).await?;
    let Some(found) = dead.whereabouts(&args.id).await? else { bail!(nowhere(&args.id, &outbox)) };
    let state = state(&found, &outbox);
    let advice = advice(&found, &state, &outbox);
    let mut output = Output::new();
    if args.json {
        let told = json!({
            "id": found.id, "outbox": outbox.name, "state": word(&state), "told": state.to_string(),
            "advice": advice, "asked_at": found.asked_at,
        });
        output.line(&escaped(&told.to_string()))?;
    } else {
        output.line(&plain(&format!("{} in outbox {} {state}", found.id, outbox.name)))?;
        for line in advice {
            output.line(&plain(&line))?;
        }
        output.line(&format!("asked at {}, by the database's clock", moment(found.asked_at)))?;
    }
    output.end()
}

/// Where it stands in a word, for other programs.
fn word(state: &EventState) -> &'static str {
    match state {
        EventState::Waiting { .. } => "waiting",
        EventState::Deferred { .. } => "deferred",
        EventState::Claimed { .. } => "claimed",
        EventState::Retrying { .. } => "retrying",
        EventState::Dead { .. } => "dead",
        EventState::Done { .. } => "done",
        EventState::NeverDue => "never-due",
        _ => "unknown",
    }
}

/// What can be done, a sentence to a line.
fn advice(found: &Whereabouts, state: &EventState, outbox: &Outbox) -> Vec<String> {
    let name = &outbox.name;
    let mut lines = Vec::new();
    let pending = !matches!(state, EventState::Dead { .. } | EventState::Done { .. });
    match &found.event {
        Err(why) => lines.push(format!("its row cannot be decoded: {why}")),
        Ok(event) if pending && outbox.mode != Mode::WriterOnly && !has_handler(outbox, event) => lines.push(format!(
            "the settings file has no handler for event type {} of aggregate type {}, so it dies at its first attempt; add \
             one, and restart `backstop serve`",
            event.event_type(),
            event.aggregate_type()
        )),
        Ok(_) => {}
    }
    if pending && outbox.mode == Mode::WriterOnly {
        lines.push(
            "the outbox is writer-only: Backstop delivers nothing from this table, and its rows stay NEW"
                .to_owned(),
        );
        return lines;
    }
    lines.push(match state {
        EventState::Waiting { .. } => {
            "if that is long ago: `backstop serve` must run for this outbox, and its /health says whether the event's route is \
             held, because a target is unavailable or disabled (`backstop target list`); older events come first"
                .to_owned()
        }
        EventState::Deferred { .. } => {
            "it comes by itself".to_owned()
        }
        EventState::Claimed { has_run_out: true, .. } => {
            "it comes by itself when a node looks at the table; is `backstop serve` running?".to_owned()
        }
        EventState::Claimed { .. } => format!(
            "if that node has died, another one takes the event when its claim is {} old (claim-locking.lock-timeout)",
            span(outbox)
        ),
        EventState::Retrying { .. } => {
            "it is tried again by itself, until its attempts are used up (dispatcher.max-attempts)".to_owned()
        }
        EventState::Dead { .. } => format!(
            "remove the cause, then `backstop outbox replay {id} --outbox {name}`; or delete it for good with `backstop \
             outbox discard {id} --outbox {name}`",
            id = found.id
        ),
        EventState::Done { .. } => {
            "its handler has answered done, or its dead letter was redriven; look at the receiver for what came of it"
                .to_owned()
        }
        _ => "repair the row with SQL; Backstop leaves it alone".to_owned(),
    });
    lines
}

fn span(outbox: &Outbox) -> String {
    format!("{:?}", outbox.config().claim_locking.lock_timeout)
}

fn has_handler(outbox: &Outbox, event: &Event) -> bool {
    outbox.handlers.iter().any(|handler| {
        let about = handler.aggregate_type.as_deref().unwrap_or(backstop_core::event::GLOBAL);
        handler.is_for_the_rest()
            || (about == event.aggregate_type()
                && handler.event_type.iter().any(|kind| kind == event.event_type()))
    })
}
