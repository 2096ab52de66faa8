//! Which size every job gets, before it is known on which nodes: on one GPU kind the steps that are worth most per GPU first, on
//! several the best that an exact search or, for many jobs, prices find; then whatever still improves.

use super::menu::{Dish, Menu};
use super::shares::Classes;
use super::{exact, prices};
use crate::policies::quota::Quota;
use crate::problem::{Problem, Tally};

/// The dish that a job gets, as an index into its menu.
pub(super) type Choice = Option<usize>;

/// Rounds of single improvements at most.
const ROUNDS: usize = 4;

/// A step up the upper hull of a job's menu.
#[derive(Debug, Clone, Copy)]
struct Step {
    /// Only first steps are served by class; what jobs get beyond is all of one class.
    class: i64,
    density: f64,
    job: u32,
    from: Choice,
    to: usize,
}

/// What is left to give while sizes are chosen.
struct Giving<'a> {
    problem: &'a Problem,
    menus: &'a [Menu],
    quota: Quota<'a>,
    /// GPUs by kind.
    left: Vec<u32>,
    chosen: Vec<Choice>,
}

pub(super) fn choose(problem: &Problem, menus: &[Menu], classes: &Classes) -> Vec<Choice> {
    let mut giving = Giving::new(problem, menus);
    if giving.left.iter().filter(|gpus| **gpus > 0).count() > 1 {
        let wanted = exact::best(problem, menus, classes, &giving.left, &giving.quota)
            .unwrap_or_else(|| prices::at_prices(menus, classes, &giving.left));
        for (job, choice) in wanted.into_iter().enumerate() {
            if let Some(to) = choice {
                giving.change(job, to);
            }
        }
    } else {
        for step in steps(menus, classes, |_| true) {
            if giving.chosen[step.job as usize] == step.from {
                giving.change(step.job as usize, step.to);
            }
        }
    }
    giving.improve();
    giving.chosen
}

/// Everybody keeps what it has, and what is free is given away; `None` when nobody has anything.
pub(super) fn stay(problem: &Problem, menus: &[Menu]) -> Option<Vec<Choice>> {
    let mut giving = Giving::new(problem, menus);
    let mut any = false;
    for (job, menu) in menus.iter().enumerate() {
        if let Some(present) = menu.present {
            any |= giving.change(job, present);
        }
    }
    if !any {
        return None;
    }
    for step in steps(menus, &vec![0; menus.len()], |job| {
        giving.chosen[job].is_none()
    }) {
        if giving.chosen[step.job as usize] == step.from {
            giving.change(step.job as usize, step.to);
        }
    }
    giving.improve();
    Some(giving.chosen)
}

/// Whether more jobs of a higher class are served, or the same are worth more together.
pub(super) fn is_better(
    menus: &[Menu],
    classes: &Classes,
    one: &[Choice],
    other: &[Choice],
) -> bool {
    let mut by_class: std::collections::BTreeMap<i64, i64> = std::collections::BTreeMap::new();
    let (mut gained, mut total) = (0.0, 0.0);
    for (job, (a, b)) in one.iter().zip(other).enumerate() {
        let served = i64::from(a.is_some()) - i64::from(b.is_some());
        *by_class.entry(classes[job]).or_default() += served;
        let value = |choice: &Choice| choice.map_or(0.0, |dish| menus[job].dishes[dish].value);
        gained += value(a) - value(b);
        total += value(b);
    }
    // In the lowest class the value says who is served.
    let lowest = by_class.keys().next().copied();
    let higher = by_class
        .into_iter()
        .rev()
        .filter(|&(class, _)| Some(class) != lowest);
    match higher.map(|(_, served)| served).find(|&served| served != 0) {
        Some(served) => served > 0,
        None => gained > 1e-9 * total,
    }
}

impl<'a> Giving<'a> {
    fn new(problem: &'a Problem, menus: &'a [Menu]) -> Self {
        let mut quota = Quota::whole(problem);
        let kinds = problem.nodes.iter().map(|node| usize::from(node.kind) + 1);
        let mut left = vec![0; kinds.max().unwrap_or(0)];
        let tally = Tally::beside_fixed(problem);
        for (node, free) in problem.nodes.iter().zip(&tally.free) {
            left[usize::from(node.kind)] += free;
        }
        for job in problem.jobs.iter().filter(|job| !job.is_movable()) {
            quota.charge(job.tenant, job.held_gpus());
        }
        Self {
            problem,
            menus,
            quota,
            left,
            chosen: vec![None; menus.len()],
        }
    }

    fn dish(&self, job: usize) -> Option<Dish> {
        self.chosen[job].map(|dish| self.menus[job].dishes[dish])
    }

    /// Gives a job another dish if there is room for it.
    fn change(&mut self, job: usize, to: usize) -> bool {
        let tenant = self.problem.jobs[job].tenant;
        let (old, new) = (self.dish(job), self.menus[job].dishes[to]);
        if let Some(old) = old {
            self.left[usize::from(old.kind)] += old.gpus;
            self.quota.refund(tenant, old.gpus);
        }
        let fits =
            self.left[usize::from(new.kind)] >= new.gpus && self.quota.allows(tenant, new.gpus);
        if let Some(dish) = if fits { Some(new) } else { old } {
            self.left[usize::from(dish.kind)] -= dish.gpus;
            self.quota.charge(tenant, dish.gpus);
        }
        if fits {
            self.chosen[job] = Some(to);
        }
        fits
    }

    /// Any change of one job that fits into what is left and is worth something.
    fn improve(&mut self) {
        for _ in 0..ROUNDS {
            if self.left.iter().all(|gpus| *gpus == 0) {
                break;
            }
            let mut improved = false;
            for job in 0..self.menus.len() {
                if let Some(to) = self.improvement(job) {
                    improved |= self.change(job, to);
                }
            }
            if !improved {
                break;
            }
        }
    }

    fn improvement(&self, job: usize) -> Choice {
        let has = self.dish(job);
        let value = has.map_or(0.0, |dish| dish.value);
        let free = |dish: &Dish| {
            let own = has.filter(|has| has.kind == dish.kind);
            self.left[usize::from(dish.kind)] + own.map_or(0, |has| has.gpus) >= dish.gpus
        };
        let dishes = self.menus[job].dishes.iter().enumerate();
        dishes
            .filter(|(_, dish)| dish.value > value * (1.0 + 1e-9) && free(dish))
            .max_by(|a, b| a.1.value.total_cmp(&b.1.value).then(b.0.cmp(&a.0)))
            .map(|(index, _)| index)
    }
}

/// The steps from nothing up the upper concave hulls of all menus, in the order in which they are taken.
fn steps(menus: &[Menu], classes: &[i64], of: impl Fn(usize) -> bool) -> Vec<Step> {
    let lowest = classes.iter().min().copied().unwrap_or(0);
    let mut steps = Vec::with_capacity(4 * menus.len());
    let mut corners = Vec::new();
    for (index, (menu, &class)) in menus.iter().zip(classes).enumerate() {
        if of(index) {
            hull(&menu.dishes, &mut corners);
            climb(&menu.dishes, &corners, class, lowest, index, &mut steps);
        }
    }
    steps.sort_unstable_by(|a, b| {
        let by_worth = b.class.cmp(&a.class).then(b.density.total_cmp(&a.density));
        by_worth.then(a.job.cmp(&b.job)).then(a.to.cmp(&b.to))
    });
    steps
}

/// The corners of the upper concave hull over nothing and the dishes of one kind, which ascend in GPUs.
fn hull(dishes: &[Dish], corners: &mut Vec<usize>) {
    corners.clear();
    let point = |corner: Option<&usize>| {
        corner.map_or((0.0, 0.0), |&dish| {
            (f64::from(dishes[dish].gpus), dishes[dish].value)
        })
    };
    for (index, dish) in dishes.iter().enumerate() {
        if dish.value <= point(corners.last()).1 {
            continue;
        }
        let new = (f64::from(dish.gpus), dish.value);
        while let Some(last) = corners.last() {
            let (last, before) = (point(Some(last)), point(corners.iter().rev().nth(1)));
            let bends =
                (last.1 - before.1) * (new.0 - before.0) > (new.1 - before.1) * (last.0 - before.0);
            if bends {
                break;
            }
            corners.pop();
        }
        corners.push(index);
    }
}

/// A step to every corner, the first in the job's class.
fn climb(
    dishes: &[Dish],
    corners: &[usize],
    class: i64,
    lowest: i64,
    job: usize,
    steps: &mut Vec<Step>,
) {
    let mut from: Choice = None;
    for &to in corners {
        let (gpus, value) = from.map_or((0, 0.0), |dish| (dishes[dish].gpus, dishes[dish].value));
        steps.push(Step {
            class: if from.is_none() { class } else { lowest },
            density: (dishes[to].value - value) / f64::from(dishes[to].gpus - gpus),
            job: u32::try_from(job).unwrap_or(u32::MAX),
            from,
            to,
        });
        from = Some(to);
    }
}
