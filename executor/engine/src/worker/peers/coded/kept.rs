//! What a worker has not said yet, in and out of checkpoints: what it holds back of its own gradients, and of the sums that it owns.

use super::Coded;
use super::units::{deal, span, units};
use crate::checkpoint::Contents;
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

    /// What a checkpoint keeps, of the workers in order of rank, by what each one's [`Self::unsaid`] gave; nothing of one that is gone.
    #[must_use]
    pub fn extras(&self, unsaid: &[Option<Vec<f32>>]) -> Vec<(String, Vec<f32>)> {
        let mut held = vec![0.0; self.held.len()];
        let mut extras = Vec::new();
        for (rank, values) in unsaid.iter().enumerate() {
            let mut feedback = self.feedback.clone();
            match values {
                Some(values) => fill(&mut feedback, &mut held, values),
                None => feedback.planes_mut().for_each(|plane| plane.fill(0.0)),
            }
            extras.extend(feedback.extras(rank));
        }
        extras.push((HELD.to_owned(), held));
        extras
    }

    /// What each of so many workers begins with, likewise, of what a checkpoint has; none where it has nothing.
    #[must_use]
    pub fn dealt(&self, contents: &Contents, workers: usize) -> Option<Vec<Vec<f32>>> {
        let held = contents.extra(HELD)?;
        if held.len() != self.held.len() {
            return None;
        }
        let saved = self.feedback.saved(|name| contents.extra(name).cloned());
        let mut dealt = Feedback::dealt(&saved, workers);
        let mut nothing = self.feedback.clone();
        nothing.planes_mut().for_each(|plane| plane.fill(0.0));
        dealt.resize(workers, nothing);
        let unsaid = |feedback: Feedback| {
            let planes = feedback.planes().map(|(_, plane)| plane);
            let all: Vec<&[f32]> = planes.chain([held.as_slice()]).collect();
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
