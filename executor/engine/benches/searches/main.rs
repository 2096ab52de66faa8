//! What searches bring on real trainings, by `muster-search` itself: how soon ASHA and HyperDrive come to what random search comes to,
//! whether evolution finds a better network than the example's, and whether searchers find as good parameters as Optuna's.
//! `make bench-studies` and `make bench-search`, or `cargo bench -p muster-engine --bench searches -- [stoppers|evolution|optuna] [SEED ..]`;
//! of `optuna` the number is how many seeds.
//!
//! Fashion-MNIST, one thread a training. Costs are CPU time of that thread, so that other work on the machine does not count; a job's
//! start on a cluster is not in it.

mod contest;
mod evolution;
mod slots;
mod stoppers;
mod training;

use std::path::PathBuf;
use training::Trainings;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some(datasets) = std::env::var_os("MUSTER_DATASETS").map(PathBuf::from) else {
        eprintln!(
            "searches: not run; MUSTER_DATASETS must name the folder that has fashion-mnist (make bench-studies sets it)"
        );
        return;
    };
    let mut trainings = Trainings::new(&datasets);
    let seeds: Vec<u64> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let or = |all: &[u64]| {
        if seeds.is_empty() {
            all.to_vec()
        } else {
            seeds.clone()
        }
    };
    let named = |word: &str| words.iter().any(|one| one == word);
    if named("optuna") {
        return contest::measure(&mut trainings, seeds.first().copied().unwrap_or(20));
    }
    let all = !named("stoppers") && !named("evolution");
    if all || named("stoppers") {
        stoppers::measure(&mut trainings, &or(&[1, 2, 3, 4, 5]));
    }
    if all || named("evolution") {
        evolution::measure(&mut trainings, &or(&[1, 2]));
    }
}

/// Of what came about; one that did not is above all that did. `None` when that is the median.
fn median(values: &[Option<f64>]) -> Option<f64> {
    let mut sorted: Vec<f64> = values
        .iter()
        .map(|value| value.unwrap_or(f64::INFINITY))
        .collect();
    sorted.sort_by(f64::total_cmp);
    let (half, count) = (sorted.len() / 2, sorted.len());
    let middle = (sorted[half] + sorted[(count - 1) / 2]) / 2.0;
    Some(middle).filter(|value| value.is_finite())
}

fn ratio(value: Option<f64>) -> String {
    value.map_or("never".to_owned(), |value| format!("{value:.2}"))
}
