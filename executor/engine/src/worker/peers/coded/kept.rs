//! What a worker has not said yet, in and out of checkpoints: what it holds back of its own gradients, and of the sums that it owns.

use super::Coded;
use super::units::{deal, span, units};
use crate::checkpoint::{Contents, Plane};
use crate::compress::Feedback;
use std::ops::Range;

/// Of all owners' sums, in checkpoints: each holds back of its own part alone.
const HELD: &str = "compress.held";

impl Coded {
    /// All of it: the planes of the gradients' feedback, then what is held of sums.
    #[must_use]
    pub fn unsaid(&self) -> Vec<f32> {
        let planes = self.feedback.planes().map(|(_, plane)| plane);
        let all: Vec<&[f32]> = planes.chain([self.held.as_slice()]).collect();
        all.concat()
    }

    /// Begins what a checkpoint keeps of all workers.
    #[must_use]
    pub fn keeps(&self) -> Kept {
        let planes = self.feedback.planes();
        Kept {
            planes: planes.map(|(name, plane)| (name, plane.len())).collect(),
            extras: Vec::new(),
            held: vec![0.0; self.held.len()],
        }
    }

    /// What each of so many workers begins with, likewise, of what a checkpoint has; none where it has nothing.
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

    /// Begins with what was dealt to this worker; of what is held of sums, with the part that it owns.
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

/// What a checkpoint keeps, as one worker's after the other comes in: in memory once, as it is the largest thing of a large job.
#[derive(Debug)]
pub struct Kept {
    planes: Vec<(&'static str, usize)>,
    extras: Vec<(String, Vec<f32>)>,
    held: Vec<f32>,
}

impl Kept {
    /// Of worker `rank`, what its [`Coded::unsaid`] gave.
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

    /// Of worker `rank`, which is gone: nothing.
    pub fn add_nothing(&mut self, rank: usize) {
        for (name, len) in &self.planes {
            let nothing = (Feedback::extra(name, rank), vec![0.0; *len]);
            self.extras.push(nothing);
        }
    }

    /// All of it, by the names that checkpoints know it by.
    #[must_use]
    pub fn into_extras(mut self) -> Vec<(String, Vec<f32>)> {
        self.extras.push((HELD.to_owned(), self.held));
        self.extras
    }
}

/// Takes apart what [`Coded::unsaid`] gave; what is held is added to what others hold.
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
