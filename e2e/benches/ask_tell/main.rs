//! What one ask and tell costs once a study has 10,000 trials: ours through the REST interface, the scheduler and back, against
//! Optuna's with its relational storage, on one Postgres with its own settings (every commit is on the disk). `make bench-ask`.
//!
//! Both search Hartmann-6 by TPE after as many trials all over the space. A round tells one trial and has asked for the next, which is
//! proposed in between; ours has 99 more trials open, which are told nothing of and weigh on the proposal. The sides take turns, so that
//! a noisy machine disturbs both alike. Beside the wall time stands the CPU time of
//! the processes that search: `muster-api` and `muster-scheduler`, and Optuna's python; what Postgres takes is in the wall time only.
//!
//! `MUSTER_OPTUNA_PYTHON` is a python3 with optuna and psycopg2 (`scripts/ensure-optuna`); without it only our side is shown.
//! `MUSTER_ASK_TRIALS` is 10,000 unless told.

#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

mod ours;
mod theirs;

use muster_e2e::cluster::{Cluster, Options};
use ours::Ours;
use theirs::Theirs;

const ROUNDS: usize = 21;

/// Milliseconds of one round.
#[derive(Debug, Clone, Copy)]
struct Cost {
    wall: f64,
    cpu: f64,
}

#[tokio::main]
async fn main() {
    let own = std::env::current_exe().expect("this bench's program");
    if !own
        .ancestors()
        .any(|folder| folder.join("muster-task").is_file())
    {
        eprintln!("ask_tell: not run; the programs are not built (make bench-ask builds them)");
        return;
    }
    let trials = std::env::var("MUSTER_ASK_TRIALS").ok();
    let trials = trials.map_or(10_000, |text| text.parse().expect("a number of trials"));
    let cluster = Cluster::start(Options { nodes: 1, slots: 1 }).await;
    let mut theirs = Theirs::start(&cluster, trials).await;
    let mut ours = Ours::fill(&cluster, trials).await;
    if let Some(theirs) = &mut theirs {
        theirs.ready();
    }
    let (mut our_costs, mut their_costs) = (Vec::new(), Vec::new());
    let before = ours.cpu_ms();
    for _ in 0..ROUNDS {
        our_costs.push(ours.round().await);
        their_costs.extend(theirs.as_mut().map(Theirs::round));
    }
    let cpu = (ours.cpu_ms() - before) / ROUNDS as f64;
    println!("ask and tell with {trials} trials in Postgres, TPE on Hartmann-6, {ROUNDS} rounds");
    println!("            wall ms: median, least, most      CPU ms");
    show("muster", &our_costs, cpu);
    if their_costs.is_empty() {
        println!("Optuna: not measured; make bench-ask sets MUSTER_OPTUNA_PYTHON");
    } else {
        let their_walls: Vec<f64> = their_costs.iter().map(|cost| cost.wall).collect();
        let their_cpu = median(their_costs.iter().map(|cost| cost.cpu).collect());
        show("Optuna", &their_walls, their_cpu);
        let ratio = median(their_walls) / median(our_costs);
        println!(
            "Optuna over muster: {ratio:.1} wall, {:.1} CPU",
            their_cpu / cpu
        );
    }
    drop(theirs);
    drop(cluster);
}

fn show(name: &str, walls: &[f64], cpu: f64) {
    let least = walls.iter().copied().fold(f64::INFINITY, f64::min);
    let most = walls.iter().copied().fold(0.0, f64::max);
    let median = median(walls.to_vec());
    println!("{name:8} {median:20.1} {least:8.1} {most:8.1} {cpu:10.1}");
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
