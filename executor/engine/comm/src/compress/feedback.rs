//! Error feedback of a worker for all blocks: residuals, and their form in checkpoints.

use super::{CodecPlan, FeedbackPlane, FeedbackState};
use muster_compute::pages::zeros;
use std::ops::Range;

/// State planes of a plan's codecs, each as long as the arena. Every worker has its own; a
/// checkpoint contains one per rank.
#[derive(Debug, Clone, PartialEq)]
pub struct Feedback {
    /// Empty if no codec of the plan needs it.
    residual: Vec<f32>,
    velocity: Vec<f32>,
}

/// Why planes of a checkpoint do not fit a plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FeedbackError {
    #[error("the checkpoint has no plane {0}")]
    Missing(&'static str),
    #[error("the checkpoint has a plane {0} that no codec carries")]
    Unknown(String),
    #[error("plane {name} has {got} numbers where the arena has {expected}")]
    Length {
        name: &'static str,
        got: usize,
        expected: usize,
    },
}

impl Feedback {
    /// Creates planes of zeros.
    #[must_use]
    pub fn new(plan: &CodecPlan) -> Self {
        let planes = plan.planes();
        let [residual, velocity] =
            [FeedbackPlane::Residual, FeedbackPlane::Velocity].map(|plane| {
                if planes.contains(&plane) {
                    zeros(plan.arena_len())
                } else {
                    Vec::new()
                }
            });
        Self { residual, velocity }
    }

    /// Planes with their names in checkpoints.
    pub fn planes(&self) -> impl Iterator<Item = (&'static str, &[f32])> {
        let planes = [
            (FeedbackPlane::Residual.name(), &*self.residual),
            (FeedbackPlane::Velocity.name(), &*self.velocity),
        ];
        planes.into_iter().filter(|(_, plane)| !plane.is_empty())
    }

    /// The planes, to be written.
    pub fn planes_mut(&mut self) -> impl Iterator<Item = &mut [f32]> {
        let planes = [&mut self.residual, &mut self.velocity];
        planes
            .into_iter()
            .filter(|plane| !plane.is_empty())
            .map(Vec::as_mut_slice)
    }

    /// Distributes the residuals of `saved` workers to `workers` workers. Each keeps its own; the
    /// residual of a rank beyond the new number is added to that of rank modulo the new number. New
    /// workers have none. The sum of all residuals is unchanged.
    #[must_use]
    pub fn dealt(saved: &[Self], workers: usize) -> Vec<Self> {
        let mut dealt: Vec<Self> = saved.iter().take(workers).cloned().collect();
        for (rank, more) in saved.iter().enumerate().skip(workers) {
            dealt[rank % workers].absorb(more);
        }
        dealt
    }

    /// Name in a checkpoint of this plane of the worker with this rank.
    #[must_use]
    pub fn extra(plane: &str, rank: usize) -> String {
        format!("{plane}.{rank}")
    }

    /// Planes of the worker with this rank, with their names in a checkpoint of all workers.
    #[must_use]
    pub fn extras(&self, rank: usize) -> Vec<(String, Vec<f32>)> {
        self.planes()
            .map(|(name, plane)| (Self::extra(name, rank), plane.to_vec()))
            .collect()
    }

    /// Feedback of the workers from rank 0 on, from planes that [`Self::extras`] returned for the
    /// same plan. Empty if the codecs or the model have changed.
    #[must_use]
    pub fn saved(&self, find: impl Fn(&str) -> Option<Vec<f32>>) -> Vec<Self> {
        match self.planes().next() {
            Some(_) => (0..).map_while(|rank| self.saved_of(rank, &find)).collect(),
            None => Vec::new(),
        }
    }

    /// Feedback of the worker with this rank, from planes that [`Self::extras`] returned.
    fn saved_of(&self, rank: usize, find: impl Fn(&str) -> Option<Vec<f32>>) -> Option<Self> {
        let mut saved = self.clone();
        for plane in [FeedbackPlane::Residual, FeedbackPlane::Velocity] {
            if saved.plane(plane).is_empty() {
                continue;
            }
            let found = find(&Self::extra(plane.name(), rank))?;
            if found.len() != saved.plane(plane).len() {
                return None;
            }
            *saved.plane_mut(plane) = found;
        }
        Some(saved)
    }

    /// Restores the planes that [`Self::planes`] returned for the same plan.
    ///
    /// # Errors
    /// [`FeedbackError`] if a plane is missing, unknown or of another length, because the codecs or
    /// the model have changed. The caller may then begin without residuals.
    pub fn restore(
        plan: &CodecPlan,
        planes: impl IntoIterator<Item = (String, Vec<f32>)>,
    ) -> Result<Self, FeedbackError> {
        let mut feedback = Self {
            residual: Vec::new(),
            velocity: Vec::new(),
        };
        let mut missing = plan.planes();
        for (name, values) in planes {
            let Some(at) = missing.iter().position(|plane| plane.name() == name) else {
                return Err(FeedbackError::Unknown(name));
            };
            let plane = missing.remove(at);
            if values.len() != plan.arena_len() {
                return Err(FeedbackError::Length {
                    name: plane.name(),
                    got: values.len(),
                    expected: plan.arena_len(),
                });
            }
            *feedback.plane_mut(plane) = values;
        }
        match missing.first() {
            Some(plane) if plan.arena_len() > 0 => Err(FeedbackError::Missing(plane.name())),
            _ => Ok(feedback),
        }
    }

    /// Adds the residual of a worker that leaves.
    ///
    /// # Panics
    /// If the other feedback belongs to another plan.
    pub fn absorb(&mut self, other: &Self) {
        for plane in [FeedbackPlane::Residual, FeedbackPlane::Velocity] {
            let theirs = other.plane(plane);
            let ours = self.plane_mut(plane);
            assert_eq!(ours.len(), theirs.len(), "feedback of one plan");
            for (ours, theirs) in ours.iter_mut().zip(theirs) {
                *ours += theirs;
            }
        }
    }

    /// Part of the planes that belongs to a block.
    ///
    /// # Panics
    /// If the range exceeds the arena.
    pub fn state(&mut self, range: Range<usize>) -> FeedbackState<'_> {
        FeedbackState {
            residual: part(&mut self.residual, &range),
            velocity: part(&mut self.velocity, &range),
        }
    }

    fn plane(&self, plane: FeedbackPlane) -> &[f32] {
        match plane {
            FeedbackPlane::Residual => &self.residual,
            FeedbackPlane::Velocity => &self.velocity,
        }
    }

    fn plane_mut(&mut self, plane: FeedbackPlane) -> &mut Vec<f32> {
        match plane {
            FeedbackPlane::Residual => &mut self.residual,
            FeedbackPlane::Velocity => &mut self.velocity,
        }
    }
}

fn part<'a>(plane: &'a mut [f32], range: &Range<usize>) -> &'a mut [f32] {
    if plane.is_empty() {
        plane
    } else {
        &mut plane[range.clone()]
    }
}
