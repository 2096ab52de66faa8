//! Steps along the hulls of the options: the sizes that can be optimal, and the order in which jobs
//! take them.

use super::options::{AllocationOption, JobOptions, OptionIndex};
use std::cmp::Ordering;

/// Number of steps at which the selection stops and the queue takes over.
const FEW: usize = 64;

/// Next step of a job along the upper hull of its options, ordered by precedence.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct HullStep {
    /// Class of the step. Only first steps are ordered by class; all further steps have the lowest
    /// one.
    class: i64,
    density: f64,
    /// GPUs that the step adds.
    gpus: u32,
    pub job: u32,
    /// Index in the corners of all hulls, and the end of the job's corners there.
    pub corner: u32,
    end: u32,
}

/// Corners of all hulls, as indices of options, and the next step of every job that has one. The
/// density of a job's steps falls, so only its next step has to be considered.
pub(super) struct GreedyHull {
    pub corners: Vec<u32>,
    pub next: Vec<HullStep>,
    pub lowest: i64,
}

impl GreedyHull {
    /// Returns the hulls and first steps of the jobs for which `of` holds.
    pub(super) fn new(
        all_options: &[JobOptions<'_>],
        classes: &[i64],
        of: impl Fn(usize) -> bool,
    ) -> Self {
        let mut corners: Vec<u32> = Vec::with_capacity(4 * all_options.len());
        let mut next = Vec::with_capacity(all_options.len());
        for (job, (job_options, &class)) in all_options.iter().zip(classes).enumerate() {
            let corner = corners.len();
            if of(job) {
                hull(job_options.options, &mut corners);
            }
            if corners.len() > corner {
                let (gpus, density) = rise(job_options.options, None, corners[corner] as usize);
                next.push(HullStep {
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

    /// Takes the steps that are certainly taken: those before the step at which `left` GPUs run
    /// out. Their order does not matter because all of them fit. A selection by halves finds them
    /// without a sort. Returns the option that each job reaches; `next` then has the steps above.
    pub(super) fn surely(
        &mut self,
        all_options: &[JobOptions<'_>],
        mut left: u32,
    ) -> Vec<(usize, usize)> {
        let mut steps = self.all_steps(all_options);
        let mut reached = vec![0; all_options.len()];
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
            let above =
                HullStep { corner, ..*step }.above(all_options[job].options, corners, lowest);
            above.inspect(|above| *step = *above).is_some()
        });
        taken
    }

    /// Returns the next steps of all jobs and all steps above them.
    fn all_steps(&self, all_options: &[JobOptions<'_>]) -> Vec<HullStep> {
        let mut steps = Vec::with_capacity(self.corners.len());
        for &first in &self.next {
            steps.push(first);
            let mut below = first;
            let options = all_options[first.job as usize].options;
            while let Some(mut step) = below.above(options, &self.corners, self.lowest) {
                // Rounding must not order a step before the one below it.
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

impl HullStep {
    /// Returns the next step of the job.
    pub(super) fn above(
        self,
        options: &[AllocationOption],
        corners: &[u32],
        lowest: i64,
    ) -> Option<Self> {
        let corner = self.corner + 1;
        if corner == self.end {
            return None;
        }
        let (from, to) = (corners[self.corner as usize], corners[corner as usize]);
        let (gpus, density) = rise(options, Some(from as usize), to as usize);
        Some(Self {
            class: lowest,
            density,
            gpus,
            corner,
            ..self
        })
    }
}

impl Eq for HullStep {}

impl Ord for HullStep {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_class = self.class.cmp(&other.class);
        let by_worth = by_class.then(self.density.total_cmp(&other.density));
        by_worth.then(other.job.cmp(&self.job))
    }
}

impl PartialOrd for HullStep {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Returns the GPUs of a step and the value that each of them adds.
fn rise(options: &[AllocationOption], from: OptionIndex, to: usize) -> (u32, f64) {
    let (gpus, value) = from.map_or((0, 0.0), |option| {
        (options[option].gpus, options[option].value)
    });
    let gpus = options[to].gpus - gpus;
    (gpus, (options[to].value - value) / f64::from(gpus))
}

fn dense(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

/// Returns the GPUs and the value at a corner, or the origin without one.
fn point(options: &[AllocationOption], corner: Option<&u32>) -> (f64, f64) {
    corner.map_or((0.0, 0.0), |&option| {
        let option = &options[option as usize];
        (f64::from(option.gpus), option.value)
    })
}

/// Adds the corners of the upper concave hull over the origin and the options of one kind, which
/// ascend in GPUs.
fn hull(options: &[AllocationOption], corners: &mut Vec<u32>) {
    let start = corners.len();

    for (index, option) in options.iter().enumerate() {
        if option.value <= point(options, corners[start..].last()).1 {
            continue;
        }
        let new = (f64::from(option.gpus), option.value);
        while let Some(last) = corners[start..].last() {
            let before = point(options, corners[start..].iter().rev().nth(1));
            let last = point(options, Some(last));
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
