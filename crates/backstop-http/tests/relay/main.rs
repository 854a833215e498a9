//! The webhook on real sockets: what is sent, what the answers mean, and what is never sent.

mod answers;
mod availability;
mod away;
mod batches;
mod bounds;
mod connections;
mod formats;
mod guarded;
mod hostile;
mod independent;
mod receiver;
mod settings;
mod signed;
mod sink;
