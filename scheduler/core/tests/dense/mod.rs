//! Builder of dense problems, also random ones. Also checks a decision and applies it.
#![allow(dead_code, reason = "each benchmark uses a part of it")]

pub mod random;

use muster_core::policies::tiresias::DEMOTED_GPU_S;
use muster_core::problem::{
    Demand, KindSpeedCurve, NodeAllocation, PolicyDecision, ProblemJob, ProblemNode, ProblemTenant,
    ScalingModel, SchedulingProblem, gpus_of, nodes_of,
};

/// Returns nodes of one kind with ample CPU and memory and one tenant without a quota, at one hour.
pub fn cluster(nodes: usize, gpus: u32) -> SchedulingProblem {
    SchedulingProblem {
        now_s: 3_600.0,
        round_s: 60.0,
        kinds: vec!["v100".to_owned()],
        nodes: vec![node(0, gpus); nodes],
        node_sets: [].into(),
        tenants: vec![tenant()],
        jobs: Vec::new(),
        history_gpu_s: Vec::new(),
    }
}

pub fn node(kind: u16, gpus: u32) -> ProblemNode {
    ProblemNode {
        kind,
        gpus,
        cpu_milli: 64_000,
        memory_bytes: 1 << 40,
        rack: 0,
        speed_percent: 100,
    }
}

pub fn tenant() -> ProblemTenant {
    ProblemTenant {
        weight: 1.0,
        gpu_quota: None,
        parent: None,
    }
}

/// Returns a waiting job of exactly `gpus` GPUs that takes `left_s` seconds on them.
pub fn job(gpus: u32, left_s: f64) -> ProblemJob {
    let curve = power(1.0, 1.0);
    let speed = curve.speed(gpus, 1);
    ProblemJob {
        tenant: 0,
        priority: 0,
        submitted_s: 0.0,
        unit: Demand::GPU,
        min_gpus: gpus,
        max_gpus: gpus,
        request_gpus: gpus,
        present: Vec::new(),
        since_s: 0.0,
        fixed: false,
        attained_gpu_s: 0.0,
        demoted_s: None,
        held_s: vec![0.0],
        restarts: 0,
        restart_s: 0.0,
        restart_cost_factor: 1.0,
        at_risk_s: 0.0,
        preemptible: true,
        trial: None,
        outlook: ScalingModel {
            work_done: 0.0,
            work_left: left_s * speed,
            uncertainty: 0.0,
            curves: vec![curve].into(),
            largest_gpus: gpus,
            loss: None,
        },
    }
}

/// Lets the job run on these parts since `since_s`.
pub fn runs(mut job: ProblemJob, parts: &[(u32, u32)], since_s: f64) -> ProblemJob {
    job.present = parts
        .iter()
        .map(|&(node, gpus)| NodeAllocation { node, gpus })
        .collect();
    job.since_s = since_s;
    job
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

/// Returns the GPUs of every job after a decision.
pub fn sizes(problem: &SchedulingProblem, decision: &PolicyDecision) -> Vec<u32> {
    let jobs = 0..problem.jobs.len();
    jobs.map(|job| gpus_of(decision.holds(problem, job)))
        .collect()
}

/// Returns the problem an instant after the decision was applied.
pub fn carried_out(problem: &SchedulingProblem, decision: &PolicyDecision) -> SchedulingProblem {
    let mut after = problem.clone();
    for (index, job) in after.jobs.iter_mut().enumerate() {
        let parts = decision.holds(problem, index);
        if job.attained_gpu_s >= DEMOTED_GPU_S {
            job.demoted_s = job.demoted_s.or(Some(problem.now_s));
        }
        if job.present != parts {
            job.restarts += u32::from(!job.present.is_empty());
            job.present = parts.to_vec();
            job.since_s = problem.now_s;
        }
    }
    after
}

/// Returns a description of a problem for assertion messages.
pub fn told(problem: &SchedulingProblem) -> String {
    let mut lines = vec![format!("at {}", problem.now_s)];
    for node in &problem.nodes {
        lines.push(format!(
            "k{} {} GPUs {} mCPU",
            node.kind, node.gpus, node.cpu_milli
        ));
    }
    for (index, job) in problem.jobs.iter().enumerate() {
        let present = job.present.iter();
        let present: Vec<String> = present
            .map(|part| format!("{}x{}", part.gpus, part.node))
            .collect();
        let request = job.request_gpus as usize - 1;
        let curves = job.outlook.curves.iter();
        let speeds: Vec<Option<(f64, f64)>> = curves
            .map(|kind| Some((*kind.local.get(request)?, *kind.spread.get(request)?)))
            .collect();
        lines.push(format!(
            "job {index} tenant {} ({:?}) prio {} {:?} {}..{} asks {} has {:?} since {}{}{} speeds {:?}",
            job.tenant,
            problem.tenants[job.tenant as usize].gpu_quota,
            job.priority,
            job.unit,
            job.min_gpus,
            job.max_gpus,
            job.request_gpus,
            present,
            job.since_s,
            if job.fixed { " fixed" } else { "" },
            if job.preemptible { "" } else { " stubborn" },
            speeds,
        ));
    }
    lines.join("\n")
}

/// Returns all errors of a decision. Shares no code with the policies.
pub fn violations(problem: &SchedulingProblem, decision: &PolicyDecision) -> Vec<String> {
    let mut wrong = Vec::new();
    if decision.parts.len() != problem.jobs.len() {
        return vec![format!("{} answers", decision.parts.len())];
    }
    if ![0, problem.jobs.len()].contains(&decision.worth.len()) {
        wrong.push(format!("{} worths", decision.worth.len()));
    }
    for (index, job) in problem.jobs.iter().enumerate() {
        let parts = decision.holds(problem, index);
        if !job.fixed && (job.preemptible || job.present.is_empty()) {
            wrong.extend(wrong_gang(problem, job, parts).map(|why| format!("job {index} {why}")));
        } else if parts != job.present {
            wrong.push(format!("job {index} is fixed and moved"));
        }
    }
    for node in 0..problem.nodes.len() {
        wrong.extend(overloaded(problem, decision, node));
    }
    for tenant in 0..problem.tenants.len() {
        // GPUs of its immovable jobs, and of the others.
        let mut held = [0, 0];
        for (index, job) in problem.jobs.iter().enumerate() {
            if belongs(problem, job, tenant) {
                held[usize::from(job.is_movable())] += gpus_of(decision.holds(problem, index));
            }
        }
        let quota = problem.tenants[tenant].gpu_quota.unwrap_or(u32::MAX);
        if held[1] > 0 && held[1] + held[0] > quota {
            wrong.push(format!("tenant {tenant} is above its quota of {quota}"));
        }
    }
    wrong
}

fn wrong_gang(
    problem: &SchedulingProblem,
    job: &ProblemJob,
    parts: &[NodeAllocation],
) -> Option<&'static str> {
    let gpus = gpus_of(parts);
    let kinds: Vec<u16> = parts
        .iter()
        .map(|part| problem.nodes[part.node as usize].kind)
        .collect();
    if parts.is_empty() {
        return None;
    }
    if parts
        .iter()
        .any(|part| part.gpus == 0 || part.gpus % job.unit.gpus != 0)
    {
        return Some("holds part of a unit");
    }
    if gpus < job.min_gpus || gpus > job.max_gpus {
        return Some("has a size that it may not have");
    }
    if kinds.iter().any(|&kind| kind != kinds[0]) {
        return Some("mixes kinds");
    }
    let mut nodes = parts.iter().map(|part| part.node as usize);
    if !nodes.all(|node| job.unit.nodes.contains(&problem.node_sets, node)) {
        return Some("is on a node where it may not run");
    }
    let speed = job.outlook.speed(kinds[0], gpus, nodes_of(parts));
    (speed <= 0.0).then_some("cannot run there")
}

fn overloaded(problem: &SchedulingProblem, decision: &PolicyDecision, node: usize) -> Vec<String> {
    // GPUs, CPU and memory of immovable jobs, and of the others.
    let mut taken = [[0_u64; 3]; 2];
    for (index, job) in problem.jobs.iter().enumerate() {
        let here = decision.holds(problem, index).iter();
        let here = here.filter(|part| part.node as usize == node);
        let gpus: u32 = here.map(|part| part.gpus).sum();
        let units = u64::from(gpus / job.unit.gpus);
        let taken = &mut taken[usize::from(job.is_movable())];
        taken[0] += u64::from(gpus);
        taken[1] += units * job.unit.cpu_milli;
        taken[2] += units * job.unit.memory_bytes;
    }
    let [fixed, moved] = taken;
    let has = problem.nodes[node];
    let has = [u64::from(has.gpus), has.cpu_milli, has.memory_bytes];
    let mut wrong = Vec::new();
    for (index, what) in ["GPUs", "CPU", "bytes"].into_iter().enumerate() {
        let (fixed, moved, has) = (fixed[index], moved[index], has[index]);
        // Fixed allocations may exceed what a node still has. No other allocation may be added
        // then.
        if moved > 0 && moved + fixed > has {
            wrong.push(format!(
                "node {node} gives {moved} {what} beside {fixed} of {has}"
            ));
        }
    }
    wrong
}

/// Whether the tenant or a descendant of it owns the job.
fn belongs(problem: &SchedulingProblem, job: &ProblemJob, tenant: usize) -> bool {
    let mut of = Some(job.tenant as usize);
    while let Some(owner) = of {
        if owner == tenant {
            return true;
        }
        of = problem.tenants[owner].parent.map(|parent| parent as usize);
    }
    false
}
