//! `backstop outbox why`: where an event is, in a sentence, and what can be done.

use std::time::Duration;

use anyhow::bail;
use backstop_core::Event;
use backstop_core::event::GLOBAL;
use backstop_sql::outbox::{EventState, Whereabouts};
use backstop_sql::store::Rights;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{args, nowhere, open, state};
use crate::api::Api;
use crate::config::settings::{Mode, Outbox};
use crate::output::Output;
use crate::plain::{escaped, moment, plain, told};

/// How long the daemon is waited for. What the table says is told without it.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) async fn run(args::Why { one: args, reach }: &args::Why) -> anyhow::Result<()> {
    let (outbox, dead) = open(&args.which, Rights::default()).await?;
    let Some(found) = dead.whereabouts(&args.id).await? else { bail!(nowhere(&args.id, &outbox)) };
    let state = state(&found, &outbox);
    let route = match &found.event {
        Ok(event) if waits(&state, &outbox) => {
            let asked = async { Route::ask(&Api::of(reach, &args.which.config)?, &outbox, event).await };
            let asked = timeout(PATIENCE, asked).await;
            Some(asked.unwrap_or_else(|_| bail!("it did not answer within {} s", PATIENCE.as_secs())))
        }
        _ => None,
    };
    let (told_of_route, route) = match route {
        Some(Ok(Some(route))) => (Some(route.told()), Some(route)),
        Some(Err(error)) => (Some(format!("whether its route is held is not known: {}", told(&error))), None),
        Some(Ok(None)) | None => (None, None),
    };
    let mut advice: Vec<_> = told_of_route.into_iter().collect();
    advice.extend(self::advice(&found, &state, &outbox, route.as_ref()));
    let mut output = Output::new();
    if args.json {
        let told = json!({
            "id": found.id, "outbox": outbox.name, "state": word(&state), "told": state.to_string(),
            "advice": advice, "asked_at": found.asked_at,
            "route": route.as_ref().map(|route| &route.name),
            "paused": route.as_ref().and_then(|route| route.paused.as_ref()),
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

/// Whether an event is due, and in nobody's hands.
fn waits(state: &EventState, outbox: &Outbox) -> bool {
    let is_due = matches!(state, EventState::Waiting { .. } | EventState::Retrying { is_due: true, .. });
    is_due && outbox.mode != Mode::WriterOnly
}

/// The route of an event, as a daemon that runs knows it.
struct Route {
    name: String,
    /// Why its events are not handled now, if they are not.
    paused: Option<Value>,
}

impl Route {
    /// None if the daemon does not have the outbox, or nothing for the event.
    async fn ask(api: &Api, outbox: &Outbox, event: &Event) -> anyhow::Result<Option<Self>> {
        let components = api.components().await?;
        let is_meant = |report: &&Value| report["kind"] == "outbox" && report["name"] == *outbox.name;
        let routes = components.iter().find(is_meant).and_then(|report| report["routes"].as_array());
        let (aggregate, kind) = (event.aggregate_type(), event.event_type());
        let own = if aggregate == GLOBAL { kind.to_owned() } else { format!("{aggregate}/{kind}") };
        let named = |name: &str| routes?.iter().find(|route| route["name"] == *name);
        let found = named(&own).or_else(|| named(REST));
        Ok(found.map(|route| Self {
            name: route["name"].as_str().unwrap_or_default().to_owned(),
            paused: Some(route["paused"].clone()).filter(|paused| !paused.is_null()),
        }))
    }

    fn told(&self) -> String {
        let Self { name, paused } = self;
        let Some(paused) = paused else { return format!("its route {name} is not held") };
        let text = |key: &str| paused[key].as_str().unwrap_or_default();
        let (state, why, since) = (text("state"), text("why"), text("since"));
        let target = paused["target"].as_str().map(|target| format!(" for target {target}"));
        let probe = paused["next_probe"].as_str().map(|at| format!("; the next probe comes at {at}"));
        let (target, probe) = (target.unwrap_or_default(), probe.unwrap_or_default());
        format!("its route {name} is {state}{target} since {since}: {why}{probe}")
    }
}

/// The route of all events that have no handler of their own.
const REST: &str = "*";

/// What can be done, a sentence to a line.
fn advice(found: &Whereabouts, state: &EventState, outbox: &Outbox, route: Option<&Route>) -> Vec<String> {
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
        EventState::Waiting { .. } | EventState::Retrying { .. } if route.is_some_and(|route| route.paused.is_some()) => {
            "it comes by itself when a probe succeeds; `backstop target list` shows whether its target is disabled, and \
             `backstop target enable` sends again"
                .to_owned()
        }
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
