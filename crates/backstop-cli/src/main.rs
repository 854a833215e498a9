//! The binary `backstop`.
fn main() {}
