//! Residuals of a worker in checkpoints: those of its own gradients and of the sums that it owns.

use super::EncodedAllReduce;
use super::units::{deal, span, units};
use crate::checkpoint::{CheckpointArena, Contents};
use muster_comm::compress::Feedback;
use std::ops::Range;

/// Name of the residuals of sums in checkpoints; each owner has a residual only for its own part.
const HELD: &str = "compress.held";

impl EncodedAllReduce {
    /// Returns all residuals: the planes of the gradients' feedback, then the residual of sums.
    #[must_use]
    pub fn residual(&self) -> Vec<f32> {
        let planes = self.feedback.planes().map(|(_, plane)| plane);
        let all: Vec<&[f32]> = planes.chain([self.sum_residual.as_slice()]).collect();
        all.concat()
    }

    /// Returns an empty collection of all workers' residuals for a checkpoint.
    #[must_use]
    pub fn keeps(&self) -> CheckpointResiduals {
        let planes = self.feedback.planes();
        CheckpointResiduals {
            planes: planes.map(|(name, plane)| (name, plane.len())).collect(),
            extras: Vec::new(),
            sum_residual: vec![0.0; self.sum_residual.len()],
        }
    }

    /// Divides a checkpoint's residuals among `workers` workers, each in the form of
    /// [`Self::residual`]. `None` if the checkpoint has none.
    #[must_use]
    pub fn dealt(
        &self,
        contents: &Contents<CheckpointArena>,
        workers: usize,
    ) -> Option<Vec<Vec<f32>>> {
        let sum_residual = contents.extra(HELD)?;
        if sum_residual.len() != self.sum_residual.len() {
            return None;
        }
        let saved = self
            .feedback
            .saved(|name| contents.extra(name).map(<[f32]>::to_vec));
        let mut dealt = Feedback::dealt(&saved, workers);
        let mut nothing = self.feedback.clone();
        nothing.planes_mut().for_each(|plane| plane.fill(0.0));
        dealt.resize(workers, nothing);
        Some(
            dealt
                .into_iter()
                .map(|feedback| {
                    let planes = feedback.planes().map(|(_, plane)| plane);
                    let all: Vec<&[f32]> = planes.chain([sum_residual]).collect();
                    all.concat()
                })
                .collect(),
        )
    }

    /// Starts with the residuals for this worker; of those of sums, with the part that it owns.
    pub fn begin_with(
        &mut self,
        dealt: &[f32],
        (rank, size): (usize, usize),
        buckets: &[Range<usize>],
    ) {
        let mut sum_residual = vec![0.0; self.sum_residual.len()];
        fill(&mut self.feedback, &mut sum_residual, dealt);
        self.sum_residual.fill(0.0);
        self.residual_ranges.clear();
        for bucket in buckets {
            let units = units(&self.plan, bucket);
            let own = span(&units, deal(&units, size)[rank].clone());
            self.sum_residual[own.clone()].copy_from_slice(&sum_residual[own.clone()]);
            self.keep(own);
        }
    }
}

/// Residuals of all workers for a checkpoint, added worker by worker. They are in memory once,
/// because they are the largest data of a large job.
#[derive(Debug)]
pub struct CheckpointResiduals {
    planes: Vec<(&'static str, usize)>,
    extras: Vec<(String, Vec<f32>)>,
    sum_residual: Vec<f32>,
}

impl CheckpointResiduals {
    /// Adds the result of [`EncodedAllReduce::residual`] of worker `rank`.
    pub fn add(&mut self, rank: usize, residual: &[f32]) {
        let mut rest = residual;
        for (name, len) in &self.planes {
            let (here, tail) = rest.split_at(*len);
            self.extras
                .push((Feedback::extra(name, rank), here.to_vec()));
            rest = tail;
        }
        for (sum_residual, value) in self.sum_residual.iter_mut().zip(rest) {
            *sum_residual += value;
        }
    }

    /// Adds zeros for worker `rank`, which is gone.
    pub fn add_nothing(&mut self, rank: usize) {
        for (name, len) in &self.planes {
            let nothing = (Feedback::extra(name, rank), vec![0.0; *len]);
            self.extras.push(nothing);
        }
    }

    /// Returns all residuals with their names in checkpoints.
    #[must_use]
    pub fn into_extras(mut self) -> Vec<(String, Vec<f32>)> {
        self.extras.push((HELD.to_owned(), self.sum_residual));
        self.extras
    }
}

/// Splits the result of [`EncodedAllReduce::residual`]; the residual of sums is added to
/// `sum_residual`.
fn fill(feedback: &mut Feedback, sum_residual: &mut [f32], residual: &[f32]) {
    let mut rest = residual;
    for plane in feedback.planes_mut() {
        let (here, tail) = rest.split_at(plane.len());
        plane.copy_from_slice(here);
        rest = tail;
    }
    for (sum_residual, value) in sum_residual.iter_mut().zip(rest) {
        *sum_residual += value;
    }
}
