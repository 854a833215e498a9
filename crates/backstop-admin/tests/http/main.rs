//! The dashboard over real HTTP on a loopback port: what it answers, whom it refuses, how it ends.

mod access;
mod answers;
mod connections;
mod operations;
mod refusals;
mod support;
mod tls;
