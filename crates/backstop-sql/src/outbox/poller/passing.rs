//! Passing over held routes: rows are read by their types then, so that those that wait cost nothing, and one row now and then
//! is a probe.

use std::time::Duration;

use backstop_core::clock::Tick;
use backstop_core::event::GLOBAL;
use backstop_core::{Clock, SystemClock};

use super::cycle::{Cycle, Read};
use crate::Error;
use crate::outbox::feed::{Offer, Queued};
use crate::outbox::{HeldRoutes, Probe};
use crate::store::{Pair, Place, Row};

/// Asking for the types of pending rows may cost this part of the time, but they are asked for at least every second.
const SHARE: u32 = 20;
const LONGEST: Duration = Duration::from_secs(1);

/// Without claims so many rows are read for a probe: some may be in this process's hands already.
const CANDIDATES: u32 = 20;

/// The types of pending rows, as of the last time somebody asked.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    all: Option<Vec<Pair>>,
    good_until: Option<Tick>,
    /// How often routes had been opened when rows were last read.
    openings: u64,
    /// Which pair comes first this time, so that none is always the last.
    first: usize,
}

impl Read {
    /// Rows that were asked for up to a limit.
    pub(super) fn of(rows: Vec<Row>, limit: u32) -> Self {
        let full = rows.len() >= limit as usize;
        let last = rows.iter().filter_map(Row::place).max();
        Self { rows, full, last }
    }
}

impl Cycle {
    /// The routes that are held, where somebody holds any.
    pub(super) fn held(&self) -> Option<HeldRoutes> {
        self.feed.as_ref().map(|feed| feed.held().clone())
    }

    fn held_now(&self) -> Option<HeldRoutes> {
        self.held().filter(|held| !held.is_empty())
    }

    /// Whether nothing may be read but a probe.
    pub(super) fn holds_all(&self) -> bool {
        self.held().is_some_and(|held| held.holds_all())
    }

    /// Reads due rows, but for those of held routes.
    pub(super) async fn read_open(&mut self, limit: u32, after: Option<&Place>) -> Result<Read, Error> {
        let Some(held) = self.held_now() else {
            return Ok(Read::of(self.read(limit, after, None).await?, limit));
        };
        let Some(pairs) = self.pairs().await? else {
            return self.read_and_sort_out(limit, after, &held).await;
        };
        let mut open: Vec<_> = pairs.into_iter().filter(|pair| !is_held(&held, pair)).collect();
        if !open.is_empty() {
            let first = self.pairs.first % open.len();
            open.rotate_left(first);
            self.pairs.first = self.pairs.first.wrapping_add(1);
        }
        let mut read = Read { rows: Vec::new(), full: false, last: None };
        // Where to go on: behind what was read of every pair.
        let (mut first_full, mut furthest) = (None::<Place>, None::<Place>);
        for pair in &open {
            let left = limit.saturating_sub(u32::try_from(read.rows.len()).unwrap_or(u32::MAX));
            if left == 0 {
                return Ok(Read { full: true, last: None, ..read });
            }
            let Read { rows, full, last } = Read::of(self.read(left, after, Some(pair)).await?, left);
            if full {
                first_full = match (first_full, last.clone()) {
                    (Some(one), Some(other)) => Some(one.min(other)),
                    (one, other) => one.or(other),
                };
            }
            furthest = furthest.max(last);
            read.full |= full;
            read.rows.extend(rows);
        }
        read.last = if read.full { first_full } else { furthest };
        Ok(read)
    }

    /// For a store that cannot read rows by their types: what is held is read, and let go at once.
    async fn read_and_sort_out(
        &mut self,
        limit: u32,
        after: Option<&Place>,
        held: &HeldRoutes,
    ) -> Result<Read, Error> {
        let mut read = Read::of(self.read(limit, after, None).await?, limit);
        let keeps = |row: &Row| row.event.as_ref().is_ok_and(|event| held.keeps(event));
        let (kept, open): (Vec<_>, Vec<_>) = read.rows.into_iter().partition(keeps);
        self.give_back(kept.into_iter().filter_map(|row| Some((row.id, row.claim?))).collect()).await?;
        read.rows = open;
        Ok(read)
    }

    /// Sends a probe on its way for each held route whose time has come.
    pub(super) async fn probe(&mut self) -> Result<(), Error> {
        let Some(held) = self.held() else { return Ok(()) };
        let openings = held.openings();
        if std::mem::replace(&mut self.pairs.openings, openings) != openings {
            // What was passed over is to be read now.
            self.start_over();
        }
        if held.is_empty() {
            self.pairs.good_until = None;
            return Ok(());
        }
        if held.holds_all() {
            return self.probe_first(&held).await;
        }
        for Probe { route, after } in held.due() {
            match self.find_probe(&held, &route, after.as_ref()).await? {
                Found::Row(row) => self.send_probe(&held, &route, *row).await?,
                Found::NotNow => held.later(&route),
                Found::Nothing => held.nothing_waits(&route),
            }
        }
        Ok(())
    }

    /// Where the order counts only the first event can be a probe, once all behind it are out of our hands.
    async fn probe_first(&mut self, held: &HeldRoutes) -> Result<(), Error> {
        let due = held.due();
        if self.handler.in_flight() > 0 || due.is_empty() {
            return Ok(());
        }
        match self.read(1, None, None).await?.pop() {
            Some(row) => self.send_probe(held, &due[0].route, row).await?,
            None => held.all().iter().for_each(|route| held.nothing_waits(route)),
        }
        Ok(())
    }

    /// An event of a held route, each time another one: one that is bad must not keep its route closed.
    async fn find_probe(
        &mut self,
        held: &HeldRoutes,
        route: &str,
        after: Option<&Place>,
    ) -> Result<Found, Error> {
        let claims = self.looking.locking.is_some();
        let limit = if claims { 1 } else { CANDIDATES };
        let Some(pairs) = self.pairs().await? else {
            return self.find_probe_among_all(held, route).await;
        };
        let of_route = |pairs: Vec<Pair>| -> Vec<_> {
            pairs.into_iter().filter(|pair| route_of(held, pair).as_deref() == Some(route)).collect()
        };
        let mut pairs = of_route(pairs);
        if pairs.is_empty() {
            // Its events may be younger than what is known.
            self.pairs.good_until = None;
            pairs = of_route(self.pairs().await?.unwrap_or_default());
        }
        // Pending, and claimed elsewhere, not due yet, or in our hands.
        let found = if pairs.is_empty() { Found::Nothing } else { Found::NotNow };
        // Behind the last one, and then from the beginning.
        let begin = after.map(|_| None);
        for after in std::iter::once(after).chain(begin) {
            for pair in &pairs {
                let rows = self.read(limit, after, Some(pair)).await?;
                if let Some(row) = rows.into_iter().find(|row| claims || !self.leases.holds(&row.id)) {
                    return Ok(Found::Row(Box::new(row)));
                }
            }
        }
        Ok(found)
    }

    async fn find_probe_among_all(&mut self, held: &HeldRoutes, route: &str) -> Result<Found, Error> {
        let rows = self.read(CANDIDATES, None, None).await?;
        let is_of_route = |row: &Row| {
            row.event.as_ref().is_ok_and(|event| {
                let found = held.registry().route(event.aggregate_type(), event.event_type());
                found.is_some_and(|found| &*found.name == route)
            })
        };
        let (mut of_route, others): (Vec<_>, Vec<_>) = rows.into_iter().partition(is_of_route);
        let first = (!of_route.is_empty()).then(|| of_route.swap_remove(0));
        let left = of_route.into_iter().chain(others);
        self.give_back(left.filter_map(|row| Some((row.id, row.claim?))).collect()).await?;
        Ok(first.map_or(Found::NotNow, |row| Found::Row(Box::new(row))))
    }

    async fn send_probe(&mut self, held: &HeldRoutes, route: &str, row: Row) -> Result<(), Error> {
        let Some(feed) = self.feed.clone() else { return Ok(()) };
        let place = row.place();
        let Row { id, attempts, claim, generation, due_at, event, .. } = &row;
        let Ok(event) = event else {
            // It is buried, and the next one is a probe.
            self.hand_over(vec![row]).await?;
            held.later(route);
            return Ok(());
        };
        let queued = Queued {
            claim: claim.clone(),
            generation: Some(*generation),
            due_at: *due_at,
            probe: true,
            ..Queued::cold(event.clone(), *attempts)
        };
        // Before it is sent: its answer may come at once.
        held.probing(route, place);
        if feed.offer_cold(queued) != Offer::Taken {
            held.later(route);
            if let Some(claim) = claim {
                self.leases.ledger().disown(id.clone(), claim.clone());
            }
        }
        Ok(())
    }

    /// The types of pending rows; none if the store cannot tell.
    async fn pairs(&mut self) -> Result<Option<Vec<Pair>>, Error> {
        let began = SystemClock.ticks();
        if self.pairs.good_until.is_none_or(|until| until <= began) {
            self.pairs.all = self.store.pending_pairs().await?;
            let now = SystemClock.ticks();
            self.pairs.good_until = Some(now + (now.since(began) * SHARE).min(LONGEST));
        }
        Ok(self.pairs.all.clone())
    }
}

/// What there is to probe a route with.
enum Found {
    Row(Box<Row>),
    /// Events wait, and none can be taken just now.
    NotNow,
    Nothing,
}

fn route_of(held: &HeldRoutes, Pair { aggregate_type, event_type }: &Pair) -> Option<std::sync::Arc<str>> {
    let aggregate_type = aggregate_type.as_deref().unwrap_or(GLOBAL);
    Some(held.registry().route(aggregate_type, event_type)?.name)
}

/// What no handler is for is dead at once, and held by nobody.
fn is_held(held: &HeldRoutes, pair: &Pair) -> bool {
    route_of(held, pair).is_some_and(|route| held.holds(&route))
}
