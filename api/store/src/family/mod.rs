//! Measured speeds by GPU kind and placement, of each job and of each family of jobs
//! ([`muster_model::family::Family`]).
//!
//! Only rows of jobs are stored. The curve of a family is the mean over the rows of its newest
//! jobs, so that jobs of one family never wait for each other's locks. Measurements age: a week
//! halves their weight, and the mean of a job covers about its [`NEWEST_SAMPLES`] newest samples.
//!
//! The speed of a job whose workers are on one node is kept by node too (`node_speed.rs`): jobs of
//! one family on several nodes show how the nodes of a GPU kind differ.
//!
//! Where the coordinator chooses the batch, these speeds are in steps, with the batches of their
//! time. The times of updates by batch and the gradient noise are kept beside them (`goodput.rs`).

mod goodput;
mod list;
mod load;
mod node_speed;
mod observe;

pub use goodput::UpdateTime;
pub(crate) use goodput::times_of_jobs;
pub use list::{FamilyRow, FamilySpeedRow, forget, list};
pub(crate) use load::FamilyCache;
pub(crate) use load::of_jobs;
pub use load::{FamilySpeeds, PlacedSpeed, RestartTotals};
pub use node_speed::{SpeedOnNode, set_deviations, speeds_on_nodes};
pub(crate) use observe::{ChosenBatches, key_of, observe, speed_of};

/// Time in seconds that halves the weight of a measurement: seven days.
const HALF_LIFE_S: f64 = 7.0 * DAY_S;
const DAY_S: f64 = 86_400.0;
/// Largest weight of one row, in samples. Each further sample replaces this part of the mean.
const NEWEST_SAMPLES: f64 = 200.0;
/// Maximum number of rows of a family that are read, those of the newest jobs.
const NEWEST_ROWS: i64 = 200;
/// Smallest weight, in samples, of a speed that counts.
const LEAST_WEIGHT: f64 = 0.5;
