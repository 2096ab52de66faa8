//! Jobs: one file per verb. Requests write intents here; the scheduler's rounds decide.

mod after;
pub mod artifact_archive;
pub mod artifacts;
pub mod cancel;
pub mod checkpoints;
pub mod continue_job;
pub mod delete;
pub mod download;
pub mod edit;
pub mod events;
pub mod explain;
pub mod follow_logs;
pub mod forecast;
pub mod get;
mod intent;
pub mod list;
pub mod logs;
pub mod metrics;
pub(crate) mod origin;
pub mod pause;
pub mod progress;
pub mod resume;
pub mod stream;
pub mod submit;
pub mod suspend;
pub mod tasks;
pub(crate) mod wire;
