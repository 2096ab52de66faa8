//! The store against a real Postgres: every test has a database of its own. One program, because each would link anew.

mod event;
mod fault;
mod forecast;
mod idempotency;
mod job;
mod limit;
mod log;
mod migration;
mod node;
mod packing;
mod plan;
mod pool;
mod program;
mod question;
mod queue;
mod report;
mod resize;
mod round;
mod study;
mod tenancy;
mod turn;
mod vanished;
mod verdict;
mod volume;
mod wake;
mod world;
