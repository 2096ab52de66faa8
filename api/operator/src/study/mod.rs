//! `Study`: from the object to the study, and back.

mod reconcile;
pub mod status;
