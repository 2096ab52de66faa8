//! Requests for a checkpoint before a stop: which stops ask, and what ends the wait.

use crate::program::{program, submit};
use crate::world::{World, at, gone, id, slots, stop};
use muster_model::assignment::{Observed, TaskReport};
use muster_model::checkpoint::RequestResult;
use muster_model::event::Event;
use muster_model::id::{JobId, NodeId, TaskId};
use muster_model::job::{AfterStop, Charge, RequeueCause};
use muster_model::plan::{Action, PlannedTask};
use muster_model::spec::CheckpointOnRequest;
use muster_model::task::Role;
use muster_model::tenant::TenantPreemptionChange;
use muster_store::event::EventFilter;
use muster_store::node::NodeHeartbeat;
use muster_store::tenant::TenantUpdate;
use muster_store::{assignment, event, node, pool, tenant, tenant_scope};

/// A running job whose program may be asked: rank 0 on the first node, rank 1 on another.
struct Asked {
    world: World,
    other: NodeId,
    job: JobId,
    ranks: [TaskId; 2],
}

impl Asked {
    async fn running() -> anyhow::Result<Self> {
        Self::in_world(World::new().await?).await
    }

    async fn in_world(world: World) -> anyhow::Result<Self> {
        let mut tx = pool::begin(&world.scheduler).await?;
        let other = node::hello(&mut tx, id(), "node-b", &slots(4), at(0)).await?;
        tx.commit().await?;
        let mut spec = program("asked", 60);
        spec.preemption.checkpoint_on_request = Some(CheckpointOnRequest {
            signal: None,
            timeout_s: 90,
        });
        let job = submit(&world, spec).await?;
        let tasks = [(0, world.node), (1, other.id)].map(|(rank, node)| PlannedTask {
            role: Role::Worker { rank },
            node,
            gpus: vec![0],
        });
        let ids = world
            .step(job, 0, crate::world::start(tasks.to_vec()), 1)
            .await?;
        let ranks = <[TaskId; 2]>::try_from(ids).expect("two workers");
        let asked = Self {
            world,
            other: other.id,
            job,
            ranks,
        };
        asked
            .world
            .observe(1, &[(ranks[0], Observed::Running)], 2)
            .await?;
        asked.world.step(job, 1, Action::Up, 3).await?;
        Ok(asked)
    }

    async fn stop(&self, then: AfterStop) -> anyhow::Result<()> {
        self.world.step(self.job, 1, stop(then), 20).await?;
        Ok(())
    }

    /// Generation of the other node, whether its task is to stop, and whether it is asked first.
    async fn other_rank(&self) -> anyhow::Result<(u64, bool, bool)> {
        let mut tx = pool::begin(&self.world.scheduler).await?;
        let sent = assignment::load(&mut tx, self.other, 500).await?;
        let task = &sent.tasks[0];
        Ok((sent.generation, task.stop, task.asks))
    }

    /// Seconds of each stop request in the history.
    async fn requests(&self) -> anyhow::Result<(Vec<Option<u32>>, Vec<RequestResult>)> {
        let mut tx = pool::begin_for(&self.world.api, self.world.red).await?;
        let filter = EventFilter {
            job_id: Some(self.job),
            node_id: None,
        };
        let (mut asks, mut results) = (Vec::new(), Vec::new());
        for stored in event::page(&mut tx, filter, None, 1000).await? {
            match stored.event {
                Event::JobStopRequested { asks_s, .. } => asks.push(asks_s),
                Event::CheckpointRequestEnded { result, .. } => results.push(result),
                _ => {}
            }
        }
        Ok((asks, results))
    }
}

fn preempted() -> AfterStop {
    AfterStop::Requeue {
        cause: RequeueCause::Preempted,
    }
}

fn ended(result: RequestResult) -> TaskReport {
    TaskReport::CheckpointRequestEnded {
        result,
        waited_ms: 1_500,
    }
}

#[tokio::test]
async fn answer_of_rank_0_stops_the_whole_job() -> anyhow::Result<()> {
    let asked = Asked::running().await?;
    asked.stop(preempted()).await?;
    let (generation, stop, asks) = asked.other_rank().await?;
    assert!(stop && asks);
    let answer = RequestResult::Reported { step: 7 };
    asked
        .world
        .tell(asked.ranks[0], 1, 0, &[ended(answer)])
        .await?;
    let (newer, stop, asks) = asked.other_rank().await?;
    assert!(stop && !asks && newer > generation);
    assert_eq!(asked.requests().await?, (vec![Some(90)], vec![answer]));
    let known = asked.world.loaded(asked.job, 60).await?;
    assert_eq!(known.answer_ms, Some(1_500));

    let silent = Asked::running().await?;
    silent.stop(AfterStop::Pause).await?;
    let late = RequestResult::TimedOut;
    silent
        .world
        .tell(silent.ranks[0], 1, 0, &[ended(late)])
        .await?;
    assert_eq!(silent.requests().await?, (vec![Some(90)], vec![late]));
    assert_eq!(silent.world.loaded(silent.job, 60).await?.answer_ms, None);
    Ok(())
}

#[tokio::test]
async fn cancellation_ends_the_wait() -> anyhow::Result<()> {
    let asked = Asked::running().await?;
    asked.stop(preempted()).await?;
    let (generation, ..) = asked.other_rank().await?;
    asked.stop(AfterStop::Pause).await?;
    let (paused, _, asks) = asked.other_rank().await?;
    assert!(asks, "a pause asks too");
    assert!(paused > generation);
    asked.stop(AfterStop::Cancel).await?;
    let (newer, stop, asks) = asked.other_rank().await?;
    assert!(stop && !asks && newer > paused);
    assert_eq!(asked.requests().await?.0, [Some(90), Some(90), None]);
    Ok(())
}

#[tokio::test]
async fn end_or_loss_of_rank_0_ends_the_wait() -> anyhow::Result<()> {
    let asked = Asked::running().await?;
    asked.stop(preempted()).await?;
    let (generation, ..) = asked.other_rank().await?;
    asked
        .world
        .observe(1, &[(asked.ranks[0], gone(0))], 30)
        .await?;
    let (newer, _, asks) = asked.other_rank().await?;
    assert!(!asks && newer > generation);

    let lost = Asked::running().await?;
    lost.stop(preempted()).await?;
    let (generation, ..) = lost.other_rank().await?;
    let mut tx = pool::begin(&lost.world.scheduler).await?;
    let silent = NodeHeartbeat {
        id: lost.world.node,
        last_seen_at: at(0),
    };
    assert_eq!(node::lost(&mut tx, &[silent], at(40)).await?.len(), 1);
    tx.commit().await?;
    let (newer, _, asks) = lost.other_rank().await?;
    assert!(!asks && newer > generation);
    Ok(())
}

#[tokio::test]
async fn final_stops_and_failures_do_not_ask() -> anyhow::Result<()> {
    let fails = AfterStop::Requeue {
        cause: RequeueCause::TaskFailed,
    };
    let lost = AfterStop::Requeue {
        cause: RequeueCause::NodeLost,
    };
    let ends = AfterStop::Fail {
        reason: "over".to_owned(),
    };
    for then in [fails, lost, ends, AfterStop::Cancel] {
        let asked = Asked::running().await?;
        asked.stop(then.clone()).await?;
        let (_, stop, asks) = asked.other_rank().await?;
        assert!(stop && !asks, "{then:?}");
    }
    let hung = Asked::running().await?;
    let charged = Action::Stop {
        then: preempted(),
        why: "a rank hangs".to_owned(),
        charge: Charge::Failure,
        not_before_ms: None,
    };
    hung.world.step(hung.job, 1, charged, 20).await?;
    assert!(!hung.other_rank().await?.2);
    Ok(())
}

#[tokio::test]
async fn cap_of_the_tenant_shortens_requests() -> anyhow::Result<()> {
    let world = World::new().await?;
    let mut tx = pool::begin_for(&world.api, world.blue).await?;
    tenant_scope::admin(&mut tx).await?;
    let change = TenantUpdate {
        preemption: Some(TenantPreemptionChange {
            timeout_s: Some(Some(30)),
            ..TenantPreemptionChange::default()
        }),
        ..TenantUpdate::default()
    };
    tenant::change(&mut tx, world.red, change).await?;
    tx.commit().await?;
    let asked = Asked::in_world(world).await?;
    let sent = asked.world.assignment().await?;
    let preemption = sent.tasks[0].launch.spec.preemption;
    let request = preemption.checkpoint_on_request.expect("declared");
    assert_eq!(request.timeout_s, 30);
    asked.stop(preempted()).await?;
    assert_eq!(asked.requests().await?.0, [Some(30)]);
    Ok(())
}
