//! Packing: admission of a guest, its promotion when the host leaves, and separate measurements.

use crate::world::{World, at, sample, start};
use muster_model::assignment::{Observed, TaskReport};
use muster_model::id::{JobId, TaskId};
use muster_model::packing::{Hurt, UsageReport};
use muster_model::plan::{Action, JobDecision, PlannedTask};
use muster_model::task::{Outcome, TaskState};
use muster_store::plan::{CommitRefusal, LoadedJob};
use muster_store::task::{self, Revisions};
use muster_store::{node, packing, pool};

fn suspend() -> Action {
    Action::Suspend {
        why: "its slice is over".to_owned(),
    }
}

fn go_on(beside: Option<JobId>) -> Action {
    Action::Continue {
        why: "both are faster".to_owned(),
        beside,
        lent: false,
    }
}

fn rate(step: u64, steps_per_s: f64) -> TaskReport {
    let mut sample = sample(step, 1.0, 1.0, steps_per_s);
    (sample.workers, sample.ps_shards) = (1, 0);
    TaskReport::Progress { sample }
}

fn gone() -> Observed {
    let outcome = Outcome::exited(0);
    Observed::Gone { outcome }
}

/// Starts a job of one worker on the first slot.
async fn one(world: &World, name: &str, at: u64) -> anyhow::Result<(JobId, TaskId)> {
    let job = world.submit(name).await?;
    let worker: Vec<PlannedTask> = world.tasks(&[0]).into_iter().take(1).collect();
    let task = world.step(job, 0, start(worker), at).await?[0];
    world.observe(1, &[(task, Observed::Running)], at).await?;
    world.step(job, 1, Action::Up, at).await?;
    Ok((job, task))
}

async fn refused(
    world: &World,
    job: JobId,
    beside: JobId,
    at: u64,
) -> anyhow::Result<CommitRefusal> {
    let step = JobDecision {
        job,
        expected_revision: 1,
        action: go_on(Some(beside)),
    };
    let mut outcome = world.commit(&[step], at).await?;
    Ok(outcome.conflicts.remove(0).why)
}

async fn company(world: &World, job: JobId) -> anyhow::Result<Option<JobId>> {
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    let tasks = task::list(&mut tx, job, Revisions::Current).await?;
    Ok(tasks[0].shared_with)
}

/// Starts a host, and a suspended job that continues beside it as a guest.
async fn packed(world: &World) -> anyhow::Result<[(JobId, TaskId); 2]> {
    let guest = one(world, "guest", 1).await?;
    world.step(guest.0, 1, suspend(), 5).await?;
    let stands = TaskReport::Suspended {
        turn: 1,
        step: None,
    };
    world.tell(guest.1, 1, 0, &[stands]).await?;
    let host = one(world, "host", 6).await?;
    world.step(guest.0, 1, go_on(Some(host.0)), 60).await?;
    Ok([host, guest])
}

#[tokio::test]
async fn gpu_has_at_most_two_lanes() -> anyhow::Result<()> {
    let world = World::new().await?;
    let third = one(&world, "third", 1).await?;
    world.step(third.0, 1, suspend(), 2).await?;
    let stands = TaskReport::Suspended {
        turn: 1,
        step: None,
    };
    world.tell(third.1, 1, 0, &[stands]).await?;
    let nobody = refused(&world, third.0, third.0, 3).await?;
    assert_eq!(nobody, CommitRefusal::HostGone { host: third.0 });

    let [host, guest] = packed(&world).await?;
    assert_eq!(company(&world, host.0).await?, Some(guest.0));
    assert_eq!(company(&world, guest.0).await?, Some(host.0));
    let loaded = world.loaded(guest.0, 61).await?;
    assert!(loaded.guests.contains(&guest.1));
    assert_eq!(
        refused(&world, third.0, host.0, 62).await?,
        CommitRefusal::GpuHeld,
        "the other lane is held"
    );
    assert_eq!(
        refused(&world, third.0, guest.0, 63).await?,
        CommitRefusal::HostGone { host: guest.0 },
        "a guest has no guests"
    );
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    let held = node::list(&mut tx).await?.remove(0).held;
    let there: Vec<(JobId, bool)> = held.iter().map(|one| (one.job_id, one.is_guest)).collect();
    assert_eq!(there, [(host.0, false), (guest.0, true)]);
    Ok(())
}

#[tokio::test]
async fn guest_becomes_holder_when_its_host_ends() -> anyhow::Result<()> {
    let world = World::new().await?;
    let [host, guest] = packed(&world).await?;
    world.observe(1, &[(host.1, gone())], 70).await?;
    assert_eq!(company(&world, guest.0).await?, None);
    let loaded = world.loaded(guest.0, 71).await?;
    assert!(loaded.guests.is_empty(), "it is nobody's guest");
    assert_eq!(loaded.tasks[0].state, TaskState::Running);
    let rival = world.submit("rival").await?;
    let step = JobDecision {
        job: rival,
        expected_revision: 0,
        action: start(world.tasks(&[0]).into_iter().take(1).collect()),
    };
    let outcome = world.commit(&[step], 72).await?;
    assert_eq!(outcome.conflicts[0].why, CommitRefusal::GpuHeld);
    Ok(())
}

#[tokio::test]
async fn release_of_the_holder_moves_the_guest_to_its_lane() -> anyhow::Result<()> {
    let world = World::new().await?;
    let [host, guest] = packed(&world).await?;
    // Written as by the previous release, which does not know lanes.
    let mut tx = pool::begin(&world.scheduler).await?;
    sqlx::query(
        "update allocation set released_at = $2 where task_id = $1 and released_at is null",
    )
    .bind(host.1.0)
    .bind(at(70))
    .execute(&mut *tx)
    .await?;
    let lanes: Vec<i16> = sqlx::query_scalar(
        "select lane from allocation where task_id = $1 and released_at is null",
    )
    .bind(guest.1.0)
    .fetch_all(&mut *tx)
    .await?;
    assert_eq!(lanes, [0], "the GPU is its own");
    tx.commit().await?;
    let loaded = world.loaded(guest.0, 71).await?;
    assert!(loaded.guests.is_empty());
    Ok(())
}

fn used(memory: u64, busy: f64) -> UsageReport {
    UsageReport {
        memory_bytes: Some(memory),
        busy,
        over_ms: 2_000,
        ..UsageReport::default()
    }
}

async fn uses(world: &World, task: TaskId, report: UsageReport, at_s: u64) -> anyhow::Result<()> {
    let mut tx = pool::begin(&world.scheduler).await?;
    packing::record(&mut tx, world.node, &[(task, report)], at(at_s)).await?;
    tx.commit().await?;
    Ok(())
}

#[tokio::test]
async fn speed_and_use_are_measured_apart_for_each_pair() -> anyhow::Result<()> {
    let world = World::new().await?;
    let [host, guest] = packed(&world).await?;
    world.tell(host.1, 1, 0, &[rate(1, 9.0)]).await?;
    let nothing = world.loaded(host.0, 61).await?.measured;
    assert_eq!(nothing, None, "nobody asked for it");
    uses(&world, host.1, used(700, 0.5), 62).await?;
    world.tell(host.1, 1, 1, &[rate(2, 9.0)]).await?;
    let loaded = world.loaded(host.0, 71).await?;
    let known = loaded.measured.expect("measured");
    assert_eq!(known.company.map(|one| one.job), Some(guest.0));
    assert_eq!((known.alone.samples, known.alone_ms), (0, 0));
    assert!(
        loaded.speeds.is_empty(),
        "no speed of its own: {:?}",
        loaded.speeds
    );
    assert_eq!((known.busy_alone, known.peak_bytes), (None, Some(700)));

    world.observe(1, &[(guest.1, gone())], 72).await?;
    uses(&world, host.1, used(300, 0.25), 73).await?;
    uses(&world, host.1, used(300, 0.25), 90).await?;
    let known = world.loaded(host.0, 91).await?.measured.expect("measured");
    assert_eq!(known.company, None);
    assert_eq!((known.alone_ms, known.busy_alone), (2_000, Some(0.25)));
    assert_eq!(
        (known.memory_bytes, known.peak_bytes),
        (Some(300), Some(700))
    );
    assert!(known.beside(guest.0).is_some(), "they met");
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    let tasks = task::list(&mut tx, host.0, Revisions::Current).await?;
    assert_eq!(tasks[0].usage.and_then(|usage| usage.peak_bytes), Some(700));
    Ok(())
}

fn hurt(loaded: LoadedJob) -> Option<Hurt> {
    loaded.measured.and_then(|measured| measured.hurt)
}

#[tokio::test]
async fn failure_beside_another_job_is_kept_and_not_charged() -> anyhow::Result<()> {
    let world = World::new().await?;
    let [host, guest] = packed(&world).await?;
    for task in [host.1, guest.1] {
        uses(&world, task, used(700, 0.5), 62).await?;
    }
    let killed = Observed::Gone {
        outcome: Outcome::signalled(9),
    };
    world.observe(1, &[(guest.1, killed.clone())], 70).await?;
    let expected = Hurt {
        revision: 1,
        beside: host.0,
    };
    assert_eq!(hurt(world.loaded(guest.0, 71).await?), Some(expected));
    assert_eq!(hurt(world.loaded(host.0, 71).await?), None);
    let mut tx = pool::begin(&world.scheduler).await?;
    let charged: i64 = sqlx::query_scalar("select count(*) from node_fault")
        .fetch_one(&mut *tx)
        .await?;
    assert_eq!(charged, 0, "the other may have done it");
    tx.commit().await?;
    // Long after the pair has separated, a failure counts as the job's own.
    world.observe(1, &[(host.1, killed)], 600).await?;
    assert_eq!(hurt(world.loaded(host.0, 601).await?), None);
    Ok(())
}

/// A suspended job on the first slot, and the number of its reported lines.
struct Waiter {
    job: JobId,
    task: TaskId,
    turn: u64,
    lines: u64,
}

impl Waiter {
    async fn new(world: &World, name: &str, at: u64) -> anyhow::Result<Self> {
        let (job, task) = one(world, name, at).await?;
        let mut waiter = Self {
            job,
            task,
            turn: 0,
            lines: 0,
        };
        waiter.stand_still(world, at).await?;
        Ok(waiter)
    }

    async fn stand_still(&mut self, world: &World, at: u64) -> anyhow::Result<()> {
        world.step(self.job, 1, suspend(), at).await?;
        self.turn += 1;
        let stands = TaskReport::Suspended {
            turn: self.turn,
            step: None,
        };
        world.tell(self.task, 1, self.lines, &[stands]).await?;
        self.lines += 1;
        Ok(())
    }

    fn go_on(&self, host: JobId) -> [JobDecision; 1] {
        [JobDecision {
            job: self.job,
            expected_revision: 1,
            action: go_on(Some(host)),
        }]
    }
}

/// Returns the held lanes of the first slot with their jobs.
async fn lanes(world: &World) -> anyhow::Result<Vec<(i16, JobId)>> {
    let mut tx = pool::begin(&world.scheduler).await?;
    let held: Vec<(i16, uuid::Uuid)> = sqlx::query_as(
        "select lane, job_id from allocation where node_id = $1 and gpu_index = 0 and released_at is null order by lane",
    )
    .bind(world.node.0)
    .fetch_all(&mut *tx)
    .await?;
    Ok(held
        .into_iter()
        .map(|(lane, job)| (lane, job.into()))
        .collect())
}

#[tokio::test]
async fn one_of_two_guests_for_one_gpu_is_admitted() -> anyhow::Result<()> {
    let world = World::new().await?;
    let mut waiters = [
        Waiter::new(&world, "one", 1).await?,
        Waiter::new(&world, "other", 2).await?,
    ];
    let host = one(&world, "host", 6).await?;
    for round in 0..8 {
        let now = 10 * (round + 1);
        let plans = [waiters[0].go_on(host.0), waiters[1].go_on(host.0)];
        let (first, second) =
            tokio::join!(world.commit(&plans[0], now), world.commit(&plans[1], now));
        let outcomes = [first?, second?];
        let refused = outcomes.each_ref().map(|outcome| {
            let why = outcome
                .conflicts
                .first()
                .map(|conflict| conflict.why.clone());
            why.map(|why| why == CommitRefusal::GpuHeld)
        });
        let winner = match refused {
            [None, Some(true)] => 0,
            [Some(true), None] => 1,
            _ => panic!("one wins, and the other's lane is held: {outcomes:?}"),
        };
        let guest = waiters[winner].job;
        assert_eq!(lanes(&world).await?, [(0, host.0), (1, guest)], "{round}");
        let loser = world.loaded(waiters[1 - winner].job, now).await?;
        assert_eq!(
            loser.tasks[0].state,
            TaskState::Suspended,
            "as if nothing had been"
        );
        assert!(!loser.guests.contains(&waiters[1 - winner].task));
        waiters[winner].turn += 1;
        waiters[winner].stand_still(&world, now + 1).await?;
        assert_eq!(lanes(&world).await?, [(0, host.0)]);
    }
    Ok(())
}

#[tokio::test]
async fn guest_is_never_alone_in_the_second_lane_as_its_host_ends() -> anyhow::Result<()> {
    for round in 0..6 {
        let world = World::new().await?;
        let waiter = Waiter::new(&world, "waiter", 1).await?;
        let host = one(&world, "host", 6).await?;
        let plan = waiter.go_on(host.0);
        let ended = [(host.1, gone())];
        // Both orders of the two transactions occur.
        let comes = async {
            tokio::time::sleep(std::time::Duration::from_millis(round)).await;
            world.commit(&plan, 10).await
        };
        let (came, went) = tokio::join!(comes, world.observe(1, &ended, 10));
        went?;
        let refused = came?.conflicts.first().map(|conflict| conflict.why.clone());
        let expected = match refused {
            None => vec![(0, waiter.job)],
            Some(why) => {
                assert_eq!(why, CommitRefusal::HostGone { host: host.0 });
                Vec::new()
            }
        };
        assert_eq!(lanes(&world).await?, expected, "{round}");
    }
    Ok(())
}
