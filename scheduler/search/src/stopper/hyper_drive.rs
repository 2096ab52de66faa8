//! POP of HyperDrive (Rasley et al., Middleware 2017). After each `boundary` a trial's curve is
//! extrapolated. Trials that probably reach the target are promising and keep slots of their own.
//! Hopeless trials stop. All others are opportunities and run in rotation.

use super::{Birth, NextTrial};
use crate::curve::{LearningCurve, chance_to_reach};
use crate::study::StudyRecord;
use crate::trial::{TrialNumber, TrialState};
use muster_model::study::Stopper;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct HyperDriveState {
    /// Waiting trials in the order of their arrival, with the probability to reach the target.
    waiting: Vec<(TrialNumber, f64)>,
}

/// Probability of a trial that cannot be judged yet: an opportunity, as any new trial.
const UNKNOWN: f64 = 0.5;

impl HyperDriveState {
    pub(super) fn judge(&mut self, record: &StudyRecord, number: TrialNumber) -> Vec<TrialNumber> {
        let Stopper::HyperDrive {
            hopeless,
            min_points,
            ..
        } = record.spec.stopper
        else {
            unreachable!("only HyperDrive judges so");
        };
        let trial = &record.trials[number as usize];
        if trial.state != TrialState::Waiting {
            return Vec::new();
        }
        if trial.reports.len() < min_points as usize {
            self.waiting.push((number, UNKNOWN));
            return Vec::new();
        }
        let objective = &record.spec.objectives[0];
        let target = objective.goal.as_loss(objective.target.unwrap_or(f64::MIN));
        let curve = LearningCurve::of(trial);
        let chance = chance_to_reach(&curve, record.spec.budget.max as f64, target);
        if chance < hopeless {
            return vec![number];
        }
        self.waiting.push((number, chance));
        Vec::new()
    }

    /// Promising trials first, then new ones, then the others in rotation.
    pub(super) fn next(&mut self, record: &StudyRecord) -> NextTrial {
        let Stopper::HyperDrive { boundary, .. } = record.spec.stopper else {
            unreachable!("only HyperDrive has boundaries");
        };
        self.waiting
            .retain(|(n, _)| record.trials[*n as usize].state == TrialState::Waiting);
        let max = record.spec.budget.max;
        let bar = bar(&self.waiting, record.spec.concurrency);
        let promising = self
            .waiting
            .iter()
            .enumerate()
            .filter(|(_, (_, chance))| *chance >= bar)
            .max_by(|a, b| a.1.1.total_cmp(&b.1.1).then(b.0.cmp(&a.0)));
        let turn = match promising {
            Some((index, _)) => index,
            None if record.may_create() => {
                return NextTrial::Create(Birth::of_budget(boundary.min(max)));
            }
            None if self.waiting.is_empty() => return NextTrial::Wait,
            None => 0,
        };
        let (trial, _) = self.waiting.remove(turn);
        let budget = record.trials[trial as usize]
            .budget
            .saturating_add(boundary);
        NextTrial::Continue {
            trial,
            budget: budget.min(max),
        }
    }
}

/// Probability from which on a trial is promising. It maximises the effective slots: the minimum of
/// the number of trials at least as likely and `slots` times the probability.
fn bar(waiting: &[(TrialNumber, f64)], slots: u32) -> f64 {
    let known = waiting.iter().map(|(_, chance)| *chance);
    let mut chances: Vec<f64> = known.filter(|c| *c > UNKNOWN).collect();
    chances.sort_by(|a, b| b.total_cmp(a));
    let mut best = (0.0, f64::INFINITY);
    for (i, chance) in chances.iter().enumerate() {
        let effective = ((i + 1) as f64).min(f64::from(slots) * chance);
        if effective > best.0 {
            best = (effective, *chance);
        }
    }
    best.1
}
