//! A handler of the wrong shape gets a compile error that says what is wanted.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The library as it was compiled for this test, which lies beside the test's own program.
fn library(folder: &Path) -> PathBuf {
    let rlibs = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("libbackstop_core-") && name.ends_with(".rlib")
    });
    rlibs.max_by_key(|path| path.metadata().unwrap().modified().unwrap()).unwrap()
}

/// What the compiler says of a handler that is to be registered.
fn said_of(handler: &str) -> String {
    let program = std::env::current_exe().unwrap();
    let folder = program.parent().unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let source = scratch.path().join("shape.rs");
    let text = format!(
        "use backstop_core::{{Delivery, Event, IntoHandler}};\n\
         pub fn register<By>(_: impl IntoHandler<By>) {{}}\n\
         pub fn shaped() {{ register({handler}); }}\n\
         pub fn used(_: Delivery, _: Event) {{}}\n"
    );
    std::fs::write(&source, text).unwrap();
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let compiled = Command::new(rustc)
        .args(["--edition", "2024", "--crate-type", "lib", "--emit", "metadata", "--color", "never"])
        .arg("-L")
        .arg(format!("dependency={}", folder.display()))
        .arg("--extern")
        .arg(format!("backstop_core={}", library(folder).display()))
        .arg("--out-dir")
        .arg(scratch.path())
        .arg(&source)
        .output()
        .unwrap();
    String::from_utf8_lossy(&compiled.stderr).into_owned()
}

#[test]
fn what_is_wanted_is_said_in_the_compilers_error() {
    for fine in ["|_: Event| async {}", "|_: Delivery| async { Ok::<(), String>(()) }"] {
        assert_eq!(said_of(fine), "", "{fine}");
    }
    for wrong in ["|_: String| async {}", "|_: Event| ()", "7"] {
        let said = said_of(wrong);
        assert!(said.contains("a handler is an async closure such as `|event: Event| async move"), "{said}");
    }
    let said = said_of("|_: Event| async { 7 }");
    assert!(said.contains("gives `()`, an `Outcome`, or a `Result`"), "{said}");
}
