//! Tells the program where the migrations of sqlxmq are: the crate has them as files, and not as code.

use std::process::Command;

fn main() {
    let cargo = std::env::var("CARGO").expect("cargo runs build scripts");
    let described = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked"])
        .output()
        .expect("cargo describes this workspace");
    let described = String::from_utf8(described.stdout).expect("cargo writes JSON");
    let manifest = described
        .split("\"manifest_path\":\"")
        .filter_map(|rest| rest.split('"').next())
        .find(|path| path.contains("/sqlxmq-0"))
        .expect("sqlxmq is a dependency");
    println!("cargo::rustc-env=SQLXMQ_MIGRATIONS={}", manifest.replace("Cargo.toml", "migrations"));
    println!("cargo::rerun-if-changed=Cargo.lock");
}
