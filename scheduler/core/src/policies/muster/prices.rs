//! Sizes on several GPU kinds by prices: each kind has a price per GPU at which the demand of the
//! jobs does not exceed the supply.
//!
//! This is the Lagrangian of "largest value within the GPUs of every kind". Prices are found kind
//! by kind by bisection, in several sweeps. GPUs that remain free are distributed afterwards. The
//! method is used for more jobs than the exact search can handle.

use super::options::{AllocationOption, JobOptions, OptionIndex};
use super::shares::Classes;

/// Sweeps over the kinds, and bisection steps per price.
const SWEEPS: usize = 4;
const HALVINGS: usize = 20;

/// Returns the option of every job at prices at which the demand for each kind is within its
/// supply. Classes are served in descending order, each from the GPUs that the higher ones leave.
pub(super) fn at_prices(
    all_options: &[JobOptions<'_>],
    classes: &Classes,
    left: &[u32],
) -> Vec<OptionIndex> {
    let mut left = left.to_vec();
    let mut chosen = vec![None; all_options.len()];
    let mut order: Vec<i64> = classes.clone();
    order.sort_unstable();
    order.dedup();
    for class in order.into_iter().rev() {
        let of_class: Vec<usize> = (0..all_options.len())
            .filter(|&job| classes[job] == class)
            .collect();
        let options: Vec<&[AllocationOption]> = of_class
            .iter()
            .map(|&job| all_options[job].options)
            .collect();
        for (job, choice) in of_class.into_iter().zip(within(&options, &left)) {
            chosen[job] = choice;
            if let Some(option) = choice.map(|option| all_options[job].options[option]) {
                left[usize::from(option.kind)] -= option.gpus;
            }
        }
    }
    chosen
}

fn within(all_options: &[&[AllocationOption]], left: &[u32]) -> Vec<OptionIndex> {
    let mut prices = vec![0.0; left.len()];
    let options = all_options.iter().copied().flatten();
    let dearest = options
        .map(|option| option.value / f64::from(option.gpus))
        .fold(0.0, f64::max);
    for _ in 0..SWEEPS {
        for kind in 0..left.len() {
            prices[kind] = 0.0;
            if demand(all_options, &prices, kind) <= left[kind] {
                continue;
            }
            let (mut low, mut high) = (0.0, dearest * 1.01);
            for _ in 0..HALVINGS {
                prices[kind] = f64::midpoint(low, high);
                if demand(all_options, &prices, kind) <= left[kind] {
                    high = prices[kind];
                } else {
                    low = prices[kind];
                }
            }
            prices[kind] = high;
        }
    }
    // Demand of other kinds may have moved to a kind whose price was found earlier.
    let mut left = left.to_vec();
    all_options
        .iter()
        .map(|job_options| {
            let choice = best(job_options, &prices)?;
            let free = &mut left[usize::from(job_options[choice].kind)];
            *free = free.checked_sub(job_options[choice].gpus)?;
            Some(choice)
        })
        .collect()
}

fn demand(all_options: &[&[AllocationOption]], prices: &[f64], kind: usize) -> u32 {
    let wanted = all_options
        .iter()
        .filter_map(|job_options| Some(job_options[best(job_options, prices)?]));
    let of_kind = wanted.filter(|option| usize::from(option.kind) == kind);
    of_kind.map(|option| option.gpus).sum()
}

fn best(job_options: &[AllocationOption], prices: &[f64]) -> OptionIndex {
    let mut best: Option<(f64, usize)> = None;
    for (index, option) in job_options.iter().enumerate() {
        let profit = option.profit(prices[usize::from(option.kind)]);
        if profit > best.map_or(0.0, |best| best.0) {
            best = Some((profit, index));
        }
    }
    best.map(|(_, index)| index)
}
