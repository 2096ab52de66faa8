//! Tests of the executor as a whole. Daemon and shims are real processes, tasks are shell scripts,
//! and the scheduler uses the real gRPC contract. No test asserts a duration (`gpu` prints them).
//! Each test ends with a check that no process is left.

mod artifact_records;
mod artifacts;
mod checkpoint_records;
mod checkpoints;
mod command;
mod crash;
mod driver;
mod driver_room;
mod full_disk;
mod git;
mod gpu;
mod hostile;
mod image;
mod isolation;
mod lease;
mod life;
mod metrics;
mod preparation;
mod quiet;
mod registry;
mod remote;
mod remote_stub;
mod request;
mod scheduler;
mod secrets;
mod session;
mod shipping;
mod site;
mod task_user;
mod wakes;
