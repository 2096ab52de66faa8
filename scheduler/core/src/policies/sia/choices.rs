//! Configurations that a job may take, and their gains.

use crate::policies::allocation_state::{AllocationState, PlacementStyle};
use crate::policies::order::{maximum, minimum};
use crate::policies::wish_placement::{SizeWish, free_by_kind};
use crate::problem::{ProblemJob, SizeValue, gpus_of};

/// Exponent of the goodput in the minimised sum. It determines the preference for jobs of little
/// goodput.
const FAIRNESS: f64 = -0.5;
/// Cost of a job without GPUs in that sum. A job at its smallest configuration costs 1.
const IDLE_COST: f64 = 1.1;
/// Maximum growth of a job, as a multiple of its largest measured size.
const GROWTH: u32 = 2;
/// Tie-breaks between equal sums: fewer moved jobs, then fewer GPUs. Costs are rounded to 0.01.
const STAY: f64 = 2e-3;
const LEAN: f64 = 1e-3;

/// Configuration of a job.
#[derive(Debug, Clone, Copy)]
pub struct SiaConfiguration {
    pub wish: SizeWish,
    /// Reduction of the sum; above 0.
    pub gain: f64,
    /// Whether the job holds this configuration now.
    pub present: bool,
}

impl SiaConfiguration {
    pub fn gain_per_gpu(&self) -> f64 {
        self.gain / f64::from(self.wish.gpus)
    }

    /// Whether this configuration gains as much as a larger one of the same kind.
    fn replaces(&self, larger: &Self) -> bool {
        self.wish.kind == larger.wish.kind
            && self.wish.gpus < larger.wish.gpus
            && self.gain >= larger.gain
    }
}

/// Configurations of one job.
#[derive(Debug, Clone)]
pub struct SiaConfigurations {
    /// Configurations by kind and ascending size, with the present one last.
    pub all: Vec<SiaConfiguration>,
    /// Factor on goodputs: the smallest goodput becomes the number of GPUs of the smallest
    /// configuration.
    scale: f64,
    /// Factor on the goodput after a restart.
    discount: f64,
    /// Number of GPUs of the cluster.
    gpus: f64,
}

impl SiaConfigurations {
    /// Returns the configurations that fit into the room now and reduce the sum.
    pub fn of_job(state: &AllocationState<'_>, job: usize) -> Self {
        let of = &state.problem.jobs[job];
        let configurations = configurations(state, job);
        let goodputs = configurations.iter().map(|&(_, goodput)| goodput);
        let smallest = goodputs.fold(f64::INFINITY, f64::min);
        let fewest = configurations.iter().map(|(wish, _)| wish.gpus).min();
        let mut choices = Self {
            all: Vec::new(),
            scale: f64::from(fewest.unwrap_or(1)) / smallest,
            discount: discount(of, state.problem.now_s),
            gpus: f64::from(state.problem.gpus().max(1)),
        };
        let held = held(state, job);
        let others = configurations.into_iter();
        let others = others.filter(|(wish, _)| held.is_none_or(|(present, _)| present != *wish));
        let all = others.map(|(wish, goodput)| (wish, goodput, false));
        let held = held.map(|(wish, goodput)| (wish, goodput, true));
        let all = all
            .chain(held)
            .map(|(wish, goodput, present)| SiaConfiguration {
                wish,
                gain: choices.gain(goodput, wish.gpus, present),
                present,
            });
        choices.all = without_waste(all.collect());
        choices
    }

    /// Returns the reduction of the sum by a goodput. `stays` tells whether the job keeps its
    /// place.
    fn gain(&self, goodput: f64, gpus: u32, stays: bool) -> f64 {
        let kept = if stays { 1.0 } else { self.discount };
        let cost = ((goodput * self.scale * kept).powf(FAIRNESS) * 100.0).round() / 100.0;
        let stay = if stays { STAY } else { 0.0 };
        IDLE_COST - cost + stay - LEAN * f64::from(gpus) / self.gpus
    }

    /// Returns the reduction of the sum by the place that the job was allocated.
    pub fn gained(&self, state: &AllocationState<'_>, job: usize) -> f64 {
        state.given(job).map_or(0.0, |parts| {
            let stays = state.present(job) == parts;
            self.gain(state.speed_on(job, parts), gpus_of(parts), stays)
        })
    }

    /// Returns the gain per GPU of the last step to a configuration and of the next step on the
    /// same kind.
    pub fn worth(&self, chosen: SizeWish) -> SizeValue {
        let here = self
            .all
            .iter()
            .filter(|choice| choice.wish.kind == chosen.kind);
        let sizes: Vec<(u32, f64)> = here.map(|choice| (choice.wish.gpus, choice.gain)).collect();
        let at = sizes.iter().find(|&&(gpus, _)| gpus == chosen.gpus);
        let &(gpus, gain) = at.unwrap_or(&(chosen.gpus, 0.0));
        let smaller = sizes.iter().filter(|&&(other, _)| other < gpus);
        let &(below, least) = smaller
            .max_by_key(|&&(other, _)| other)
            .unwrap_or(&(0, 0.0));
        let larger = sizes.iter().filter(|&&(other, _)| other > gpus);
        let next = larger.min_by_key(|&&(other, _)| other);
        SizeValue {
            last_gain: per_gpu(gain - least, gpus - below),
            next_gain: next.map_or(0.0, |&(above, more)| per_gpu(more - gain, above - gpus)),
        }
    }
}

fn per_gpu(gain: f64, gpus: u32) -> f64 {
    gain / f64::from(gpus.max(1))
}

/// Returns the configurations and their goodput at the place that the room offers now.
fn configurations(state: &AllocationState<'_>, job: usize) -> Vec<(SizeWish, f64)> {
    let of = &state.problem.jobs[job];
    let free = free_by_kind(state);
    let mut configurations = Vec::new();
    for &(kind, node_gpus) in state.kinds() {
        let limit = maximum(of)
            .min(
                of.outlook
                    .largest_gpus
                    .saturating_mul(GROWTH)
                    .max(minimum(of)),
            )
            .min(free[usize::from(kind)]);
        for gpus in sizes(of, node_gpus, limit) {
            // `None` if the quota, CPU or memory forbid it, or if the job has no speed there.
            if let Some(parts) = state.find(job, kind, gpus, PlacementStyle::Packed) {
                let goodput = state.speed_on(job, &parts);
                configurations.push((SizeWish { job, kind, gpus }, goodput));
            }
        }
    }
    configurations
}

/// Returns the present configuration and its speed, if the job may keep it.
fn held(state: &AllocationState<'_>, job: usize) -> Option<(SizeWish, f64)> {
    let parts = state.present(job);
    let of = &state.problem.jobs[job];
    if !state.can_keep(job) {
        return None;
    }
    let (kind, gpus) = (state.kind_of(parts)?, gpus_of(parts));
    let right = (minimum(of)..=maximum(of)).contains(&gpus);
    right.then(|| (SizeWish { job, kind, gpus }, state.speed_on(job, parts)))
}

/// Returns the sizes: units times powers of two on one node, whole nodes above, and the smallest
/// gang.
fn sizes(job: &ProblemJob, node_gpus: u32, limit: u32) -> Vec<u32> {
    let unit = job.unit.gpus.max(1);
    let node = node_gpus / unit * unit;
    if node == 0 {
        return Vec::new();
    }
    let parts = std::iter::successors(Some(unit), |gpus| Some(gpus * 2));
    let parts = parts.take_while(|&gpus| gpus < node);
    let nodes = (1..=limit / node).map(|nodes| nodes * node);
    let all = parts.chain(nodes).chain([minimum(job)]);
    let mut sizes: Vec<u32> = all
        .filter(|gpus| (minimum(job)..=limit).contains(gpus))
        .collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Returns the factor on the goodput after a restart: the part of the job's life with progress,
/// including past restarts and the next one.
fn discount(job: &ProblemJob, now_s: f64) -> f64 {
    let age_s = job.age_s(now_s);
    if job.present.is_empty() || age_s < job.restart_s {
        return 1.0;
    }
    let lost_s = f64::from(job.restarts) * job.restart_s;
    (age_s - lost_s).max(0.0) / (age_s + job.restart_s).max(1.0)
}

/// Drops choices that increase the sum or gain no more than a smaller one of the same kind. No
/// optimum contains them.
fn without_waste(choices: Vec<SiaConfiguration>) -> Vec<SiaConfiguration> {
    let useful = choices.iter().filter(|choice| {
        let mut others = choices.iter();
        choice.gain > 0.0 && !others.any(|other| other.replaces(choice))
    });
    useful.copied().collect()
}
