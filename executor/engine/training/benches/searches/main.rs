//! Benefit of searches on real trainings with `muster-search` itself: time of ASHA and HyperDrive
//! to the result of random search, evolution compared with the example's network, and searchers
//! compared with Optuna's. Run by `make bench-studies` and `make bench-search`, or by
//! `cargo bench -p muster-training --bench searches -- [stoppers|evolution|optuna] [SEED ..]`. For
//! `optuna` the number is the number of seeds.
//!
//! Fashion-MNIST, one thread per training. Costs are CPU time of that thread, so other load of the
//! machine does not count. The start of a job on a cluster is not included.

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
    let [optuna, stoppers, evolution] =
        ["optuna", "stoppers", "evolution"].map(|name| words.iter().any(|word| word == name));
    if optuna {
        return contest::measure(&mut trainings, seeds.first().copied().unwrap_or(20));
    }
    let all = !stoppers && !evolution;
    if all || stoppers {
        stoppers::measure(&mut trainings, seeds_or(&seeds, &[1, 2, 3, 4, 5]));
    }
    if all || evolution {
        evolution::measure(&mut trainings, seeds_or(&seeds, &[1, 2]));
    }
}

/// Returns the seeds of the command line, or `usual` if it names none.
fn seeds_or<'a>(seeds: &'a [u64], usual: &'a [u64]) -> &'a [u64] {
    if seeds.is_empty() { usual } else { seeds }
}

/// Median; a missing value is larger than all others. `None` if the median is missing.
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
