//! Benchmark of one decision of the muster policy, sizes and nodes, on clusters of several sizes:
//! from an empty cluster, of a busy cluster after an hour, and after a single event. The dense
//! problem is built beforehand. The benchmark `round` measures its construction from a snapshot.
//!
//! `cargo bench -p muster-core --bench decisions` prints the median, the 99th percentile and the
//! maximum of many decisions in CPU time of the deciding thread. Other load on the machine then
//! counts only through shared caches. It also prints the 99th percentile in wall time, the 99th
//! percentile of CPU time over the goal, and the size of a problem in bytes. `-- 64` measures only
//! the cluster of 64 GPUs.

#[path = "../tests/dense/mod.rs"]
mod dense;

use dense::carried_out;
use dense::random::Dice;
use muster_core::policies::SchedulingPolicy;
use muster_core::policies::muster::{IncrementalState, Muster};
use muster_core::problem::{
    AllowedNodes, Demand, KindSpeedCurve, PolicyDecision, ProblemJob, ProblemNode, ScalingModel,
    SchedulingProblem,
};
use std::hint::black_box;
use std::time::Instant;

/// Nodes, GPUs per node, jobs, largest size of a job in GPUs, timed decisions, and the highest 99th
/// percentile that a decision should have, in milliseconds.
const SIZES: [(u32, u32, u32, u32, usize, Option<f64>); 4] = [
    (16, 4, 160, 64, 2_000, Some(0.5)),
    (256, 8, 1_280, 64, 500, Some(2.0)),
    (12_500, 8, 10_000, 64, 100, Some(20.0)),
    (125_000, 8, 100_000, 64, 5, None),
];

#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn now() -> Instant {
    Instant::now()
}

/// Returns the CPU time of this thread in seconds.
fn worked_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

fn main() {
    println!(
        "{:<50} {:>10} {:>10} {:>10} {:>10} {:>10}",
        "one decision of muster, one core",
        "median ms",
        "p99 ms",
        "most ms",
        "wall p99",
        "p99 / goal"
    );
    let only: Vec<u32> = std::env::args()
        .filter_map(|one| one.parse().ok())
        .collect();

    for (nodes, node_gpus, jobs, most, times, goal_ms) in SIZES {
        if !only.is_empty() && !only.contains(&(nodes * node_gpus)) {
            continue;
        }
        let size = format!("{} GPUs, {jobs} jobs", nodes * node_gpus);
        let mut queued = cluster(nodes, node_gpus);
        let mut dice = Dice(1);
        queued.jobs = (0..jobs).map(|_| elastic(&mut dice, most)).collect();
        queued
            .jobs
            .sort_by(|a, b| a.submitted_s.total_cmp(&b.submitted_s));
        report(&format!("{size}: from nothing"), &queued, times, goal_ms);
        let mut busy = queued;
        let late = busy.jobs.split_off((jobs - jobs / 10) as usize);
        busy = carried_out(&busy, &Muster::STANDARD.allocate(&busy));
        busy.now_s += 3_600.0;
        busy.jobs.extend(late);
        report(
            &format!("{size}: a tenth of the jobs came"),
            &busy,
            times,
            goal_ms,
        );
        let mut event = carried_out(&busy, &Muster::STANDARD.allocate(&busy));
        event.now_s += 1.0;
        event.jobs.push(elastic(&mut dice, most));
        report(&format!("{size}: one job came"), &event, times, goal_ms);
        events(&size, &event, &mut dice, most);
        let bytes: usize = event.jobs.iter().map(bytes).sum();
        let per_node = std::mem::size_of::<ProblemNode>() * event.nodes.len();
        println!(
            "{:<50} {:>10.1} MiB",
            format!("{size}: the problem"),
            (bytes + per_node) as f64 / f64::from(1 << 20)
        );
    }
}

/// Applies ended jobs, new jobs and lost nodes one by one between two whole decisions. Prints the
/// value of the resulting state relative to a whole decision.
fn events(size: &str, before: &SchedulingProblem, dice: &mut Dice, most: u32) {
    const EVENTS: u32 = 300;
    let mut standing =
        IncrementalState::after(Muster::STANDARD, before, &Muster::STANDARD.allocate(before));
    let mut after = before.clone();
    let (mut worked_ms, mut took_ms) = (Vec::new(), Vec::new());
    let mut ended = vec![false; before.jobs.len()];

    for event in 0..EVENTS {
        let new = elastic(dice, most);
        let old = dice.roll(u32::try_from(ended.len()).expect("few")) as usize;
        let node = dice.roll(u32::try_from(after.nodes.len()).expect("few"));
        let (began, worked) = (now(), worked_s());
        black_box(match event % 30 {
            29 => standing.lost(node),
            even if even % 2 == 0 => standing.ended(old),
            _ => standing.arrived(new.clone()),
        });
        worked_ms.push((worked_s() - worked) * 1e3);
        took_ms.push(began.elapsed().as_secs_f64() * 1e3);
        match event % 30 {
            29 => after.nodes[node as usize].gpus = 0,
            even if even % 2 == 0 => ended[old] = true,
            _ => {
                after.jobs.push(new);
                ended.push(false);
            }
        }
        if [0, 9, 29].contains(&event) {
            println!(
                "{:<50} {:>10.1} % of a whole decision's worth",
                format!("{size}: after {} events", event + 1),
                worth(&after, &standing, &ended)
            );
        }
    }
    show(&format!("{size}: one event"), worked_ms, took_ms, None);
}

/// Returns the value of the state without a whole decision, in percent of the value after one.
fn worth(after: &SchedulingProblem, standing: &IncrementalState<'_>, ended: &[bool]) -> f64 {
    let mut after = after.clone();
    for (index, job) in after.jobs.iter_mut().enumerate() {
        // A fixed job without parts: an ended job requests nothing.
        job.fixed = ended[index];
        job.present = standing.holds(index).to_vec();
    }
    let whole = Muster::STANDARD.allocate(&after);
    let kept = Muster::STANDARD.objective(&after, &PolicyDecision::keep(&after));
    100.0 * kept / Muster::STANDARD.objective(&after, &whole)
}

fn report(what: &str, problem: &SchedulingProblem, times: usize, goal_ms: Option<f64>) {
    let (mut worked_ms, mut took_ms) = (Vec::new(), Vec::new());
    for _ in 0..times {
        let (began, worked) = (now(), worked_s());
        black_box(Muster::STANDARD.allocate(black_box(problem)));
        worked_ms.push((worked_s() - worked) * 1e3);
        took_ms.push(began.elapsed().as_secs_f64() * 1e3);
    }
    show(what, worked_ms, took_ms, goal_ms);
}

fn show(what: &str, mut worked_ms: Vec<f64>, mut took_ms: Vec<f64>, goal_ms: Option<f64>) {
    worked_ms.sort_by(f64::total_cmp);
    took_ms.sort_by(f64::total_cmp);

    println!(
        "{what:<50} {:>10.3} {:>10.3} {:>10.3} {:>10.3} {:>10}",
        quantile(&worked_ms, 0.5),
        quantile(&worked_ms, 0.99),
        quantile(&worked_ms, 1.0),
        quantile(&took_ms, 0.99),
        goal_ms.map_or_else(String::new, |goal_ms| {
            format!("{:.2}", quantile(&worked_ms, 0.99) / goal_ms)
        }),
    );
}

/// Returns a quantile of sorted times.
fn quantile(times: &[f64], share: f64) -> f64 {
    times[((times.len() - 1) as f64 * share) as usize]
}

fn cluster(nodes: u32, gpus: u32) -> SchedulingProblem {
    let node = ProblemNode {
        kind: 0,
        gpus,
        cpu_milli: u64::from(gpus) * 8_000,
        memory_bytes: u64::from(gpus) << 35,
        rack: 0,
        speed_percent: 100,
    };
    SchedulingProblem {
        nodes: vec![node; nodes as usize],
        ..dense::cluster(1, gpus)
    }
}

/// Returns a job of 1 to `most` GPUs of random length and scalability, with a curve of its own.
fn elastic(dice: &mut Dice, most: u32) -> ProblemJob {
    let (speed, exponent) = (dice.percent(10, 200), dice.percent(30, 98));
    let torn = dice.percent(60, 100);
    let submitted_s = dice.percent(0, 300_000);
    let work_left = speed * dice.percent(10_000, 2_000_000);
    let local: Vec<f64> = (1..=most)
        .map(|gpus| speed * f64::from(gpus).powf(exponent))
        .collect();
    let spread = local.iter().map(|speed| speed * torn).collect();
    let mut job = dense::job(1, 1.0);
    job.submitted_s = submitted_s;
    job.max_gpus = most;
    job.unit = Demand {
        gpus: 1,
        cpu_milli: 4_000,
        memory_bytes: 1 << 34,
        nodes: AllowedNodes::ALL,
    };
    job.outlook = ScalingModel {
        work_left,
        largest_gpus: most,
        curves: vec![KindSpeedCurve { local, spread }].into(),
        ..job.outlook
    };
    job
}

fn bytes(job: &ProblemJob) -> usize {
    let curves = job.outlook.curves.iter();
    let speeds: usize = curves
        .map(|curve| curve.local.len() + curve.spread.len())
        .sum();
    std::mem::size_of::<ProblemJob>() + 8 * speeds + 8 * job.present.len() + 8 * job.held_s.len()
}
