//! One pass of a round: what the policy chose is carried out on the dense world as far as the facts allow it now. Who is to run on
//! other GPUs stops; who is given free ones starts; who is given GPUs of stopping tasks waits for them.

use super::calm::{self, is_put_off};
use super::choose::{Chosen, choose, is_moved};
use super::defragment;
use super::free::{FreeNode, When};
use super::gang::{self, Share};
use super::in_place::{self, InPlace};
use super::moving;
use super::out_of_range;
use super::over_quota;
use super::packing;
use super::place;
use super::settle::done_workers;
use super::standing::Standing;
use super::turns;
use super::verdict;
use super::world::{LiveJob, World};
use crate::plan::Action;
use crate::problem::{Decision, Part, gpus_of};
use muster_model::id::JobId;
use muster_model::job::{AfterStop, Charge, RequeueCause};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// What the last pass, which changed nothing, leaves: what is promised to whom.
pub(crate) struct Rest {
    pub decision: Decision,
    /// Members that wait because an older job may not be overtaken any more.
    pub behind: BTreeMap<usize, JobId>,
    /// GPUs of every member that waits for tasks that stop, by node.
    pub promised: BTreeMap<usize, Vec<(u32, u64)>>,
    /// Free now and promised to nobody.
    pub free: Vec<FreeNode>,
}

/// A plan is complete: passes follow each other, each on the state that the one before leaves, until one changes nothing. What a
/// start or a stop leaves is so given away in the same round, and planning again on the state after the plan changes nothing, unless
/// somebody stands still or is to. It ends, because every pass but the last stops a running job or starts a waiting one, and neither is undone in the same round.
pub(crate) fn settle_down(world: &mut World<'_>) -> Rest {
    evict(world);
    // First, since a job that is being resized already could only be stopped for its quota.
    over_quota::obey(world);
    out_of_range::obey(world);
    restore(world);
    verdict::judge(world);
    packing::unpack(world);
    moving::arrive(world);
    turns::before(world);
    settle_again(world)
}

/// Passes until one changes nothing.
pub(crate) fn settle_again(world: &mut World<'_>) -> Rest {
    loop {
        if let Some(rest) = pass(world) {
            return rest;
        }
    }
}

/// The same, to see whether one job starts.
pub(crate) fn starts(world: &mut World<'_>, index: usize) -> bool {
    let starts = |world: &World<'_>| world.jobs[index].standing == Standing::Starting;
    while !starts(world) {
        if pass(world).is_some() {
            return false;
        }
    }
    true
}

/// Everybody leaves a drained node, whether there is room elsewhere or not: workers at once, a shard as soon as another one has what it
/// holds. Whoever is being resized does so after that.
fn evict(world: &mut World<'_>) {
    for index in 0..world.jobs.len() {
        let live = &world.jobs[index];
        let drained = |node: u32| world.snapshot.nodes[node as usize].drained;
        if !live.standing.stays() {
            continue;
        }
        let why = "its node is drained";
        let is_late = world.ran_ms(live) >= world.policy.suspend_limit_ms;
        if is_late && live.leaving.iter().any(|held| drained(held.node)) {
            let why = format!("{why}, and what is to leave it does not");
            world.stop(index, requeue(RequeueCause::Resize, why));
        } else if live.holdings.iter().any(|held| drained(held.node)) {
            match in_place::without(live, &world.free, drained) {
                Some(change) => {
                    let why = match change.join.len() {
                        0 => why.to_owned(),
                        moved => format!("{why}: {moved} of its PS shards elsewhere from now on"),
                    };
                    world.resize(index, &change, why);
                }
                None if will_be_able(world, live) => {}
                None => world.stop(index, requeue(RequeueCause::Resize, why.to_owned())),
            }
        }
    }
}

/// Whether it is being resized in place, for not so long yet that one would have to think of a restart.
fn will_be_able(world: &World<'_>, live: &LiveJob<'_>) -> bool {
    let is_running = live.job.in_place && live.standing == Standing::Running;
    is_running && live.is_resizing && world.ran_ms(live) < world.policy.min_run_ms
}

/// Whoever went on from a lost shard's copy gets another shard as soon as there is room, whatever the policy thinks of sizes.
fn restore(world: &mut World<'_>) {
    for index in 0..world.jobs.len() {
        let live = &world.jobs[index];
        if live.standing.stays()
            && !is_put_off(world, live)
            && let Some(change) = in_place::restore(live, &world.free)
        {
            let why = "another shard takes the place of the lost one".to_owned();
            world.resize(index, &change, why);
        }
    }
}

fn pass(world: &mut World<'_>) -> Option<Rest> {
    let mut blocked = vec![false; world.members.len()];
    loop {
        let chosen = choose(world, &blocked);
        let mut carrying = Carrying::new(world, &chosen.decision);
        carrying.stop();
        carrying.start();
        if carrying.changed {
            return None;
        }
        let (free, promised, misfits) = (carrying.free, carrying.promised, carrying.misfits);
        if misfits.is_empty() {
            let Chosen { decision, behind } = chosen;
            return Some(Rest {
                decision,
                behind,
                promised,
                free,
            });
        }
        // What they were given goes to others, and who cannot restart stays as it is.
        misfits
            .into_iter()
            .for_each(|member| blocked[member] = true);
    }
}

struct Carrying<'w, 'a, 'd> {
    world: &'w mut World<'a>,
    decision: &'d Decision,
    /// Less what was given or promised in this pass.
    free: Vec<FreeNode>,
    promised: BTreeMap<usize, Vec<(u32, u64)>>,
    misfits: Vec<usize>,
    changed: bool,
}

impl<'w, 'a, 'd> Carrying<'w, 'a, 'd> {
    fn new(world: &'w mut World<'a>, decision: &'d Decision) -> Self {
        Self {
            world,
            decision,
            free: Vec::new(),
            promised: BTreeMap::new(),
            misfits: Vec::new(),
            changed: false,
        }
    }

    fn stop(&mut self) {
        let members = 0..self.world.members.len();
        let moved: Vec<usize> = members
            .filter(|&member| is_moved(self.world, self.decision, member))
            .collect();
        if moved.is_empty() {
            return;
        }
        let newcomers = self.newcomers();
        for member in moved {
            let change = self.in_place(member);
            let restarts = change == InPlace::Never;
            let (cause, why) = self.why_move(member, &newcomers, restarts);
            let index = self.world.members[member];
            match change {
                InPlace::Now(change) => self.world.resize(index, &change, why),
                // The GPUs that it is to grow into are not free yet; it trains on until they are.
                InPlace::Later => continue,
                // Outside its owner's range it restarts only where it is sure of a place, which `out_of_range` sees to.
                InPlace::Never if self.is_out_of_range(member) => continue,
                InPlace::Never if self.is_displaced(member) => {
                    self.world.stop(index, requeue(cause, why));
                }
                // A restart and its place are one decision: without the place the job stays as it is.
                InPlace::Never => {
                    let Some(placed) = self.place_anew(member) else {
                        self.misfits.push(member);
                        continue;
                    };
                    let way = defragment::way(self.world, index, &placed);
                    self.world.relocate(index, placed, format!("{way}: {why}"));
                }
            }
            self.changed = true;
        }
    }

    /// How a moved member takes its new size.
    fn in_place(&self, member: usize) -> InPlace {
        let world = &*self.world;
        let live = &world.jobs[world.members[member]];
        let parts = self.decision.holds(&world.problem, member);
        if parts.is_empty() {
            return InPlace::Never;
        }
        let ps_shards = self.best_shards(member, parts).next().unwrap_or(0);
        let grows = gpus_of(parts) > world.problem.jobs[member].held_gpus();
        let borrows = grows && turns::may_grow_on_loan(world, world.members[member]);
        let free = match borrows {
            true => Cow::Owned(world.with_lendable(&world.free)),
            false => Cow::Borrowed(&world.free),
        };
        match in_place::resize(live, &free, parts, ps_shards) {
            // What its tenant's stopping tasks hold counts until they are gone, those included that are to leave here.
            InPlace::Now(change) if !self.quota_has_room(live, change.joining_gpus()) => {
                if world.held[live.tenant as usize] > self.kept(live.tenant) {
                    return InPlace::Later;
                }
                let shrinks = change.only_leaving(live);
                shrinks.map_or(InPlace::Never, InPlace::Now)
            }
            resize => resize,
        }
    }

    /// Whether a member that is not displaced has a size that its owner does not let it have any more.
    fn is_out_of_range(&self, member: usize) -> bool {
        let live = &self.world.jobs[self.world.members[member]];
        !self.is_displaced(member) && out_of_range::is_outside(live)
    }

    fn is_displaced(&self, member: usize) -> bool {
        self.decision.holds(&self.world.problem, member).is_empty()
    }

    /// Where a member starts again, if that is free once it has stopped: the place is kept for it until then.
    fn place_anew(&self, member: usize) -> Option<gang::Placed> {
        let (world, index) = (&*self.world, self.world.members[member]);
        let parts = self.decision.holds(&world.problem, member);
        let live = &world.jobs[index];
        let own = live.charged();
        let more = gpus_of(parts).saturating_sub(own);
        // What is left of a command begins anew wherever it goes.
        if done_workers(live.job) > 0 || !self.quota_has_room(live, more) {
            return None;
        }
        let is_smaller = gpus_of(parts) < own;
        if !is_smaller && calm::is_too_soon_to_restart(world, live) {
            return None;
        }
        let (mut free, shape) = (moving::once_stopped(world, index), &live.shape);
        let shares = self
            .best_shards(member, parts)
            .find_map(|ps_shards| gang::at(&free, shape, parts, ps_shards, When::Now))?;
        Some(gang::take(&mut free, shape, &shares, When::Now))
    }

    /// GPUs that the tenant's jobs keep.
    fn kept(&self, tenant: u32) -> u32 {
        let jobs = self.world.jobs.iter();
        jobs.filter(|live| live.tenant == tenant && live.standing.stays())
            .map(LiveJob::charged)
            .sum()
    }

    /// Whether so many GPUs more are within the quota beside all that the tenant's tasks still hold.
    fn quota_has_room(&self, live: &LiveJob<'_>, gpus: u32) -> bool {
        let held = self.world.held[live.tenant as usize];
        let quota = self.world.quota(live);
        gpus == 0 || quota.is_none_or(|quota| held.saturating_add(gpus) <= quota)
    }

    /// Waiting members by the nodes that they are given.
    fn newcomers(&self) -> BTreeMap<u32, Vec<usize>> {
        let mut by_node: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (member, parts) in self.given() {
            for part in parts {
                by_node.entry(part.node).or_default().push(member);
            }
        }
        by_node
    }

    /// Waiting members and what they are given, in order of submission.
    fn given(&self) -> Vec<(usize, &'d [Part])> {
        let (world, decision) = (&*self.world, self.decision);
        let parts = (0..world.members.len()).map(|member| (member, &decision.parts[member]));
        parts
            .filter_map(|(member, parts)| Some((member, parts.as_deref()?)))
            .filter(|(_, parts)| !parts.is_empty())
            .filter(|&(member, _)| world.jobs[world.members[member]].standing.waits())
            .collect()
    }

    fn why_move(
        &self,
        member: usize,
        newcomers: &BTreeMap<u32, Vec<usize>>,
        restarts: bool,
    ) -> (RequeueCause, String) {
        let world = &*self.world;
        let problem = &world.problem;
        let job = &problem.jobs[member];
        let live = &world.jobs[world.members[member]];
        let gets = gpus_of(self.decision.holds(problem, member));
        let per_worker = live.shape.worker.gpus.max(1);
        let had = live.size.0;
        let size = if gets == 0 {
            format!("from {had} workers to the queue")
        } else {
            format!("from {had} to {} workers", gets / per_worker)
        };
        let mut gainers = job
            .present
            .iter()
            .filter_map(|part| newcomers.get(&part.node))
            .flatten();
        let higher = |&&other: &&usize| problem.jobs[other].priority > job.priority;
        let name = |&other: &usize| world.jobs[world.members[other]].named_to(live.tenant);
        if gets == 0
            && let Some(gainer) = gainers.clone().find(higher)
        {
            let why = format!("{size}: {} has a higher priority", name(gainer));
            return (RequeueCause::Preempted, why);
        }
        let smaller = gets < job.held_gpus();
        let gainer = gainers.next();
        let why = match gainer.filter(|_| smaller) {
            Some(gainer) => format!("{size}: {} needs room to start", name(gainer)),
            None if smaller => format!("{size}: others gain more by its GPUs"),
            None if gets == job.held_gpus() => match gainer {
                Some(gainer) => format!("{} needs the room that it leaves", name(gainer)),
                None => "another place is worth the restart".to_owned(),
            },
            None if !restarts => format!("{size}: worth the change"),
            None => format!("{size}: worth the restart"),
        };
        (RequeueCause::Resize, why)
    }

    /// Starts whoever can, those first whose GPUs are all free; the others are promised theirs, and start after all if as many are
    /// free elsewhere that nobody was promised.
    fn start(&mut self) {
        self.free.clone_from(&self.world.free);
        let mut later = Vec::new();
        for (member, parts) in self.given() {
            if !self.start_at(member, parts) {
                later.push((member, parts));
            }
        }
        let mut promises = Vec::new();
        for (member, parts) in later {
            match self.promise(member, parts) {
                Some(shares) => promises.push((member, shares)),
                None => promises.push((member, Vec::new())),
            }
        }
        for (member, shares) in promises {
            if !self.start_anywhere(member) && shares.is_empty() && !self.start_on_loan(member) {
                self.misfits.push(member);
            }
        }
    }

    /// Starts the job on free GPUs some of which are kept for another job's turn: as many as it was given, or as there are.
    fn start_on_loan(&mut self, member: usize) -> bool {
        let index = self.world.members[member];
        let live = &self.world.jobs[index];
        if self.world.lendable.is_empty() || !turns::takes_turns(live.job) {
            return false;
        }
        let (shape, parts) = (live.shape, self.decision.holds(&self.world.problem, member));
        let wanted = gpus_of(parts) / shape.worker.gpus.max(1);
        let mut free = self.world.with_lendable(&self.free);
        let sizes = (shape.workers.min.max(1)..=wanted).rev();
        let found = sizes.filter(|&to| shape.takes(to)).find_map(|workers| {
            let size = (workers, shape.ps_shards.min);
            let may_start = self.may_start(member, shape.gpus(workers));
            let found = may_start.then(|| place::find(&free, &shape, size, When::Now));
            found.flatten()
        });
        let Some(shares) = found else {
            return false;
        };
        let placed = gang::take(&mut free, &shape, &shares, When::Now);
        let why = "on GPUs that are kept for another job's turn, until that comes".to_owned();
        self.world.start(index, &placed, why);
        // The rest of them is still kept.
        for (&node, gpus) in &self.world.lendable {
            free[node as usize].now &= !gpus;
        }
        self.free = free;
        self.changed = true;
        true
    }

    /// Starts the job where it was put, if nothing of that is held by anybody.
    fn start_at(&mut self, member: usize, parts: &[Part]) -> bool {
        if !self.may_start(member, gpus_of(parts)) {
            return false;
        }
        let live = &self.world.jobs[self.world.members[member]];
        let shares = self
            .best_shards(member, parts)
            .find_map(|ps_shards| gang::at(&self.free, &live.shape, parts, ps_shards, When::Now));
        if let Some(shares) = &shares {
            self.commit(member, shares);
        }
        shares.is_some()
    }

    /// Numbers of shards to try, the best first.
    fn best_shards(&self, member: usize, parts: &[Part]) -> impl Iterator<Item = u32> + use<> {
        let live = &self.world.jobs[self.world.members[member]];
        let workers = gpus_of(parts) / live.shape.worker.gpus.max(1);
        let least = live.shape.ps_shards.min;
        (least..=live.sizing.ps_shards(workers).max(least)).rev()
    }

    /// Whether it holds nothing any more, and its tenant's quota has room beside all that is still held.
    fn may_start(&self, member: usize, gpus: u32) -> bool {
        let live = &self.world.jobs[self.world.members[member]];
        live.standing == Standing::Queued && self.quota_has_room(live, gpus)
    }

    /// Keeps what the job was given for it until all of it is free.
    fn promise(&mut self, member: usize, parts: &[Part]) -> Option<Vec<Share>> {
        let live = &self.world.jobs[self.world.members[member]];
        let shape = live.shape;
        let shares = self
            .best_shards(member, parts)
            .find_map(|ps_shards| gang::at(&self.free, &shape, parts, ps_shards, When::Later))?;
        let placed = gang::take(&mut self.free, &shape, &shares, When::Later);
        self.promised.insert(member, placed.workers);
        Some(shares)
    }

    /// Starts the job on other GPUs than it was promised, if so many are free and promised to nobody.
    fn start_anywhere(&mut self, member: usize) -> bool {
        let parts = self.decision.holds(&self.world.problem, member);
        if !self.may_start(member, gpus_of(parts)) {
            return false;
        }
        let live = &self.world.jobs[self.world.members[member]];
        let workers = gpus_of(parts) / live.shape.worker.gpus.max(1);
        let found = self.best_shards(member, parts).find_map(|ps_shards| {
            place::find(&self.free, &live.shape, (workers, ps_shards), When::Now)
        });
        if let Some(shares) = &found {
            self.commit(member, shares);
            self.promised.remove(&member);
        }
        found.is_some()
    }

    fn commit(&mut self, member: usize, shares: &[Share]) {
        let index = self.world.members[member];
        let shape = self.world.jobs[index].shape;
        let placed = gang::take(&mut self.free, &shape, shares, When::Now);
        let why = match &self.world.journal {
            Some(_) => String::new(),
            None => why_start(&self.world.jobs[index], placed.size()),
        };
        self.world.start(index, &placed, why);
        self.changed = true;
    }
}

/// Why a job starts with this size, with the figures behind it.
fn why_start(live: &LiveJob<'_>, size: (u32, u32)) -> String {
    let limit = limit(&live.shape, size.0);
    if live.estimate.speed.points() == 0 {
        return format!("{limit}; its speed is not measured yet");
    }
    let steps_per_s = live.estimate.steps_per_s(size.0, size.1);
    let time_s = live.estimate.time_s(size);
    format!("{limit}; about {steps_per_s:.1} steps/s and {time_s:.0} s to its end")
}

/// Why a job starts with this size.
fn limit(shape: &gang::Shape, workers: u32) -> String {
    let range = shape.workers;
    if workers == range.max {
        "as many workers as it may have".to_owned()
    } else if workers == range.min {
        format!("its minimum of {workers} workers; others gain more by the rest")
    } else {
        format!(
            "{workers} of at most {} workers; others gain more by the rest, or it does not fit",
            range.max
        )
    }
}

pub(crate) fn requeue(cause: RequeueCause, why: String) -> Action {
    Action::Stop {
        then: AfterStop::Requeue { cause },
        why,
        charge: Charge::None,
        not_before_ms: None,
    }
}
