//! `TrainingJob`: conversion between the object and the job.

pub mod document;
mod edit;
mod follow;
mod followed;
mod kept;
mod known;
mod reconcile;
pub mod status;
mod wakes;

pub use known::Known;
