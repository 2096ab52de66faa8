//! Benchmark of one decision of every policy: 64 GPUs on 16 nodes, with waiting and running jobs.

#[path = "../tests/dense/mod.rs"]
mod dense;

use dense::random::Dice;
use dense::{carried_out, cluster, job, power};
use muster_core::policies::name::PolicyName;
use muster_core::problem::{KindSpeedCurve, ProblemJob, ScalingModel, SchedulingProblem};

fn main() {
    divan::main();
}

/// Returns every policy with 10, 30 and 160 jobs.
fn cases() -> impl Iterator<Item = (PolicyName, u32)> {
    let policies = PolicyName::ALL.iter();
    policies.flat_map(|&name| [10, 30, 160].map(|jobs| (name, jobs)))
}

/// Decision on an empty cluster.
#[divan::bench(args = cases(), sample_count = 20, sample_size = 1)]
fn full_queue(bencher: divan::Bencher<'_, '_>, (name, jobs): (PolicyName, u32)) {
    let problem = queued(jobs);
    let policy = name.policy();
    bencher.bench(|| policy.allocate(divan::black_box(&problem)));
}

/// Decision six minutes after the last one, when Gavel's next round begins. A tenth of the jobs is
/// new.
#[divan::bench(args = cases(), sample_count = 20, sample_size = 1)]
fn busy_cluster(bencher: divan::Bencher<'_, '_>, (name, jobs): (PolicyName, u32)) {
    let policy = name.policy();
    let mut problem = queued(jobs);
    let late = problem.jobs.split_off((jobs - jobs / 10) as usize);
    problem = carried_out(&problem, &policy.allocate(&problem));
    problem.now_s += 360.0;
    problem.jobs.extend(late);
    bencher.bench(|| policy.allocate(divan::black_box(&problem)));
}

/// Returns a queue of jobs of 1 to 64 GPUs of random scalability, with a request of one to eight
/// GPUs.
fn queued(jobs: u32) -> SchedulingProblem {
    let mut dice = Dice(1);
    let mut problem = cluster(16, 4);
    problem.jobs = (0..jobs).map(|_| elastic(&mut dice)).collect();
    problem
        .jobs
        .sort_by(|a, b| a.submitted_s.total_cmp(&b.submitted_s));
    problem
}

fn elastic(dice: &mut Dice) -> ProblemJob {
    let (speed, exponent) = (dice.percent(10, 200), dice.percent(30, 98));
    let spread = dice.percent(60, 100);
    let submitted_s = dice.percent(0, 300_000);
    let work_left = speed * dice.percent(10_000, 2_000_000);
    let request = 1 << dice.roll(4);
    let local = power(speed, exponent).local;
    let spread = local.iter().map(|speed| speed * spread).collect();
    let mut job = job(1, 1.0);
    job.max_gpus = 64;
    job.request_gpus = request;
    job.submitted_s = submitted_s;
    job.since_s = submitted_s;
    job.restart_s = 30.0;
    job.outlook = ScalingModel {
        work_left,
        curves: vec![KindSpeedCurve { local, spread }].into(),
        largest_gpus: 64,
        ..job.outlook
    };
    job
}
