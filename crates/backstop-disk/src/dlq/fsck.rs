//! Checking: is every file what its name says?

use std::time::Duration;

use backstop_core::{Clock, SystemClock};

use super::directory::Directory;
use super::entry::{Damaged, Found};
use super::filter::Filter;
use super::name;
use crate::Error;

/// A draft this old belongs to nobody any more.
pub(super) const FORGOTTEN: Duration = Duration::from_secs(3_600);

/// Something an operator should know about.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finding {
    /// A file with something in it that is not an event. Look at it and move it away.
    #[non_exhaustive]
    Damaged {
        /// The first such line of the file.
        first: Damaged,
        /// How many there are.
        lines: u64,
    },
    /// A file that a crash left before it was complete, an hour ago or more. Its sender was never told that the
    /// event is safe. A purge removes it.
    Leftover(String),
    /// A file that is not ours.
    Foreign(String),
}

/// What a check found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checked {
    /// Events that can be read.
    pub sound: u64,
    /// Files or lines that cannot.
    pub damaged: u64,
    /// Drafts that a crash left.
    pub leftovers: u64,
    /// Files that are not ours.
    pub foreign: u64,
}

pub(super) fn check(directory: &Directory, mut report: impl FnMut(Finding)) -> Result<Checked, Error> {
    let mut checked = Checked::default();
    let mut open: Option<(Damaged, u64)> = None;
    for found in directory.entries(Filter::all()) {
        match found? {
            Found::Entry(_) => checked.sound += 1,
            Found::Damaged(damaged) => {
                checked.damaged += 1;
                match &mut open {
                    Some((first, lines)) if first.place.file() == damaged.place.file() => *lines += 1,
                    // Files come one after the other, so the one before is at its end.
                    _ => tell(open.replace((damaged, 1)), &mut report),
                }
            }
        }
    }
    tell(open, &mut report);
    let names = directory.filesystem.names(&directory.path).map_err(|source| directory.unreadable(source))?;
    for name in names {
        let name = name.map_err(|source| directory.unreadable(source))?.to_string_lossy().into_owned();
        match kind(&name) {
            Kind::Ours => {}
            Kind::Leftover => {
                checked.leftovers += 1;
                report(Finding::Leftover(name));
            }
            Kind::Foreign => {
                checked.foreign += 1;
                report(Finding::Foreign(name));
            }
        }
    }
    Ok(checked)
}

fn tell(damaged: Option<(Damaged, u64)>, report: &mut impl FnMut(Finding)) {
    if let Some((first, lines)) = damaged {
        report(Finding::Damaged { first, lines });
    }
}

pub(super) enum Kind {
    Ours,
    Leftover,
    Foreign,
}

pub(super) fn kind(name: &str) -> Kind {
    if name::is_letter(name) || name::is_marks(name) {
        return Kind::Ours;
    }
    match name::failed_at(name).filter(|_| name::is_draft(name)) {
        None => Kind::Foreign,
        Some(begun)
            if SystemClock.now() - begun > chrono::TimeDelta::from_std(FORGOTTEN).unwrap_or_default() =>
        {
            Kind::Leftover
        }
        Some(_) => Kind::Ours,
    }
}
