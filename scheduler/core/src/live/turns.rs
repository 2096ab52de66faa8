//! Turns: jobs that do not fit beside each other take GPUs in rotation, each for a slice of time, with their processes kept (Gandiva's
//! suspend-resume, Xiao et al., OSDI 2018, section 3.1).
//!
//! It runs around the policy and knows nothing of how one weighs. Before it, whoever has stood still the longest gets its own GPUs back
//! when they are free, and keeps what of them is free while it is first in the line. After it, whoever still waits takes the places of
//! those whose slice is over; the GPUs are given in the round in which they are free. A gang turns as a whole: all of it stands still,
//! or none. There is no state besides when each job was turned last.

use super::free::{FreeNode, When, bits, first_bits};
use super::gang;
use super::pass::{Rest, requeue};
use super::place;
use super::settle::is_whole;
use super::standing::{Standing, gpus_of};
use super::world::{LiveJob, World};
use crate::plan::Action;
use crate::policy::Slicing;
use crate::snapshot::{Job, Task};
use muster_model::job::{Intent, JobState, RequeueCause};
use std::collections::BTreeMap;

/// Of those who wait so many are considered in a round: each costs a look at everybody who runs.
const CONSIDERED: usize = 64;

/// The shortest slice as a part of the quantum, whatever the weights: turning must stay cheap beside running.
const SHORTEST: f64 = 1.0 / 8.0;

/// Bits of GPUs by node.
type Gpus = BTreeMap<u32, u64>;

/// Who waits for GPUs, and since when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Waiter {
    since_ms: i64,
    /// Who waits as long in the queue comes first: somebody was suspended for it.
    stands: bool,
    index: usize,
}

/// Before the policy: gives GPUs back to those who stand still and come before everybody in the queue, and starts those in the queue for
/// whom the policy has had no room for a quantum. What is free of what the first in the line needs is kept for it.
pub(crate) fn before(world: &mut World<'_>) {
    let mut line = standing_still(world);
    // Without turns nobody is suspended for them, and they are in nobody's way here.
    if world.policy.slicing.is_some() {
        line.extend(queued(world));
    }
    line.sort_unstable();
    let quantum_ms = world.policy.slicing.map(|slicing| slicing.quantum_ms);
    let quantum_ms = quantum_ms.map_or(i64::MAX, |ms| i64::try_from(ms).unwrap_or(i64::MAX));
    let slicing = world.policy.slicing;
    let crowded = slicing.map_or_else(Gpus::new, |slicing| crowded(world, slicing));
    // Without turns nobody makes room for it.
    let patience_ms = match slicing {
        Some(_) => quantum_ms,
        None => i64::try_from(world.policy.min_run_ms).unwrap_or(i64::MAX),
    };
    let mut looked = 0;
    for waiter in line {
        let waited_ms = world.now_ms.saturating_sub(waiter.since_ms);
        if looked == CONSIDERED || !(waiter.stands || waited_ms >= quantum_ms) {
            break;
        }
        // Who waits for its tenant's quota is in nobody's way.
        if !quota_has_room(world, waiter.index, needs(world, waiter.index)) {
            continue;
        }
        looked += 1;
        let served = match waiter.stands {
            true => go_on(world, waiter.index, "its turn has come"),
            false => begin(world, waiter.index, &crowded),
        };
        if served && waiter.stands {
            world.enlist(waiter.index);
        } else if waiter.stands && waited_ms >= patience_ms && is_shut_out(world, waiter.index) {
            go_elsewhere(world, waiter.index);
        } else if !served && world.reserved.is_none() {
            let wanted = match waiter.stands {
                true => home(world, waiter.index),
                false => gang_of(world, waiter.index, &crowded),
            };
            reserve(world, waiter.index, wanted);
        }
    }
}

/// Whether somebody holds GPUs of a job that stands still, and takes no turns: it could only wait for that one's end.
fn is_shut_out(world: &World<'_>, index: usize) -> bool {
    let home = home(world, index);
    let takes_turns = |live: &LiveJob<'_>| {
        world.policy.slicing.is_some() && live.job.suspends && !live.job.exclusive
    };
    world.jobs.iter().enumerate().any(|(other, live)| {
        other != index && live.standing.stays() && !takes_turns(live) && overlaps(live, &home)
    })
}

/// A job that stands still, and could not go on there, starts from its checkpoint where there is room; where there is none it waits for it in
/// the queue, and its owner is told so.
fn go_elsewhere(world: &mut World<'_>, index: usize) {
    let live = &world.jobs[index];
    let (shape, size) = (live.shape, live.size);
    let gpus = count(&home(world, index));
    let why = "its GPUs are held by a job that takes no turns";
    let found = match quota_has_room(world, index, gpus) {
        true => place::find(&world.free, &shape, size, When::Now),
        false => None,
    };
    match found {
        Some(shares) => {
            let placed = gang::take(&mut world.free.clone(), &shape, &shares, When::Now);
            let why = format!("{why}: it goes on elsewhere from its checkpoint");
            world.relocate(index, placed, why);
        }
        None => {
            let why = format!("{why}: it waits in the queue for room elsewhere");
            world.stop(index, requeue(RequeueCause::Resize, why));
            world.enlist(index);
        }
    }
}

/// Starts a job of the queue with its smallest gang, if that fits now.
fn begin(world: &mut World<'_>, index: usize, crowded: &Gpus) -> bool {
    let shape = world.jobs[index].shape;
    let least = (shape.workers.min, shape.ps_shards.min);
    let mut free = world.free.clone();
    leave_out(&mut free, crowded);
    let Some(shares) = place::find(&free, &shape, least, When::Now) else {
        return false;
    };
    let placed = gang::take(&mut free, &shape, &shares, When::Now);
    world.start(index, &placed, "its turn has come".to_owned());
    true
}

/// The GPUs of the smallest gang of a job once those who take turns have made room; none, if it would not fit then either.
fn gang_of(world: &World<'_>, index: usize, crowded: &Gpus) -> Gpus {
    let shape = world.jobs[index].shape;
    let mut free = world.free.clone();
    leave_out(&mut free, crowded);
    let runs = |live: &&LiveJob<'_>| live.standing == Standing::Running;
    for live in world.jobs.iter().filter(runs) {
        if live.job.suspends && !live.job.exclusive {
            vacate(world, &mut free, live);
        }
    }
    let least = (shape.workers.min, shape.ps_shards.min);
    let mut gang = Gpus::new();
    let Some(shares) = place::find(&free, &shape, least, When::Later) else {
        return gang;
    };
    // What is free now is what can be kept for it.
    for share in shares {
        let node = &mut free[share.node as usize];
        let wanted = share.workers * shape.worker.gpus;
        let now = wanted.min(node.now.count_ones());
        *gang.entry(share.node).or_default() |= node.take_gpus(now, When::Now);
    }
    gang
}

/// GPUs on which so many stand still that only one of those may be at work there.
fn crowded(world: &World<'_>, slicing: Slicing) -> Gpus {
    let mut crowded = Gpus::new();
    for ((node, gpu), count) in standing_by_gpu(world) {
        if count > slicing.suspended_per_gpu {
            *crowded.entry(node).or_default() |= 1 << gpu;
        }
    }
    crowded
}

fn leave_out(free: &mut [FreeNode], gpus: &Gpus) {
    for (&node, gpus) in gpus {
        free[node as usize].now &= !gpus;
    }
}

/// Jobs that stand still, or are to, by node and GPU.
fn standing_by_gpu(world: &World<'_>) -> BTreeMap<(u32, u32), u32> {
    let mut standing = BTreeMap::new();
    for index in 0..world.jobs.len() {
        if world.jobs[index].standing == Standing::Suspended {
            for gpu in each(&home(world, index)) {
                *standing.entry(gpu).or_default() += 1;
            }
        }
    }
    standing
}

/// GPUs that a job must hold to be at work.
fn needs(world: &World<'_>, index: usize) -> u32 {
    match world.jobs[index].standing {
        Standing::Suspended => count(&home(world, index)),
        _ => world.jobs[index].shape.min_gpus(),
    }
}

fn quota_has_room(world: &World<'_>, index: usize, gpus: u32) -> bool {
    let live = &world.jobs[index];
    let held = world.held[live.tenant as usize];
    let quota = world.quota(live);
    quota.is_none_or(|quota| held.saturating_add(gpus) <= quota)
}

/// After the policy: what nobody was given goes to those who stand still. Whether anybody goes on, whom the policy then has to see.
pub(crate) fn go_on_with_the_rest(world: &mut World<'_>, rest: &mut Rest) -> bool {
    let mut went_on = Vec::new();
    for waiter in standing_still(world) {
        let home = home(world, waiter.index);
        let is_free = |(node, gpus): (&u32, &u64)| rest.free[*node as usize].now & gpus == *gpus;
        if home.iter().all(is_free) && go_on(world, waiter.index, "its GPUs are free") {
            for (node, gpus) in home {
                rest.free[node as usize].now &= !gpus;
            }
            went_on.push(waiter.index);
        }
    }
    went_on.iter().for_each(|&index| world.enlist(index));
    !went_on.is_empty()
}

/// Then those whose slice is over make room for who waits.
pub(crate) fn after(world: &mut World<'_>, rest: &Rest) {
    if let Some(slicing) = world.policy.slicing {
        Turning::new(world, rest, slicing).turn();
    }
}

/// Those whose whole gang stands still and whose owner wants it to go on, the longest first.
fn standing_still(world: &World<'_>) -> Vec<Waiter> {
    let stands = |live: &LiveJob<'_>| {
        live.standing == Standing::Suspended
            && live.actions.is_empty()
            && live.job.intent == Intent::Run
            && live.job.stands_still()
    };
    let jobs = world.jobs.iter().enumerate();
    let mut waiters: Vec<Waiter> = jobs
        .filter(|(_, live)| stands(live))
        .map(|(index, live)| Waiter {
            since_ms: turned_ms(live.job),
            stands: true,
            index,
        })
        .collect();
    waiters.sort_unstable();
    waiters
}

/// Those in the queue for whom somebody would be suspended: they can be themselves, so that nobody waits for their end.
fn queued(world: &World<'_>) -> Vec<Waiter> {
    let jobs = world.jobs.iter().enumerate();
    jobs.filter(|(_, live)| live.standing == Standing::Queued)
        .filter(|(_, live)| live.job.suspends && !live.job.exclusive)
        .filter(|(_, live)| live.job.intent == Intent::Run)
        .map(|(index, live)| Waiter {
            // Who came into the queue in this very round waits from now on.
            since_ms: match live.job.state {
                JobState::Queued => turned_ms(live.job),
                _ => world.now_ms,
            },
            stands: false,
            index,
        })
        .collect()
}

/// When the present turn of a job with tasks began; of one in the queue, since when it is there.
fn turned_ms(job: &Job) -> i64 {
    let placed_ms = job.placed_ms.unwrap_or(job.submitted_ms);
    job.turned_ms.map_or(placed_ms, |at| at.max(placed_ms))
}

/// The GPUs that a job's workers were given, whether they hold them now or not.
fn home(world: &World<'_>, index: usize) -> Gpus {
    let live = &world.jobs[index];
    let mut home = Gpus::new();
    for (task, node) in live.job.tasks.iter().zip(&live.places) {
        if task.is_worker() && !task.state.is_released() {
            *home.entry(*node).or_default() |= bits(&task.gpus);
        }
    }
    home
}

/// Gives a job its GPUs back, if all of them are free and nothing else forbids it.
fn go_on(world: &mut World<'_>, index: usize, why: &str) -> bool {
    let home = home(world, index);
    let live = &world.jobs[index];
    let gpus = count(&home);
    let held = world.held[live.tenant as usize];
    if world
        .quota(live)
        .is_some_and(|quota| held.saturating_add(gpus) > quota)
    {
        return false;
    }
    let mut cpu_milli: BTreeMap<u32, i64> = BTreeMap::new();
    for (task, node) in live.job.tasks.iter().zip(&live.places) {
        if task.is_worker() && !task.state.is_released() {
            let worker = i64::try_from(live.job.worker.cpu_milli).unwrap_or(i64::MAX);
            *cpu_milli.entry(*node).or_default() += worker;
        }
    }
    let fits = |(node, gpus): (&u32, &u64)| {
        let Some(free) = world.free.get(*node as usize) else {
            return false;
        };
        let needed = cpu_milli.get(node).copied().unwrap_or(0);
        free.open && free.now & gpus == *gpus && (needed == 0 || free.now_room.cpu_milli >= needed)
    };
    if !home.iter().all(fits) {
        return false;
    }
    world.remember(index);
    for (&node, &gpus) in &home {
        let free = &mut world.free[node as usize];
        free.now &= !gpus;
        let needed = cpu_milli.get(&node).copied().unwrap_or(0);
        free.now_room.cpu_milli -= needed;
        free.later_room.cpu_milli -= needed;
    }
    let now_ms = world.now_ms;
    let live = &mut world.jobs[index];
    for held in &mut live.holdings {
        held.gpus |= home.get(&held.node).copied().unwrap_or(0);
        held.room.cpu_milli += cpu_milli.get(&held.node).copied().unwrap_or(0);
    }
    world.held[live.tenant as usize] += gpus;
    let why = why.to_owned();
    live.take(Action::Continue { why }, now_ms);
    true
}

/// Keeps what is free of these for the first in the line whom its tenant's quota lets in: who holds the rest of them is turned out when its slice is over, and nobody
/// else comes in between, so that a gang does not starve behind single workers.
fn reserve(world: &mut World<'_>, index: usize, gpus: Gpus) {
    if gpus.is_empty() {
        return;
    }
    let mut kept = Gpus::new();
    for (node, gpus) in gpus {
        if let Some(free) = world.free.get_mut(node as usize) {
            kept.insert(node, free.now & gpus);
            free.now &= !gpus;
        }
    }
    world.reserved = Some((index, kept));
}

/// What a job leaves that stands still: GPUs and its workers' CPU, but not its memory.
fn vacate(world: &World<'_>, free: &mut [FreeNode], live: &LiveJob<'_>) {
    for held in &live.holdings {
        let all = first_bits(world.problem.nodes[held.node as usize].gpus);
        let mut left = *held;
        left.room.memory_bytes = 0;
        let workers = held.gpus.count_ones() / live.shape.worker.gpus.max(1);
        left.room.cpu_milli = gang_cpu(live, workers);
        free[held.node as usize].release_later(&left, all);
    }
}

/// Who is turned out for whom.
struct Turning<'w, 'a, 'r> {
    world: &'w mut World<'a>,
    rest: &'r Rest,
    slicing: Slicing,
    /// Free and promised to nobody, with what those leave who were turned out in this round.
    free: Vec<FreeNode>,
    /// Jobs that stand still, or are to, by node and GPU.
    idle: BTreeMap<(u32, u32), u32>,
    /// Jobs of each tenant that take turns, which share its weight.
    taking_turns: Vec<u32>,
    /// The largest weight of any of them.
    heaviest: f64,
}

impl<'w, 'a, 'r> Turning<'w, 'a, 'r> {
    fn new(world: &'w mut World<'a>, rest: &'r Rest, slicing: Slicing) -> Self {
        let idle = standing_by_gpu(world);
        let mut taking_turns = vec![0; world.problem.tenants.len()];
        let members = || world.jobs.iter().filter(|live| takes_part(live));
        members().for_each(|live| taking_turns[live.tenant as usize] += 1);
        let weights = members().map(|live| weight(world, live, &taking_turns));
        Self {
            heaviest: weights.fold(f64::MIN_POSITIVE, f64::max),
            free: rest.free.clone(),
            taking_turns,
            world,
            rest,
            slicing,
            idle,
        }
    }

    fn turn(&mut self) {
        let mut line = queued(self.world);
        line.retain(|waiter| !self.is_served(waiter.index));
        line.extend(standing_still(self.world));
        line.sort_unstable();
        let mut running = self.over();
        // Whom not even all of its tenant's slices would let in waits for a quota, and is in nobody's way.
        line.retain(|waiter| self.quota_has_room(waiter.index, &running));
        line.truncate(CONSIDERED);
        if line.is_empty() {
            return;
        }
        if let Some((_, kept)) = self.world.reserved.take() {
            for (node, gpus) in kept {
                self.free[node as usize].now |= gpus;
            }
        }
        for waiter in line {
            let victims = match self.world.jobs[waiter.index].standing {
                Standing::Suspended => self.at_home(waiter.index, &running),
                _ => self.for_newcomer(waiter.index, &running),
            };
            for &victim in &victims {
                self.turn_out(victim, waiter.index);
            }
            running.retain(|index| !victims.contains(index));
        }
    }

    /// Whether GPUs of stopping tasks are promised to it already.
    fn is_served(&self, index: usize) -> bool {
        let member = self.world.jobs[index].member;
        member.is_none_or(|member| self.rest.promised.contains_key(&member))
    }

    /// Running jobs whose slice is over, that which has run the longest first.
    fn over(&self) -> Vec<usize> {
        let world = &*self.world;
        let mut over: Vec<(i64, usize)> = world
            .jobs
            .iter()
            .enumerate()
            .filter(|(_, live)| live.standing == Standing::Running)
            // Who has just come up may have been on its way for a whole slice.
            .filter(|(_, live)| live.actions.iter().all(|action| *action == Action::Up))
            .filter(|(_, live)| is_whole(live.job) && !live.job.exclusive)
            .map(|(index, live)| (turned_ms(live.job), index))
            .filter(|&(since_ms, index)| {
                let slice_ms = self.slice_ms(&world.jobs[index]);
                world.now_ms.saturating_sub(since_ms) >= slice_ms
            })
            .collect();
        over.sort_unstable();
        over.into_iter().map(|(_, index)| index).collect()
    }

    /// The heaviest has the whole quantum, others less by their weight: so a newcomer waits for one quantum at most.
    fn slice_ms(&self, live: &LiveJob<'_>) -> i64 {
        let share =
            (weight(self.world, live, &self.taking_turns) / self.heaviest).clamp(SHORTEST, 1.0);
        let quantum_ms = i64::try_from(self.slicing.quantum_ms).unwrap_or(i64::MAX);
        (quantum_ms as f64 * share) as i64
    }

    /// Whoever holds GPUs of a job that stands still, if the slice of all of them is over.
    fn at_home(&mut self, index: usize, over: &[usize]) -> Vec<usize> {
        let home = home(self.world, index);
        let blockers: Vec<usize> = (0..self.world.jobs.len())
            .filter(|&other| other != index && overlaps(&self.world.jobs[other], &home))
            .collect();
        if !self.quota_has_room(index, &blockers) {
            return Vec::new();
        }
        // They change places: it stands still there no longer.
        self.leaves(&home);
        let ready = |other: &usize| over.contains(other) && self.has_memory(*other);
        if !blockers.iter().all(ready) {
            self.stands(&home);
            return Vec::new();
        }
        for (node, gpus) in home {
            self.free[node as usize].now &= !gpus;
        }
        blockers
    }

    /// Those who have run the longest, until the smallest gang of a job in the queue fits; without those who would not have been needed.
    fn for_newcomer(&mut self, index: usize, over: &[usize]) -> Vec<usize> {
        let shape = self.world.jobs[index].shape;
        let least = (shape.workers.min, shape.ps_shards.min);
        let considered = 4 * shape.min_gpus() as usize + 16;
        let mut victims = Vec::new();
        let mut free = self.free.clone();
        let mut found = place::find(&free, &shape, least, When::Later);
        for &victim in over.iter().take(considered) {
            if found.is_some() {
                break;
            }
            if self.has_memory(victim) {
                vacate(self.world, &mut free, &self.world.jobs[victim]);
                victims.push(victim);
                found = place::find(&free, &shape, least, When::Later);
            }
        }
        if found.is_none() {
            return Vec::new();
        }
        for victim in victims.clone() {
            let others: Vec<usize> = victims
                .iter()
                .copied()
                .filter(|&one| one != victim)
                .collect();
            let mut without = self.free.clone();
            for &other in &others {
                vacate(self.world, &mut without, &self.world.jobs[other]);
            }
            if let Some(shares) = place::find(&without, &shape, least, When::Later) {
                (victims, free, found) = (others, without, Some(shares));
            }
        }
        if !self.quota_has_room(index, &victims) {
            return Vec::new();
        }
        if let Some(shares) = found {
            gang::take(&mut free, &shape, &shares, When::Later);
            self.free = free;
        }
        victims
    }

    /// Whether another job may stand still on each of its GPUs: what stands still keeps its memory.
    fn has_memory(&self, index: usize) -> bool {
        let idle = |gpu| self.idle.get(&gpu).copied().unwrap_or(0);
        each(&home(self.world, index)).all(|gpu| idle(gpu) < self.slicing.suspended_per_gpu)
    }

    fn quota_has_room(&self, index: usize, victims: &[usize]) -> bool {
        let live = &self.world.jobs[index];
        let of_tenant = victims.iter().map(|&victim| &self.world.jobs[victim]);
        let leave: u32 = of_tenant
            .filter(|victim| victim.tenant == live.tenant)
            .map(|victim| gpus_of(&victim.holdings))
            .sum();
        let held = self.world.held[live.tenant as usize].saturating_sub(leave);
        let quota = self.world.quota(live);
        quota.is_none_or(|quota| held.saturating_add(needs(self.world, index)) <= quota)
    }

    fn stands(&mut self, home: &Gpus) {
        for gpu in each(home) {
            *self.idle.entry(gpu).or_default() += 1;
        }
    }

    fn leaves(&mut self, home: &Gpus) {
        for gpu in each(home) {
            self.idle.entry(gpu).and_modify(|count| *count -= 1);
        }
    }

    fn turn_out(&mut self, index: usize, waiter: usize) {
        let home = home(self.world, index);
        self.stands(&home);
        let (live, other) = (&self.world.jobs[index], &self.world.jobs[waiter]);
        // The owner reads this, and others' names are theirs.
        let whose = match other.tenant == live.tenant {
            true => other.job.name.as_str(),
            false => "another tenant's job",
        };
        let why = format!("its slice is over, and it is the turn of {whose}");
        self.world.remember(index);
        let now_ms = self.world.now_ms;
        self.world.jobs[index].take(Action::Suspend { why }, now_ms);
    }
}

/// Whether a job's owner wants it at work, and it may be turned out for others.
fn takes_part(live: &LiveJob<'_>) -> bool {
    let is_there = matches!(
        live.standing,
        Standing::Running | Standing::Suspended | Standing::Queued
    );
    is_there && live.job.suspends && !live.job.exclusive && live.job.intent == Intent::Run
}

/// A job's share of time beside others in its place: its part of its tenant's, doubled for every 25 of priority. So a tenant has no more
/// time by having more jobs.
fn weight(world: &World<'_>, live: &LiveJob<'_>, taking_turns: &[u32]) -> f64 {
    let tenant = live.tenant as usize;
    let part = world.problem.tenants[tenant].weight / f64::from(taking_turns[tenant].max(1));
    part * (f64::from(live.priority) / 25.0).exp2()
}

fn gang_cpu(live: &LiveJob<'_>, workers: u32) -> i64 {
    let each = i64::try_from(live.shape.worker.cpu_milli).unwrap_or(i64::MAX);
    each.saturating_mul(i64::from(workers))
}

fn overlaps(live: &LiveJob<'_>, home: &Gpus) -> bool {
    let held = live
        .holdings
        .iter()
        .chain(&live.leaving)
        .chain(&live.joining);
    held.into_iter().any(|held| {
        home.get(&held.node)
            .is_some_and(|gpus| gpus & held.gpus != 0)
    })
}

fn count(gpus: &Gpus) -> u32 {
    gpus.values().map(|gpus| gpus.count_ones()).sum()
}

/// Each GPU by node and index.
fn each(gpus: &Gpus) -> impl Iterator<Item = (u32, u32)> + use<> {
    let each = gpus.iter().flat_map(|(&node, &set)| {
        let of_node = (0..u64::BITS).filter(move |gpu| set >> gpu & 1 == 1);
        of_node.map(move |gpu| (node, gpu))
    });
    each.collect::<Vec<_>>().into_iter()
}

/// What standing tasks hold that still hold GPUs: it is free once they stand still.
pub(crate) fn goes_later<'j>(job: &'j Job, settled: &JobState) -> impl Iterator<Item = &'j Task> {
    let suspending = |task: &&Task| task.is_worker() && task.state.holds_gpus();
    let tasks = match settled {
        JobState::Suspended => job.tasks.as_slice(),
        _ => &[],
    };
    tasks.iter().filter(suspending)
}
