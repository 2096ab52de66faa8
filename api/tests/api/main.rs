//! The interface as clients use it: the whole router in this process, with a real Postgres.

mod bad_input;
mod client;
mod commands;
mod connections;
mod document;
mod edits;
mod explain;
mod families;
mod files;
mod idempotency;
mod jobs;
mod limits;
mod nodes;
mod nul;
mod origins;
mod pacing;
mod pages;
mod pods;
mod preemption_caps;
mod questions;
mod rounds;
mod streams;
mod studies;
mod tenancy;
mod trials;
mod world;
