//! `Study`: conversion between the object and the study.

mod reconcile;
pub mod status;
