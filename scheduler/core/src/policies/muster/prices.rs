//! Sizes on several GPU kinds by prices: each kind has a price per GPU at which the demand of the
//! jobs does not exceed the supply.
//!
//! This is the Lagrangian of "largest value within the GPUs of every kind". Prices are found kind
//! by kind by bisection, in several sweeps. GPUs that remain free are distributed afterwards. The
//! method is used for more jobs than the exact search can handle.

use super::choose::OptionIndex;
use super::menu::{AllocationOption, JobOptions};
use super::shares::Classes;

/// Sweeps over the kinds, and bisection steps per price.
const SWEEPS: usize = 4;
const HALVINGS: usize = 20;

/// Returns the option of every job at prices at which the demand for each kind is within its
/// supply. Classes are served in descending order, each from the GPUs that the higher ones leave.
pub(super) fn at_prices(
    menus: &[JobOptions<'_>],
    classes: &Classes,
    left: &[u32],
) -> Vec<OptionIndex> {
    let mut left = left.to_vec();
    let mut chosen = vec![None; menus.len()];
    let mut order: Vec<i64> = classes.clone();
    order.sort_unstable();
    order.dedup();
    for class in order.into_iter().rev() {
        let of_class: Vec<usize> = (0..menus.len())
            .filter(|&job| classes[job] == class)
            .collect();
        let dishes: Vec<&[AllocationOption]> =
            of_class.iter().map(|&job| menus[job].dishes).collect();
        for (job, choice) in of_class.into_iter().zip(within(&dishes, &left)) {
            chosen[job] = choice;
            if let Some(dish) = choice.map(|dish| menus[job].dishes[dish]) {
                left[usize::from(dish.kind)] -= dish.gpus;
            }
        }
    }
    chosen
}

fn within(menus: &[&[AllocationOption]], left: &[u32]) -> Vec<OptionIndex> {
    let mut prices = vec![0.0; left.len()];
    let dishes = menus.iter().copied().flatten();
    let dearest = dishes
        .map(|dish| dish.value / f64::from(dish.gpus))
        .fold(0.0, f64::max);
    for _ in 0..SWEEPS {
        for kind in 0..left.len() {
            prices[kind] = 0.0;
            if demand(menus, &prices, kind) <= left[kind] {
                continue;
            }
            let (mut low, mut high) = (0.0, dearest * 1.01);
            for _ in 0..HALVINGS {
                prices[kind] = f64::midpoint(low, high);
                if demand(menus, &prices, kind) <= left[kind] {
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
    let take = |menu: &&[AllocationOption]| {
        let choice = best(menu, &prices)?;
        let free = &mut left[usize::from(menu[choice].kind)];
        *free = free.checked_sub(menu[choice].gpus)?;
        Some(choice)
    };
    menus.iter().map(take).collect()
}

fn demand(menus: &[&[AllocationOption]], prices: &[f64], kind: usize) -> u32 {
    let wanted = menus
        .iter()
        .filter_map(|menu| Some(menu[best(menu, prices)?]));
    let of_kind = wanted.filter(|dish| usize::from(dish.kind) == kind);
    of_kind.map(|dish| dish.gpus).sum()
}

fn best(menu: &[AllocationOption], prices: &[f64]) -> OptionIndex {
    let mut best: Option<(f64, usize)> = None;
    for (index, dish) in menu.iter().enumerate() {
        let profit = dish.value - prices[usize::from(dish.kind)] * f64::from(dish.gpus);
        if profit > best.map_or(0.0, |best| best.0) {
            best = Some((profit, index));
        }
    }
    best.map(|(_, index)| index)
}
