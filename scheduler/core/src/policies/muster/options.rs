//! Options of every job and their values.

use super::Muster;
use crate::problem::{ProblemJob, SchedulingProblem};

/// Option of a job: a size on one GPU kind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct AllocationOption {
    pub kind: u16,
    pub gpus: u32,
    /// Number of nodes of the option: the fewest that hold it.
    pub nodes: u32,
    pub value: f64,
    /// Logarithm of the first factor of the value.
    urgency: f64,
}

impl AllocationOption {
    /// Returns the value beyond the price of the GPUs.
    pub(super) fn profit(&self, gpu_price: f64) -> f64 {
        self.value - gpu_price * f64::from(self.gpus)
    }
}

/// Option that a job gets, as an index into its options.
pub(super) type OptionIndex = Option<usize>;

/// Options of a job by kind and size, and the index of the present one if it is among them.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct JobOptions<'b> {
    pub options: &'b [AllocationOption],
    pub present: OptionIndex,
}

impl JobOptions<'_> {
    /// Returns the value of an option; 0 without one.
    pub(super) fn value(&self, choice: OptionIndex) -> f64 {
        choice.map_or(0.0, |option| self.options[option].value)
    }

    /// Returns the GPUs of the smallest option.
    pub(super) fn fewest_gpus(&self) -> Option<u32> {
        self.options.iter().map(|option| option.gpus).min()
    }
}

/// Options of all jobs in one vector. A decision on many jobs mostly scans it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct OptionTable {
    options: Vec<AllocationOption>,
    /// End of each job's options, and the index of its present option in it.
    ends: Vec<(usize, Option<usize>)>,
}

/// GPU kind with GPUs in this problem.
#[derive(Debug, Clone, Copy)]
pub(super) struct KindCapacity {
    index: u16,
    node_gpus: u32,
    gpus: u32,
}

/// Options per job for which memory is reserved.
const USUAL_OPTIONS: usize = 12;

/// Weight of a higher speed on idle GPUs, relative to one on GPUs that are well used.
const IDLE_WORTH: f64 = 0.01;

impl OptionTable {
    /// Returns the options of the movable jobs. Other jobs have none.
    pub(super) fn of(problem: &SchedulingProblem, policy: &Muster) -> Self {
        let kinds = KindTable::of(problem);
        let mut table = Self {
            options: Vec::with_capacity(USUAL_OPTIONS * problem.jobs.len()),
            ends: Vec::with_capacity(problem.jobs.len()),
        };
        let mut options = Vec::new();
        for job in &problem.jobs {
            options.clear();
            let present = options_of(problem, policy, kinds.of_job(job), job, &mut options);
            table.options.extend_from_slice(&options);
            table.ends.push((table.options.len(), present));
        }
        table
    }

    pub(super) fn all_options(&self) -> Vec<JobOptions<'_>> {
        let mut start = 0;
        self.ends
            .iter()
            .map(|&(end, present)| {
                let options = &self.options[start..end];
                start = end;
                JobOptions { options, present }
            })
            .collect()
    }
}

/// GPU kinds on all nodes, and on each set of nodes of the problem.
pub(super) struct KindTable {
    all: Vec<KindCapacity>,
    by_set: Vec<Vec<KindCapacity>>,
}

impl KindTable {
    pub(super) fn of(problem: &SchedulingProblem) -> Self {
        let sets = problem.node_sets.iter();
        let by_set = sets.map(|set| kinds(problem, |node| set.contains(node)));
        Self {
            by_set: by_set.collect(),
            all: kinds(problem, |_| true),
        }
    }

    /// Returns the kinds on the nodes where a job may run.
    pub(super) fn of_job(&self, job: &ProblemJob) -> &[KindCapacity] {
        let set = job.unit.nodes.index();
        set.map_or(&self.all, |index| &self.by_set[index])
    }
}

fn kinds(problem: &SchedulingProblem, is_in: impl Fn(usize) -> bool) -> Vec<KindCapacity> {
    let most = problem.nodes.iter().map(|node| node.kind).max();
    let mut kinds: Vec<KindCapacity> = (0..=most.unwrap_or(0))
        .map(|index| KindCapacity {
            index,
            node_gpus: 0,
            gpus: 0,
        })
        .collect();
    let nodes = problem.nodes.iter().enumerate();
    for (_, node) in nodes.filter(|&(index, _)| is_in(index)) {
        let kind = &mut kinds[usize::from(node.kind)];
        kind.node_gpus = kind.node_gpus.max(node.gpus);
        kind.gpus += node.gpus;
    }
    kinds.retain(|kind| kind.gpus > 0);
    kinds
}

/// Fills in the options of a job and returns the index of the present one.
pub(super) fn options_of(
    problem: &SchedulingProblem,
    policy: &Muster,
    kinds: &[KindCapacity],
    job: &ProblemJob,
    options: &mut Vec<AllocationOption>,
) -> Option<usize> {
    if !job.is_movable() {
        return None;
    }
    let held = job.held_gpus();
    let present = job.present.first();
    let present = present.map(|part| (problem.kind_of(part), held));
    sizes(policy, kinds, job, held, options);
    // At this point the value of each option is its speed.
    worth_their_gpus(options, policy.min_marginal_speed, present);
    let restart_s = job.restart_s.max(1e-3);
    let offset_s = policy.offset_restarts * restart_s;
    let work =
        job.outlook.work_left / (1.0 + policy.unknown_length_discount * job.outlook.uncertainty);
    let fastest = options
        .iter()
        .map(|option| option.value)
        .fold(0.0, f64::max);
    let alone_s = (job.outlook.work_done + work) / fastest;
    let age_unit_s = policy.age_unit_restarts * restart_s + policy.age_unit_lengths * alone_s;
    let age = job.age_s(problem.now_s) / age_unit_s;
    let young = age.min(policy.age_knee);
    let ageing = policy.ageing * (1.0 + young).ln() + 0.5 * ((1.0 + age) / (1.0 + young)).ln();
    let lost_share = policy.lost_share(job, problem.now_s);
    let least_cost_s = policy.caution * job.change_s().max(1e-3);
    for of_kind in options.chunk_by_mut(|a, b| a.kind == b.kind) {
        let base = ageing - policy.efficiency_exponent * best_speed_per_gpu(of_kind).ln();
        for option in of_kind {
            let speed = option.value;
            let stays = present == Some((option.kind, option.gpus));
            let changes_kind = present.is_some_and(|(kind, _)| kind != option.kind);
            let cost_s = if stays {
                0.0
            } else if changes_kind {
                least_cost_s.max(lost_share * work / speed)
            } else {
                least_cost_s
            };
            let time_s = work / speed + cost_s + offset_s;
            let efficiency = policy.efficiency_exponent * (speed / f64::from(option.gpus)).ln();
            option.urgency = -policy.power * time_s.ln();
            option.value = (base + efficiency + option.urgency).exp();
        }
    }
    idle_growth(options);
    options.retain(|option| option.value.is_finite() && option.value > 0.0);
    options
        .iter()
        .position(|option| present == Some((option.kind, option.gpus)))
}

/// Adds the sizes of a job, with the speed as their value. On one node any number of units is
/// possible, on several only whole nodes. The minimum and the present size are always included.
fn sizes(
    policy: &Muster,
    kinds: &[KindCapacity],
    job: &ProblemJob,
    held: u32,
    options: &mut Vec<AllocationOption>,
) {
    let unit = job.unit.gpus.max(1);
    let least = job.min_gpus.max(1).div_ceil(unit) * unit;
    let measured = job.outlook.largest_gpus.max(1);
    let explored = measured.saturating_mul(policy.explore_factor);
    let most = job.max_gpus.min(explored.max(least));
    for kind in kinds {
        let whole = kind.node_gpus / unit * unit;
        let Some(curve) = job.outlook.curves.get(usize::from(kind.index)) else {
            continue;
        };
        if whole == 0 {
            continue;
        }

        let top = most
            .min(kind.gpus)
            .max(if least <= kind.gpus { least } else { 0 });
        let mut gpus = least;
        while gpus <= top {
            let nodes = gpus.div_ceil(whole);
            let speed = curve.speed(gpus, nodes);
            if speed > 0.0 && speed < f64::INFINITY {
                options.push(AllocationOption {
                    kind: kind.index,
                    gpus,
                    nodes,
                    value: speed,
                    urgency: 0.0,
                });
            }
            // Next unit on one node, from there next whole node. The present size is inserted
            // between them.
            let next = if gpus < whole {
                gpus + unit
            } else {
                (gpus / whole + 1) * whole
            };
            gpus = if (gpus + 1..next).contains(&held) {
                held
            } else {
                next
            };
        }
    }
}

/// Raises the value of options that are faster than a smaller one but not worth their GPUs. They
/// become slightly better than the smaller one, so they are taken when their GPUs would be idle.
fn idle_growth(options: &mut [AllocationOption]) {
    for of_kind in options.chunk_by_mut(|a, b| a.kind == b.kind) {
        let (mut value, mut urgency) = (0.0, f64::NEG_INFINITY);
        for option in of_kind {
            if option.urgency > urgency && option.value <= value {
                option.value = value * (1.0 + IDLE_WORTH * (option.urgency - urgency));
            }
            if option.value > value {
                (value, urgency) = (option.value, option.urgency);
            }
        }
    }
}

/// Removes sizes whose further GPUs add less than `share` of the best speed per GPU of their kind,
/// each, to the speed of the next smaller kept one. The best speed of another kind does not count:
/// idle GPUs of a slow kind cannot be exchanged for those of a fast one.
fn worth_their_gpus(options: &mut Vec<AllocationOption>, share: f64, present: Option<(u16, u32)>) {
    let (mut start, mut kept) = (0, 0);
    while start < options.len() {
        let kind = options[start].kind;
        let of_kind = options[start..].iter().take_while(|of| of.kind == kind);
        let end = start + of_kind.count();
        let least = share * best_speed_per_gpu(&options[start..end]);
        let mut last: Option<AllocationOption> = None;
        for index in start..end {
            let option = options[index];
            let adds = last.is_none_or(|last| {
                option.value - last.value >= least * f64::from(option.gpus - last.gpus)
            });
            // A size that is kept only because it is the present one is no reference for others.
            if adds {
                last = Some(option);
            }
            if adds || present == Some((option.kind, option.gpus)) {
                options[kept] = option;
                kept += 1;
            }
        }
        start = end;
    }
    options.truncate(kept);
}

/// Returns the best speed per GPU among options whose value is their speed.
fn best_speed_per_gpu(options: &[AllocationOption]) -> f64 {
    let speeds = options
        .iter()
        .map(|option| option.value / f64::from(option.gpus));
    speeds.fold(0.0, f64::max)
}
