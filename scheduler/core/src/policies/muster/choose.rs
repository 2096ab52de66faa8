//! Which size every job gets, before it is known on which nodes: the steps that are worth most per GPU first, then whatever improves.

use super::menu::Dish;
use crate::policies::quota::Quota;
use crate::problem::{Problem, Tally};
use std::cmp::Reverse;

/// The dish that a job gets, as an index into its menu.
pub(super) type Choice = Option<usize>;

/// A step up the upper hull of a job's menu on one kind.
#[derive(Debug, Clone, Copy)]
struct Step {
    /// Only first steps of higher classes go before others.
    class: i32,
    density: f64,
    job: u32,
    from: Choice,
    to: usize,
}

pub(super) fn choose(problem: &Problem, menus: &[Vec<Dish>]) -> Vec<Choice> {
    let mut quota = Quota::whole(problem);
    let mut left: Vec<u32> = Vec::new();
    let tally = Tally::beside_fixed(problem);
    for (node, free) in problem.nodes.iter().zip(&tally.free) {
        let kind = usize::from(node.kind);
        if left.len() <= kind {
            left.resize(kind + 1, 0);
        }
        left[kind] += free;
    }
    for job in problem.jobs.iter().filter(|job| !job.is_movable()) {
        quota.charge(job.tenant, job.held_gpus());
    }
    let lowest = problem.jobs.iter().map(|job| job.priority).min();
    let mut steps: Vec<Step> = Vec::new();
    for (index, (job, menu)) in problem.jobs.iter().zip(menus).enumerate() {
        let class = if Some(job.priority) == lowest { i32::MIN } else { job.priority };
        hulls(menu, class, u32::try_from(index).unwrap_or(u32::MAX), &mut steps);
    }
    steps.sort_unstable_by(|a, b| {
        let by_worth = b.class.cmp(&a.class).then(b.density.total_cmp(&a.density));
        by_worth.then(a.job.cmp(&b.job)).then(a.to.cmp(&b.to))
    });
    let mut chosen: Vec<Choice> = vec![None; menus.len()];
    for step in &steps {
        let job = step.job as usize;
        if chosen[job] != step.from {
            continue;
        }
        try_change(problem, menus, &mut quota, &mut left, &mut chosen, job, step.to);
    }
    improve(problem, menus, &mut quota, &mut left, &mut chosen);
    chosen
}

/// Changes a job's dish if there is room for it.
fn try_change(
    problem: &Problem,
    menus: &[Vec<Dish>],
    quota: &mut Quota<'_>,
    left: &mut [u32],
    chosen: &mut [Choice],
    job: usize,
    to: usize,
) -> bool {
    let tenant = problem.jobs[job].tenant;
    let new = menus[job][to];
    let old = chosen[job].map(|dish| menus[job][dish]);
    if let Some(old) = old {
        left[usize::from(old.kind)] += old.gpus;
        quota.refund(tenant, old.gpus);
    }
    let fits = left[usize::from(new.kind)] >= new.gpus && quota.allows(tenant, new.gpus);
    let taken = if fits { Some(new) } else { old };
    if let Some(dish) = taken {
        left[usize::from(dish.kind)] -= dish.gpus;
        quota.charge(tenant, dish.gpus);
    }
    if fits {
        chosen[job] = Some(to);
    }
    fits
}

/// The steps from nothing up the upper concave hull, kind by kind.
fn hulls(menu: &[Dish], class: i32, job: u32, steps: &mut Vec<Step>) {
    let mut start = 0;
    for of_kind in menu.chunk_by(|a, b| a.kind == b.kind) {
        let mut from: (Choice, u32, f64) = (None, 0, 0.0);
        let mut first = true;
        loop {
            let best = of_kind
                .iter()
                .enumerate()
                .filter(|(_, dish)| dish.gpus > from.1 && dish.value > from.2)
                .map(|(index, dish)| {
                    let density = (dish.value - from.2) / f64::from(dish.gpus - from.1);
                    (density, Reverse(index))
                })
                .max_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            let Some((density, Reverse(index))) = best else {
                break;
            };
            let to = start + index;
            steps.push(Step {
                class: if first { class } else { i32::MIN },
                density,
                job,
                from: from.0,
                to,
            });
            first = false;
            from = (Some(to), menu[to].gpus, menu[to].value);
        }
        start += of_kind.len();
    }
}

/// Any change of one job that fits into what is left and is worth something.
fn improve(
    problem: &Problem,
    menus: &[Vec<Dish>],
    quota: &mut Quota<'_>,
    left: &mut [u32],
    chosen: &mut [Choice],
) {
    for _ in 0..4 {
        let mut improved = false;
        for job in 0..menus.len() {
            let has = chosen[job].map(|dish| menus[job][dish]);
            let value = has.map_or(0.0, |dish| dish.value);
            let free = |dish: &Dish| {
                let own = has.filter(|has| has.kind == dish.kind).map_or(0, |has| has.gpus);
                left[usize::from(dish.kind)] + own >= dish.gpus
            };
            let best = menus[job]
                .iter()
                .enumerate()
                .filter(|(_, dish)| dish.value > value * (1.0 + 1e-9) && free(dish))
                .max_by(|a, b| a.1.value.total_cmp(&b.1.value).then(b.0.cmp(&a.0)))
                .map(|(index, _)| index);
            if let Some(to) = best {
                improved |= try_change(problem, menus, quota, left, chosen, job, to);
            }
        }
        if !improved {
            break;
        }
    }
}
