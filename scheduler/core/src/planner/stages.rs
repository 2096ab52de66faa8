//! The stages of a round, in their order. `docs/design/planner.md` describes each.

use super::cpu_only;
use super::defragment;
use super::evacuation;
use super::fixpoint::RoundFixpoint;
use super::idleness;
use super::migration;
use super::packing;
use super::passes::run_to_fixpoint;
use super::quota_enforcement;
use super::range_enforcement;
use super::round_state::RoundState;
use super::shards;
use super::straggler_detection;
use super::time_slicing;

type Stage = fn(&mut RoundState<'_>);

/// A stage that may change the plan after the passes, on what they left free. Returns whether it
/// did: the passes then run again.
type Revision = fn(&mut RoundState<'_>, &RoundFixpoint) -> bool;

/// What no policy decides.
const BEFORE_PASSES: [Stage; 10] = [
    evacuation::evacuate_drained_nodes,
    // Before the ranges, because a job that is already being resized could only be stopped for its
    // quota.
    quota_enforcement::enforce_quotas,
    range_enforcement::enforce_ranges,
    evacuation::replace_lost_shards,
    straggler_detection::decide_verdicts,
    idleness::end_idle_jobs,
    packing::unpack,
    migration::start_at_destinations,
    time_slicing::before_policy,
    cpu_only::start_before_policy,
];

const REVISIONS: [Revision; 5] = [
    defragment::propose_migrations,
    time_slicing::resume_on_free_gpus,
    range_enforcement::grow,
    shards::adopt,
    cpu_only::start_on_the_rest,
];

/// Runs all stages once. Returns the result of the last pass, which changed nothing.
///
/// Resources that a start or a stop frees are given away in the same round. Planning again on the
/// state after the plan changes nothing, unless a job is suspended or about to be. The passes end
/// because every pass but the last stops or resizes a running job, or starts a waiting one. None of
/// these is undone in the same round.
pub(super) fn run(round: &mut RoundState<'_>) -> RoundFixpoint {
    for stage in BEFORE_PASSES {
        stage(round);
    }
    let mut fixpoint = run_to_fixpoint(round);
    for revise in REVISIONS {
        if revise(round, &fixpoint) {
            fixpoint = run_to_fixpoint(round);
        }
    }
    packing::pack(round);
    time_slicing::after_policy(round, &fixpoint);
    packing::follow(round);
    straggler_detection::record_suspects(round);
    idleness::record_idle_jobs(round);
    fixpoint
}
