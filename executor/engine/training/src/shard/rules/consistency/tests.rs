//! Tests of the models' decisions, without connections.

use super::*;
use crate::shard::recipe::Recipe;
use crate::shard::state::{OpenStep, ShardMember, ShardPhase, UnclippedSum, WorkerStatus};
use muster_compute::optimizer::{OptimizerConfig, UpdateRule};
use muster_model::spec::Rate;
use uuid::Uuid;

fn task(rank: u128) -> TaskId {
    TaskId(Uuid::from_u128(rank))
}

fn rules(consistency: Consistency) -> ShardRules {
    let plain = OptimizerConfig::new(UpdateRule::Sgd {
        lr: 0.1,
        momentum: 0.0,
        nesterov: false,
        weight_decay: 0.0,
    });
    ShardRules {
        me: task(100),
        host: task(100),
        model: model_of(consistency),
        recipe: Recipe::weights(plain, 4, 1),
        grad_scale: 1.0,
        clips: false,
        is_replicated: false,
        spares: Arc::default(),
    }
}

/// State of a ready shard, with a joined worker for each clock.
fn ready_state(rules: &ShardRules, version: u64, clocks: &[u64]) -> ShardState {
    let mut state = rules.empty_state();
    state.phase = ShardPhase::Ready;
    state.version = version;
    state.connected.chief = Some(task(0));
    for (rank, &clock) in (0..).zip(clocks) {
        let member = ShardMember::new(task(rank), WorkerStatus::Joined, clock);
        state.members.push(member);
    }
    state
}

fn ssp(staleness: u32) -> Consistency {
    Consistency::Ssp {
        staleness,
        eager: false,
        rate: Rate::Constant,
    }
}

/// Answer to the worker of rank 1.
fn answer(rules: &ShardRules, state: &mut ShardState, clock: u64) -> Option<ShardAnswer> {
    let mut waiting = WaitingWorker::new(task(1), clock);
    rules.model.answer(rules, state, &mut waiting)
}

#[test]
fn push_is_judged_by_its_step_with_backup_workers() {
    let rules = rules(Consistency::Bsp { backup: 1 });
    let mut state = ready_state(&rules, 5, &[5, 5]);
    let model = &rules.model;
    assert_eq!(model.admit(&state, task(1), 4), Admission::Late);
    assert_eq!(model.admit(&state, task(1), 5), Admission::Taken);
    assert_eq!(model.admit(&state, task(1), 6), Admission::Early);
    assert_eq!(model.admit(&state, task(9), 4), Admission::Taken);
    state.step = OpenStep::Summed(UnclippedSum {
        of: task(0),
        gradients: Vec::new(),
        scale: 1.0,
        square: 0.0,
    });
    assert_eq!(model.admit(&state, task(1), 5), Admission::Excluded);
    assert_eq!(model.admit(&state, task(1), 4), Admission::Late);
}

#[test]
fn push_is_always_taken_without_backup_workers() {
    for consistency in [Consistency::Bsp { backup: 0 }, ssp(1)] {
        let rules = rules(consistency);
        let state = ready_state(&rules, 5, &[5, 5]);
        for clock in [4, 5, 6] {
            assert_eq!(rules.model.admit(&state, task(1), clock), Admission::Taken);
        }
    }
}

#[test]
fn ssp_worker_waits_beyond_the_staleness_bound() {
    let rules = rules(ssp(2));
    let mut state = ready_state(&rules, 0, &[3, 6]);
    assert!(answer(&rules, &mut state, 5).is_none());
    state.members[0].clock = 4;
    let Some(ShardAnswer::Parameters { clock, slowest, .. }) = answer(&rules, &mut state, 5) else {
        panic!("the worker is within the bound");
    };
    assert_eq!((clock, slowest), (6, 4));
}

#[test]
fn asp_worker_never_waits_for_the_slowest() {
    let rules = rules(Consistency::Asp {
        rate: Rate::Constant,
    });
    let mut state = ready_state(&rules, 0, &[0, 1000]);
    let answer = answer(&rules, &mut state, 999);
    assert!(matches!(answer, Some(ShardAnswer::Parameters { .. })));
}

#[test]
fn bsp_worker_waits_for_the_end_of_its_step() {
    let rules = rules(Consistency::Bsp { backup: 0 });
    let mut state = ready_state(&rules, 5, &[5, 6]);
    assert!(answer(&rules, &mut state, 5).is_none());
    state.version = 6;
    let answer = answer(&rules, &mut state, 5);
    assert!(matches!(
        answer,
        Some(ShardAnswer::Parameters { clock: 6, .. })
    ));
}

/// The end of the step has precedence under BSP only.
#[test]
fn waiting_worker_is_interrupted_when_coordinator_is_lost() {
    let bsp = rules(Consistency::Bsp { backup: 0 });
    let mut state = ready_state(&bsp, 6, &[6, 6]);
    state.ending.chief_lost = Some(true);
    let complete = answer(&bsp, &mut state, 5);
    assert!(matches!(complete, Some(ShardAnswer::Parameters { .. })));
    let open = answer(&bsp, &mut state, 6);
    assert!(matches!(
        open,
        Some(ShardAnswer::Interrupted {
            version: 6,
            lost: true,
            ..
        })
    ));
    let stale = rules(ssp(1));
    let mut state = ready_state(&stale, 0, &[6, 6]);
    state.ending.chief_lost = Some(true);
    let stale = answer(&stale, &mut state, 5);
    assert!(matches!(
        stale,
        Some(ShardAnswer::Interrupted {
            version: 6,
            lost: true,
            ..
        })
    ));
}
