//! The dead-letter directory: an event that a sink could not take, or that an outbox gave up, becomes a file and
//! waits for an operator.
//!
//! # What is in the directory
//!
//! | name | what it is |
//! |---|---|
//! | `<millis>-<id>.jsonl` | one failed event: when it failed, and its id |
//! | `<millis>-<id>-<hash>.jsonl` | the same, where the plain name cannot be used |
//! | `<millis>-rolling-<number>.jsonl` | many events, one to a line, if [`Setup::rolling`] is set |
//! | `.<millis>-<number>.tmp` | being written, or left by a crash: nobody was told that this event is safe |
//! | `.<hash>.sent` | which lines of a file with many events have been sent again |
//!
//! A line is `{"event":<CloudEvent>,"error":"<message>"}`. The event is the whole CloudEvent as it was given, on
//! one line. The error is the inner sink's, without passwords in URLs. In names, characters outside
//! `[A-Za-z0-9._-]` are `_`. A hash is added when an id was changed or cut, is empty, or when the name is taken;
//! no name is longer than 255 bytes. Nothing is ever written over.
//!
//! # What survives
//!
//! A file is written under another name and synced, then it gets its name, and the directory is synced. Only then
//! do [`DlqSink`] and [`DeadLetters`] say `Ok`. A name that ends in `.jsonl` therefore means a complete file, whatever
//! happened before. Many events that fail at once are first written to files without a name, where the filesystem can
//! do that, and share the syncs before and after they get their names.
//!
//! # The tools
//!
//! [`Directory`] lists, inspects, checks, sends again, purges and exports. Its memory does not grow with the
//! number of files. Damaged files are reported and not changed.

mod activation;
mod config;
mod dead_letters;
mod directory;
mod entries;
mod entry;
mod export;
mod files;
mod filter;
mod fsck;
mod letters;
mod look;
mod marks;
mod name;
mod pages;
mod purge;
mod record;
mod redrive;
mod rolling;
mod sink;
mod together;
mod writer;

pub use config::{Config, Rolling, Setup};
pub use dead_letters::DeadLetters;
pub use directory::Directory;
pub use entries::Entries;
pub use entry::{Damaged, Entry, Found, Place};
pub use export::{Exported, Form};
pub use filter::Filter;
pub use fsck::{Checked, Finding};
pub use purge::{Purge, Purged};
pub use record::{Details, MAX_RECORD_BYTES};
pub use redrive::{Progress, Redrive, Unavailable};
pub use sink::DlqSink;
