//! Random problems, small and with many corner cases: several kinds, nodes that went down under
//! their jobs, units of several GPUs, immovable jobs, sizes and kinds without speed, quotas below
//! the present use.

use super::{node, power, tenant};
use muster_core::problem::{
    AllowedNodes, Demand, FittedLoss, FreeResources, KindSpeedCurve, NodeAllocation, NodeSet,
    ProblemJob, ProblemNode, ProblemTenant, ScalingModel, SchedulingProblem, gpus_of, nodes_of,
};

/// SplitMix64: a small generator with the same sequence on every platform.
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        u32::try_from((z ^ (z >> 31)) % u64::from(sides.max(1))).expect("below sides")
    }

    pub fn one_in(&mut self, sides: u32) -> bool {
        self.roll(sides) == 0
    }

    /// Returns a number from `low` to `high`, both included.
    pub fn between(&mut self, low: u32, high: u32) -> u32 {
        low + self.roll(high - low + 1)
    }

    /// Returns a number of hundredths from `low` to `high`, both included.
    pub fn percent(&mut self, low: u32, high: u32) -> f64 {
        f64::from(self.between(low, high)) / 100.0
    }
}

/// Returns a problem with up to `kinds` GPU kinds.
pub fn problem(dice: &mut Dice, kinds: u32) -> SchedulingProblem {
    let kinds = u16::try_from(dice.between(1, kinds)).expect("few");
    let mut problem = SchedulingProblem {
        now_s: f64::from(dice.between(1_000, 100_000)),
        round_s: 60.0,
        kinds: (0..kinds).map(|kind| format!("k{kind}")).collect(),
        nodes: Vec::new(),
        node_sets: [].into(),
        tenants: tenants(dice),
        jobs: Vec::new(),
        history_gpu_s: (0..dice.roll(30))
            .map(|_| f64::from(dice.roll(500_000)))
            .collect(),
    };
    let scarce = dice.one_in(3);
    problem.nodes = (0..dice.between(1, 5))
        .map(|_| ProblemNode {
            cpu_milli: if scarce { 4_000 } else { 64_000 },
            ..node(
                u16::try_from(dice.roll(u32::from(kinds))).expect("few"),
                dice.between(1, 8),
            )
        })
        .collect();
    let mut tally = FreeResources::empty(&problem);
    for _ in 0..dice.roll(9) {
        let job = job(dice, &problem, &mut tally, kinds);
        problem.jobs.push(job);
    }
    problem
        .jobs
        .sort_by(|a, b| a.submitted_s.total_cmp(&b.submitted_s));
    for node in &mut problem.nodes {
        if dice.one_in(10) {
            node.gpus = 0;
        }
    }
    problem
}

/// Restricts about half of the jobs to random sets of nodes. Most sets contain the nodes that the
/// job holds.
pub fn restrict(dice: &mut Dice, problem: &mut SchedulingProblem) {
    let mut sets = Vec::new();
    let nodes = u32::try_from(problem.nodes.len()).expect("few");
    for job in &mut problem.jobs {
        if dice.one_in(2) {
            continue;
        }
        let keeps = !dice.one_in(5);
        let set = NodeSet::of((0..nodes).map(|node| {
            let holds = job.present.iter().any(|part| part.node == node);
            (keeps && holds) || dice.one_in(2)
        }));
        job.unit.nodes = AllowedNodes::set(sets.len());
        sets.push(set);
    }
    problem.node_sets = sets.into();
}

fn tenants(dice: &mut Dice) -> Vec<ProblemTenant> {
    let mut tenants: Vec<ProblemTenant> = (0..4)
        .map(|index| ProblemTenant {
            weight: f64::from(dice.between(1, 4)),
            gpu_quota: dice.one_in(3).then(|| dice.roll(12)),
            parent: (index > 0 && dice.one_in(2)).then(|| dice.roll(index)),
        })
        .collect();
    tenants[0] = tenant();
    tenants
}

fn job(
    dice: &mut Dice,
    problem: &SchedulingProblem,
    tally: &mut FreeResources,
    kinds: u16,
) -> ProblemJob {
    let unit = [1, 1, 1, 2, 3][dice.roll(5) as usize];
    let min_gpus = dice.between(1, 4);
    let max_gpus = (min_gpus.div_ceil(unit) + dice.roll(5)) * unit;
    let age_s = f64::from(dice.roll(1_000));
    let mut job = ProblemJob {
        tenant: dice.roll(4),
        priority: [0, 0, 0, 1, -1][dice.roll(5) as usize],
        submitted_s: problem.now_s - age_s,
        unit: Demand {
            gpus: unit,
            cpu_milli: u64::from(dice.roll(3)) * 500,
            memory_bytes: u64::from(dice.roll(3)) << 36,
            nodes: AllowedNodes::ALL,
        },
        min_gpus,
        max_gpus,
        request_gpus: dice.between(min_gpus, max_gpus),
        present: Vec::new(),
        since_s: problem.now_s - f64::from(dice.roll(1_000)).min(age_s),
        fixed: false,
        attained_gpu_s: f64::from(dice.roll(4)) * f64::from(dice.roll(30_000)),
        demoted_s: None,
        held_s: vec![0.0; usize::from(kinds)],
        restarts: dice.roll(3),
        restart_s: f64::from(dice.roll(60)),
        restart_cost_factor: 1.0,
        at_risk_s: 0.0,
        preemptible: !dice.one_in(6),
        trial: None,
        outlook: outlook(dice, kinds),
    };
    // A job cannot run at the instant of its submission, because a round comes first.
    if age_s > 0.0 && !dice.one_in(3) {
        job.present = present(dice, &job, problem, tally);
        job.fixed = !job.present.is_empty() && dice.one_in(8);
        tally.take(&job.present, &job.unit);
    }
    job
}

/// Returns random whole units of one kind on which the job runs.
fn present(
    dice: &mut Dice,
    job: &ProblemJob,
    problem: &SchedulingProblem,
    tally: &FreeResources,
) -> Vec<NodeAllocation> {
    let kind = u16::try_from(dice.roll(u32::try_from(problem.kinds.len()).expect("few")));
    let kind = kind.expect("few");
    let units = job.max_gpus / job.unit.gpus;
    let mut left = dice.between(job.min_gpus.div_ceil(job.unit.gpus), units) * job.unit.gpus;
    let mut parts = Vec::new();
    for (index, node) in (0..).zip(&problem.nodes) {
        let free = tally.available(index as usize, &job.unit).min(left);
        if node.kind == kind && free > 0 {
            parts.push(NodeAllocation {
                node: index,
                gpus: free,
            });
            left -= free;
        }
    }
    let speed = job.outlook.speed(kind, gpus_of(&parts), nodes_of(&parts));
    if gpus_of(&parts) >= job.min_gpus && speed > 0.0 {
        parts
    } else {
        Vec::new()
    }
}

fn outlook(dice: &mut Dice, kinds: u16) -> ScalingModel {
    let curves: Vec<KindSpeedCurve> = (0..kinds).map(|_| curve(dice)).collect();
    let loss = FittedLoss {
        b0: f64::from(dice.between(1, 9)) / 1_000.0,
        b1: f64::from(dice.between(1, 9)) / 10.0,
        b2: 0.1,
        first: 10.0,
    };
    ScalingModel {
        work_done: f64::from(dice.roll(10_000)),
        work_left: f64::from(dice.between(1, 100_000)),
        uncertainty: 0.0,
        curves: curves.into(),
        largest_gpus: dice.between(1, 8),
        loss: dice.one_in(2).then_some(loss),
    }
}

fn curve(dice: &mut Dice) -> KindSpeedCurve {
    if dice.one_in(8) {
        return KindSpeedCurve::default();
    }
    let exponent = f64::from(dice.between(3, 10)) / 10.0;
    let mut curve = power(f64::from(dice.between(1, 20)), exponent);
    let across = f64::from(dice.between(0, 5)) / 5.0;
    curve.spread.iter_mut().for_each(|speed| *speed *= across);
    if dice.one_in(5) {
        // A size at which the job was never seen to run.
        let hole = dice.roll(8) as usize;
        (curve.local[hole], curve.spread[hole]) = (0.0, 0.0);
    }
    curve
}
