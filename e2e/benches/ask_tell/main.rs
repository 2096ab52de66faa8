//! Cost of one ask and tell in a study with 10,000 trials: Muster through REST and the scheduler,
//! and Optuna with its relational storage. Both use one Postgres with default settings (every
//! commit is on the disk). `make bench-ask`.
//!
//! Both search Hartmann-6 by TPE after as many trials in the whole space. A round reports one trial
//! and asks for the next one, which is proposed in between, so nothing is prepared ahead. Muster is
//! measured with one request and with two. First one client asks, as one process of Optuna does.
//! Then eight ask at the same time, each three times, against eight processes of Optuna on its one
//! study. The cost of an ask and tell is then the total time divided by their number. Last, one
//! client reports eight trials and asks for the next eight in one request, which Optuna does not
//! support.
//!
//! Muster's study has 99 further open trials, which the proposal takes into account. The sides
//! alternate, so that a noisy machine affects both alike. The CPU time is that of the searching
//! processes: `muster-api` and `muster-scheduler`, and Optuna's python. Postgres counts in the wall
//! time only.
//!
//! `MUSTER_OPTUNA_PYTHON` is a python3 with optuna and psycopg2 (`scripts/ensure-optuna`); without
//! it only Muster is measured. `MUSTER_ASK_TRIALS` is 10,000 by default.

#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

mod ours;
mod theirs;

use muster_e2e::cluster::{TestCluster, TestClusterOptions};
use ours::{MusterStudy, RequestMode};
use theirs::OptunaStudy;

const ROUNDS: usize = 21;
const ASKERS: usize = 8;
/// Asks and tells per client and round, and number of such rounds.
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
    let cluster = TestCluster::start(TestClusterOptions { nodes: 1, slots: 1 }).await;
    let mut theirs = OptunaStudy::start(&cluster, trials).await;
    let mut ours = MusterStudy::fill(&cluster, trials).await;
    if let Some(theirs) = &mut theirs {
        theirs.ready();
    }
    println!("ask and tell with {trials} trials in Postgres, TPE on Hartmann-6");
    println!("                                 wall ms: median, least, most   CPU ms");
    contest(&mut ours, &mut theirs, ("one asker", 1, 1), ROUNDS).await;
    if let Some(theirs) = &mut theirs {
        theirs.are(ASKERS);
    }
    let several = ("eight askers", ASKERS, EACH);
    contest(&mut ours, &mut theirs, several, ROUNDS_OF_SEVERAL).await;
    drop(theirs);
    drop(cluster);
}

/// Runs `rounds` rounds of `askers` clients with `each` asks and tells; the sides alternate.
async fn contest(
    ours: &mut MusterStudy<'_>,
    theirs: &mut Option<OptunaStudy>,
    (name, askers, each): (&str, usize, usize),
    rounds: usize,
) {
    let (mut by_one, mut by_two, mut their_costs) = (Vec::new(), Vec::new(), Vec::new());
    let mut together = Vec::new();
    for _ in 0..rounds {
        by_one.push(ours.round(askers, each, RequestMode::One).await);
        their_costs.extend(theirs.as_mut().map(|theirs| theirs.round(each)));
        by_two.push(ours.round(askers, each, RequestMode::Two).await);
        if askers > 1 {
            together.push(ours.round_together(askers).await);
        }
    }
    show(&format!("{name}: Optuna"), &their_costs);
    let ways = [
        ("by one request", by_one),
        ("by two", by_two),
        ("as one client", together),
    ];
    for (how, costs) in ways.into_iter().filter(|(_, costs)| !costs.is_empty()) {
        show(&format!("{name} {how}: muster"), &costs);
        compare(&costs, &their_costs);
    }
}

fn compare(ours: &[Cost], theirs: &[Cost]) {
    if theirs.is_empty() {
        return;
    }
    let ratio = |of: fn(&Cost) -> f64| median(theirs.iter().map(of)) / median(ours.iter().map(of));
    let (wall, cpu) = (ratio(|cost| cost.wall), cpu(theirs) / cpu(ours));
    println!("  Optuna over muster: {wall:.1} wall, {cpu:.1} CPU");
}

fn show(name: &str, costs: &[Cost]) {
    if costs.is_empty() {
        println!("{name}: not measured; make bench-ask sets MUSTER_OPTUNA_PYTHON");
        return;
    }
    let walls = costs.iter().map(|cost| cost.wall);
    let least = walls.clone().fold(f64::INFINITY, f64::min);
    let most = walls.clone().fold(0.0, f64::max);
    let (median, cpu) = (median(walls), cpu(costs));
    println!("{name:38} {median:8.1} {least:8.1} {most:8.1} {cpu:10.1}");
}

/// Mean: the kernel counts in hundredths of a second, which is more than most rounds take.
fn cpu(costs: &[Cost]) -> f64 {
    costs.iter().map(|cost| cost.cpu).sum::<f64>() / costs.len() as f64
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
