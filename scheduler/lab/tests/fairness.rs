//! Fairness between tenants on samples of the Philly trace under the rules `live`. No tenant is
//! served worse than with its fair share, and the mean completion time stays near that of an unfair
//! optimum.

use muster_core::policies::name::PolicyName;
use muster_lab::live::{LiveRunSettings, run};
use muster_lab::measure::{Summary, completion_times_s};
use muster_lab::reference_simulators::{Cluster, NodeGroup};
use muster_lab::run::{JobRun, SimulationRun};
use muster_lab::trace::{Workload, file, read};
use std::collections::BTreeMap;

/// Every `step`-th job of the trace from `offset` on. The load of thousands of GPUs then fits a
/// cluster of `nodes` x 4.
#[derive(Debug, Clone, Copy)]
struct Sample {
    offset: usize,
    step: usize,
    jobs: usize,
    nodes: u32,
    /// Number of tenants to which the jobs are assigned in rotation; `None` keeps the tenants of
    /// the trace.
    tenants: Option<usize>,
}

const fn sample(offset: usize, step: usize, jobs: usize, nodes: u32) -> Sample {
    Sample {
        offset,
        step,
        jobs,
        nodes,
        tenants: None,
    }
}

/// Mean utilisation of each sample is between a quarter and three quarters, because its last jobs
/// run alone for weeks. While jobs arrive, jobs wait.
const SAMPLES: [Sample; 5] = [
    sample(3_000, 8, 1_000, 16),
    sample(17_000, 8, 1_000, 16),
    sample(33_000, 8, 1_000, 16),
    sample(100, 20, 1_000, 8),
    Sample {
        tenants: Some(15),
        ..sample(12_000, 10, 1_000, 12)
    },
];

fn workload(all: &Workload, sample: Sample) -> Workload {
    let most = sample.nodes * 4;
    let kept = all.jobs.iter().skip(sample.offset).step_by(sample.step);
    let kept = kept.filter(|job| (1..=most).contains(&job.gpus));
    let mut jobs: Vec<_> = kept.take(sample.jobs).cloned().collect();
    let times = jobs.iter().map(|job| job.submitted_s);
    let first_s = times.fold(f64::INFINITY, f64::min);
    for (number, job) in jobs.iter_mut().enumerate() {
        job.submitted_s -= first_s;
        if let Some(tenants) = sample.tenants {
            job.tenant = format!("tenant {}", number % tenants);
        }
    }
    Workload {
        name: format!("{sample:?}"),
        jobs,
    }
}

/// Job of a reference schedule. Start and stop are included as in `SimulationRun`, so that both
/// sides are comparable.
#[derive(Debug, Clone, Copy)]
struct Piece {
    submitted_s: f64,
    gpus: f64,
    left_s: f64,
}

impl Piece {
    fn of(job: &JobRun) -> Self {
        Self {
            submitted_s: job.submitted_s,
            gpus: f64::from(job.request_gpus),
            left_s: job.request_s,
        }
    }
}

/// Completion times under shortest remaining time first, each job at the speed `speed(its GPUs,
/// GPUs left)`. Moves are free and GPUs have no location, so no real scheduler reaches them.
fn shortest_first(pieces: &[Piece], gpus: f64, speed: impl Fn(f64, f64) -> f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..pieces.len()).collect();
    order.sort_by(|&a, &b| pieces[a].submitted_s.total_cmp(&pieces[b].submitted_s));
    let mut arrivals = order.into_iter().peekable();
    let mut jcts = vec![0.0; pieces.len()];
    let mut active: Vec<(f64, usize)> = Vec::new();
    let mut now_s = 0.0_f64;
    loop {
        let comes_s = arrivals.peek().map(|&next| pieces[next].submitted_s);
        match comes_s {
            None if active.is_empty() => return jcts,
            Some(comes_s) if active.is_empty() => now_s = now_s.max(comes_s),
            _ => {}
        }
        while let Some(next) = arrivals.next_if(|&next| pieces[next].submitted_s <= now_s) {
            active.push((pieces[next].left_s, next));
        }
        active.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let mut free = gpus;
        let speeds = active.iter().map(|&(_, job)| {
            let speed = speed(pieces[job].gpus, free);
            free -= speed * pieces[job].gpus;
            speed
        });
        let speeds: Vec<f64> = speeds.collect();
        let ends = active
            .iter()
            .zip(&speeds)
            .filter(|(_, speed)| **speed > 0.0);
        let ends = ends.map(|((left_s, _), speed)| left_s / speed);
        let comes = arrivals
            .peek()
            .map(|&next| pieces[next].submitted_s - now_s);
        let elapsed_s = ends.chain(comes).fold(f64::INFINITY, f64::min);
        now_s += elapsed_s;
        for ((left_s, job), speed) in active.iter_mut().zip(speeds) {
            *left_s -= speed * elapsed_s;
            if *left_s <= 1e-6 {
                jcts[*job] = now_s - pieces[*job].submitted_s;
            }
        }
        active.retain(|(left_s, _)| *left_s > 1e-6);
    }
}

/// Gangs run whole or not at all.
fn unfair_optimum_s(run: &SimulationRun) -> f64 {
    let pieces: Vec<Piece> = run.jobs.iter().map(Piece::of).collect();
    let jcts = shortest_first(
        &pieces,
        gpus(run),
        |gpus, free| {
            if gpus <= free { 1.0 } else { 0.0 }
        },
    );
    jcts.iter().sum::<f64>() / jcts.len() as f64
}

fn gpus(run: &SimulationRun) -> f64 {
    run.nodes.iter().map(|node| f64::from(node.gpus)).sum()
}

/// Mean ratio of completion times per tenant, relative to a separate cluster of `1 / n` of the GPUs
/// for `n` tenants. A gang wider than that runs there at a part of its speed.
fn beside_own_clusters(run: &SimulationRun) -> BTreeMap<String, f64> {
    let jcts = completion_times_s(run);
    let mut of: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (index, job) in run.jobs.iter().enumerate() {
        of.entry(job.tenant.clone()).or_default().push(index);
    }
    let part = gpus(run) / of.len() as f64;
    let means = of.into_iter().map(|(tenant, jobs)| {
        let pieces: Vec<Piece> = jobs.iter().map(|&job| Piece::of(&run.jobs[job])).collect();
        let own = shortest_first(&pieces, part, |gpus, free| (free / gpus).min(1.0));
        let ratios = jobs.iter().zip(&own).map(|(&job, own_s)| jcts[job] / own_s);
        (tenant, ratios.sum::<f64>() / jobs.len() as f64)
    });
    means.collect()
}

#[test]
#[ignore = "needs MUSTER_TRACES: the Philly trace"]
fn tenants_get_fair_share_and_mean_time_stays_near_optimum() {
    let text = file::read_text(&crate::traces::outside(
        "clusters/philly_2017-09_2017-10.csv",
    ))
    .unwrap();
    let all = read("philly", "philly", &text).unwrap();
    for sample in SAMPLES {
        let cluster = Cluster {
            groups: vec![NodeGroup {
                kind: None,
                nodes: sample.nodes,
                gpus: 4,
            }],
        };
        let settings = LiveRunSettings {
            policy: PolicyName::Muster,
            is_elastic: false,
            chooses_batch: false,
            slicing: None,
            packs: false,
            stop_s: LiveRunSettings::STOP_S,
            until_s: LiveRunSettings::UNTIL_S,
        };
        let jobs = workload(&all, sample);
        let done = run(None, &jobs, &cluster, &settings, &mut || 0.0, &mut |_| {}).unwrap();
        let summary = Summary::of(&done, "live");
        assert_eq!(summary.unfinished, 0);
        let optimum_s = unfair_optimum_s(&done);
        let own = beside_own_clusters(&done);
        eprintln!(
            "{sample:?}: mean {:.0} s, unfair optimum {optimum_s:.0} s",
            summary.avg_jct_s
        );
        for tenant in &summary.tenants {
            let (ratio, own) = (tenant.finish_time_ratio, own[&tenant.tenant]);
            eprintln!(
                "  {}: {} jobs, {ratio:.2}, {own:.2}",
                tenant.tenant, tenant.jobs
            );
            assert!(ratio <= 1.2 && own <= 1.2, "{tenant:?} {own}");
        }
        assert!(summary.avg_jct_s <= 1.1 * optimum_s, "{optimum_s}");
    }
}
