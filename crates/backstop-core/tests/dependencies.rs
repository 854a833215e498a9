//! What the core may depend on: nothing that opens a file, a socket or a connection.

/// Rules: O-018.
#[test]
fn the_core_needs_no_database_driver_broker_or_web_framework() {
    let manifest = include_str!("../Cargo.toml");
    let dependencies = manifest.split("\n[dependencies]\n").nth(1).and_then(|rest| rest.split("\n[").next());
    let names: Vec<_> = dependencies
        .unwrap()
        .lines()
        .filter_map(|line| line.split(['.', ' ', '=']).next())
        .filter(|name| !name.is_empty())
        .collect();
    assert_eq!(
        names,
        [
            "chrono",
            "cloudevents-sdk",
            "fastrand",
            "metrics",
            "serde",
            "serde_json",
            "thiserror",
            "tokio",
            "tokio-util",
            "tracing",
            "ulid"
        ]
    );
}
