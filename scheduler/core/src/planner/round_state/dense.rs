//! Jobs and nodes as the policy sees them.

use super::RoundState;
use crate::planner::cost;
use crate::planner::free::Holding;
use crate::planner::gang::GangShape;
use crate::planner::time::{seconds, seconds_of};
use crate::problem::{self, Demand, NodeAllocation};
use crate::snapshot::SnapshotNode;

impl RoundState<'_> {
    /// The job as the policy sees it.
    pub(crate) fn dense(&self, index: usize) -> problem::ProblemJob {
        let live = &self.jobs[index];
        let (job, shape) = (live.job, &live.shape);
        let present: Vec<NodeAllocation> = match &live.destination {
            Some(placed) => parts(&placed.holdings(shape)),
            None if live.scheduling_state.stays() => parts(&live.holdings),
            None => Vec::new(),
        };
        let per_worker = shape.worker.gpus.max(1);
        let kind = present
            .first()
            .map_or(0, |part| self.free[part.node as usize].kind);
        let mut held_s = vec![0.0; self.problem.kinds.len()];
        if let Some(held_s) = held_s.get_mut(usize::from(kind)) {
            *held_s = job.trained_s;
        }
        problem::ProblemJob {
            tenant: live.tenant,
            priority: live.priority,
            submitted_s: seconds(job.submitted_ms),
            unit: unit(shape),
            min_gpus: shape.min_gpus(),
            max_gpus: shape.gpus(live.sizing.max_workers()),
            request_gpus: shape.min_gpus(),
            present,
            since_s: seconds(live.placed_ms.unwrap_or(job.submitted_ms)),
            fixed: false,
            attained_gpu_s: job.service.map_or_else(
                || job.trained_s * f64::from(live.size.0 * per_worker),
                |service| service.gpu_s,
            ),
            demoted_s: job
                .service
                .and_then(|service| service.demoted_ms)
                .map(seconds),
            held_s,
            restarts: u32::try_from(live.revision.saturating_sub(1)).unwrap_or(u32::MAX),
            restart_s: if job.trains_on() {
                seconds_of(self.policy.in_place_cost_ms)
            } else {
                // A mean of few restarts may be too low by chance, so the configured cost is the
                // lower bound.
                let usual_s = seconds_of(self.policy.resize_cost_ms);
                cost::restart(live, self.policy).total_s().max(usual_s)
            },
            restart_cost_factor: cost::restart_cost_factor(live, self.policy, self.now_ms),
            at_risk_s: cost::at_risk_s(live, self.now_ms),
            preemptible: true,
            trial: job.trial.and_then(|trial| {
                let study = self.studies.binary_search(&trial.study).ok()?;
                Some(problem::ProblemTrial {
                    study: u32::try_from(study).ok()?,
                    gain: trial.gain,
                })
            }),
            outlook: live.sizing.outlook.clone(),
        }
    }
}

/// Demand of one worker, with its part of the shards of the smallest gang.
fn unit(shape: &GangShape) -> Demand {
    let (workers, shards) = (
        u64::from(shape.workers.min.max(1)),
        u64::from(shape.ps_shards.min),
    );
    let (worker, shard) = (&shape.worker, &shape.ps_shard);
    let cpu_of_shards = shard.cpu_milli.saturating_mul(shards);
    let memory_of_shards = shard.memory_bytes.saturating_mul(shards);
    Demand {
        gpus: worker.gpus.max(1),
        cpu_milli: worker
            .cpu_milli
            .saturating_add(cpu_of_shards.div_ceil(workers)),
        memory_bytes: worker
            .memory_bytes
            .saturating_add(memory_of_shards.div_ceil(workers)),
        nodes: shape.nodes.index,
    }
}

pub(crate) fn dense_node(node: &SnapshotNode, (kind, rack): (u16, u32)) -> problem::ProblemNode {
    problem::ProblemNode {
        kind,
        gpus: if node.is_open() { node.own_gpus() } else { 0 },
        cpu_milli: node.cpu_milli,
        memory_bytes: node.memory_bytes,
        rack,
        speed_percent: node.speed_percent(),
    }
}

/// GPUs of each node on which it holds any.
fn parts(holdings: &[Holding]) -> Vec<NodeAllocation> {
    let with_gpus = holdings.iter().filter(|held| held.gpus != 0);
    with_gpus
        .map(|held| NodeAllocation {
            node: held.node,
            gpus: held.gpus.count_ones(),
        })
        .collect()
}
