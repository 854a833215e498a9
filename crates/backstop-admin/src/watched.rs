//! Looking at components: all at once, each with a time limit, never twice at the same time.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use backstop_core::clock::Tick;
use backstop_core::inspect::{Health, Inspect, Report};
use backstop_core::operate::Operate;
use backstop_core::{Clock, SystemClock};
use tokio::sync::Mutex;
use tokio::time::timeout;

/// How long a component may take to answer before it counts as down.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long a report serves everybody who asks: ten open dashboards cost a database as much as one.
const FRESH: Duration = Duration::from_millis(100);

/// The components that the dashboard shows, in the order they were added.
pub(crate) struct Watched(Vec<Arc<Component>>);

impl Watched {
    pub(crate) fn new(components: Vec<Arc<dyn Inspect>>) -> Self {
        Self(
            components
                .into_iter()
                .enumerate()
                .map(|(index, inspect)| Arc::new(Component::new(index, inspect)))
                .collect(),
        )
    }

    /// Looks at every component. One that hangs or panics is reported as down and holds nobody up.
    pub(crate) async fn reports(&self) -> Vec<Report> {
        // A task for each keeps one component's panic away from the others' reports.
        let looks: Vec<_> = self.0.iter().map(|component| tokio::spawn(component.clone().look())).collect();
        let mut reports = Vec::with_capacity(looks.len());
        for (component, look) in self.0.iter().zip(looks) {
            reports.push(look.await.unwrap_or_else(|_| component.down("panicked when it was asked")));
        }
        reports
    }

    /// The components of that kind and name, as their reports have them.
    pub(crate) async fn named(&self, kind: &str, name: &str) -> Vec<Arc<Component>> {
        let reports = self.reports().await;
        let all = self.0.iter().zip(&reports);
        all.filter(|(_, report)| report.kind == kind && report.name == name)
            .map(|(it, _)| it.clone())
            .collect()
    }
}

pub(crate) struct Component {
    /// Which one it is, in the words of its first report: one that hangs cannot say.
    title: OnceLock<(&'static str, String)>,
    index: usize,
    inspect: Arc<dyn Inspect>,
    /// Held while looking, so that requests share one look and cannot pile up on a database that hangs.
    last: Mutex<Option<(Tick, Report)>>,
}

impl Component {
    fn new(index: usize, inspect: Arc<dyn Inspect>) -> Self {
        Self { title: OnceLock::new(), index, inspect, last: Mutex::new(None) }
    }

    /// What an operator can change of it.
    pub(crate) fn operable(&self) -> Option<&dyn Operate> {
        self.inspect.operable()
    }

    async fn look(self: Arc<Self>) -> Report {
        match timeout(PATIENCE, self.share()).await {
            Ok(report) => report,
            Err(_) => self.down(&format!("did not answer within {} s", PATIENCE.as_secs())),
        }
    }

    async fn share(&self) -> Report {
        let mut last = self.last.lock().await;
        if let Some((at, report)) = &*last
            && SystemClock.ticks().since(*at) < FRESH
        {
            return report.clone();
        }
        let report = self.inspect.report().await;
        self.title.get_or_init(|| (report.kind, report.name.clone()));
        *last = Some((SystemClock.ticks(), report.clone()));
        report
    }

    fn down(&self, why: &str) -> Report {
        let unnamed = || ("component", format!("{}", self.index + 1));
        let (kind, name) = self.title.get().cloned().unwrap_or_else(unnamed);
        Report::of(kind, name, Health::Down(why.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::time::Instant;

    use super::*;

    /// Counts how often it is looked at; from the `fails_at`-th look on it does what `then` says.
    struct Scripted {
        looks: AtomicUsize,
        fails_at: usize,
        then: fn() -> Pin<Box<dyn Future<Output = Report> + Send>>,
    }

    impl Scripted {
        fn new(fails_at: usize, then: fn() -> Pin<Box<dyn Future<Output = Report> + Send>>) -> Arc<Self> {
            Arc::new(Self { looks: AtomicUsize::new(0), fails_at, then })
        }
    }

    impl Inspect for Scripted {
        fn report(&self) -> Pin<Box<dyn Future<Output = Report> + Send + '_>> {
            if self.looks.fetch_add(1, Ordering::Relaxed) >= self.fails_at {
                return (self.then)();
            }
            Box::pin(async { Report::of("outbox", "orders", Health::Up) })
        }
    }

    fn hang() -> Pin<Box<dyn Future<Output = Report> + Send>> {
        Box::pin(std::future::pending())
    }

    #[tokio::test(start_paused = true)]
    async fn components_that_hang_are_waited_for_together() {
        let watched =
            Watched::new(vec![Scripted::new(0, hang), Scripted::new(0, hang), Scripted::new(9, hang)]);
        let before = Instant::now();
        let reports = watched.reports().await;
        assert_eq!(before.elapsed().as_secs(), PATIENCE.as_secs());
        assert_eq!(reports[1].health, Health::Down("did not answer within 2 s".into()));
        assert_eq!((reports[1].kind, reports[1].name.as_str()), ("component", "2"));
        assert_eq!(reports[2].health, Health::Up);
    }

    #[tokio::test]
    async fn one_that_panics_is_down_and_keeps_its_name() {
        let component = Scripted::new(1, || Box::pin(async { panic!("on purpose") }));
        let watched = Watched::new(vec![component]);
        assert_eq!(watched.reports().await[0].health, Health::Up);
        tokio::time::sleep(FRESH).await;
        let report = watched.reports().await.remove(0);
        assert_eq!(report.health, Health::Down("panicked when it was asked".into()));
        assert_eq!((report.kind, report.name.as_str()), ("outbox", "orders"));
    }

    #[tokio::test]
    async fn many_who_ask_at_once_share_one_look() {
        let component = Scripted::new(usize::MAX, hang);
        let watched = Arc::new(Watched::new(vec![component.clone()]));
        let asks: Vec<_> = (0..20)
            .map(|_| {
                let watched = watched.clone();
                tokio::spawn(async move { watched.reports().await })
            })
            .collect();
        for ask in asks {
            assert_eq!(ask.await.unwrap()[0].health, Health::Up);
        }
        assert_eq!(component.looks.load(Ordering::Relaxed), 1);
    }
}
