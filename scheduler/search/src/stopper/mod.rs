//! Rules for the budgets of trials, one file per rule. A rule reads all trials and stores in
//! [`StopperState`] only additional state.

mod asha;
mod halving;
mod hyper_drive;
mod median;
mod pbt;

use crate::study::StudyRecord;
use crate::trial::{TrialCheckpoint, TrialNumber, TrialState};
use muster_model::study::{Point, SearchSpec, Stopper};
use serde::{Deserialize, Serialize};

/// Use of a free slot.
pub(crate) enum NextTrial {
    Continue {
        trial: TrialNumber,
        budget: u64,
    },
    Create(Birth),
    /// Nothing until the next event.
    Wait,
}

/// Trial to be created.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Birth {
    pub budget: u64,
    pub bracket: u32,
    /// Chosen by the searcher if `None`.
    pub point: Option<Point>,
    pub from: Option<TrialCheckpoint>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum StopperState {
    Plain,
    Halving(halving::HalvingState),
    HyperDrive(hyper_drive::HyperDriveState),
    Pbt(pbt::PbtState),
}

impl Birth {
    fn of_budget(budget: u64) -> Self {
        Self {
            budget,
            bracket: 0,
            point: None,
            from: None,
        }
    }
}

impl StopperState {
    pub(crate) fn new(spec: &SearchSpec) -> Self {
        match spec.stopper {
            Stopper::None {} | Stopper::Median { .. } | Stopper::Asha { .. } => Self::Plain,
            Stopper::SuccessiveHalving { .. } | Stopper::Hyperband { .. } => {
                Self::Halving(halving::HalvingState::default())
            }
            Stopper::HyperDrive { .. } => Self::HyperDrive(hyper_drive::HyperDriveState::default()),
            Stopper::Pbt { .. } => Self::Pbt(pbt::PbtState::default()),
        }
    }

    /// Records that a trial has completed its rung. Returns the trials to stop.
    pub(crate) fn judge(&mut self, record: &StudyRecord, number: TrialNumber) -> Vec<TrialNumber> {
        match self {
            Self::Plain | Self::Halving(_) => Vec::new(),
            Self::HyperDrive(state) => state.judge(record, number),
            Self::Pbt(state) => state.judge(record, number),
        }
    }

    /// Use of a free slot, and the trials to stop before.
    pub(crate) fn next(&mut self, record: &StudyRecord) -> (NextTrial, Vec<TrialNumber>) {
        match (self, record.spec.stopper) {
            (Self::Halving(state), _) => state.next(record),
            (Self::HyperDrive(state), _) => (state.next(record), Vec::new()),
            (Self::Pbt(state), _) => (state.next(record), Vec::new()),
            (Self::Plain, Stopper::Asha { min, eta }) => (asha::next(record, min, eta), Vec::new()),
            (Self::Plain, _) if record.may_create() => {
                let birth = Birth::of_budget(record.spec.budget.max);
                (NextTrial::Create(birth), Vec::new())
            }
            (Self::Plain, _) => (NextTrial::Wait, Vec::new()),
        }
    }
}

/// Whether the trial's newest report shows that it should stop.
pub(crate) fn is_behind(record: &StudyRecord, number: TrialNumber) -> bool {
    match record.spec.stopper {
        Stopper::Median { startup, warmup } => {
            median::is_behind(&record.trials, number, startup as usize, warmup)
        }
        _ => false,
    }
}

/// Budget of a rung: `first * eta^rung`, at most `max`.
pub(crate) fn rung_budget(first: u64, eta: u32, rung: u32, max: u64) -> u64 {
    let factor = u64::from(eta).checked_pow(rung);
    factor
        .and_then(|factor| first.checked_mul(factor))
        .map_or(max, |budget| budget.min(max))
}

/// Trials by loss, ascending; the older trial first on a tie.
fn by_loss(mut rows: Vec<(f64, TrialNumber)>) -> Vec<TrialNumber> {
    rows.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    rows.into_iter().map(|(_, number)| number).collect()
}

fn waits(record: &StudyRecord, number: TrialNumber) -> bool {
    record.trials[number as usize].state == TrialState::Waiting
}
