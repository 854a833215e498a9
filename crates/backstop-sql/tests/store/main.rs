//! The promises of the outbox's store, kept by every database: one suite over SQLite, PostgreSQL and MySQL.

#![cfg(all(feature = "sqlite", feature = "postgres", feature = "mysql"))]

#[macro_use]
#[path = "../support/fresh.rs"]
mod fresh;

mod by_key;
mod claim;
mod clocks;
mod contention;
mod dead;
mod harness;
mod insert;
mod migrations;
mod opening;
mod payloads;
mod planned;
mod plans;
mod poll;
mod purge;
mod refusals;
mod sample;
mod schema;
mod secrets;
mod settle;
mod transactions;
mod unreadable;
