//! Tests on a real Postgres; each test has its own database. One program, because each program
//! would be linked separately.

mod artifact;
mod event;
mod family;
mod fault;
mod forecast;
mod idempotency;
mod job;
mod limit;
mod log;
mod metric;
mod migration;
mod node;
mod node_speed;
mod packing;
mod plan;
mod pool;
mod priority_class;
mod program;
mod question;
mod queue;
mod report;
mod request;
mod resize;
mod retention;
mod round;
mod secret;
mod service;
mod study;
mod tenancy;
mod turn;
mod vanished;
mod verdict;
mod volume;
mod wake;
mod world;
