//! Packing: two jobs of one task each that would take turns on a GPU are at work there at once, while that is faster than turns (Gandiva,
//! Xiao et al., OSDI 2018, section 3.2).
//!
//! It begins where turns leave it. Whoever stands still was measured while it was alone, and goes on as a guest beside the job that
//! has its GPU; whoever is a guest for nothing stands still again. So a trial and its end cost two turns and no restart, and nobody is
//! packed of whom nothing is known. There is no state besides what was measured: a pair that did not pay is known by its rates.
//!
//! The policy knows whole GPUs. A guest holds none and is no member of its problem, until its host has ended: then the GPU is its own.

mod measured;
mod pairs;
mod seats;

use super::pass::requeue;
use super::settle::is_whole;
use super::standing::Standing;
use super::turns;
use super::world::{LiveJob, World};
use crate::plan::Action;
use crate::policy::{Packing, Slicing};
use crate::snapshot::Task;
use measured::Pair;
use muster_model::job::{Intent, RequeueCause};
pub(crate) use pairs::{Pairs, Second, join};
pub(crate) use seats::Seats;
use seats::seat;

/// Of those who stand still so many are looked at in a round.
const CONSIDERED: usize = 64;

/// Before the policy: guests that cost more than they bring, or whose memory is not safe any more, stand still.
pub(crate) fn unpack(world: &mut World<'_>) {
    for guest in 0..world.jobs.len() {
        let live = &world.jobs[guest];
        let Some(host) = live.host.filter(|_| live.standing.stays()) else {
            continue;
        };
        if let Some(why) = parts_because(world, host, guest) {
            let whose = world.jobs[host].named_to(world.jobs[guest].tenant);
            let why = format!("no longer beside {whose}: {why}");
            part(world, guest, why);
        }
    }
}

fn parts_because(world: &World<'_>, host: usize, guest: usize) -> Option<String> {
    let (Some(packing), Some(_)) = (world.policy.packing, world.policy.slicing) else {
        return Some("packing is switched off".to_owned());
    };
    if !are_equals(&world.jobs[host], &world.jobs[guest]) {
        return Some("they are not of equal rank any more".to_owned());
    }
    let pair = pair(world, host, guest);
    match pair.memory(&packing) {
        None => return Some("what is used of its memory is not told any more".to_owned()),
        Some(memory) if !memory.fits(packing.spare_memory) => {
            return Some(format!("{memory}, which is too much"));
        }
        Some(_) => {}
    }
    let live = &world.jobs[guest];
    let since_ms = live.job.turned_ms.unwrap_or(i64::MIN);
    match pair.together(packing.samples, since_ms) {
        Some(rates) if rates.pay(&packing) => None,
        Some(rates) => Some(format!("{rates}, {}", rates.wrong(&packing))),
        None => {
            let trial_ms = i64::try_from(packing.trial_ms).unwrap_or(i64::MAX);
            let is_over = world.now_ms.saturating_sub(since_ms) >= trial_ms;
            is_over.then(|| "their rates together were not told in time".to_owned())
        }
    }
}

/// Before turns: whoever stands still goes on beside the job that has its GPU, if nothing that is known speaks against it.
pub(crate) fn pack(world: &mut World<'_>) {
    let (Some(packing), Some(slicing)) = (world.policy.packing, world.policy.slicing) else {
        return;
    };
    let line = turns::in_line(world);
    let has_newcomers = turns::has_newcomers(world);
    for &guest in line.iter().take(CONSIDERED) {
        let Some(host) = host_of(world, guest) else {
            continue;
        };
        // Somebody else's turn has come there, and would part them at once.
        let (live, other) = (&world.jobs[host], &world.jobs[guest]);
        let quantum_ms = i64::try_from(slicing.quantum_ms).unwrap_or(i64::MAX);
        let is_over = turns::has_had(world, live) >= quantum_ms;
        let is_wanted =
            |&waiter: &usize| waiter != guest && seat(&world.jobs[waiter]) == seat(other);
        let is_wanted = is_over && (has_newcomers || line.iter().any(is_wanted));
        if is_wanted || !may_share(world, host, guest) {
            continue;
        }
        if let Some(why) = worth_trying(world, (host, guest), packing, slicing) {
            become_guest(world, host, guest, why);
        }
    }
}

/// After all else: a guest's place is beside its host. Where that leaves for others, or grows, the guest stands still.
pub(crate) fn follow(world: &mut World<'_>) {
    for guest in 0..world.jobs.len() {
        let live = &world.jobs[guest];
        let Some(host) = live.host.filter(|_| live.standing.stays()) else {
            continue;
        };
        let other = &world.jobs[host];
        let grows = |action: &Action| matches!(action, Action::Resize { .. });
        if !other.standing.stays() || other.actions.iter().any(grows) {
            let whose = other.named_to(live.tenant);
            let why = format!("{whose}, beside which it was, leaves its GPU");
            part(world, guest, why);
        }
    }
}

/// A guest is none any more: whoever leaves the GPU last leaves it free. In a trial, which is undone, it counts as taken.
pub(crate) fn leave(world: &mut World<'_>, guest: usize) {
    if world.journal.is_some() {
        return;
    }
    let live = &mut world.jobs[guest];
    let Some(host) = live.host.take() else {
        return;
    };
    if let Some((node, gpu)) = seat(live)
        && let Some(gpus) = world.inherited.get_mut(&node)
    {
        *gpus &= !(1 << gpu);
    }
    world.jobs[host].guest = None;
}

/// What is said of a job that shares its GPU.
pub(crate) fn told(world: &World<'_>, index: usize) -> Option<String> {
    let packing = world.policy.packing?;
    let live = &world.jobs[index];
    let (host, guest, other) = match (live.host, live.guest) {
        (Some(host), _) => (host, index, host),
        (None, Some(guest)) => (index, guest, guest),
        (None, None) => return None,
    };
    let both = [host, guest];
    if !both.iter().all(|&one| world.jobs[one].standing.stays()) {
        return None;
    }
    let pair = pair(world, host, guest);
    let since_ms = world.jobs[guest].job.turned_ms.unwrap_or(i64::MIN);
    let rates = match pair.together(1, since_ms) {
        Some(rates) => rates.to_string(),
        None => "not measured together yet".to_owned(),
    };
    let memory = pair.memory(&packing).map(|memory| memory.to_string());
    let memory = memory.unwrap_or_default();
    let whose = world.jobs[other].named_to(live.tenant);
    Some(format!("shares its GPU with {whose}: {memory}; {rates}"))
}

fn pair<'w>(world: &'w World<'_>, host: usize, guest: usize) -> Pair<'w> {
    let at = seat(&world.jobs[guest]);
    let node = at.and_then(|(node, _)| world.snapshot.nodes.get(node as usize));
    let there = at.map_or(&[][..], |at| world.seats.there(at));
    let others = there.iter().filter(|&&one| one != host && one != guest);
    Pair {
        host: world.jobs[host].job,
        guest: world.jobs[guest].job,
        of_bytes: node.map_or(0, |node| node.gpu_memory_bytes),
        others: others.map(|&one| world.jobs[one].job).collect(),
        now_ms: world.now_ms,
    }
}

/// Who is at work on the GPU of a job that stands still, if it is alone there and nothing was decided of it.
fn host_of(world: &World<'_>, guest: usize) -> Option<usize> {
    let at = seat(&world.jobs[guest])?;
    let holds = |&index: &usize| {
        let mut tasks = world.jobs[index].job.held_tasks();
        tasks.any(|task| task.state.holds_gpus() && task.gpus.contains(&at.1))
    };
    let there = world.seats.there(at).iter().copied();
    let mut there = there.filter(|index| *index != guest).filter(holds);
    let (host, None) = (there.next()?, there.next()) else {
        return None;
    };
    let live = &world.jobs[host];
    let is_at_rest = live.actions.iter().all(|action| *action == Action::Up)
        && live.destination.is_none()
        && live.guest.is_none()
        && live.host.is_none()
        && !live.is_resizing;
    let stays = live.standing == Standing::Running && live.job.intent == Intent::Run;
    let is_holder = |task: &Task| task.is_up() && task.lane == 0;
    let is_alone = seat(live) == Some(at) && live.job.tasks.iter().all(is_holder);
    (is_at_rest && stays && is_alone).then_some(host)
}

/// Neither wants its GPU for itself, and none slows down one of higher priority.
fn are_equals(host: &LiveJob<'_>, guest: &LiveJob<'_>) -> bool {
    !host.job.exclusive && !guest.job.exclusive && host.priority == guest.priority
}

/// Whether the rules let them share: they are equals, and quota, CPU and the node have room for the guest.
fn may_share(world: &World<'_>, host: usize, guest: usize) -> bool {
    let (host, guest) = (&world.jobs[host], &world.jobs[guest]);
    let needed = cpu_milli(guest);
    let open = guest.places.first().is_some_and(|&node| {
        let free = &world.free[node as usize];
        free.open && (needed == 0 || free.now_room.cpu_milli >= needed)
    });
    let held = world.held[guest.tenant as usize];
    let pays = u32::from(host.tenant != guest.tenant);
    let has_quota = world
        .quota(guest)
        .is_none_or(|quota| pays == 0 || held.saturating_add(pays) <= quota);
    are_equals(host, guest) && open && has_quota
}

fn cpu_milli(live: &LiveJob<'_>) -> i64 {
    i64::try_from(live.job.worker.cpu_milli).unwrap_or(i64::MAX)
}

/// Why they are put together, in figures; `None` if something is not known of one of them, or known to be bad. Both must have been at work
/// alone for a quantum since they were started.
fn worth_trying(
    world: &World<'_>,
    (host, guest): (usize, usize),
    packing: Packing,
    slicing: Slicing,
) -> Option<String> {
    let pair = pair(world, host, guest);
    let memory = pair.memory(&packing)?;
    let alone = pair.alone(packing.samples)?;
    let busy = pair.busy()?;
    let is_known = pair.were_alone_for(slicing.quantum_ms) && pair.tell_in_time(&packing);
    let is_safe = memory.fits(packing.spare_memory) && !pair.was_hurt();
    if !is_known || !is_safe || pair.has_failed(&packing) {
        return None;
    }
    let whose = world.jobs[host].named_to(world.jobs[guest].tenant);
    Some(match pair.is_one_tenants() {
        true => format!("goes on beside {whose}: {memory}; {alone}; {busy}"),
        false => format!("goes on beside {whose}: {memory}"),
    })
}

fn become_guest(world: &mut World<'_>, host: usize, guest: usize, why: String) {
    let (now_ms, beside) = (world.now_ms, Some(world.jobs[host].job.id));
    let pays = u32::from(world.jobs[host].tenant != world.jobs[guest].tenant);
    let needed = cpu_milli(&world.jobs[guest]);
    world.jobs[host].guest = Some(guest);
    let live = &mut world.jobs[guest];
    let lent = false;
    live.take(Action::Continue { why, beside, lent }, now_ms);
    live.host = Some(host);
    live.shared = pays;
    world.held[live.tenant as usize] += pays;
    for held in &mut live.holdings {
        held.room.cpu_milli += needed;
        let free = &mut world.free[held.node as usize];
        free.now_room.cpu_milli -= needed;
        free.later_room.cpu_milli -= needed;
    }
    if let Some((node, gpu)) = seat(live) {
        *world.inherited.entry(node).or_default() |= 1 << gpu;
    }
}

/// A guest stands still where that can be, else it goes back to the queue.
fn part(world: &mut World<'_>, guest: usize, why: String) {
    if turns::take_back(world, guest) {
        return;
    }
    leave(world, guest);
    let now_ms = world.now_ms;
    let live = &mut world.jobs[guest];
    if is_whole(live.job) && !live.job.exclusive && world.policy.slicing.is_some() {
        live.take(Action::Suspend { why }, now_ms);
    } else {
        world.stop(guest, requeue(RequeueCause::Resize, why));
    }
}
