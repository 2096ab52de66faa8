//! The executor as it is used: the real daemon and its shims as processes, shell scripts as tasks, and a scheduler that speaks the
//! real contract. No test looks at how long anything takes (`gpu` prints it), and each ends by counting what is left behind.

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
