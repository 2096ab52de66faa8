//! Population-based training (Jaderberg et al. 2017). A trial of the worst part ends when it has
//! completed an interval. A new trial starts from the checkpoint of one of the best, with changed
//! parameters. Trials do not wait for each other.

use super::{Birth, NextTrial};
use crate::random::{Purpose, StudyRng};
use crate::study::StudyRecord;
use crate::trial::{SearchTrial, TrialCheckpoint, TrialNumber, TrialState};
use muster_model::study::{Domain, Point, Stopper};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct PbtState {
    /// Trials that continue.
    ready: VecDeque<TrialNumber>,
    /// Trials to create from another trial's checkpoint.
    births: VecDeque<Birth>,
}

struct PbtSettings {
    population: usize,
    interval: u64,
    quantile: f64,
    resample: f64,
}

impl PbtState {
    pub(super) fn judge(&mut self, record: &StudyRecord, number: TrialNumber) -> Vec<TrialNumber> {
        let settings = settings(record);
        let trial = &record.trials[number as usize];
        if trial.state != TrialState::Waiting {
            return Vec::new();
        }
        let created = record.trials.len() + self.births.len();
        let may_create = !record.exhausted && created < record.limit as usize;
        let donor = donor(record, trial, &settings).filter(|_| may_create);
        let Some((donor, mut rng)) = donor else {
            self.ready.push_back(number);
            return Vec::new();
        };
        // The checkpoint of the comparison. Later steps of the donor are not judged yet.
        let step = donor.outcome_step();
        self.births.push_back(Birth {
            budget: (step + settings.interval).min(record.spec.budget.max),
            bracket: trial.bracket,
            point: Some(explore(record, donor, settings.resample, &mut rng)),
            from: Some(TrialCheckpoint {
                trial: donor.number,
                step,
            }),
        });
        vec![number]
    }

    pub(super) fn next(&mut self, record: &StudyRecord) -> NextTrial {
        let settings = settings(record);
        let max = record.spec.budget.max;
        if let Some(birth) = self.births.pop_front() {
            return NextTrial::Create(birth);
        }
        // Completes the population before a trial continues. With fewer slots than members the
        // first trials would otherwise end before the comparison. A failed or stopped trial is
        // replaced, because a population below its size is never compared.
        let members = record.trials.iter().filter(|t| t.holds_slot() || lives(t));
        if record.may_create() && members.count() < settings.population {
            return NextTrial::Create(Birth::of_budget(settings.interval.min(max)));
        }
        while let Some(trial) = self.ready.pop_front() {
            let entry = &record.trials[trial as usize];
            if entry.state == TrialState::Waiting {
                let budget = (entry.budget + settings.interval).min(max);
                return NextTrial::Continue { trial, budget };
            }
        }
        NextTrial::Wait
    }
}

fn settings(record: &StudyRecord) -> PbtSettings {
    match record.spec.stopper {
        Stopper::Pbt {
            population,
            interval,
            quantile,
            resample,
        } => PbtSettings {
            population: population as usize,
            interval,
            quantile,
            resample,
        },
        _ => unreachable!("only population-based training has a population"),
    }
}

fn lives(trial: &SearchTrial) -> bool {
    matches!(
        trial.state,
        TrialState::Running | TrialState::Waiting | TrialState::Completed
    )
}

/// Loss of the trial; the largest without an outcome.
fn loss(trial: &SearchTrial) -> f64 {
    trial.loss().unwrap_or(f64::MAX)
}

/// Returns one of the best trials as donor if the trial is among the worst living ones.
fn donor<'a>(
    record: &'a StudyRecord,
    trial: &SearchTrial,
    settings: &PbtSettings,
) -> Option<(&'a SearchTrial, StudyRng)> {
    let mut living: Vec<&SearchTrial> = record
        .trials
        .iter()
        .filter(|t| lives(t))
        .filter(|t| t.outcome.is_some())
        .collect();
    if living.len() < settings.population.min(record.limit as usize) {
        return None;
    }
    living.sort_by(|a, b| loss(a).total_cmp(&loss(b)).then(a.number.cmp(&b.number)));
    let part = ((living.len() as f64 * settings.quantile) as usize).max(1);
    let worst = &living[living.len() - part..];
    if part * 2 > living.len() || !worst.iter().any(|t| t.number == trial.number) {
        return None;
    }
    let place = u64::from(trial.number) << 16 | u64::from(trial.rung);
    let mut rng = StudyRng::new(record.spec.seed, Purpose::Explore, place);
    let donor = living[rng.below(part)];
    // A trial at its final budget has no budget to pass on.
    let done = donor
        .outcome
        .as_ref()
        .is_none_or(|o| o.step >= record.spec.budget.max);
    (!done && loss(donor) < loss(trial)).then_some((donor, rng))
}

/// The donor's parameters, each changed by a fifth, moved to a neighbour, or drawn anew.
fn explore(record: &StudyRecord, donor: &SearchTrial, resample: f64, rng: &mut StudyRng) -> Point {
    for _ in 0..100 {
        let fresh = rng.point(&record.space);
        let mut point = donor.point.clone();
        for (d, dimension) in record.space.dimensions.iter().enumerate() {
            let domain = &dimension.domain;
            let anew = rng.unit() < resample;
            let up = rng.unit() < 0.5;
            let random = domain.at(rng.unit());
            point[d] = match (point[d], domain) {
                (Some(value), Domain::Categorical { ordered: false, .. }) if !anew => Some(value),
                (Some(value), Domain::Categorical { .. }) if !anew => {
                    let moved = value + if up { 1.0 } else { -1.0 };
                    Some(if domain.contains(moved) { moved } else { value })
                }
                (Some(value), _) if !anew => {
                    let moved = value * if up { 1.2 } else { 0.8 };
                    Some(domain.at(domain.unit(moved)))
                }
                (Some(_), _) => Some(random),
                (None, _) => fresh[d].or(Some(random)),
            };
        }
        record.space.prune(&mut point);
        if record.space.contains(&point) {
            return point;
        }
    }
    donor.point.clone()
}
