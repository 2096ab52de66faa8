//! Gaussian-process search: fits a process to the results and proposes the point with the largest
//! expected improvement (Jones et al. 1998; its logarithm after Ament et al. 2023).

mod acquire;
mod process;
mod warp;

use super::anywhere;
use crate::random::StudyRng;
use crate::study::StudyRecord;
use crate::trial::{SearchTrial, TrialState};
use muster_model::study::{Point, Space};
use process::{GaussianProcess, Hyper};
use serde::{Deserialize, Serialize};

/// Hyperparameters of the last fit, from which the next one starts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct GpState {
    hyper: Option<Hyper>,
}

/// Maximum number of observations; a process with more would take seconds.
const MOST_ROWS: usize = 300;

impl GpState {
    pub(super) fn suggest(&mut self, record: &StudyRecord, rng: &mut StudyRng) -> Option<Point> {
        let rows = comparable(record);
        if rows.len() < 2 {
            return anywhere(record, rng);
        }
        let places: Vec<Vec<f64>> = rows
            .iter()
            .map(|t| place(&record.space, &t.point))
            .collect();
        let losses: Vec<f64> = rows.iter().filter_map(|t| t.loss()).collect();
        let targets = warp::targets(&losses);
        let kinds = process::kinds(&record.space);
        let Some(mut process) = GaussianProcess::fit(&kinds, places, targets, self.hyper.as_ref())
        else {
            return anywhere(record, rng);
        };
        self.hyper = Some(process.hyper.clone());
        // A running trial counts with its expected value, so that other trials explore elsewhere.
        let running = record
            .trials
            .iter()
            .filter(|t| t.outcome.is_none() && t.holds_slot());
        for trial in running.take(50) {
            process.believe(place(&record.space, &trial.point));
        }
        acquire::most_promising(record, &process, rng).or_else(|| anywhere(record, rng))
    }
}

/// Each value on its scale from 0 to 1, a choice by its index; NaN if the point lacks the
/// parameter.
fn place(space: &Space, point: &[Option<f64>]) -> Vec<f64> {
    let pairs = space.dimensions.iter().zip(point);
    pairs
        .map(|(dimension, value)| match value {
            Some(value) if dimension.domain.is_ordered() => dimension.domain.unit(*value),
            Some(value) => *value,
            None => f64::NAN,
        })
        .collect()
}

/// Trials of one budget: the largest with enough results (as in BOHB, Falkner et al. 2018). Above
/// the limit, the best half and the newest.
fn comparable(record: &StudyRecord) -> Vec<&SearchTrial> {
    let judged: Vec<&SearchTrial> = record
        .trials
        .iter()
        .filter(|t| t.loss().is_some())
        .collect();
    let needed = record.space.len() + 2;
    let mut steps: Vec<u64> = judged.iter().map(|t| t.outcome_step()).collect();
    steps.sort_unstable();
    let at = steps.len().saturating_sub(needed);
    let least = steps.get(at).copied().unwrap_or(0);
    let mut rows: Vec<&SearchTrial> = judged
        .into_iter()
        .filter(|t| t.state == TrialState::Completed || t.outcome_step() >= least)
        .collect();
    if rows.len() > MOST_ROWS {
        let newest = rows.split_off(rows.len() - MOST_ROWS / 2);
        rows.sort_by(|a, b| a.loss().unwrap_or(0.0).total_cmp(&b.loss().unwrap_or(0.0)));
        rows.truncate(MOST_ROWS / 2);
        rows.extend(newest);
        rows.sort_by_key(|t| t.number);
    }
    rows
}
