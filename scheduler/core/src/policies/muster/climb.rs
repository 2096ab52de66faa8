//! The way up the menus: which sizes are worth a thought, and in which order jobs step from one to the next.

use super::choose::Choice;
use super::menu::{Dish, Menu};
use std::cmp::Ordering;

/// So few steps are left to the queue.
const FEW: usize = 64;

/// The next step of a job up the upper hull of its menu, ordered by the turn in which steps are taken.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Step {
    /// Only first steps are served by class; what jobs get beyond is all of one class.
    class: i64,
    density: f64,
    /// More than below it.
    gpus: u32,
    pub job: u32,
    /// Its place among the corners of all hulls, and where those of its job end.
    pub corner: u32,
    end: u32,
}

/// The corners of all hulls, as dishes, and the next step of every job that has one. Steps of a job become thinner upwards, so only
/// its next one need be looked at.
pub(super) struct Climb {
    pub corners: Vec<u32>,
    pub next: Vec<Step>,
    pub lowest: i64,
}

impl Climb {
    /// From nothing up the upper concave hulls of the menus of these jobs.
    pub(super) fn new(menus: &[Menu<'_>], classes: &[i64], of: impl Fn(usize) -> bool) -> Self {
        let mut corners: Vec<u32> = Vec::with_capacity(4 * menus.len());
        let mut next = Vec::with_capacity(menus.len());
        for (job, (menu, &class)) in menus.iter().zip(classes).enumerate() {
            let corner = corners.len();
            if of(job) {
                hull(menu.dishes, &mut corners);
            }
            if corners.len() > corner {
                let (gpus, density) = rise(menu.dishes, None, corners[corner] as usize);
                next.push(Step {
                    class,
                    density,
                    gpus,
                    job: dense(job),
                    corner: dense(corner),
                    end: dense(corners.len()),
                });
            }
        }
        Self {
            corners,
            next,
            lowest: classes.iter().min().copied().unwrap_or(0),
        }
    }

    /// Of many steps most are taken, and in which order does not matter where all of them fit: those in front of the step at which
    /// so many GPUs run out, which halving finds without sorting them. What the jobs then have; their next steps are those above.
    pub(super) fn surely(&mut self, menus: &[Menu<'_>], mut left: u32) -> Vec<(usize, usize)> {
        let mut steps = self.all_steps(menus);
        let mut reached = vec![0; menus.len()];
        let mut rest = &mut steps[..];
        while rest.len() > FEW {
            let middle = rest.len() / 2;
            rest.select_nth_unstable_by(middle, |a, b| b.cmp(a).then(a.corner.cmp(&b.corner)));
            let (front, back) = rest.split_at_mut(middle);
            let wanted: u64 = front.iter().map(|step| u64::from(step.gpus)).sum();
            if let Some(rests) = u64::from(left).checked_sub(wanted) {
                left = u32::try_from(rests).unwrap_or(u32::MAX);
                for step in front {
                    let reached = &mut reached[step.job as usize];
                    *reached = (step.corner + 1).max(*reached);
                }
                rest = back;
            } else {
                rest = front;
            }
        }
        let mut taken = Vec::new();
        let (corners, lowest) = (&self.corners, self.lowest);
        self.next.retain_mut(|step| {
            let job = step.job as usize;
            let Some(corner) = reached[job].checked_sub(1) else {
                return true;
            };
            taken.push((job, corners[corner as usize] as usize));
            let above = Step { corner, ..*step }.above(menus[job].dishes, corners, lowest);
            above.inspect(|above| *step = *above).is_some()
        });
        taken
    }

    /// The next steps of all jobs and all above them.
    fn all_steps(&self, menus: &[Menu<'_>]) -> Vec<Step> {
        let mut steps = Vec::with_capacity(self.corners.len());
        for &first in &self.next {
            steps.push(first);
            let mut below = first;
            let dishes = menus[first.job as usize].dishes;
            while let Some(mut step) = below.above(dishes, &self.corners, self.lowest) {
                // Rounding must not bring a step in front of the one below it.
                if step.class == below.class {
                    step.density = step.density.min(below.density);
                }
                steps.push(step);
                below = step;
            }
        }
        steps
    }
}

impl Step {
    /// The step after this one.
    pub(super) fn above(self, dishes: &[Dish], corners: &[u32], lowest: i64) -> Option<Self> {
        let corner = self.corner + 1;
        if corner == self.end {
            return None;
        }
        let (from, to) = (corners[self.corner as usize], corners[corner as usize]);
        let (gpus, density) = rise(dishes, Some(from as usize), to as usize);
        Some(Self {
            class: lowest,
            density,
            gpus,
            corner,
            ..self
        })
    }
}

impl Eq for Step {}

impl Ord for Step {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_class = self.class.cmp(&other.class);
        let by_worth = by_class.then(self.density.total_cmp(&other.density));
        by_worth.then(other.job.cmp(&self.job))
    }
}

impl PartialOrd for Step {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// How many GPUs a step takes, and what each of them adds to the value.
fn rise(dishes: &[Dish], from: Choice, to: usize) -> (u32, f64) {
    let (gpus, value) = from.map_or((0, 0.0), |dish| (dishes[dish].gpus, dishes[dish].value));
    let gpus = dishes[to].gpus - gpus;
    (gpus, (dishes[to].value - value) / f64::from(gpus))
}

fn dense(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

/// Adds the corners of the upper concave hull over nothing and the dishes of one kind, which ascend in GPUs.
fn hull(dishes: &[Dish], corners: &mut Vec<u32>) {
    let start = corners.len();
    let point = |corner: Option<&u32>| {
        corner.map_or((0.0, 0.0), |&dish| {
            let dish = &dishes[dish as usize];
            (f64::from(dish.gpus), dish.value)
        })
    };
    for (index, dish) in dishes.iter().enumerate() {
        if dish.value <= point(corners[start..].last()).1 {
            continue;
        }
        let new = (f64::from(dish.gpus), dish.value);
        while let Some(last) = corners[start..].last() {
            let before = point(corners[start..].iter().rev().nth(1));
            let last = point(Some(last));
            let bends =
                (last.1 - before.1) * (new.0 - before.0) > (new.1 - before.1) * (last.0 - before.0);
            if bends {
                break;
            }
            corners.pop();
        }
        corners.push(dense(index));
    }
}
