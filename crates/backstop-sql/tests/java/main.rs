//! Beside the Java framework, whose part is played by its own statements: Backstop takes over the table that it has,
//! and both work on it at once.

#![cfg(all(feature = "sqlite", feature = "postgres", feature = "mysql"))]

mod audit;
mod framework;
mod place;

mod adoption;
mod claims;
mod clocks;
mod settings;
mod together;
mod zone;
