//! The suite over two toy stores: what becomes of a test, of a store that is missing, of attributes.

#![expect(clippy::unused_async, reason = "stores are async; these toys have nothing to wait for")]

use std::fs;
use std::process::Command;

use backstop_testkit::servers::{Directory, directory};

/// A store in memory.
struct InMemory(Vec<u32>);

/// A store of another type, with the same methods.
struct OnDisk(Directory);

impl InMemory {
    async fn append(&mut self, number: u32) {
        self.0.push(number);
    }

    async fn count(&self) -> usize {
        self.0.len()
    }
}

impl OnDisk {
    async fn append(&mut self, number: u32) {
        fs::write(self.0.file(number.to_string()), "").unwrap();
    }

    async fn count(&self) -> usize {
        fs::read_dir(&self.0).unwrap().count()
    }
}

async fn fresh_memory() -> Option<InMemory> {
    Some(InMemory(Vec::new()))
}

/// Is missing when the variable says so, and then says why, or forgets to.
async fn fresh_disk() -> Option<OnDisk> {
    match std::env::var("TOY_DISK").as_deref() {
        Ok("missing") => {
            backstop_testkit::skip("the disk is missing");
            None
        }
        Ok("missing without a word") => None,
        _ => Some(OnDisk(directory())),
    }
}

backstop_testkit::suite! {
    over { memory: fresh_memory, disk: fresh_disk }

    /// The documentation stays with the test.
    async fn what_is_appended_is_counted(mut store) {
        store.append(1).await;
        store.append(2).await;
        assert_eq!(store.count().await, 2);
    }

    async fn each_test_has_a_fresh_store(store) {
        assert_eq!(store.count().await, 0);
    }

    #[should_panic(expected = "attributes stay with the test")]
    async fn attributes_are_kept(store) {
        assert_eq!(store.count().await, 1, "attributes stay with the test");
    }

    async fn work_is_spawned_on_other_threads_than_the_tests_own(_) {
        let here = std::thread::current().id();
        let there = tokio::spawn(async { std::thread::current().id() }).await.unwrap();
        assert_ne!(here, there);
    }
}

backstop_testkit::suite! {
    over {
        memory: fresh_memory,
        #[cfg(any())]
        absent: no_such_function,
    }

    async fn a_store_may_be_left_out_by_an_attribute(store) {
        assert_eq!(store.count().await, 0);
    }
}

/// Runs one test of this program by itself and returns what it said and the marks it left.
fn run_alone(test: &str, disk: &str) -> (String, Vec<(String, String)>) {
    let marks = directory();
    let program = std::env::current_exe().unwrap();
    let run = Command::new(program)
        .args([test, "--exact", "--nocapture"])
        .env("BACKSTOP_SKIP_DIR", marks.path())
        .env("TOY_DISK", disk)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stdout).into_owned() + &String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{said}");
    assert!(said.contains("1 passed"), "{said}");
    let left = fs::read_dir(&marks).unwrap().map(|entry| {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name, fs::read_to_string(path).unwrap())
    });
    (said, left.collect())
}

#[test]
fn a_missing_store_skips_the_test_and_leaves_a_mark() {
    let (said, marks) = run_alone("what_is_appended_is_counted::disk", "missing");
    let name = "backstop-testkit.suite.what_is_appended_is_counted.disk";
    assert_eq!(marks, [(name.to_owned(), "the disk is missing\n".to_owned())]);
    let line = "SKIPPED: backstop-testkit::suite::what_is_appended_is_counted::disk: the disk is missing";
    assert!(said.contains(line), "{said}");
}

#[test]
fn a_store_that_is_missing_without_a_word_leaves_a_mark_too() {
    let (_, marks) = run_alone("each_test_has_a_fresh_store::disk", "missing without a word");
    assert_eq!(marks.len(), 1);
    assert_eq!(marks[0].1, "its store is not here, and did not say why\n");
}

#[test]
fn the_other_stores_are_tested_all_the_same_and_leave_no_mark() {
    let (_, marks) = run_alone("what_is_appended_is_counted::memory", "missing");
    assert_eq!(marks, []);
}
