//! Other programs: files that the original wrote are read, and ours are read by `jq` and by Python.

use std::fs;
use std::path::Path;
use std::process::Command;

use backstop_core::Sink;
use backstop_disk::dlq::{Directory, DlqSink, Setup};
use backstop_testkit::servers::{directory, python};

use crate::support::{ERROR, closed, entries, event, names};

/// Rules: D-012, D-021, D-022.
#[test]
fn files_that_the_original_wrote_are_read() {
    let place = directory();
    let original = concat!(
        r#"{"event":{"specversion":"1.0","id":"evt-7","source":"urn:cellos:supervisor","type":"io.cellos.cell.started","#,
        r#""datacontenttype":"application/json","data":{"cell":"c1"},"time":"2026-01-01T00:00:00Z","subject":null},"#,
        r#""error":"http sink: 503"}"#
    );
    fs::write(place.file("1767225600000-evt-7.jsonl"), original).unwrap();
    fs::write(place.file("1767225600001-evt_8.jsonl"), format!("{}\n", original.replace("evt-7", "evt/8")))
        .unwrap();
    let stored = entries(&Directory::open(place.path()).unwrap());
    let shown: Vec<_> = stored.iter().map(|entry| (entry.event.id(), entry.error.as_str())).collect();
    assert_eq!(shown, [("evt-7", "http sink: 503"), ("evt/8", "http sink: 503")]);
    assert_eq!(stored[0].event.event_type(), "io.cellos.cell.started");
    assert_eq!(stored[0].failed_at.unwrap().timestamp_millis(), 1_767_225_600_000);
}

async fn some_files(path: &Path) {
    for (id, settings) in [("1", Setup::at(path)), ("ä/2", Setup::at(path).details_for("warehouse"))] {
        DlqSink::open(closed(), settings).unwrap().emit(event(id)).await.unwrap();
    }
    assert_eq!(names(path).len(), 2);
}

/// Rules: D-019, D-020, D-021, D-022.
#[tokio::test]
async fn jq_reads_ours() {
    if Command::new("jq").arg("--version").output().is_err() {
        return backstop_testkit::skip("needs jq");
    }
    let place = directory();
    some_files(place.path()).await;
    let files = names(place.path()).into_iter().map(|name| place.file(name));
    let output = Command::new("jq").args(["-r", r#".event.id + " " + .error"#]).args(files).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("1 {ERROR}\nä/2 {ERROR}\n"));
}

const PYTHON: &str = "
import glob, json, sys
try:
    from cloudevents.v1.http import from_json
except ImportError:
    from cloudevents.http import from_json
for name in sorted(glob.glob(sys.argv[1] + '/*.jsonl')):
    for line in open(name, encoding='utf-8'):
        event = from_json(json.dumps(json.loads(line)['event']))
        print(event['id'], event['source'], event['type'], event.data['total'])
";

/// Rules: D-024.
#[tokio::test]
async fn the_cloudevents_sdk_of_python_reads_ours() {
    let Some(python) = python(&["cloudevents"]) else { return };
    let place = directory();
    some_files(place.path()).await;
    let output = Command::new(&python)
        .args(["-c", PYTHON])
        .arg(place.path())
        .env("PYTHONIOENCODING", "utf-8")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "1 /shop OrderPlaced 12\nä/2 /shop OrderPlaced 12\n"
    );
}
