//! The publisher on a real Kafka: what is written, what the brokers' answers mean, and what waits.

mod crowded;
mod independent;
mod records;
mod refused;
mod replaced;
mod settings;
