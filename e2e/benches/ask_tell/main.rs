//! What one ask and tell costs once a study has 10,000 trials: ours through the REST interface, the scheduler and back, against
//! Optuna's with its relational storage, on one Postgres with its own settings (every commit is on the disk). `make bench-ask`.
//!
//! Both search Hartmann-6 by TPE after as many trials all over the space. A round tells one trial and asks for the next, which is
//! proposed in between, so nothing is prepared ahead. First one client asks, as one process of Optuna's does; then eight at once, each
//! three times, against eight processes of Optuna's on its one study: what an ask and tell costs is then the time for all by their number.
//! Ours has 99 more trials open, which are told nothing of and weigh on the proposal. The sides take turns, so that a noisy machine
//! disturbs both alike. Beside the wall time stands the CPU time of the processes that search: `muster-api` and `muster-scheduler`, and
//! Optuna's python; what Postgres takes is in the wall time only.
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
const ASKERS: usize = 8;
/// Asks and tells of each of them in a round, and such rounds.
const EACH: usize = 3;
const ROUNDS_OF_SEVERAL: usize = 7;

/// Milliseconds of one ask and tell.
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
    println!("ask and tell with {trials} trials in Postgres, TPE on Hartmann-6");
    println!("                        wall ms: median, least, most      CPU ms");
    let (mut our_costs, mut their_costs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        our_costs.push(ours.round(1, 1).await);
        their_costs.extend(theirs.as_mut().map(|theirs| theirs.round(1)));
    }
    compare("one asker", &our_costs, &their_costs);
    if let Some(theirs) = &mut theirs {
        theirs.are(ASKERS);
    }
    let (mut our_costs, mut their_costs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS_OF_SEVERAL {
        our_costs.push(ours.round(ASKERS, EACH).await);
        their_costs.extend(theirs.as_mut().map(|theirs| theirs.round(EACH)));
    }
    compare("eight askers", &our_costs, &their_costs);
    drop(theirs);
    drop(cluster);
}

fn compare(askers: &str, ours: &[Cost], theirs: &[Cost]) {
    show(&format!("{askers}: muster"), ours);
    if theirs.is_empty() {
        println!("Optuna: not measured; make bench-ask sets MUSTER_OPTUNA_PYTHON");
        return;
    }
    show(&format!("{askers}: Optuna"), theirs);
    let ratio = |of: fn(&Cost) -> f64| median(theirs.iter().map(of)) / median(ours.iter().map(of));
    let (wall, cpu) = (ratio(|cost| cost.wall), cpu(theirs) / cpu(ours));
    println!("{askers}: Optuna over muster {wall:.1} wall, {cpu:.1} CPU");
}

fn show(name: &str, costs: &[Cost]) {
    let walls = costs.iter().map(|cost| cost.wall);
    let least = walls.clone().fold(f64::INFINITY, f64::min);
    let most = walls.clone().fold(0.0, f64::max);
    let (median, cpu) = (median(walls), cpu(costs));
    println!("{name:20} {median:20.1} {least:8.1} {most:8.1} {cpu:10.1}");
}

/// The mean: the kernel counts ours in hundredths of a second, which is more than most rounds take.
fn cpu(costs: &[Cost]) -> f64 {
    costs.iter().map(|cost| cost.cpu).sum::<f64>() / costs.len() as f64
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
