//! `TrainingJob`: conversion between the object and the job.

mod cache;
mod change_notifier;
pub mod document;
pub(crate) mod edit;
mod follow;
mod operator_jobs;
mod reconcile;
pub mod status;
mod tenant_jobs;

pub use operator_jobs::OperatorJobs;
