//! Skipping a test at run time, visibly: libtest cannot do this, so a skipped test leaves a mark.

use std::cell::Cell;
use std::env;
use std::fmt::Display;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::workspace;

thread_local! {
    /// Each test has a thread of its own, so this tells whether the present test was skipped.
    static MARKED: Cell<bool> = const { Cell::new(false) };
}

/// Marks the present test as skipped; the test then returns by itself.
///
/// It says `SKIPPED: <test>: <why>` on the standard error, and writes the reason into a file named after
/// the test, in the folder that the variable `BACKSTOP_SKIP_DIR` names, or else in `target/skipped` of the
/// workspace. The runner of the tests counts the files, since libtest counts such a test as passed. Call
/// it from the body of the test, not from a thread or task that the test started: the name of the test
/// is that of its thread.
///
/// ```no_run
/// #[test]
/// fn a_full_disk_is_survived() {
///     if !cfg!(target_os = "linux") {
///         return backstop_testkit::skip("needs /dev/full");
///     }
///     // …
/// }
/// ```
///
/// # Panics
///
/// If the mark cannot be written: a skip without a mark would pass for a success.
pub fn skip(why: impl Display) {
    let test = test_name(std::thread::current().name());
    eprintln!("SKIPPED: {test}: {why}");
    let folder = env::var_os("BACKSTOP_SKIP_DIR")
        .map_or_else(|| workspace::root().join("target/skipped"), PathBuf::from);
    if let Err(error) = mark(&folder, &test, &why.to_string()) {
        panic!("cannot mark {test} as skipped in {}: {error}", folder.display());
    }
    MARKED.set(true);
}

/// Whether the present test was marked as skipped.
pub(crate) fn is_marked() -> bool {
    MARKED.get()
}

fn mark(folder: &Path, test: &str, why: &str) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join(file_name(test)), format!("{why}\n"))
}

/// Crate, test program and test: two programs of a crate may hold tests of the same name.
fn test_name(thread: Option<&str>) -> String {
    static UNNAMED: AtomicU32 = AtomicU32::new(0);
    let test = match thread {
        // Not a thread of libtest's: a number keeps two skips apart.
        None | Some("main") => {
            format!("main-{}-{}", std::process::id(), UNNAMED.fetch_add(1, Ordering::Relaxed))
        }
        Some(name) => name.to_owned(),
    };
    let program = env::current_exe().ok().and_then(|path| {
        let stem = path.file_stem()?.to_string_lossy().into_owned();
        Some(without_hash(&stem).to_owned())
    });
    [env::var("CARGO_PKG_NAME").ok(), program, Some(test)]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join("::")
}

/// Cargo ends the name of a test program with a hash that changes from build to build.
fn without_hash(program: &str) -> &str {
    match program.rsplit_once('-') {
        Some((name, hash)) if hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) => name,
        _ => program,
    }
}

fn file_name(test: &str) -> String {
    let kept = |c: char| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    test.replace("::", ".").chars().map(kept).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_a_file_named_after_the_test_that_holds_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let marks = folder.path().join("made/on/demand");
        mark(&marks, "shop::orders::a_claim_expires::sqlite", "no server").unwrap();
        let file = marks.join("shop.orders.a_claim_expires.sqlite");
        assert_eq!(fs::read_to_string(file).unwrap(), "no server\n");
    }

    #[test]
    fn a_test_is_named_with_its_crate_and_its_program() {
        let name = test_name(Some("skip::one"));
        assert!(name.ends_with("backstop_testkit::skip::one"), "{name}");
        assert_ne!(test_name(Some("main")), test_name(None));
    }

    #[test]
    fn only_a_hash_is_cut_off_the_program_and_no_name_leaves_the_folder() {
        assert_eq!(without_hash("orders-0123456789abcdef"), "orders");
        assert_eq!(without_hash("orders-of-last-week"), "orders-of-last-week");
        assert_eq!(file_name("../a b/c"), ".._a_b_c");
    }

    #[test]
    fn a_test_that_was_not_skipped_is_not_marked() {
        assert!(!is_marked());
    }
}
