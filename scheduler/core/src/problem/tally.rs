//! GPUs not yet given away, node by node: what every placement takes from.

use super::{Part, Problem};

/// Free GPUs of every node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tally {
    pub free: Vec<u32>,
}

impl Tally {
    /// Everything is free.
    #[must_use]
    pub fn empty(problem: &Problem) -> Self {
        Self {
            free: problem.nodes.iter().map(|node| node.gpus).collect(),
        }
    }

    /// What is free while all jobs keep what they hold.
    #[must_use]
    pub fn present(problem: &Problem) -> Self {
        let mut tally = Self::empty(problem);
        for job in &problem.jobs {
            tally.take(&job.present);
        }
        tally
    }

    /// What is free beside the jobs that may not be touched.
    #[must_use]
    pub fn beside_fixed(problem: &Problem) -> Self {
        let mut tally = Self::empty(problem);
        for job in problem.jobs.iter().filter(|job| !job.is_movable()) {
            tally.take(&job.present);
        }
        tally
    }

    /// GPUs in all.
    #[must_use]
    pub fn gpus(&self) -> u32 {
        self.free.iter().sum()
    }

    /// Whether all of it is free.
    #[must_use]
    pub fn holds(&self, parts: &[Part]) -> bool {
        parts.iter().all(|part| {
            let wanted: u32 = parts
                .iter()
                .filter(|other| other.node == part.node)
                .map(|other| other.gpus)
                .sum();
            self.free[part.node as usize] >= wanted
        })
    }

    /// Takes it. A node that was lost or shrunk under a job has 0 left.
    pub fn take(&mut self, parts: &[Part]) {
        for part in parts {
            let free = &mut self.free[part.node as usize];
            *free = free.saturating_sub(part.gpus);
        }
    }

    /// Gives it back.
    pub fn give(&mut self, parts: &[Part]) {
        for part in parts {
            self.free[part.node as usize] += part.gpus;
        }
    }
}
