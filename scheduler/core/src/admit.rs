//! Whose minimum runs: waiting jobs in their turn, each with its smallest gang, room made for it where that is right.
//!
//! Room is made by shrinking elastic jobs above their minimum, and only then by displacing jobs of strictly lower priority. A job is
//! stopped only if that lets the waiting one start. How large anybody becomes beyond the minimum is not decided here.

use crate::cluster::{Cluster, When};
use crate::contender::{Contender, Standing, Turn};
use crate::place::{Gang, place};
use crate::policy::Policy;
use crate::snapshot::Snapshot;
use muster_model::id::{JobId, TenantId};
use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// More trial placements than this in one round are left to the next: a full queue on a fragmented cluster must not stall rounds.
const MOST_TRIALS: u32 = 256;

/// Who runs after this round, at the least at its minimum. Jobs are named by their index in the snapshot.
#[derive(Debug, Clone, Default)]
pub(crate) struct Admission {
    /// Everybody who is to be placed anew, in turn.
    pub starters: BTreeMap<Turn, usize>,
    /// Running jobs that must stop for the minimum of another, or for a drain.
    pub stopped: BTreeSet<usize>,
    /// Those of them that are displaced, for whom.
    pub displaced: BTreeMap<usize, usize>,
    /// For whom the others are stopped; none for a drain.
    pub made_way: BTreeMap<usize, usize>,
    /// Why a waiting job is not admitted.
    pub refused: BTreeMap<usize, Refusal>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Its tenant's other jobs hold or were promised so many GPUs.
    Quota { used_gpus: u32 },
    /// It does not fit beside the others.
    Room,
    /// It would fit, but an older job waits for that room.
    Behind { job: JobId },
}

pub(crate) fn admit(
    snapshot: &Snapshot,
    contenders: &[Contender<'_>],
    policy: &Policy,
) -> Admission {
    let mut admitting = Admitting::new(snapshot, contenders, policy);
    while let Some((turn, index)) = admitting.waiting.pop_first() {
        admitting.consider(turn, index);
    }
    admitting.done
}

/// The cluster as it will be: staying jobs hold what they have, all else is free now or later.
pub(crate) fn without_stopped(
    snapshot: &Snapshot,
    contenders: &[Contender<'_>],
    stopped: &BTreeSet<usize>,
) -> Cluster {
    let mut cluster = Cluster::empty(snapshot);
    for (index, contender) in contenders.iter().enumerate() {
        cluster.hold(
            contender.job,
            contender.stays() && !stopped.contains(&index),
        );
    }
    cluster
}

struct Admitting<'s, 'a> {
    snapshot: &'s Snapshot,
    contenders: &'s [Contender<'a>],
    policy: &'s Policy,
    quotas: BTreeMap<TenantId, u32>,
    waiting: BTreeMap<Turn, usize>,
    done: Admission,
    /// With the minimum of every starter placed.
    cluster: Cluster,
    /// GPUs that staying jobs hold and starters need at least.
    used: BTreeMap<TenantId, u32>,
    /// Waiting too long: nobody behind it starts; within its tenant only, if its quota is what it waits for.
    barrier: Option<usize>,
    tenant_barriers: BTreeMap<TenantId, usize>,
    trials: Cell<u32>,
}

/// A set of jobs to stop under which somebody's minimum fits.
struct Way {
    shrunk: BTreeSet<usize>,
    displaced: BTreeSet<usize>,
    cluster: Cluster,
}

impl<'s, 'a> Admitting<'s, 'a> {
    fn new(snapshot: &'s Snapshot, contenders: &'s [Contender<'a>], policy: &'s Policy) -> Self {
        let mut admitting = Self {
            snapshot,
            contenders,
            policy,
            quotas: snapshot
                .tenants
                .iter()
                .filter_map(|tenant| Some((tenant.id, tenant.gpu_quota?)))
                .collect(),
            waiting: BTreeMap::new(),
            done: Admission::default(),
            cluster: Cluster::empty(snapshot),
            used: BTreeMap::new(),
            barrier: None,
            tenant_barriers: BTreeMap::new(),
            trials: Cell::new(0),
        };
        let mut claims = BTreeMap::new();
        for (index, contender) in contenders.iter().enumerate() {
            match contender.standing {
                Standing::Running | Standing::Starting => {
                    *admitting.used.entry(contender.job.tenant).or_default() +=
                        contender.job.held_gpus();
                }
                Standing::Evicted => {
                    admitting.done.stopped.insert(index);
                    claims.insert(contender.claim(), index);
                }
                Standing::Returning => {
                    claims.insert(contender.claim(), index);
                }
                Standing::Queued | Standing::Displaced => {
                    admitting.waiting.insert(contender.turn(), index);
                }
                Standing::Resting | Standing::Ending => {}
            }
        }
        admitting.cluster = without_stopped(snapshot, contenders, &admitting.done.stopped);
        for (claim, index) in claims {
            if !admitting.fits(claim, index) {
                // Its node is gone, or its quota was lowered: it waits like everybody.
                admitting.waiting.insert(contenders[index].turn(), index);
            }
        }
        admitting
    }

    /// Places the minimum beside everybody admitted so far, if it fits there and in the quota.
    fn fits(&mut self, turn: Turn, index: usize) -> bool {
        let job = self.contenders[index].job;
        let fits = self.within_quota(index)
            && place(&mut self.cluster, Gang::min(job), When::Later).is_some();
        if fits {
            self.start(turn, index);
        }
        fits
    }

    fn within_quota(&self, index: usize) -> bool {
        let job = self.contenders[index].job;
        self.used(job.tenant).saturating_add(job.min_gpus()) <= self.quota(job.tenant)
    }

    fn used(&self, tenant: TenantId) -> u32 {
        self.used.get(&tenant).copied().unwrap_or(0)
    }

    fn quota(&self, tenant: TenantId) -> u32 {
        self.quotas.get(&tenant).copied().unwrap_or(u32::MAX)
    }

    fn consider(&mut self, turn: Turn, index: usize) {
        let job = self.contenders[index].job;
        let ahead = self
            .barrier
            .or_else(|| self.tenant_barriers.get(&job.tenant).copied());
        if let Some(ahead) = ahead {
            self.done.refused.insert(
                index,
                Refusal::Behind {
                    job: self.contenders[ahead].job.id,
                },
            );
            return;
        }
        if self.fits(turn, index) {
            return;
        }
        let within_quota = self.within_quota(index);
        let possible = job.min_gpus() <= self.quota(job.tenant);
        if possible && let Some(way) = self.make_way(index, within_quota) {
            self.stop(&way, index);
            self.start(turn, index);
            return;
        }
        let refusal = if within_quota {
            Refusal::Room
        } else {
            Refusal::Quota {
                used_gpus: self.used(job.tenant),
            }
        };
        self.done.refused.insert(index, refusal);
        self.raise_barrier(index, within_quota, possible);
    }

    fn start(&mut self, turn: Turn, index: usize) {
        let job = self.contenders[index].job;
        *self.used.entry(job.tenant).or_default() += job.min_gpus();
        self.done.starters.insert(turn, index);
    }

    /// Nobody starves: a job that could start on an emptier cluster and has waited long lets nobody pass any more.
    fn raise_barrier(&mut self, index: usize, within_quota: bool, possible: bool) {
        let job = self.contenders[index].job;
        let waited_ms = self.snapshot.now_ms.saturating_sub(job.submitted_ms);
        let patient = u64::try_from(waited_ms).unwrap_or(0) < self.policy.overtake_ms;
        if patient || !possible || !self.fits_empty(index) {
            return;
        }
        if within_quota {
            self.barrier = Some(index);
        } else {
            self.tenant_barriers.insert(job.tenant, index);
        }
    }

    fn fits_empty(&self, index: usize) -> bool {
        let mut empty = Cluster::empty(self.snapshot);
        place(&mut empty, Gang::min(self.contenders[index].job), When::Now).is_some()
    }

    /// The jobs to stop so that the minimum of `index` fits: as few as the order of candidates gives, shrinking before displacing.
    fn make_way(&mut self, index: usize, within_quota: bool) -> Option<Way> {
        let job = self.contenders[index].job;
        let concerned = |other: &Contender<'_>| within_quota || other.job.tenant == job.tenant;
        let running = || {
            self.contenders
                .iter()
                .enumerate()
                .filter(|(other, contender)| {
                    contender.standing == Standing::Running
                        && !self.done.stopped.contains(other)
                        && concerned(contender)
                })
        };
        let mut shrinkable: Vec<usize> = running()
            .filter(|(_, other)| surplus(other) > 0)
            .map(|(other, _)| other)
            .collect();
        shrinkable.sort_by_key(|&other| {
            let contender = &self.contenders[other];
            (Reverse(surplus(contender)), Reverse(contender.turn()))
        });
        let claims = self
            .done
            .starters
            .values()
            .map(|&other| (other, &self.contenders[other]));
        let mut displaceable: Vec<usize> = running()
            .chain(
                claims.filter(|(_, other)| concerned(other) && other.standing != Standing::Queued),
            )
            .filter(|(_, other)| other.job.priority < job.priority)
            .map(|(other, _)| other)
            .collect();
        displaceable.sort_by_key(|&other| Reverse(self.contenders[other].turn()));
        let none = BTreeSet::new();
        let all: BTreeSet<usize> = shrinkable.iter().copied().collect();
        if !all.is_empty() && self.way(index, &all, &none).is_some() {
            let shrunk = self.fewest(
                &shrinkable,
                |set| self.may_fit(index, set, &none),
                |this, set| this.way(index, set, &none).is_some(),
            );
            return self.way(index, &shrunk, &none);
        }
        let everybody: BTreeSet<usize> = displaceable.iter().copied().collect();
        let others = |displaced: &BTreeSet<usize>| -> BTreeSet<usize> {
            all.difference(displaced).copied().collect()
        };
        if everybody.is_empty() || self.way(index, &others(&everybody), &everybody).is_none() {
            return None;
        }
        let displaced = self.fewest(
            &displaceable,
            |set| self.may_fit(index, &others(set), set),
            |this, set| this.way(index, &others(set), set).is_some(),
        );
        let shrunk: Vec<usize> = shrinkable
            .into_iter()
            .filter(|other| !displaced.contains(other))
            .collect();
        let shrunk = self.fewest(
            &shrunk,
            |set| self.may_fit(index, set, &displaced),
            |this, set| this.way(index, set, &displaced).is_some(),
        );
        self.way(index, &shrunk, &displaced)
    }

    /// The shortest beginning of `candidates` that suffices, less those of it that are not needed. All of them are known to suffice.
    fn fewest(
        &self,
        candidates: &[usize],
        may_suffice: impl Fn(&BTreeSet<usize>) -> bool,
        suffices: impl Fn(&Self, &BTreeSet<usize>) -> bool,
    ) -> BTreeSet<usize> {
        let mut chosen = BTreeSet::new();
        for &candidate in candidates {
            if may_suffice(&chosen) && suffices(self, &chosen) {
                break;
            }
            chosen.insert(candidate);
        }
        if !suffices(self, &chosen) {
            return candidates.iter().copied().collect();
        }
        for candidate in chosen.clone() {
            chosen.remove(&candidate);
            if !(may_suffice(&chosen) && suffices(self, &chosen)) {
                chosen.insert(candidate);
            }
        }
        chosen
    }

    /// A bound that spares most trials: GPUs alone, wherever they are.
    fn may_fit(&self, index: usize, shrunk: &BTreeSet<usize>, displaced: &BTreeSet<usize>) -> bool {
        let gained: u32 = shrunk
            .iter()
            .map(|&other| surplus(&self.contenders[other]))
            .sum::<u32>()
            + displaced
                .iter()
                .map(|&other| self.claimed(other))
                .sum::<u32>();
        self.cluster.gpus(When::Later) + gained >= self.contenders[index].job.min_gpus()
    }

    /// Tries it: everybody's minimum placed anew, in turn, with these jobs stopped.
    fn way(
        &self,
        index: usize,
        shrunk: &BTreeSet<usize>,
        displaced: &BTreeSet<usize>,
    ) -> Option<Way> {
        if self.trials.get() >= MOST_TRIALS || !self.may_fit(index, shrunk, displaced) {
            return None;
        }
        self.trials.set(self.trials.get() + 1);
        let mut stopped = self.done.stopped.clone();
        stopped.extend(shrunk.iter().chain(displaced));
        let mut cluster = without_stopped(self.snapshot, self.contenders, &stopped);
        let mut starters = self.done.starters.clone();
        starters.retain(|_, starter| !displaced.contains(starter));
        starters.extend(
            shrunk
                .iter()
                .map(|&other| (self.contenders[other].claim(), other)),
        );
        starters.insert(self.contenders[index].turn(), index);
        for &starter in starters.values() {
            place(
                &mut cluster,
                Gang::min(self.contenders[starter].job),
                When::Later,
            )?;
        }
        let tenant = self.contenders[index].job.tenant;
        let own = |other: &&usize| self.contenders[**other].job.tenant == tenant;
        let freed_gpus: u32 = shrunk
            .iter()
            .filter(own)
            .map(|&other| surplus(&self.contenders[other]))
            .sum::<u32>()
            + displaced
                .iter()
                .filter(own)
                .map(|&other| self.claimed(other))
                .sum::<u32>();
        let needed = self
            .used(tenant)
            .saturating_add(self.contenders[index].job.min_gpus());
        (needed.saturating_sub(freed_gpus) <= self.quota(tenant)).then(|| Way {
            shrunk: shrunk.clone(),
            displaced: displaced.clone(),
            cluster,
        })
    }

    /// GPUs that the job keeps others from: what it holds while it runs, its minimum once it is stopped and comes back.
    fn claimed(&self, index: usize) -> u32 {
        let contender = &self.contenders[index];
        let runs = contender.standing == Standing::Running && !self.done.stopped.contains(&index);
        if runs {
            contender.job.held_gpus()
        } else {
            contender.job.min_gpus()
        }
    }

    fn stop(&mut self, way: &Way, made_for: usize) {
        self.cluster = way.cluster.clone();
        for &other in way.shrunk.iter().chain(&way.displaced) {
            let claimed = self.claimed(other);
            let contender = &self.contenders[other];
            let used = self.used.entry(contender.job.tenant).or_default();
            *used = used.saturating_sub(claimed);
            if contender.standing == Standing::Running {
                self.done.stopped.insert(other);
                self.done.made_way.insert(other, made_for);
            }
        }
        for &other in &way.shrunk {
            self.start(self.contenders[other].claim(), other);
        }
        for &other in &way.displaced {
            self.done.starters.retain(|_, starter| *starter != other);
            self.done.displaced.insert(other, made_for);
            self.waiting.insert(self.contenders[other].turn(), other);
        }
    }
}

/// GPUs that a running job holds above its minimum.
fn surplus(contender: &Contender<'_>) -> u32 {
    contender
        .job
        .held_gpus()
        .saturating_sub(contender.job.min_gpus())
}
