//! What the tests share: events, sinks that fail, and a look into a directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use backstop_core::{CloudEvent, Failure, SharedSink, Sink};
use backstop_disk::dlq::{Directory, DlqSink, Entry, Filter, Setup};

pub(crate) const ERROR: &str = "timeout: no answer within 5 s";

/// A CloudEvent with any id.
pub(crate) fn event(id: &str) -> CloudEvent {
    event_from("/shop", id)
}

/// A CloudEvent with any id from any source.
pub(crate) fn event_from(source: &str, id: &str) -> CloudEvent {
    let json = serde_json::json!({
        "specversion": "1.0", "id": id, "source": source, "type": "OrderPlaced", "data": {"total": 12},
    });
    CloudEvent::from_json(json.to_string()).unwrap()
}

/// A sink that takes nothing.
pub(crate) fn closed() -> SharedSink {
    SharedSink::new(|_: CloudEvent| async { Err::<(), _>(failure()) })
}

pub(crate) fn failure() -> Failure {
    Failure::transient("timeout", "no answer within 5 s")
}

/// A sink in front of a directory, with nothing behind it that works.
pub(crate) fn failing_into(path: &Path) -> DlqSink {
    DlqSink::open(closed(), Setup::at(path)).unwrap()
}

/// Emits and expects to be told that all is well.
pub(crate) async fn emit_all(sink: &impl Sink, events: impl IntoIterator<Item = CloudEvent>) {
    for event in events {
        sink.emit(event).await.unwrap();
    }
}

/// The names in a directory, sorted.
pub(crate) fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The content of the only file in a directory.
pub(crate) fn only_file(path: &Path) -> (PathBuf, String) {
    let names = names(path);
    assert_eq!(names.len(), 1, "{names:?}");
    let file = path.join(&names[0]);
    let content = fs::read_to_string(&file).unwrap();
    (file, content)
}

/// Every entry; nothing may be damaged.
pub(crate) fn entries(directory: &Directory) -> Vec<Entry> {
    directory.entries(Filter::all()).map(|found| found.unwrap().entry().expect("a sound entry")).collect()
}

/// The ids in a directory, sorted.
pub(crate) fn ids(path: &Path) -> Vec<String> {
    let mut ids: Vec<_> =
        entries(&Directory::open(path).unwrap()).iter().map(|entry| entry.event.id().to_owned()).collect();
    ids.sort();
    ids
}

/// A sink that keeps what it takes.
#[derive(Clone, Default)]
pub(crate) struct Kept(Arc<Mutex<Vec<CloudEvent>>>);

impl Kept {
    pub(crate) fn ids(&self) -> Vec<String> {
        self.0.lock().unwrap().iter().map(|event| event.id().to_owned()).collect()
    }

    pub(crate) fn all(&self) -> Vec<CloudEvent> {
        self.0.lock().unwrap().clone()
    }
}

impl Sink for Kept {
    async fn emit(&self, event: CloudEvent) -> Result<(), Failure> {
        self.0.lock().unwrap().push(event);
        Ok(())
    }
}

/// A sink that takes every event but those with these ids.
pub(crate) fn refusing(refused: &'static [&'static str], kept: Kept) -> impl Sink {
    SharedSink::new(move |event: CloudEvent| {
        let kept = kept.clone();
        async move {
            if refused.contains(&event.id()) {
                return Err(Failure::permanent("schema", "refused"));
            }
            kept.emit(event).await
        }
    })
}
