//! Search for hyper-parameters and architectures as a pure state machine. [`Study::apply`] takes
//! events of trials and returns actions. A [`searcher`] proposes trials; a [`stopper`] decides how
//! far each one trains.
//!
//! The whole state is serialisable. All random numbers are drawn from (seed, purpose, number). A
//! study that is saved after any event and loaded again continues identically. This crate must not
//! use IO, a clock, logging or async, nor know jobs, nodes and tenants. The caller turns actions
//! into jobs.

mod action;
mod curve;
mod event;
mod expect;
mod minimise;
mod numeric;
mod pareto;
mod random;
mod searcher;
mod stopper;
mod study;
mod trial;

pub use action::SearchAction;
pub use event::{EventError, SearchEvent};
pub use study::{SearchPhase, Study, StudyError};
pub use trial::{
    MAX_POINTS, SearchTrial, TrialCheckpoint, TrialMeasurement, TrialNumber, TrialState,
};
