//! Jobs on drained nodes, and lost parameter-server shards. No policy decides on them.

use super::free::Holding;
use super::hysteresis::in_backoff;
use super::in_place;
use super::planned_job::PlannedJob;
use super::round_state::RoundState;
use super::scheduling_state::SchedulingState;
use crate::plan::Action;
use muster_model::job::RequeueCause;

/// Moves jobs off drained nodes, whether there is room elsewhere or not. Workers leave at once. A
/// shard leaves as soon as another shard has its content. A job that is being resized leaves after
/// the resize.
pub(crate) fn evacuate_drained_nodes(round: &mut RoundState<'_>) {
    for index in 0..round.jobs.len() {
        let live = &round.jobs[index];
        if !live.scheduling_state.stays() {
            continue;
        }
        let why = "its node is drained";
        let is_late = live.ran_ms(round.now_ms) >= round.policy.suspend_limit_ms;
        if is_late && has_drained(round, &live.leaving) {
            let why = format!("{why}, and the tasks that should leave it have not left");
            round.stop(index, Action::requeue(RequeueCause::Resize, why));
        } else if has_drained(round, &live.holdings) {
            match in_place::without(live, &round.free, |node| is_drained(round, node)) {
                Some(change) => {
                    let why = match change.join.len() {
                        0 => why.to_owned(),
                        moved => format!("{why}: {moved} of its PS shards move to other nodes"),
                    };
                    round.resize(index, &change, why);
                }
                None if is_resize_recent(round, live) => {}
                None => round.stop(index, Action::requeue(RequeueCause::Resize, why.to_owned())),
            }
        }
    }
}

fn has_drained(round: &RoundState<'_>, holdings: &[Holding]) -> bool {
    holdings.iter().any(|held| is_drained(round, held.node))
}

fn is_drained(round: &RoundState<'_>, node: u32) -> bool {
    round.snapshot.nodes[node as usize].drained
}

/// Whether a resize in place is in progress and too recent for a restart.
fn is_resize_recent(round: &RoundState<'_>, live: &PlannedJob<'_>) -> bool {
    let is_running = live.job.in_place && live.scheduling_state == SchedulingState::Running;
    is_running && live.is_resizing && live.ran_ms(round.now_ms) < round.policy.min_run_ms
}

/// Adds a shard in place of a lost one as soon as there is room, independent of the policy.
pub(crate) fn replace_lost_shards(round: &mut RoundState<'_>) {
    for index in 0..round.jobs.len() {
        let live = &round.jobs[index];
        if live.scheduling_state.stays()
            && !in_backoff(round, live)
            && let Some(change) = in_place::restore(live, &round.free)
        {
            let why = "another shard takes the place of the lost one".to_owned();
            round.resize(index, &change, why);
        }
    }
}
