//! Whose turn it is: tests run side by side, but for one whose bound counts how fast a node works off a whole backlog, which
//! it could not keep on half a machine.

use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

static MACHINE: RwLock<()> = RwLock::const_new(());

/// A part of the machine, or all of it, until it is dropped.
pub(crate) enum Turn {
    Beside { _others: RwLockReadGuard<'static, ()> },
    Alone { _nobody: RwLockWriteGuard<'static, ()> },
}

impl Turn {
    /// Beside other tests.
    pub(crate) async fn beside() -> Self {
        Self::Beside { _others: MACHINE.read().await }
    }

    /// With no other test running.
    pub(crate) async fn alone() -> Self {
        Self::Alone { _nobody: MACHINE.write().await }
    }
}
