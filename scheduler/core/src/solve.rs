//! Sizes and GPUs for everybody who is placed anew, the others staying as they are.
//!
//! This one computation is used before anything is stopped (what would come of it?) and in every round until all have started
//! again, so that the answer stays the same and nothing is stopped twice.

use crate::admit::without_stopped;
use crate::cluster::{Cluster, Room, When, bits};
use crate::contender::{Contender, Standing, Turn};
use crate::place::{Gang, place};
use crate::plan::PlannedTask;
use crate::scale::{Budget, Growing, Size, grow};
use crate::snapshot::{Job, Snapshot};
use muster_model::id::TenantId;
use std::collections::{BTreeMap, BTreeSet};

/// What everybody who is placed anew gets.
#[derive(Debug, Clone)]
pub(crate) struct Solution {
    pub placed: BTreeMap<usize, Placed>,
    /// The best step that was refused for want of room.
    pub runner_up: Option<(usize, f64)>,
    /// What is left after all of it.
    pub cluster: Cluster,
}

#[derive(Debug, Clone)]
pub(crate) struct Placed {
    pub size: Size,
    pub tasks: Vec<PlannedTask>,
    /// Nothing that it needs is held by anybody.
    pub at_once: bool,
}

/// What does not change while sizes are tried.
pub(crate) struct Problem<'s, 'a> {
    pub snapshot: &'s Snapshot,
    pub contenders: &'s [Contender<'a>],
    /// GPUs that tenants hold now, stopping tasks included.
    held: BTreeMap<TenantId, u32>,
    quotas: BTreeMap<TenantId, u32>,
}

impl<'s, 'a> Problem<'s, 'a> {
    pub(crate) fn new(snapshot: &'s Snapshot, contenders: &'s [Contender<'a>]) -> Self {
        let mut held: BTreeMap<TenantId, u32> = BTreeMap::new();
        for job in &snapshot.jobs {
            *held.entry(job.tenant).or_default() += job.held_gpus();
        }
        let quotas = snapshot
            .tenants
            .iter()
            .filter_map(|tenant| Some((tenant.id, tenant.gpu_quota?)))
            .collect();
        Self {
            snapshot,
            contenders,
            held,
            quotas,
        }
    }

    /// What may be given to those who are placed anew or grow, when `stopped` give up what they hold.
    pub(crate) fn budget(&self, free: &Cluster, stopped: &BTreeSet<usize>) -> Budget {
        let mut quotas = self.quotas.clone();
        for (index, contender) in self.contenders.iter().enumerate() {
            if contender.stays()
                && !stopped.contains(&index)
                && let Some(left) = quotas.get_mut(&contender.job.tenant)
            {
                *left = left.saturating_sub(contender.job.held_gpus());
            }
        }
        Budget::of(&Cluster::empty(self.snapshot), free, quotas)
    }

    /// `None` when not even the minimum of all of `starters` can be placed.
    pub(crate) fn solve(
        &self,
        starters: &BTreeMap<Turn, usize>,
        stopped: &BTreeSet<usize>,
    ) -> Option<Solution> {
        let free = without_stopped(self.snapshot, self.contenders, stopped);
        let mut budget = self.budget(&free, stopped);
        let growing: Vec<Growing> = starters
            .values()
            .map(|&index| {
                let gang = Gang::min(self.contenders[index].job);
                budget.force(gang);
                Growing {
                    index,
                    from: (gang.workers, gang.ps_shards),
                }
            })
            .collect();
        let targets = grow(self.contenders, &growing, budget);
        // What fits in sum may not fit on the nodes. Then everybody's surplus is halved until it does; at zero surplus the trial is
        // the one by which the starters were admitted.
        let greedy = [
            Effort::Targets(0),
            Effort::Targets(1),
            Effort::Targets(2),
            Effort::Targets(4),
        ];
        let (placed, cluster) = greedy
            .into_iter()
            .chain([Effort::Minima])
            .find_map(|effort| self.place_all(starters, &targets.sizes, free.clone(), effort))?;
        Some(Solution {
            placed,
            runner_up: targets.runner_up,
            cluster,
        })
    }

    fn place_all(
        &self,
        starters: &BTreeMap<Turn, usize>,
        targets: &BTreeMap<usize, Size>,
        mut cluster: Cluster,
        effort: Effort,
    ) -> Option<(BTreeMap<usize, Placed>, Cluster)> {
        let mut started: BTreeMap<TenantId, u32> = self.held.clone();
        let mut placed = BTreeMap::new();
        for &index in starters.values() {
            let contender = &self.contenders[index];
            let job = contender.job;
            let target = targets
                .get(&index)
                .copied()
                .unwrap_or((job.workers.min, job.ps_shards.min));
            let held = started.get(&job.tenant).copied().unwrap_or(0);
            let quota_left = self
                .quotas
                .get(&job.tenant)
                .map_or(u32::MAX, |quota| quota.saturating_sub(held));
            let may_start = contender.standing == Standing::Queued;
            let found =
                effort
                    .sizes(job, target)
                    .into_iter()
                    .find_map(|(workers, ps_shards)| {
                        let gang = Gang {
                            job,
                            workers,
                            ps_shards,
                        };
                        let at_once = may_start && gang.gpus() <= quota_left;
                        let tasks = match effort {
                            Effort::Targets(_) if at_once => place(&mut cluster, gang, When::Now),
                            Effort::Targets(_) | Effort::Minima => None,
                        };
                        if let Some(tasks) = tasks {
                            return Some(Placed {
                                size: (workers, ps_shards),
                                tasks,
                                at_once: true,
                            });
                        }
                        let before: Vec<u64> = cluster.nodes.iter().map(|node| node.now).collect();
                        let tasks = place(&mut cluster, gang, When::Later)?;
                        let at_once = at_once && claim_now(&mut cluster, &before, job, &tasks);
                        Some(Placed {
                            size: (workers, ps_shards),
                            tasks,
                            at_once,
                        })
                    })?;
            if found.at_once {
                *started.entry(job.tenant).or_default() += found.size.0 * job.worker.gpus;
            }
            placed.insert(index, found);
        }
        Some((placed, cluster))
    }
}

/// How much of the wanted sizes is tried.
#[derive(Debug, Clone, Copy)]
enum Effort {
    /// The surplus over the minimum, halved so many times.
    Targets(u32),
    /// The minimum, placed exactly as when it was admitted.
    Minima,
}

impl Effort {
    /// Sizes to try, largest first, the minimum last.
    fn sizes(self, job: &Job, target: Size) -> Vec<Size> {
        let min = (job.workers.min, job.ps_shards.min);
        let Self::Targets(halvings) = self else {
            return vec![min];
        };
        let mut surplus = (
            (target.0.saturating_sub(min.0)) >> halvings,
            (target.1.saturating_sub(min.1)) >> halvings,
        );
        let mut sizes = Vec::new();
        while surplus != (0, 0) {
            sizes.push((min.0 + surplus.0, min.1 + surplus.1));
            let less = |count: u32| count - (count / 8).max(1).min(count);
            surplus = (less(surplus.0), less(surplus.1));
        }
        sizes.push(min);
        sizes
    }
}

/// Whether a placement that was ready to wait needs nothing that anybody holds; then it takes it at once.
fn claim_now(cluster: &mut Cluster, before: &[u64], job: &Job, tasks: &[PlannedTask]) -> bool {
    let mut rooms: BTreeMap<usize, Room> = BTreeMap::new();
    for task in tasks {
        let Some(index) = cluster.nodes.iter().position(|node| node.id == task.node) else {
            return false;
        };
        let gpus = bits(&task.gpus);
        let room = Room::of(task.role, &job.worker, &job.ps_shard);
        let left = rooms.entry(index).or_insert(cluster.nodes[index].now_room);
        if gpus & !before[index] != 0 || !left.holds(room) {
            return false;
        }
        left.take(room);
    }
    for (index, room) in rooms {
        cluster.nodes[index].now_room = room;
    }
    true
}
