//! Passing over held routes: events are taken by their types then, so that those that wait cost nothing, and one now and then is
//! a probe.

use std::time::Duration;

use backstop_core::clock::Tick;
use backstop_core::event::GLOBAL;
use backstop_core::{Clock, SystemClock};

use super::taker::Taker;
use crate::Error;
use crate::database::At;
use crate::queue::table::Which;
use crate::routes::held::Probe;

/// The types of events that wait are asked for this often, while a route is held.
const GOOD_FOR: Duration = Duration::from_millis(500);

/// The types of events that wait, as of the last time somebody asked.
#[derive(Debug, Default)]
pub(super) struct Types {
    all: Vec<String>,
    good_until: Option<Tick>,
    /// Which type comes first this time, so that none is always the last.
    first: usize,
}

impl Taker {
    /// Takes events that wait for nothing, but for those of held routes, and returns how many.
    pub(super) async fn take_open(&self, types: &mut Types, wanted: u32) -> Result<u32, Error> {
        if self.held.is_empty() {
            types.good_until = None;
            return self.take(Which::Ready { after: None }, wanted).await;
        }
        let now = SystemClock.ticks();
        if types.good_until.is_none_or(|until| until <= now) {
            types.all = self.tables.ready_types().await?;
            types.good_until = Some(now + GOOD_FOR);
        }
        let mut open: Vec<_> = types
            .all
            .iter()
            .filter(|event_type| !self.is_held(event_type))
            .map(|it| Some(it.as_str()))
            .collect();
        // Rows that name no type go back with it if their route is held, and are passed over from then on.
        open.push(None);
        let first = types.first % open.len();
        open.rotate_left(first);
        types.first = types.first.wrapping_add(1);
        let mut taken = 0;
        for event_type in open {
            if taken < wanted {
                taken += self.take(Which::OfType { event_type, after: None }, wanted - taken).await?;
            }
        }
        Ok(taken)
    }

    fn is_held(&self, event_type: &str) -> bool {
        let route = self.held.registry().route(GLOBAL, event_type);
        route.is_some_and(|route| self.held.holds(&route.name))
    }

    /// Takes an event for each held route whose time has come, each time another. Tells whether there was any.
    pub(super) async fn probe(&self) -> Result<bool, Error> {
        if self.held.is_empty() {
            return Ok(false);
        }
        let mut found = false;
        for Probe { route, after } in self.held.due() {
            found |= self.probe_route(&route, after).await?;
        }
        Ok(found)
    }

    async fn probe_route(&self, route: &str, after: Option<i64>) -> Result<bool, Error> {
        let of_route = |event_type: &String| {
            let found = self.held.registry().route(GLOBAL, event_type);
            found.is_some_and(|found| &*found.name == route)
        };
        let types: Vec<_> = self.tables.ready_types().await?.into_iter().filter(of_route).collect();
        // Behind the last one, and then from the beginning.
        for after in [after, None] {
            for event_type in &types {
                let since = SystemClock.ticks();
                let which = Which::OfType { event_type: Some(event_type), after };
                let rows = self.tables.claim(which, At::Database, 1).await?;
                if let Some(row) = rows.first() {
                    self.held.probing(route, Some(row.claim.id));
                    self.hand_over(rows, since, true);
                    return Ok(true);
                }
            }
            if after.is_none() {
                break;
            }
        }
        if types.is_empty() {
            self.held.nothing_waits(route);
        } else {
            self.held.later(route);
        }
        Ok(false)
    }
}
