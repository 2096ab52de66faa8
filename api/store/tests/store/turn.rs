//! Time slices: other jobs use the GPUs of suspended workers, and reports of an earlier slice
//! change nothing.

use crate::world::{World, start};
use muster_model::assignment::{Observed, TaskReport};
use muster_model::id::TaskId;
use muster_model::job::JobPhase;
use muster_model::plan::{Action, JobDecision};
use muster_model::task::TaskState;
use muster_store::plan::CommitRefusal;
use muster_store::{assignment, pool};

fn suspend() -> Action {
    Action::Suspend {
        why: "its slice is over".to_owned(),
    }
}

fn go_on() -> Action {
    Action::Continue {
        why: "its time slice begins".to_owned(),
        beside: None,
        lent: false,
    }
}

fn stands(turn: u64) -> TaskReport {
    let step = Some(7);
    TaskReport::Suspended { turn, step }
}

#[tokio::test]
async fn gpu_is_free_only_while_its_worker_is_suspended() -> anyhow::Result<()> {
    let world = World::new().await?;
    let job = world.submit("first").await?;
    let tasks = world.tasks(&[0, 1]);
    let ids = world.step(job, 0, start(tasks), 1).await?;
    let early = JobDecision {
        job,
        expected_revision: 1,
        action: suspend(),
    };
    let refused = world.commit(&[early], 2).await?;
    assert!(
        matches!(refused.conflicts[0].why, CommitRefusal::Transition(_)),
        "it is not up"
    );
    let up: Vec<(TaskId, Observed)> = ids.iter().map(|id| (*id, Observed::Running)).collect();
    world.observe(1, &up, 2).await?;
    world.step(job, 1, Action::Up, 3).await?;

    world.step(job, 1, suspend(), 10).await?;
    let mut tx = pool::begin(&world.scheduler).await?;
    let told = assignment::load(&mut tx, world.node, 500).await?;
    drop(tx);
    assert!(
        told.tasks
            .iter()
            .all(|task| task.peers.held_turn() == Some(1) && !task.stop)
    );
    let rival = world.submit("rival").await?;
    let rival_start = JobDecision {
        job: rival,
        expected_revision: 0,
        action: start(world.tasks(&[0])),
    };
    let refused = world.commit(std::slice::from_ref(&rival_start), 11).await?;
    assert_eq!(
        refused.conflicts[0].why,
        CommitRefusal::GpuHeld,
        "nobody has said that he stands"
    );

    assert!(
        !world.tell(ids[0], 1, 0, &[stands(3)]).await?.round_due,
        "another turn's"
    );
    assert!(world.tell(ids[0], 1, 1, &[stands(1)]).await?.round_due);
    let half = JobDecision {
        job,
        expected_revision: 1,
        action: go_on(),
    };
    let refused = world.commit(std::slice::from_ref(&half), 12).await?;
    let CommitRefusal::NotInTurn { tasks } = &refused.conflicts[0].why else {
        panic!("{refused:?}");
    };
    assert_eq!(tasks, &[ids[1]], "a gang goes on as a whole");
    world.tell(ids[1], 1, 0, &[stands(1)]).await?;
    let loaded = world.loaded(job, 13).await?;
    assert_eq!(loaded.job.state.phase(), JobPhase::Suspended);
    assert!(
        (loaded.trained_s - 7.0).abs() < 0.01,
        "the turn is not counted"
    );
    let mut tx = pool::begin_for(&world.api, world.blue).await?;
    let demand = muster_store::cluster_load::cluster_load(&mut tx)
        .await?
        .waiting;
    let takes_turns = demand
        .iter()
        .find(|waiting| waiting.reason == "takes_turns");
    assert!(
        takes_turns.is_some_and(|waiting| waiting.jobs == 1 && waiting.gpus >= 1),
        "{demand:?}"
    );
    drop(tx);

    assert_eq!(
        world
            .commit(std::slice::from_ref(&rival_start), 14)
            .await?
            .conflicts,
        []
    );
    let refused = world.commit(std::slice::from_ref(&half), 15).await?;
    assert_eq!(refused.conflicts[0].why, CommitRefusal::GpuHeld);
    let still = world.loaded(job, 16).await?;
    let states: Vec<&TaskState> = still.tasks.iter().map(|task| &task.state).collect();
    let stand = states
        .iter()
        .filter(|state| ***state == TaskState::Suspended);
    assert_eq!(
        stand.count(),
        2,
        "what was refused left nothing behind: {states:?}"
    );
    Ok(())
}

#[tokio::test]
async fn worker_runs_several_time_slices_on_one_gpu() -> anyhow::Result<()> {
    let world = World::new().await?;
    let job = world.submit("first").await?;
    let tasks = world.tasks(&[0]);
    let ids = world.step(job, 0, start(tasks), 1).await?;
    let worker = ids[0];
    let up: Vec<(TaskId, Observed)> = ids.iter().map(|id| (*id, Observed::Running)).collect();
    world.observe(1, &up, 2).await?;
    world.step(job, 1, Action::Up, 3).await?;
    for turn in 0..3 {
        let at = 10 + 10 * turn;
        world.step(job, 1, suspend(), at).await?;
        world.tell(worker, 1, turn, &[stands(2 * turn + 1)]).await?;
        world.step(job, 1, go_on(), at + 5).await?;
        // A node repeats all reports in a new session.
        world.observe(1, &up, at + 6).await?;
        let loaded = world.loaded(job, at + 6).await?;
        assert!(
            loaded
                .tasks
                .iter()
                .all(|task| task.state == TaskState::Running)
        );
    }
    Ok(())
}
