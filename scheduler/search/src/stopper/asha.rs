//! Asynchronous successive halving (Li et al., A System for Massively Parallel Hyperparameter
//! Tuning). A free slot promotes the best trial of the highest rung with a promotable trial.
//! Otherwise it starts a new trial at the lowest rung.

use super::{Birth, NextTrial, by_loss, rung_budget, waits};
use crate::study::StudyRecord;

pub(super) fn next(record: &StudyRecord, min: u64, eta: u32) -> NextTrial {
    let max = record.spec.budget.max;
    let highest = record
        .trials
        .iter()
        .map(|t| t.rungs.len())
        .max()
        .unwrap_or(0);
    for rung in (0..highest).rev() {
        let reached = record.trials.iter().filter(|t| t.rungs.len() > rung);
        let rows: Vec<_> = reached
            .map(|t| (t.rungs[rung].losses[0], t.number))
            .collect();
        let places = rows.len() / eta as usize;
        let best = by_loss(rows).into_iter().take(places);
        let mut free = best
            .filter(|n| waits(record, *n) && record.trials[*n as usize].rungs.len() == rung + 1);
        if let Some(trial) = free.next() {
            let budget = rung_budget(min, eta, rung as u32 + 1, max);
            return NextTrial::Continue { trial, budget };
        }
    }
    if record.may_create() {
        return NextTrial::Create(Birth::of_budget(min.min(max)));
    }
    NextTrial::Wait
}
