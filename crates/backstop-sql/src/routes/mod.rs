//! Routes: which handler an event goes to, and which of them are held for now. Outboxes and queues share them.

pub(crate) mod held;
pub(crate) mod registry;
