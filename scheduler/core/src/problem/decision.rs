//! What a policy answers.

use super::Problem;

/// GPUs of one job on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Part {
    pub node: u32,
    pub gpus: u32,
}

/// Who holds what from now on.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Decision {
    /// Of every job, in the problem's order: `None` keeps what it has, an empty list runs it no longer.
    pub parts: Vec<Option<Vec<Part>>>,
    /// Of every job, why it has its size; empty when the policy does not weigh sizes.
    pub worth: Vec<Worth>,
}

/// What a policy thought of a job's size, in its own objective per GPU.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Worth {
    /// What the last step to its size gained.
    pub last_gain: f64,
    /// What the next step would gain; 0 when it is as large as it may be.
    pub next_gain: f64,
}

/// GPUs in all.
#[must_use]
pub fn gpus_of(parts: &[Part]) -> u32 {
    parts.iter().map(|part| part.gpus).sum()
}

/// Different nodes.
#[must_use]
pub fn nodes_of(parts: &[Part]) -> u32 {
    let new = |&(index, part): &(usize, &Part)| {
        !parts[..index].iter().any(|other| other.node == part.node)
    };
    u32::try_from(parts.iter().enumerate().filter(new).count()).unwrap_or(u32::MAX)
}

impl Decision {
    /// Leaves everybody as they are.
    #[must_use]
    pub fn keep(problem: &Problem) -> Self {
        Self {
            parts: vec![None; problem.jobs.len()],
            worth: Vec::new(),
        }
    }

    /// What a job holds after this.
    #[must_use]
    pub fn holds<'a>(&'a self, problem: &'a Problem, job: usize) -> &'a [Part] {
        self.parts[job]
            .as_deref()
            .unwrap_or(&problem.jobs[job].present)
    }
}
