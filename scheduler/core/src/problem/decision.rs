//! The answer of a policy.

use super::SchedulingProblem;

/// GPUs of one job on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NodeAllocation {
    pub node: u32,
    pub gpus: u32,
}

/// Allocation of every job from now on.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PolicyDecision {
    /// Allocation by job, in the order of the problem. `None` keeps the present allocation, an
    /// empty list stops the job.
    pub parts: Vec<Option<Vec<NodeAllocation>>>,
    /// Reason for the size by job. Empty if the policy does not compare sizes.
    pub worth: Vec<SizeValue>,
}

/// Value of a job's size, per GPU, in the unit of the policy's objective.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SizeValue {
    /// Gain of the last step to the present size.
    pub last_gain: f64,
    /// Gain of the next step; 0 at the largest size.
    pub next_gain: f64,
}

/// Returns the sum of the GPUs.
#[must_use]
pub fn gpus_of(parts: &[NodeAllocation]) -> u32 {
    parts.iter().map(|part| part.gpus).sum()
}

/// Returns the number of different nodes.
#[must_use]
pub fn nodes_of(parts: &[NodeAllocation]) -> u32 {
    let first_parts = parts.iter().enumerate().filter(|&(index, part)| {
        let mut before = parts[..index].iter();
        before.all(|other| other.node != part.node)
    });
    u32::try_from(first_parts.count()).unwrap_or(u32::MAX)
}

impl PolicyDecision {
    /// Returns the decision that changes nothing.
    #[must_use]
    pub fn keep(problem: &SchedulingProblem) -> Self {
        Self {
            parts: vec![None; problem.jobs.len()],
            worth: Vec::new(),
        }
    }

    /// Returns the parts that a job holds after this decision.
    #[must_use]
    pub fn holds<'a>(&'a self, problem: &'a SchedulingProblem, job: usize) -> &'a [NodeAllocation] {
        self.parts[job]
            .as_deref()
            .unwrap_or(&problem.jobs[job].present)
    }
}
