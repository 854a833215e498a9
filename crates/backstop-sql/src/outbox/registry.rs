//! Which handler an event goes to.

use std::collections::HashMap;

use backstop_core::Event;
use backstop_core::handler::SharedHandler;

use crate::Error;

/// Handlers by aggregate type and event type. There is no fallback from one pair to another.
#[derive(Debug, Default)]
pub(super) struct Registry {
    handlers: HashMap<(String, String), SharedHandler>,
}

impl Registry {
    pub(super) fn register(
        &mut self,
        aggregate_type: String,
        event_type: String,
        handler: SharedHandler,
    ) -> Result<(), Error> {
        let pair = (aggregate_type, event_type);
        if self.handlers.contains_key(&pair) {
            return Err(Error::Duplicate { aggregate_type: pair.0, event_type: pair.1 });
        }
        self.handlers.insert(pair, handler);
        Ok(())
    }

    pub(super) fn handler_for(&self, event: &Event) -> Option<&SharedHandler> {
        self.handlers.get(&(event.aggregate_type().to_owned(), event.event_type().to_owned()))
    }
}
