//! Tests of the executor as a whole: the real daemon and its shims as processes, shell scripts as
//! tasks, and a scheduler with the real gRPC contract. No test asserts a duration (`gpu` prints
//! them). Each test ends with a check that no process is left.

mod command;
mod crash;
mod driver;
mod driver_room;
mod full_disk;
mod gpu;
mod hostile;
mod lease;
mod life;
mod metrics;
mod quiet;
mod scheduler;
mod session;
mod shipping;
mod site;
mod task_user;
mod wakes;
