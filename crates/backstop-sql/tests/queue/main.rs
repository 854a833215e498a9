//! The promises of the queue, kept by every database: one suite over SQLite, PostgreSQL and MySQL.

#![cfg(all(feature = "sqlite", feature = "postgres", feature = "mysql"))]

#[macro_use]
#[path = "../support/fresh.rs"]
mod fresh;

mod abandoned;
mod attacked;
mod by_hand;
mod faults;
mod harness;
mod held;
mod operations;
mod plans;
mod publishing;
mod schema;
mod working;
