//! What the fault tests share: node processes, the table as plain SQL sees it, and the checker.

pub(crate) mod clock;
pub(crate) mod ledger;
pub(crate) mod node;
pub(crate) mod stage;
pub(crate) mod turn;

use std::time::Duration;

/// How many events each test carries.
pub(crate) const EVENTS: usize = 100_000;

/// How long a test waits for something that ends by itself. The machine may be slow, and others share it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// How much later than documented something may be seen, on a machine that is busy with other tests.
pub(crate) const SLACK: Duration = Duration::from_secs(10);
