//! Time of live rounds on a large cluster: from the snapshot in Postgres to the commit, over 1,000
//! nodes of 8 GPUs and 5,000 jobs.
//!
//! `cargo bench -p muster-scheduler --bench live_round` prints the median, the 99th percentile and
//! the maximum of each kind of round, and the 99th percentile over its goal. A kind is a round in
//! which nothing changed, one after a submission, one after the end of a job, and one after new
//! samples of every job. It also prints the parts of a round in which nothing changed. `-- 100 8
//! 500` sets the numbers of nodes, GPUs per node and jobs.

mod cluster;

use cluster::{BenchCluster, Size};
use muster_core::EstimateCache;
use muster_core::policies::name::PolicyName;
use muster_core::policy::Policy;
use muster_scheduler::round::{self, RoundMemory};
use muster_scheduler::{clock, translate};
use muster_store::plan::Loader;
use std::time::{Duration, Instant};

const SIZE: Size = Size {
    nodes: 1_000,
    gpus: 8,
    jobs: 5_000,
};
/// Goals of the 99th percentiles, in milliseconds.
const ROUND_GOAL_MS: f64 = 250.0;
const EVENT_GOAL_MS: f64 = 50.0;
/// Rounds of each kind.
const ROUNDS: usize = 20;
/// Rounds that fill the cluster. The planner then still resizes some jobs in most rounds, as on a
/// busy cluster.
const FILLING: usize = 8;

#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn now() -> Instant {
    Instant::now()
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let numbers: Vec<u32> = std::env::args()
        .filter_map(|one| one.parse().ok())
        .collect();
    let size = match numbers[..] {
        [nodes, gpus, jobs] => Size { nodes, gpus, jobs },
        _ => SIZE,
    };
    let policy = Policy::named(PolicyName::Muster);
    let mut memory = RoundMemory::default();
    let mut cluster = BenchCluster::new(size).await?;
    fill(&mut cluster, &policy, &mut memory).await?;
    println!(
        "{:<44} {:>9} {:>9} {:>9} {:>10}",
        format!(
            "{} nodes, {} GPUs, {} jobs",
            size.nodes,
            size.nodes * size.gpus,
            size.jobs
        ),
        "median ms",
        "p99 ms",
        "most ms",
        "p99 / goal"
    );
    // Reads the jobs that the last round changed while the cluster was filled.
    timed(&cluster, &policy, &mut memory).await?;
    let mut quiet = Vec::new();
    for _ in 0..ROUNDS {
        quiet.push(timed(&cluster, &policy, &mut memory).await?);
    }
    show("round, nothing changed", quiet, Some(ROUND_GOAL_MS));
    parts(&cluster, &policy).await?;
    let mut submitted = Vec::new();
    for _ in 0..ROUNDS {
        cluster.submit().await?;
        submitted.push(timed(&cluster, &policy, &mut memory).await?);
    }
    show("round after a submission", submitted, Some(EVENT_GOAL_MS));
    let (mut ended, mut node) = (Vec::new(), 0);
    while ended.len() < ROUNDS && node < size.nodes as usize {
        node += 1;
        if cluster.end_one(node).await? {
            ended.push(timed(&cluster, &policy, &mut memory).await?);
        }
    }
    show("round after the end of a job", ended, Some(EVENT_GOAL_MS));
    let mut sampled = Vec::new();
    for _ in 0..ROUNDS / 4 {
        cluster.run_tasks().await?;
        sampled.push(timed(&cluster, &policy, &mut memory).await?);
    }
    show(
        "round after samples of all jobs",
        sampled,
        Some(ROUND_GOAL_MS),
    );
    Ok(())
}

/// Runs rounds and tasks until the cluster is full.
async fn fill(
    cluster: &mut BenchCluster,
    policy: &Policy,
    memory: &mut RoundMemory,
) -> anyhow::Result<()> {
    for number in 0..FILLING {
        let began = now();
        let round = round::once(&cluster.scheduler, policy, memory).await?;
        eprintln!(
            "filling round {number}: {} decisions, {:.0} ms",
            round.plan.decisions.len(),
            ms(began.elapsed())
        );
        cluster.run_tasks().await?;
    }
    Ok(())
}

async fn timed(
    cluster: &BenchCluster,
    policy: &Policy,
    memory: &mut RoundMemory,
) -> anyhow::Result<f64> {
    let began = now();
    round::once(&cluster.scheduler, policy, memory).await?;
    Ok(ms(began.elapsed()))
}

/// Prints the times of the parts of a round in which nothing changed.
async fn parts(cluster: &BenchCluster, policy: &Policy) -> anyhow::Result<()> {
    let mut loader = Loader::new(muster_scheduler::config::QUEUE_WINDOW_JOBS);
    let mut cache = EstimateCache::default();
    let (mut load, mut translation, mut planning, mut checking) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let began = now();
        let mut tx = muster_store::pool::begin_snapshot(&cluster.scheduler).await?;
        let loaded = loader.load(&mut tx, clock::now()).await?;
        tx.commit().await?;
        load.push(ms(began.elapsed()));
        let began = now();
        let snapshot = translate::snapshot(1, loaded);
        translation.push(ms(began.elapsed()));
        let began = now();
        let (plan, _) = muster_core::plan_again(&snapshot, policy, &mut cache);
        planning.push(ms(began.elapsed()));
        let began = now();
        let _ = muster_core::sound_with(&snapshot, plan, policy);
        checking.push(ms(began.elapsed()));
    }
    show("- snapshot from the store", load, None);
    show("- translation", translation, None);
    show("- plan and report", planning, None);
    show("- check", checking, None);
    Ok(())
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

/// Prints one row.
fn show(what: &str, mut ms: Vec<f64>, goal_ms: Option<f64>) {
    ms.sort_unstable_by(f64::total_cmp);
    let Some(&most) = ms.last() else {
        println!("{what:<44} no such round");
        return;
    };
    let at = |share: f64| ms[((ms.len() - 1) as f64 * share).round() as usize];
    let over = goal_ms.map_or_else(String::new, |goal| format!("{:.2}", at(0.99) / goal));
    println!(
        "{what:<44} {:>9.1} {:>9.1} {most:>9.1} {over:>10}",
        at(0.5),
        at(0.99)
    );
}
