//! What a worker has not sent yet, for all blocks, in and out of checkpoints.

use super::{Plan, Plane, State};
use crate::pages::zeros;
use std::ops::Range;

/// The planes that a plan's codecs carry, each as long as the arena. It belongs to one worker; a checkpoint has one per rank.
#[derive(Debug, Clone, PartialEq)]
pub struct Feedback {
    /// Empty when no codec of the plan needs it.
    residual: Vec<f32>,
    velocity: Vec<f32>,
}

/// Why planes from a checkpoint are not those of a plan.
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
    /// Nothing held back yet.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        let planes = plan.planes();
        let plane = |plane| match planes.contains(&plane) {
            true => zeros(plan.arena_len()),
            false => Vec::new(),
        };
        Self {
            residual: plane(Plane::Residual),
            velocity: plane(Plane::Velocity),
        }
    }

    /// The planes by the names they have in checkpoints.
    pub fn planes(&self) -> impl Iterator<Item = (&'static str, &[f32])> {
        let planes = [
            (Plane::Residual.name(), &*self.residual),
            (Plane::Velocity.name(), &*self.velocity),
        ];
        planes.into_iter().filter(|(_, plane)| !plane.is_empty())
    }

    /// The same, to be written.
    pub fn planes_mut(&mut self) -> impl Iterator<Item = &mut [f32]> {
        let planes = [&mut self.residual, &mut self.velocity];
        planes
            .into_iter()
            .filter(|plane| !plane.is_empty())
            .map(Vec::as_mut_slice)
    }

    /// What so many workers begin with of what others, maybe fewer or more, had not sent: each has its own, a further one's is added to
    /// that of whoever has its number modulo theirs, and newcomers have nothing. The sum is the same.
    #[must_use]
    pub fn dealt(saved: &[Self], workers: usize) -> Vec<Self> {
        let mut dealt: Vec<Self> = saved.iter().take(workers).cloned().collect();
        for (rank, more) in saved.iter().enumerate().skip(workers) {
            dealt[rank % workers].absorb(more);
        }
        dealt
    }

    /// What a checkpoint calls this plane of the worker of that rank.
    #[must_use]
    pub fn extra(plane: &str, rank: usize) -> String {
        format!("{plane}.{rank}")
    }

    /// The planes of the worker of that rank, by the names that a checkpoint of all knows them by.
    #[must_use]
    pub fn extras(&self, rank: usize) -> Vec<(String, Vec<f32>)> {
        let named = |(name, plane): (&str, &[f32])| (Self::extra(name, rank), plane.to_vec());
        self.planes().map(named).collect()
    }

    /// Of workers of rank 0 on, what [`Self::extras`] gave, for the same plan; nobody's, where the codecs or the model were changed.
    #[must_use]
    pub fn saved(&self, find: impl Fn(&str) -> Option<Vec<f32>>) -> Vec<Self> {
        let of = |rank: usize| {
            let mut saved = self.clone();
            for plane in [Plane::Residual, Plane::Velocity] {
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
        };
        match self.planes().next() {
            Some(_) => (0..).map_while(of).collect(),
            None => Vec::new(),
        }
    }

    /// What [`Self::planes`] gave, for the same plan.
    ///
    /// # Errors
    /// [`FeedbackError`] when a plane is missing, is unknown or has another length: the codecs or the model were changed. Whoever
    /// resumes may then begin with nothing held back.
    pub fn restore(
        plan: &Plan,
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

    /// Takes over what a worker that leaves has not sent.
    ///
    /// # Panics
    /// When the other is of another plan.
    pub fn absorb(&mut self, other: &Self) {
        for plane in [Plane::Residual, Plane::Velocity] {
            let theirs = other.plane(plane);
            let ours = self.plane_mut(plane);
            assert_eq!(ours.len(), theirs.len(), "feedback of one plan");
            for (ours, theirs) in ours.iter_mut().zip(theirs) {
                *ours += theirs;
            }
        }
    }

    /// The part of a block.
    ///
    /// # Panics
    /// When the range leaves the arena.
    pub fn state(&mut self, range: Range<usize>) -> State<'_> {
        State {
            residual: part(&mut self.residual, &range),
            velocity: part(&mut self.velocity, &range),
        }
    }

    fn plane(&self, plane: Plane) -> &[f32] {
        match plane {
            Plane::Residual => &self.residual,
            Plane::Velocity => &self.velocity,
        }
    }

    fn plane_mut(&mut self, plane: Plane) -> &mut Vec<f32> {
        match plane {
            Plane::Residual => &mut self.residual,
            Plane::Velocity => &mut self.velocity,
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
