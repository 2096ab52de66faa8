//! Who gets more than the minimum: Optimus' marginal gain (Peng et al., EuroSys 2018, section 4.1).
//!
//! Again and again the job that saves the most time per share of the cluster gets one worker or one shard more, until nothing is
//! left or nobody gains. It knows how much there is, not where.

use crate::cluster::{Cluster, Room, When};
use crate::contender::Contender;
use crate::place::Gang;
use muster_model::id::TenantId;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap};

/// Workers and shards of a job.
pub(crate) type Size = (u32, u32);

/// One who may grow.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Growing {
    pub index: usize,
    /// What it has already, taken from the budget before.
    pub from: Size,
}

/// What is left to give.
#[derive(Debug, Clone)]
pub(crate) struct Budget {
    pub gpus: u32,
    pub room: Room,
    /// GPUs left of the quotas; a tenant without one is not in it.
    pub quotas: BTreeMap<TenantId, u32>,
    /// Of the whole cluster, for shares.
    total_gpus: f64,
    total_cpu_milli: f64,
    total_memory_bytes: f64,
}

/// Sizes, and who would have got the next GPU.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sizes {
    pub sizes: BTreeMap<usize, Size>,
    /// The best step that was refused for want of room: job and seconds saved per share of the cluster.
    pub runner_up: Option<(usize, f64)>,
}

impl Budget {
    pub(crate) fn of(whole: &Cluster, free: &Cluster, quotas: BTreeMap<TenantId, u32>) -> Self {
        let total = whole.room();
        Self {
            gpus: free.gpus(When::Later),
            room: free.room(),
            quotas,
            total_gpus: f64::from(whole.gpus(When::Later).max(1)),
            total_cpu_milli: total.cpu_milli.max(1) as f64,
            total_memory_bytes: total.memory_bytes.max(1) as f64,
        }
    }

    /// Takes it if it is there.
    pub(crate) fn take(&mut self, gang: Gang<'_>) -> bool {
        let quota = self
            .quotas
            .get(&gang.job.tenant)
            .copied()
            .unwrap_or(u32::MAX);
        let fits = self.gpus >= gang.gpus() && quota >= gang.gpus() && self.room.holds(gang.room());
        if fits {
            self.force(gang);
        }
        fits
    }

    /// Takes it, and leaves nothing where there was less.
    pub(crate) fn force(&mut self, gang: Gang<'_>) {
        self.gpus = self.gpus.saturating_sub(gang.gpus());
        self.room.take(gang.room());
        if let Some(quota) = self.quotas.get_mut(&gang.job.tenant) {
            *quota = quota.saturating_sub(gang.gpus());
        }
    }

    /// The share of the cluster that this takes of its scarcest part (the dominant resource).
    fn share(&self, gang: Gang<'_>) -> f64 {
        let room = gang.room();
        let shares = [
            f64::from(gang.gpus()) / self.total_gpus,
            room.cpu_milli as f64 / self.total_cpu_milli,
            room.memory_bytes as f64 / self.total_memory_bytes,
        ];
        shares.into_iter().fold(1e-9, f64::max)
    }
}

/// Lets everybody grow from where it stands.
pub(crate) fn grow(contenders: &[Contender<'_>], growing: &[Growing], mut budget: Budget) -> Sizes {
    let mut growths: Vec<Growth<'_>> = growing
        .iter()
        .map(|one| Growth {
            contender: &contenders[one.index],
            size: one.from,
            open: [true; STEPS.len()],
        })
        .collect();
    let mut heap: BinaryHeap<Step> = BinaryHeap::new();
    for (position, growth) in growths.iter().enumerate() {
        heap.extend(growth.best(position, &budget));
    }
    let mut runner_up = None;
    while let Some(step) = heap.pop() {
        let growth = &mut growths[step.position];
        let (workers, ps_shards) = STEPS[step.kind];
        if budget.take(Gang {
            job: growth.contender.job,
            workers,
            ps_shards,
        }) {
            growth.size = (growth.size.0 + workers, growth.size.1 + ps_shards);
        } else {
            // What is left only shrinks, so what does not fit now never will.
            growth.open[step.kind] = false;
            runner_up.get_or_insert((growing[step.position].index, step.gain));
        }
        heap.extend(growth.best(step.position, &budget));
    }
    let sizes = growing
        .iter()
        .zip(&growths)
        .map(|(one, growth)| (one.index, growth.size))
        .collect();
    Sizes { sizes, runner_up }
}

/// Seconds saved per share of the cluster by one worker more.
pub(crate) fn next_worker_gain(
    contender: &Contender<'_>,
    size: Size,
    budget: &Budget,
) -> Option<f64> {
    Growth {
        contender,
        size,
        open: [true, false, false, false],
    }
    .best(0, budget)
    .map(|step| step.gain)
}

/// Workers and shards at a time. Two and four workers as well as one, because measured speeds have dips: a third worker that
/// gains nothing must not hide that a fourth does.
const STEPS: [Size; 4] = [(1, 0), (2, 0), (4, 0), (0, 1)];

struct Growth<'c> {
    contender: &'c Contender<'c>,
    size: Size,
    /// Steps that were not refused yet.
    open: [bool; STEPS.len()],
}

impl Growth<'_> {
    /// The step that saves the most per share, if one saves anything.
    fn best(&self, position: usize, budget: &Budget) -> Option<Step> {
        let estimate = &self.contender.estimate;
        let now_s = estimate.time_s(self.size);
        (0..STEPS.len())
            .filter(|&kind| self.open[kind])
            .filter_map(|kind| {
                let (workers, ps_shards) = STEPS[kind];
                let next = (self.size.0 + workers, self.size.1 + ps_shards);
                if next.0 > estimate.most.0.max(self.size.0)
                    || next.1 > estimate.most.1.max(self.size.1)
                {
                    return None;
                }
                let share = budget.share(Gang {
                    job: self.contender.job,
                    workers,
                    ps_shards,
                });
                let gain = (now_s - estimate.time_s(next)) / share;
                // Below a millionth of the time left it is rounding.
                (gain * share > 1e-6 * now_s).then_some(Step {
                    gain,
                    position,
                    kind,
                })
            })
            .max()
    }
}

/// A step to take, ordered by gain; of equals the job that comes first.
#[derive(Debug, Clone, Copy)]
struct Step {
    gain: f64,
    position: usize,
    kind: usize,
}

impl Ord for Step {
    fn cmp(&self, other: &Self) -> Ordering {
        self.gain
            .total_cmp(&other.gain)
            .then_with(|| other.position.cmp(&self.position))
            .then_with(|| other.kind.cmp(&self.kind))
    }
}

impl PartialOrd for Step {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Step {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Step {}
