//! The nouns of Muster and their transitions: tenant, job, task, node, checkpoint, event, and the job document.
//!
//! Pure data. This crate must never know of tokio, SQL, HTTP, a clock or a random source: ids, times and seeds are given to it.

pub mod actor;
pub mod assignment;
pub mod checkpoint;
pub mod event;
pub mod export;
pub mod fault;
pub mod forecast;
pub mod id;
pub mod job;
pub mod node;
pub mod pace;
pub mod packing;
pub mod place;
pub mod progress;
pub mod question;
pub mod report;
pub mod spec;
pub mod study;
pub mod task;
pub mod tenant;
pub mod verdict;
pub mod view;
pub mod wait;
