//! The dead-letter directories of a settings file, opened before anything is delivered.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context;
use backstop_core::inspect::Inspect;
use backstop_disk::dlq::{DeadLetters, Setup};

use super::auxiliary::Auxiliary;
use super::component::Component;
use crate::config::Sections;
use crate::config::settings::Dlq;

/// An open directory.
pub(super) struct Opened {
    path: String,
    letters: DeadLetters,
}

impl Opened {
    pub(super) fn letters(&self) -> DeadLetters {
        self.letters.clone()
    }
}

/// Ready once it is open. It ends when the last who writes to it has ended.
impl Component for Opened {
    fn path(&self) -> &str {
        &self.path
    }

    fn shown(&self) -> Vec<Arc<dyn Inspect>> {
        vec![Arc::new(Auxiliary::new(Arc::new(self.letters())))]
    }
}

/// Opens all of them, by their names. One that cannot be used keeps the daemon from
/// starting: a safety net that is missing should be noticed before somebody falls.
pub(super) fn open(settings: Vec<Dlq>, sections: &Sections) -> anyhow::Result<BTreeMap<String, Opened>> {
    let mut opened = BTreeMap::new();
    for dlq in settings {
        let letters = DeadLetters::open(Setup::from(dlq.config).name(&dlq.name))
            .with_context(|| format!("{} cannot be used", sections.told(&dlq.path)))?;
        opened.insert(dlq.name, Opened { path: dlq.path, letters });
    }
    Ok(opened)
}
