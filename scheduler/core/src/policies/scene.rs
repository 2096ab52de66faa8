//! Small problems for the unit tests of policies.

use crate::problem::{
    Demand, KindSpeedCurve, NodeAllocation, PolicyDecision, ProblemJob, ProblemNode, ProblemTenant,
    ScalingModel, SchedulingProblem,
};

/// Returns a cluster of (nodes, GPUs per node) by kind, with one tenant and no jobs.
pub fn cluster(kinds: &[(u32, u32)]) -> SchedulingProblem {
    let mut all = Vec::new();
    for (kind, &(nodes, gpus)) in (0..).zip(kinds) {
        let node = ProblemNode {
            kind,
            gpus,
            cpu_milli: 64_000,
            memory_bytes: 1 << 40,
            rack: 0,
            speed_percent: 100,
        };
        all.extend(std::iter::repeat_n(node, nodes as usize));
    }
    SchedulingProblem {
        node_sets: [].into(),
        now_s: 3_600.0,
        round_s: 60.0,
        kinds: (0..kinds.len()).map(|kind| format!("k{kind}")).collect(),
        nodes: all,
        tenants: vec![tenant()],
        jobs: Vec::new(),
        history_gpu_s: Vec::new(),
    }
}

pub fn tenant() -> ProblemTenant {
    ProblemTenant {
        weight: 1.0,
        gpu_quota: None,
        parent: None,
    }
}

/// Returns a waiting job of 1 to 64 GPUs with these speed curves.
pub fn job(curves: Vec<KindSpeedCurve>) -> ProblemJob {
    let kinds = curves.len();
    ProblemJob {
        tenant: 0,
        priority: 0,
        submitted_s: 0.0,
        unit: Demand::GPU,
        min_gpus: 1,
        max_gpus: 64,
        request_gpus: 1,
        present: Vec::new(),
        since_s: 0.0,
        fixed: false,
        attained_gpu_s: 0.0,
        demoted_s: None,
        held_s: vec![0.0; kinds],
        restarts: 0,
        restart_s: 30.0,
        restart_cost_factor: 1.0,
        at_risk_s: 0.0,
        preemptible: true,
        trial: None,
        outlook: ScalingModel {
            work_done: 0.0,
            work_left: 1e5,
            uncertainty: 0.0,
            curves: curves.into(),
            largest_gpus: 64,
            loss: None,
        },
    }
}

/// Returns the curve `speed * n^exponent` for `n` GPUs, on any number of nodes.
pub fn power(speed: f64, exponent: f64) -> KindSpeedCurve {
    let speeds: Vec<f64> = (1_u32..=64)
        .map(|gpus| speed * f64::from(gpus).powf(exponent))
        .collect();
    KindSpeedCurve {
        local: speeds.clone(),
        spread: speeds,
    }
}

/// Like [`power`], with the factor `spread` on several nodes.
pub fn local(speed: f64, exponent: f64, spread: f64) -> KindSpeedCurve {
    let mut curve = power(speed, exponent);
    curve.spread.iter_mut().for_each(|speed| *speed *= spread);
    curve
}

/// Applies a decision and returns the problem of the next instant.
pub fn after(problem: &SchedulingProblem, decision: &PolicyDecision) -> SchedulingProblem {
    let mut next = problem.clone();
    for (job, parts) in next.jobs.iter_mut().zip(&decision.parts) {
        if let Some(parts) = parts {
            job.restarts += u32::from(job.since_s > job.submitted_s || !job.present.is_empty());
            job.present.clone_from(parts);
            job.since_s = problem.now_s;
        }
    }
    next
}

/// Advances the time by `seconds`. Jobs with an allocation are served.
pub fn later(mut problem: SchedulingProblem, seconds: f64) -> SchedulingProblem {
    problem.now_s += seconds;
    for job in &mut problem.jobs {
        if let Some(part) = job.present.first() {
            let kind = problem.nodes[part.node as usize].kind;
            job.held_s[usize::from(kind)] += seconds;
            job.attained_gpu_s += seconds * f64::from(job.held_gpus());
        }
    }
    problem
}

/// Returns the kind and number of GPUs of a job, or `None` if it holds nothing.
pub fn holds(
    problem: &SchedulingProblem,
    decision: &PolicyDecision,
    job: usize,
) -> Option<(u16, u32)> {
    let parts = decision.holds(problem, job);
    let kind = problem.kind_of(parts.first()?);
    Some((kind, crate::problem::gpus_of(parts)))
}

pub fn part(node: u32, gpus: u32) -> NodeAllocation {
    NodeAllocation { node, gpus }
}

/// SplitMix64: a small generator with the same sequence on every platform.
pub struct Dice(pub u64);

impl Dice {
    /// Returns a number from 0 to below 1.
    pub fn part(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}
