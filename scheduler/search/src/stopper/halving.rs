//! Successive halving (Jamieson and Talwalkar) and Hyperband (Li et al.): cohorts that complete a
//! rung together.

use super::{Birth, NextTrial, by_loss, rung_budget, waits};
use crate::study::StudyRecord;
use crate::trial::{SearchTrial, TrialNumber, TrialState};
use muster_model::study::Stopper;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct HalvingState {
    cohorts: Vec<Cohort>,
    /// Trials that continue as soon as a slot is free.
    promoted: VecDeque<TrialNumber>,
}

/// Trials that are compared with each other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Cohort {
    size: u32,
    created: u32,
    /// Budget of the lowest rung.
    first: u64,
    /// Rung that the cohort completes next.
    rung: u32,
    ended: bool,
}

impl HalvingState {
    pub(super) fn next(&mut self, record: &StudyRecord) -> (NextTrial, Vec<TrialNumber>) {
        // A user may have stopped a promoted trial.
        self.promoted.retain(|n| waits(record, *n));
        let mut stopped = Vec::new();
        for index in 0..self.cohorts.len() {
            self.advance(record, index, &mut stopped);
        }
        let max = record.spec.budget.max;
        if let Some(trial) = self.promoted.pop_front() {
            let entry = &record.trials[trial as usize];
            let first = self.cohorts[entry.bracket as usize].first;
            let budget = rung_budget(first, eta(record), entry.rung + 1, max);
            return (NextTrial::Continue { trial, budget }, stopped);
        }
        if !record.may_create() {
            return (NextTrial::Wait, stopped);
        }
        if self.cohorts.last().is_none_or(|c| c.created >= c.size) {
            self.open(record);
        }
        let bracket = self.cohorts.len() as u32 - 1;
        let cohort = &mut self.cohorts[bracket as usize];
        cohort.created += 1;
        let birth = Birth {
            bracket,
            ..Birth::of_budget(cohort.first)
        };
        (NextTrial::Create(birth), stopped)
    }

    /// Ends a rung if all its members have results: the best continue, the others stop.
    fn advance(&mut self, record: &StudyRecord, index: usize, stopped: &mut Vec<TrialNumber>) {
        let cohort = &mut self.cohorts[index];
        let full = cohort.created >= cohort.size || !record.may_create();
        if cohort.ended || (cohort.rung == 0 && !full) {
            return;
        }
        let rung = cohort.rung as usize;
        let members = record.trials.iter().filter(|t| t.bracket == index as u32);
        let reached: Vec<&SearchTrial> = members.filter(|t| t.rung as usize >= rung).collect();
        let any_open = reached
            .iter()
            .any(|t| t.holds_slot() || (t.rungs.len() <= rung && t.state == TrialState::Waiting));
        if any_open || self.queues(record, index) {
            return;
        }
        let judged = reached.iter().filter(|t| t.rungs.len() > rung);
        let rows: Vec<_> = judged
            .map(|t| (t.rungs[rung].losses[0], t.number))
            .collect();
        let places = (rows.len() / eta(record) as usize).max(1);
        for (place, number) in by_loss(rows).into_iter().enumerate() {
            if !waits(record, number) {
                continue;
            }
            if place < places {
                self.promoted.push_back(number);
            } else {
                stopped.push(number);
            }
        }
        let ended = !self.queues(record, index);
        let cohort = &mut self.cohorts[index];
        cohort.rung += 1;
        cohort.ended = ended;
    }

    /// Whether a promoted trial of the cohort has no slot yet. Its rung has not risen, so its state
    /// does not show that it belongs to the next rung.
    fn queues(&self, record: &StudyRecord, index: usize) -> bool {
        let mut promoted = self.promoted.iter().map(|n| &record.trials[*n as usize]);
        promoted.any(|trial| trial.bracket == index as u32)
    }

    fn open(&mut self, record: &StudyRecord) {
        let left = record.limit - record.trials.len() as u32;
        let max = record.spec.budget.max;
        let (size, first) = match record.spec.stopper {
            Stopper::Hyperband { min, eta } => {
                let rungs = rungs_between(min, max, eta);
                let halvings = rungs - self.cohorts.len() as u32 % (rungs + 1);
                let trials = f64::from(rungs + 1) / f64::from(halvings + 1)
                    * f64::from(eta).powi(halvings as i32);
                let shrink = u64::from(eta).pow(halvings);
                (trials.ceil() as u32, (max / shrink).max(min))
            }
            Stopper::SuccessiveHalving { min, .. } => (left, min),
            _ => unreachable!("only these two keep cohorts"),
        };
        self.cohorts.push(Cohort {
            size: size.min(left),
            created: 0,
            first,
            rung: 0,
            ended: false,
        });
    }
}

fn eta(record: &StudyRecord) -> u32 {
    match record.spec.stopper {
        Stopper::SuccessiveHalving { eta, .. } | Stopper::Hyperband { eta, .. } => eta,
        _ => unreachable!("only these two keep cohorts"),
    }
}

/// Number of multiplications of `min` by `eta` up to `max`.
fn rungs_between(min: u64, max: u64, eta: u32) -> u32 {
    let mut rungs = 0;
    while min
        .checked_mul(u64::from(eta).saturating_pow(rungs + 1))
        .is_some_and(|b| b <= max)
    {
        rungs += 1;
    }
    rungs
}
