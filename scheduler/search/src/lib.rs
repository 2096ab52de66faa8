//! Hyper-parameter and architecture search as a pure state machine: [`Study::apply`] takes what happened to trials and returns what is
//! to be done. A [`searcher`] proposes trials, a [`stopper`] decides how far each of them trains.
//!
//! The whole state is serialisable, and all randomness is drawn from (seed, purpose, number), so a study that is saved after any event
//! and loaded again goes on as if nothing had happened. This crate must never know of IO, a clock, logging or async, nor of jobs,
//! nodes and tenants: whoever calls it makes jobs of its actions.

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

pub use action::Action;
pub use event::{Event, EventError};
pub use study::{Phase, Study, StudyError};
pub use trial::{MAX_POINTS, Outcome, Source, Trial, TrialNumber, TrialState};
