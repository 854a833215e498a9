//! A disk without room: a small one in memory, which takes root to mount.

use std::fs;
use std::path::Path;
use std::process::Command;

use backstop_core::Sink;
use backstop_disk::dlq::{Directory, DlqSink, Rolling, Setup};
use backstop_testkit::servers::directory;

use crate::support::{ERROR, closed, entries, event, names};

/// A disk that is unmounted when this is dropped.
pub(crate) struct Mounted<'a>(pub(crate) &'a Path);

fn small_disk(path: &Path) -> Option<Mounted<'_>> {
    let mounted = as_root(&["mount", "-t", "tmpfs", "-o", "size=256k,mode=777", "tmpfs"], path);
    mounted.then_some(Mounted(path))
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        as_root(&["umount", "-l"], self.0);
    }
}

/// Runs a command as it is or, if that is not allowed, with `sudo`.
pub(crate) fn as_root(command: &[&str], path: &Path) -> bool {
    [&[][..], &["sudo", "-n"]].into_iter().any(|before| {
        let words: Vec<_> = before.iter().chain(command).collect();
        let output = Command::new(words[0]).args(&words[1..]).arg(path).output();
        output.is_ok_and(|output| output.status.success())
    })
}

/// Rules: D-036, D-038.
#[tokio::test]
async fn on_a_full_disk_the_caller_has_the_error_and_with_room_it_works_again() {
    let place = directory();
    let Some(_disk) = small_disk(place.path()) else {
        return backstop_testkit::skip("needs root, to mount a small disk in memory");
    };
    for settings in [Setup::at(place.path()), Setup::at(place.path()).rolling(Rolling::default())] {
        let sink = DlqSink::open(closed(), settings).unwrap();
        let ballast = place.file("ballast");
        fs::write(&ballast, vec![0; 128 * 1024]).unwrap();
        let (mut stored, mut refused) = (Vec::new(), 0);
        for number in 0..2_000 {
            let id = format!("{number}");
            match sink.emit(event(&id)).await {
                Ok(()) => stored.push(id),
                Err(failure) => {
                    assert_eq!(failure.to_string(), ERROR);
                    refused += 1;
                }
            }
        }
        assert!(!stored.is_empty() && refused > 0, "{} stored, {refused} refused", stored.len());

        fs::remove_file(&ballast).unwrap();
        sink.emit(event("again")).await.unwrap();
        stored.push("again".to_owned());
        let there: Vec<_> = entries(&Directory::open(place.path()).unwrap())
            .iter()
            .map(|entry| entry.event.id().to_owned())
            .collect();
        assert_eq!(there.len(), stored.len());
        assert!(stored.iter().all(|id| there.contains(id)));
        assert!(names(place.path()).iter().all(|name| !name.starts_with('.')), "no drafts are left");
        for name in names(place.path()) {
            fs::remove_file(place.file(name)).unwrap();
        }
    }
}
