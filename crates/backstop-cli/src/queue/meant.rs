//! The events that a command means, read page by page.

use std::collections::VecDeque;

use backstop_sql::queue::{Filter, Listed, Operations, Status};

use super::args::Matching;

/// How many events are read at once.
const PAGE: u32 = 500;

/// So many stuck events are looked at at most. Workers hold a thousand or two each, so that there are more is unlikely; what
/// is left is there the next time.
const STUCK: u32 = 100_000;

pub(super) enum Meant {
    /// They were read, or named.
    Known(VecDeque<Listed>),
    /// Those of a status, behind the last that was read.
    OfStatus(Status, Filter),
}

impl Meant {
    pub(super) fn known(listed: impl IntoIterator<Item = Listed>) -> Self {
        Self::Known(listed.into_iter().collect())
    }

    pub(super) fn of_status(status: Status, matching: &Matching) -> Self {
        Self::OfStatus(status, matching.filter())
    }

    /// Those whose worker has died or stands still.
    pub(super) async fn stuck(operations: &Operations, matching: &Matching) -> anyhow::Result<Self> {
        let stuck = operations.stuck(STUCK).await?;
        Ok(Self::known(stuck.into_iter().filter(|listed| matching.includes(listed))))
    }

    /// The next few, at most `left`; none when all were read.
    pub(super) async fn next(&mut self, operations: &Operations, left: u64) -> anyhow::Result<Vec<Listed>> {
        let wanted = PAGE.min(u32::try_from(left).unwrap_or(u32::MAX));
        match self {
            Self::Known(listed) => {
                let end = listed.len().min(wanted as usize);
                Ok(listed.drain(..end).collect())
            }
            Self::OfStatus(status, filter) => {
                let page = operations.list(*status, filter, wanted).await?;
                if let Some(last) = page.last() {
                    filter.after = Some(last.id);
                }
                Ok(page)
            }
        }
    }

    /// How many there are now.
    pub(super) async fn count(&self, operations: &Operations) -> anyhow::Result<u64> {
        let (status, filter) = match self {
            Self::Known(listed) => return Ok(listed.len() as u64),
            Self::OfStatus(status, filter) => (*status, filter.clone()),
        };
        let (mut all, mut count) = (Self::OfStatus(status, filter), 0);
        loop {
            let page = all.next(operations, u64::MAX).await?;
            if page.is_empty() {
                return Ok(count);
            }
            count += page.len() as u64;
        }
    }
}
