//! Residuals of a worker in checkpoints: those of its own gradients and of the sums that it owns.

use super::Coded;
use super::units::{deal, span, units};
use crate::checkpoint::{Contents, Plane};
use muster_comm::compress::Feedback;
use std::ops::Range;

/// Name of the residuals of sums in checkpoints; each owner has a residual only for its own part.
const HELD: &str = "compress.held";

impl Coded {
    /// Returns all residuals: the planes of the gradients' feedback, then the residual of sums.
    #[must_use]
    pub fn unsaid(&self) -> Vec<f32> {
        let planes = self.feedback.planes().map(|(_, plane)| plane);
        let all: Vec<&[f32]> = planes.chain([self.held.as_slice()]).collect();
        all.concat()
    }

    /// Returns an empty collection of all workers' residuals for a checkpoint.
    #[must_use]
    pub fn keeps(&self) -> Kept {
        let planes = self.feedback.planes();
        Kept {
            planes: planes.map(|(name, plane)| (name, plane.len())).collect(),
            extras: Vec::new(),
            held: vec![0.0; self.held.len()],
        }
    }

    /// Divides a checkpoint's residuals among `workers` workers, each in the form of
    /// [`Self::unsaid`]. `None` if the checkpoint has none.
    #[must_use]
    pub fn dealt(&self, contents: &Contents<Plane>, workers: usize) -> Option<Vec<Vec<f32>>> {
        let held = contents.extra(HELD)?;
        if held.len() != self.held.len() {
            return None;
        }
        let saved = self
            .feedback
            .saved(|name| contents.extra(name).map(<[f32]>::to_vec));
        let mut dealt = Feedback::dealt(&saved, workers);
        let mut nothing = self.feedback.clone();
        nothing.planes_mut().for_each(|plane| plane.fill(0.0));
        dealt.resize(workers, nothing);
        let unsaid = |feedback: Feedback| {
            let planes = feedback.planes().map(|(_, plane)| plane);
            let all: Vec<&[f32]> = planes.chain([held]).collect();
            all.concat()
        };
        Some(dealt.into_iter().map(unsaid).collect())
    }

    /// Starts with the residuals for this worker; of those of sums, with the part that it owns.
    pub fn begin_with(
        &mut self,
        dealt: &[f32],
        (rank, size): (usize, usize),
        buckets: &[Range<usize>],
    ) {
        let mut held = vec![0.0; self.held.len()];
        fill(&mut self.feedback, &mut held, dealt);
        self.held.fill(0.0);
        self.holds.clear();
        for bucket in buckets {
            let units = units(&self.plan, bucket);
            let own = span(&units, deal(&units, size)[rank].clone());
            self.held[own.clone()].copy_from_slice(&held[own.clone()]);
            self.keep(own);
        }
    }
}

/// Residuals of all workers for a checkpoint, added worker by worker. They are in memory once,
/// because they are the largest data of a large job.
#[derive(Debug)]
pub struct Kept {
    planes: Vec<(&'static str, usize)>,
    extras: Vec<(String, Vec<f32>)>,
    held: Vec<f32>,
}

impl Kept {
    /// Adds the result of [`Coded::unsaid`] of worker `rank`.
    pub fn add(&mut self, rank: usize, unsaid: &[f32]) {
        let mut rest = unsaid;
        for (name, len) in &self.planes {
            let (here, tail) = rest.split_at(*len);
            self.extras
                .push((Feedback::extra(name, rank), here.to_vec()));
            rest = tail;
        }
        for (held, value) in self.held.iter_mut().zip(rest) {
            *held += value;
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
        self.extras.push((HELD.to_owned(), self.held));
        self.extras
    }
}

/// Splits the result of [`Coded::unsaid`]; the residual of sums is added to `held`.
fn fill(feedback: &mut Feedback, held: &mut [f32], unsaid: &[f32]) {
    let mut rest = unsaid;
    for plane in feedback.planes_mut() {
        let (here, tail) = rest.split_at(plane.len());
        plane.copy_from_slice(here);
        rest = tail;
    }
    for (held, value) in held.iter_mut().zip(rest) {
        *held += value;
    }
}
