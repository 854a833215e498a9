//! A real filesystem whose power is cut: what is on its disk at a moment, mounted as another. Takes root.

use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;

use backstop_disk::dlq::{Directory, DlqSink, Filter, Rolling, Setup};
use backstop_testkit::servers::directory;

use crate::processes::start;
use crate::room::{Mounted, as_root};
use crate::support::{closed, emit_all, event, ids};

fn is_done(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// A disk of 64 MiB with an empty filesystem that belongs to whoever runs this.
fn formatted(path: PathBuf) -> Option<PathBuf> {
    fs::File::create(&path).unwrap().set_len(64 * 1024 * 1024).unwrap();
    is_done(Command::new("mkfs.ext4").args(["-q", "-F", "-E", "root_owner"]).arg(&path)).then_some(path)
}

fn mount<'a>(image: &Path, at: &'a Path) -> Option<Mounted<'a>> {
    fs::create_dir_all(at).unwrap();
    as_root(&["mount", "-o", "loop", image.to_str().unwrap()], at).then_some(Mounted(at))
}

/// Rules: D-030, D-035, D-038.
#[test]
fn what_was_told_is_safe_is_on_the_disk_when_the_power_is_cut() {
    let place = directory();
    let (at, after) = (place.file("at"), place.file("after"));
    let image = formatted(place.file("disk"));
    let Some((image, _mounted)) = image.and_then(|image| Some((image.clone(), mount(&image, &at)?))) else {
        return backstop_testkit::skip("needs root and mkfs.ext4, to make a disk and mount it");
    };
    let dlq = at.join("dlq");
    fs::create_dir(&dlq).unwrap();
    for cut in 0..3 {
        let mut child = start(&dlq, "256", "1000000", &format!("cut{cut}"));
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut told: HashSet<_> = lines.by_ref().take(300 + cut * 100).map(Result::unwrap).collect();
        assert!(is_done(Command::new("kill").args(["-STOP", &child.id().to_string()])));
        let copy = place.file(format!("disk{cut}"));
        fs::copy(&image, &copy).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        // Whatever it has said it said before it was stopped.
        told.extend(lines.map_while(Result::ok));

        let _mounted = mount(&copy, &after).expect("what is left can be mounted");
        let found = Directory::open(after.join("dlq")).unwrap().entries(Filter::all());
        let stored: HashSet<_> = found
            .map(|found| found.unwrap().entry().expect("every file is complete").event.id().to_owned())
            .collect();
        let missing: Vec<_> = told.difference(&stored).collect();
        assert!(missing.is_empty(), "cut {cut}: {} of {} are missing", missing.len(), told.len());
    }
}

/// Cuts the power: what a disk holds now, mounted as another.
fn after_cut<'a>(image: &Path, copy: &Path, at: &'a Path) -> Mounted<'a> {
    fs::copy(image, copy).unwrap();
    mount(copy, at).expect("what is left can be mounted")
}

/// One event has its own syncs, and nobody else's bring it to the disk: of its data, of its name, and of the name of
/// the directory that was made for it.
///
/// Rules: D-030, D-038.
#[tokio::test]
async fn an_event_that_is_stored_alone_is_on_the_disk_when_the_power_is_cut() {
    for (layout, rolling) in [("files", None), ("rolling", Some(Rolling::default()))] {
        let place = directory();
        let (at, after) = (place.file("at"), place.file("after"));
        let image = formatted(place.file("disk"));
        let Some((image, _mounted)) = image.and_then(|image| Some((image.clone(), mount(&image, &at)?)))
        else {
            return backstop_testkit::skip("needs root and mkfs.ext4, to make a disk and mount it");
        };
        let settings = Setup::at(at.join("shop/dlq")).create(true);
        let settings = rolling.map_or(settings.clone(), |rolling| settings.rolling(rolling));
        let sink = DlqSink::open(closed(), settings).unwrap();
        for number in 0..3 {
            emit_all(&sink, [event(&number.to_string())]).await;
            let _mounted = after_cut(&image, &place.file("copy"), &after);
            assert_eq!(ids(&after.join("shop/dlq")).len(), number + 1, "{layout}, cut {number}");
        }
    }
}
