//! Rules of the published simulators of Pollux (OSDI 2021) and Sia (SOSP 2023), for comparisons
//! under the same conditions. Decisions happen every minute. Restarts have fixed costs. Step times
//! and efficiency come from measured profiles.
//!
//! [`Profiles`] contains the true behaviour of applications. A policy receives a dense problem
//! built from measurements so far ([`ObservationSource`]), unless its authors gave it an oracle.

mod application;
mod cluster_shape;
mod contestant;
#[cfg(test)]
mod ground_truth;
mod lower_bound;
mod observation;
mod profile_curves;
mod profiled_training;
mod profiles;
mod reference_job;
mod rules;
mod throughput;
mod ticks;
mod training;

pub use application::{Application, Epoch};
pub use cluster_shape::ClusterShapeError;
pub use contestant::{Cluster, ContestError, Contestant, NodeGroup};
pub use observation::{Learning, ObservationSource};
pub use profiled_training::ProfiledTraining;
pub use profiles::{ProfileError, Profiles};
pub use rules::SimulatorRules;
pub use ticks::{ReferenceSettings, SimulationProgress, run};
