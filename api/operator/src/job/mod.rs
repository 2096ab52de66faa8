//! `TrainingJob`: from the object to the job, and back.

pub mod document;
mod edit;
mod known;
mod reconcile;
pub mod status;

pub use known::Known;
