//! Things that all who ask with equal settings share, for as long as one of them holds it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Things by their settings.
///
/// ```
/// use std::sync::Arc;
/// use backstop_core::shared::Shared;
///
/// let shared = Shared::default();
/// let make = |text: &'static str| move || Ok::<_, std::convert::Infallible>(text.to_owned());
/// let (first, second) = (shared.of(1, make("a"))?, shared.of(1, make("b"))?);
/// assert!(Arc::ptr_eq(&first, &second) && *second == "a");
/// drop((first, second));
/// assert_eq!((shared.count(), shared.of(1, make("c"))?.as_str()), (0, "c"));
/// # Ok::<(), std::convert::Infallible>(())
/// ```
#[derive(Debug)]
pub struct Shared<S, T>(Mutex<Vec<(S, Weak<T>)>>);

impl<S: PartialEq, T> Shared<S, T> {
    /// How many are in use.
    pub fn count(&self) -> usize {
        self.known().len()
    }

    /// The one with these settings: one that is in use already, or a new one.
    pub fn of<E>(&self, settings: S, make: impl FnOnce() -> Result<T, E>) -> Result<Arc<T>, E> {
        let mut known = self.known();
        let same = known.iter().find(|(known, _)| *known == settings);
        if let Some(same) = same.and_then(|(_, same)| same.upgrade()) {
            return Ok(same);
        }
        let fresh = Arc::new(make()?);
        known.push((settings, Arc::downgrade(&fresh)));
        Ok(fresh)
    }

    /// Those that somebody still holds.
    fn known(&self) -> MutexGuard<'_, Vec<(S, Weak<T>)>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(_, thing)| thing.strong_count() > 0);
        known
    }
}

impl<S, T> Default for Shared<S, T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}
