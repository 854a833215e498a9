//! The handlers of an outbox or a queue, made before it starts: what they need is known then, and the page can show their
//! targets.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context;
use backstop_core::event::GLOBAL;
use backstop_core::handler::SharedHandler;
use backstop_core::inspect::Inspect;
use backstop_disk::dlq::DeadLetters;
use backstop_sql::Supported;
use backstop_sql::outbox::{Builder, Delivering};
use backstop_sql::queue::Worker;

use super::auxiliary::Auxiliary;
use super::letters::Opened;
use crate::config::settings::{Handler, Mode, Outbox, Queue};
use crate::handlers::{self, Made, Owner, Shared, Target};
use crate::target::ARROW;

/// What an outbox or a queue is connected to.
#[derive(Default)]
pub(super) struct Wiring {
    handlers: Vec<Wired>,
    letters: Option<DeadLetters>,
    targets: Vec<Arc<dyn Inspect>>,
}

struct Wired {
    aggregate_type: String,
    event_types: Vec<String>,
    handler: SharedHandler,
    /// Where these events go when they die, if not where all go.
    letters: Option<DeadLetters>,
}

impl Wiring {
    /// Makes the handlers of an outbox. Nothing is sent, and brokers that are unavailable hold nothing up.
    pub(super) fn of_outbox(
        outbox: &Outbox,
        letters: &BTreeMap<String, Opened>,
        shared: &Shared,
    ) -> anyhow::Result<Self> {
        let Outbox { name, mode, handlers, dlq, .. } = outbox;
        match mode {
            Mode::WriterOnly => Ok(Self::default()),
            _ => Self::of(Owner::Outbox(name), handlers, dlq.as_ref(), letters, shared),
        }
    }

    /// Makes the handlers of a queue.
    pub(super) fn of_queue(
        Queue { name, handlers, dlq, .. }: &Queue,
        letters: &BTreeMap<String, Opened>,
        shared: &Shared,
    ) -> anyhow::Result<Self> {
        Self::of(Owner::Queue(name), handlers, dlq.as_ref(), letters, shared)
    }

    fn of(
        owner: Owner<'_>,
        handlers: &[Handler],
        dlq: Option<&String>,
        letters: &BTreeMap<String, Opened>,
        shared: &Shared,
    ) -> anyhow::Result<Self> {
        let find = |name: Option<&String>| name.and_then(|name| letters.get(name)).map(Opened::letters);
        let mut wiring = Self { letters: find(dlq), ..Self::default() };
        let mut names = BTreeMap::new();
        for handler in handlers {
            let target = Target::of(handler).into_iter().next().context("a handler names no target")?;
            // A URL's path is not shown, so two of one host have one name.
            let number = names.entry((target.word(), target.name())).or_insert(0);
            *number += 1;
            let made =
                handlers::build(owner, *number, target, shared).with_context(|| handler.path.clone())?;
            wiring.add(&used_for(owner, handler), handler, made, find(handler.dlq.as_ref()));
        }
        Ok(wiring)
    }

    fn add(&mut self, used_for: &str, settings: &Handler, made: Made, letters: Option<DeadLetters>) {
        let Made { handler, target } = made;
        let mut letters = letters.or_else(|| self.letters.clone());
        if let Some((name, inspect)) = target {
            letters = letters.map(|letters| letters.towards(name.as_str()));
            self.targets.push(Arc::new(Auxiliary::new(inspect).named(format!("{used_for}{ARROW}{name}"))));
        }
        self.handlers.push(Wired {
            aggregate_type: settings.aggregate_type.clone().unwrap_or_else(|| GLOBAL.to_owned()),
            event_types: settings.event_type.clone(),
            handler,
            letters,
        });
    }

    /// Where the handlers send to, for the dashboard.
    pub(super) fn targets(&self) -> &[Arc<dyn Inspect>] {
        &self.targets
    }

    /// The worker of a queue with everything registered, if there is anything for it to do.
    pub(super) fn worker(&self) -> Option<Worker> {
        if self.handlers.is_empty() {
            return None;
        }
        let mut worker = Worker::new();
        if let Some(letters) = &self.letters {
            worker = worker.dead_letters(letters.clone());
        }
        for Wired { event_types, handler, .. } in &self.handlers {
            for event_type in event_types {
                worker = match event_type.as_str() {
                    "*" => worker.otherwise(handler.clone()),
                    event_type => worker.on(event_type.to_owned(), handler.clone()),
                };
            }
        }
        Some(worker)
    }

    /// Registers everything with an outbox.
    pub(super) fn connect<DB: Supported, M: Delivering>(
        &self,
        mut builder: Builder<DB, M>,
    ) -> Builder<DB, M> {
        if let Some(letters) = &self.letters {
            builder = builder.dead_letters(letters.clone());
        }
        for Wired { aggregate_type, event_types, handler, letters } in &self.handlers {
            for event_type in event_types {
                if event_type == "*" {
                    builder = builder.otherwise(handler.clone());
                    continue;
                }
                builder = builder.on(aggregate_type.clone(), event_type.clone(), handler.clone());
                if let Some(letters) = letters {
                    builder =
                        builder.dead_letters_of(aggregate_type.clone(), event_type.clone(), letters.clone());
                }
            }
        }
        builder
    }
}

/// Whose events a handler is for, on the page: no two have the same.
fn used_for(owner: Owner<'_>, handler: &Handler) -> String {
    let about = handler.aggregate_type.as_ref().map(|about| format!(" ({about})")).unwrap_or_default();
    format!("{}: {}{about}", owner.name(), handler.event_type.join(", "))
}
