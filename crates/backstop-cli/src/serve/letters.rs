//! The dead-letter directories of a settings file, opened before anything is delivered.

use std::collections::BTreeMap;

use anyhow::Context;
use backstop_disk::dlq::{self, DeadLetters};

use crate::config::Sections;
use crate::config::settings::Dlq;

/// Opens all of them, by their names. One that cannot be used keeps the daemon from
/// starting: a safety net that is missing should be noticed before somebody falls.
pub(super) fn open(settings: &[Dlq], sections: &Sections) -> anyhow::Result<BTreeMap<String, DeadLetters>> {
    let several = settings.len() > 1;
    let mut opened = BTreeMap::new();
    for dlq in settings {
        let letters = DeadLetters::open(settings_of(dlq, several))
            .with_context(|| format!("{} cannot be used", sections.told(&dlq.path)))?;
        opened.insert(dlq.name.clone(), letters);
    }
    Ok(opened)
}

fn settings_of(dlq: &Dlq, several: bool) -> dlq::Settings {
    let Dlq { name, directory, create, details, rolling, .. } = dlq;
    let prefix = if several { format!("dlq.{name}") } else { "dlq".to_owned() };
    let settings = dlq::Settings::at(directory).name(name).create(*create).details(*details);
    let settings = settings.metrics_prefix(prefix);
    if !rolling.enabled {
        return settings;
    }
    settings.rolling(dlq::Rolling {
        max_bytes: rolling.max_bytes,
        max_age: rolling.max_age,
        idle: rolling.idle,
    })
}
