//! Packing: two time-sliced jobs of one task each share a GPU while that is faster (Gandiva, Xiao
//! et al., OSDI 2018, section 3.2).
//!
//! The running job is the host. A job that is suspended on the same GPU resumes beside it as its
//! guest. Both have been measured alone in their time slices; jobs without measurements are never
//! packed. After a trial the rates of both decide: a guest of a pair that does not pay is suspended
//! again. A trial therefore costs one resumption and one suspension, and no restart. The
//! measurements are the only state: they also show which pairs did not pay before.
//!
//! The policy knows only whole GPUs. A guest holds none and is not in the policy's problem until
//! its host has ended. Then it holds the GPU itself.
//!
//! Stages of a round call [`unpack`], [`pack`] and [`follow`], in this order (`stages.rs`).

mod measurements;

use super::observations::is_whole;
use super::planned_job::PlannedJob;
use super::round_state::RoundState;
use super::scheduling_state::SchedulingState;
use super::time_slicing;
use crate::plan::Action;
use crate::policy::{Packing, Slicing};
use measurements::PackingPair;
use muster_model::job::{Intent, RequeueCause};

/// Maximum number of suspended jobs that a round considers.
const CONSIDERED: usize = 64;

/// Stage before the policy: suspends guests of pairs that do not pay, that break a rule by now or
/// whose memory is no longer safe.
pub(crate) fn unpack(round: &mut RoundState<'_>) {
    for guest in 0..round.jobs.len() {
        let live = &round.jobs[guest];
        let Some(host) = live.host.filter(|_| live.scheduling_state.stays()) else {
            continue;
        };
        if let Some(why) = reason_to_separate(round, host, guest) {
            let whose = round.jobs[host].named_to(round.jobs[guest].tenant);
            let why = format!("no longer beside {whose}: {why}");
            separate(round, guest, why);
        }
    }
}

/// Reason for which a pair must end, for its jobs' history; `None` if it continues.
fn reason_to_separate(round: &RoundState<'_>, host: usize, guest: usize) -> Option<String> {
    let (Some(packing), Some(_)) = (round.policy.packing, round.policy.slicing) else {
        return Some("packing is switched off".to_owned());
    };
    if !are_of_equal_rank(&round.jobs[host], &round.jobs[guest]) {
        return Some("they are not of equal rank any more".to_owned());
    }
    let pair = pair(round, host, guest);
    match pair.memory(&packing) {
        None => return Some("what is used of its memory is not told any more".to_owned()),
        Some(memory) if !memory.fits(packing.spare_memory) => {
            return Some(format!("{memory}, which is too much"));
        }
        Some(_) => {}
    }
    let live = &round.jobs[guest];
    let since_ms = live.job.turned_ms.unwrap_or(i64::MIN);
    match pair.together(packing.samples, since_ms) {
        Some(rates) if rates.pay(&packing) => None,
        Some(rates) => Some(format!("{rates}, {}", rates.wrong(&packing))),
        None => {
            let trial_ms = i64::try_from(packing.trial_ms).unwrap_or(i64::MAX);
            let is_over = round.now_ms.saturating_sub(since_ms) >= trial_ms;
            is_over.then(|| "their rates together were not told in time".to_owned())
        }
    }
}

/// Stage before time slices rotate: resumes suspended jobs beside the job on their GPU, if
/// measurements allow it.
pub(crate) fn pack(round: &mut RoundState<'_>) {
    let (Some(packing), Some(slicing)) = (round.policy.packing, round.policy.slicing) else {
        return;
    };
    let line = time_slicing::waiting_for_slice(round);
    let has_newcomers = time_slicing::has_newcomers(round);
    for &guest in line.iter().take(CONSIDERED) {
        let Some(host) = host_of(round, guest) else {
            continue;
        };
        // If another job's time slice is due on that GPU, the rotation would end the pair at once.
        let (live, other) = (&round.jobs[host], &round.jobs[guest]);
        let quantum_ms = i64::try_from(slicing.quantum_ms).unwrap_or(i64::MAX);
        let is_slice_over = time_slicing::slice_age_ms(round, live) >= quantum_ms;
        let mut others = line.iter().filter(|&&waiter| waiter != guest);
        let is_wanted = is_slice_over
            && (has_newcomers || others.any(|&waiter| round.jobs[waiter].seat() == other.seat()));
        if is_wanted || !may_share(round, host, guest) {
            continue;
        }
        if let Some(why) = worth_trying(round, (host, guest), packing, slicing) {
            become_guest(round, host, guest, why);
        }
    }
}

/// Stage after time slices: suspends guests whose host leaves the GPU or is resized.
pub(crate) fn follow(round: &mut RoundState<'_>) {
    for guest in 0..round.jobs.len() {
        let live = &round.jobs[guest];
        let Some(host) = live.host.filter(|_| live.scheduling_state.stays()) else {
            continue;
        };
        let other = &round.jobs[host];
        let mut actions = other.actions.iter();
        let is_resized = actions.any(|action| matches!(action, Action::Resize { .. }));
        if !other.scheduling_state.stays() || is_resized {
            let whose = other.named_to(live.tenant);
            let why = format!("{whose}, beside which it was, leaves its GPU");
            separate(round, guest, why);
        }
    }
}

/// Text about a job that shares its GPU, for the report; `None` if it does not share it.
pub(crate) fn pair_report(round: &RoundState<'_>, index: usize) -> Option<String> {
    let packing = round.policy.packing?;
    let live = &round.jobs[index];
    let (host, guest, other) = match (live.host, live.guest) {
        (Some(host), _) => (host, index, host),
        (None, Some(guest)) => (index, guest, guest),
        (None, None) => return None,
    };
    let both = [host, guest];
    if !both
        .iter()
        .all(|&one| round.jobs[one].scheduling_state.stays())
    {
        return None;
    }
    let pair = pair(round, host, guest);
    let since_ms = round.jobs[guest].job.turned_ms.unwrap_or(i64::MIN);
    let rates = match pair.together(1, since_ms) {
        Some(rates) => rates.to_string(),
        None => "not measured together yet".to_owned(),
    };
    let memory = pair.memory(&packing).map(|memory| memory.to_string());
    let memory = memory.unwrap_or_default();
    let whose = round.jobs[other].named_to(live.tenant);
    Some(format!("shares its GPU with {whose}: {memory}; {rates}"))
}

/// Measurements of both jobs, of their GPU and of the other jobs on it.
fn pair<'w>(round: &'w RoundState<'_>, host: usize, guest: usize) -> PackingPair<'w> {
    let at = round.jobs[guest].seat();
    let node = at.and_then(|(node, _)| round.snapshot.nodes.get(node as usize));
    let there = at.map_or(&[][..], |at| round.seats.there(at));
    let others = there.iter().filter(|&&one| one != host && one != guest);
    PackingPair {
        host: round.jobs[host].job,
        guest: round.jobs[guest].job,
        of_bytes: node.map_or(0, |node| node.gpu_memory_bytes),
        others: others.map(|&one| round.jobs[one].job).collect(),
        now_ms: round.now_ms,
    }
}

/// Host for a suspended job: the job that runs on its GPU. `None` if that job has tasks elsewhere,
/// a guest or a change in this round.
fn host_of(round: &RoundState<'_>, guest: usize) -> Option<usize> {
    let at = round.jobs[guest].seat()?;
    let there = round.seats.there(at).iter().copied();
    let others = there.filter(|index| *index != guest);
    let mut there = others.filter(|&index| {
        let mut tasks = round.jobs[index].job.held_tasks();
        tasks.any(|task| task.state.holds_gpus() && task.gpus.contains(&at.1))
    });
    let (host, None) = (there.next()?, there.next()) else {
        return None;
    };
    let live = &round.jobs[host];
    let is_at_rest = live.actions.iter().all(|action| *action == Action::Up)
        && live.destination.is_none()
        && live.guest.is_none()
        && live.host.is_none()
        && !live.is_resizing;
    let stays = live.scheduling_state == SchedulingState::Running && live.job.intent == Intent::Run;
    let mut tasks = live.job.tasks.iter();
    let is_alone = live.seat() == Some(at) && tasks.all(|task| task.is_up() && task.lane == 0);
    (is_at_rest && stays && is_alone).then_some(host)
}

/// Whether both jobs may make room by time slices and have the same priority, so that neither slows
/// a job of higher priority.
fn are_of_equal_rank(host: &PlannedJob<'_>, guest: &PlannedJob<'_>) -> bool {
    let take_turns = [host, guest].iter().all(|live| live.job.takes_turns());
    take_turns && host.priority == guest.priority
}

/// Whether the rules allow the pair: equal rank, and enough quota and CPU on an open node.
fn may_share(round: &RoundState<'_>, host: usize, guest: usize) -> bool {
    let (host, guest) = (&round.jobs[host], &round.jobs[guest]);
    let needed = cpu_milli(guest);
    let open = guest.places.first().is_some_and(|&node| {
        let free = &round.free[node as usize];
        free.open && (needed == 0 || free.now_room.cpu_milli >= needed)
    });
    let held = round.held[guest.tenant as usize];
    let charged = charged_gpus(host, guest);
    let has_quota = round
        .quota(guest)
        .is_none_or(|quota| charged == 0 || held.saturating_add(charged) <= quota);
    are_of_equal_rank(host, guest) && open && has_quota
}

/// GPUs of a pair that count against the quota of the guest's tenant. A tenant that owns the host
/// too is charged for the GPU already.
fn charged_gpus(host: &PlannedJob<'_>, guest: &PlannedJob<'_>) -> u32 {
    u32::from(host.tenant != guest.tenant)
}

fn cpu_milli(live: &PlannedJob<'_>) -> i64 {
    i64::try_from(live.job.worker.cpu_milli).unwrap_or(i64::MAX)
}

/// Reason for a trial of the pair, with figures. `None` if a measurement is missing or is against
/// it. Both jobs must have run alone for a quantum since their start.
fn worth_trying(
    round: &RoundState<'_>,
    (host, guest): (usize, usize),
    packing: Packing,
    slicing: Slicing,
) -> Option<String> {
    let pair = pair(round, host, guest);
    let memory = pair.memory(&packing)?;
    let alone = pair.alone(packing.samples)?;
    let busy = pair.busy()?;
    let is_known = pair.were_alone_for(slicing.quantum_ms) && pair.tell_in_time(&packing);
    let is_safe = memory.fits(packing.spare_memory) && !pair.was_hurt();
    if !is_known || !is_safe || pair.has_failed(&packing) {
        return None;
    }
    let whose = round.jobs[host].named_to(round.jobs[guest].tenant);
    Some(if pair.is_one_tenants() {
        format!("continues beside {whose}: {memory}; {alone}; {busy}")
    } else {
        format!("continues beside {whose}: {memory}")
    })
}

/// Resumes the guest beside its host, and charges its quota and CPU.
fn become_guest(round: &mut RoundState<'_>, host: usize, guest: usize, why: String) {
    let (now_ms, beside) = (round.now_ms, Some(round.jobs[host].job.id));
    let charged = charged_gpus(&round.jobs[host], &round.jobs[guest]);
    let needed = cpu_milli(&round.jobs[guest]);
    round.jobs[host].guest = Some(guest);
    let live = &mut round.jobs[guest];
    let lent = false;
    live.take(Action::Continue { why, beside, lent }, now_ms);
    live.host = Some(host);
    live.shared = charged;
    round.held[live.tenant as usize] += charged;
    for held in &mut live.holdings {
        held.room.cpu_milli += needed;
        let free = &mut round.free[held.node as usize];
        free.now_room.cpu_milli -= needed;
        free.later_room.cpu_milli -= needed;
    }
    // The guest keeps the GPU if its host leaves.
    if let Some((node, gpu)) = live.seat() {
        *round.inherited.entry(node).or_default() |= 1 << gpu;
    }
}

/// Ends a pair: suspends the guest if possible, otherwise returns it to the queue.
fn separate(round: &mut RoundState<'_>, guest: usize, why: String) {
    if round.undo_resumption(guest) {
        return;
    }
    round.unpair(guest);
    let now_ms = round.now_ms;
    let live = &mut round.jobs[guest];
    if is_whole(live.job) && live.job.takes_turns() && round.policy.slicing.is_some() {
        live.take(Action::Suspend { why }, now_ms);
    } else {
        round.stop(guest, Action::requeue(RequeueCause::Resize, why));
    }
}
