//! What a simulation leaves beside its outcome when it is to be measured and drawn: who held which GPUs when, and how long each
//! decision took.

use crate::engine::node_number;
use crate::outcome::Outcome;
use muster_model::id::NodeId;
use std::collections::BTreeMap;

#[derive(Debug)]
pub(crate) struct Course {
    pub outcome: Outcome,
    /// In the order of their ends.
    pub holds: Vec<Hold>,
    /// Of every round.
    pub decision_s: Vec<f64>,
}

/// GPUs of one node in one job's hands, from the order to start until the last task is gone. Jobs and nodes by their numbers in the
/// scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hold {
    pub job: usize,
    pub node: u32,
    pub gpus: u32,
    pub from_ms: i64,
    pub to_ms: i64,
}

/// Of every job what it holds now; and what was held.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    /// Since when, and the GPUs of each node.
    open: Vec<Option<(i64, BTreeMap<u32, u32>)>>,
    pub closed: Vec<Hold>,
}

impl Holds {
    pub(crate) fn of(jobs: usize) -> Self {
        Self {
            open: vec![None; jobs],
            closed: Vec::new(),
        }
    }

    /// Of every task its node and its GPUs.
    pub(crate) fn open(
        &mut self,
        job: usize,
        now_ms: i64,
        tasks: impl Iterator<Item = (NodeId, usize)>,
    ) {
        self.close(job, now_ms);
        let mut nodes = BTreeMap::new();
        for (node, gpus) in tasks.filter(|&(_, gpus)| gpus > 0) {
            let gpus = u32::try_from(gpus).unwrap_or(u32::MAX);
            *nodes.entry(node_number(node)).or_insert(0) += gpus;
        }
        self.open[job] = Some((now_ms, nodes));
    }

    /// Nothing when it holds nothing.
    pub(crate) fn close(&mut self, job: usize, now_ms: i64) {
        let Some((from_ms, nodes)) = self.open[job].take() else {
            return;
        };
        self.closed
            .extend(nodes.into_iter().map(|(node, gpus)| Hold {
                job,
                node,
                gpus,
                from_ms,
                to_ms: now_ms,
            }));
    }
}
