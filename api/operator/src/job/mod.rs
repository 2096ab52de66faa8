//! `TrainingJob`: from the object to the job, and back.

pub mod document;
mod edit;
mod follow;
mod kept;
mod known;
mod reconcile;
pub mod status;
mod wakes;

pub use known::Known;
