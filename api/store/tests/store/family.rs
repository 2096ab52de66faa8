//! Speeds by GPU kind and placement: kept for each job, shared by the jobs of a family of a tenant.

use crate::world::{World, at, gone, id, sample, slots, start, stop};
use muster_model::assignment::{Observed, TaskReport};
use muster_model::id::{JobId, NodeId, TaskId, TenantId};
use muster_model::job::{AfterStop, RequeueCause};
use muster_model::plan::{Action, PlannedTask};
use muster_model::progress::Sample;
use muster_model::task::Role;
use muster_store::family::{self, FamilySpeeds, PlacedSpeed, UpdateTime};
use muster_store::plan::{Loaded, Loader};
use muster_store::report::{NodeReport, TaskEvents};
use muster_store::{node, pool, report, tenant, tenant_scope};

/// Adds a node whose GPUs are of another kind than those of the common set-up.
pub async fn add_node(world: &World, name: &str, kind: &str) -> anyhow::Result<NodeId> {
    let mut capacity = slots(4);
    for gpu in &mut capacity.gpus {
        gpu.model = kind.to_owned();
    }
    let mut tx = pool::begin(&world.scheduler).await?;
    let node = node::hello(&mut tx, id(), name, &capacity, at(0)).await?.id;
    tx.commit().await?;
    Ok(node)
}

/// Starts a worker on each given slot, and one shard beside the first. Returns the first worker.
pub async fn run(world: &World, job: JobId, places: &[(NodeId, u32)]) -> anyhow::Result<TaskId> {
    let workers = (0..).zip(places).map(|(rank, &(node, gpu))| PlannedTask {
        role: Role::Worker { rank },
        node,
        gpus: vec![gpu],
    });
    let shard = PlannedTask {
        role: Role::PsShard { index: 0 },
        node: places[0].0,
        gpus: Vec::new(),
    };
    let tasks: Vec<PlannedTask> = workers.chain([shard]).collect();
    let nodes: Vec<NodeId> = tasks.iter().map(|task| task.node).collect();
    let ids = world.step(job, 0, start(tasks), 1).await?;
    for (&task, &node) in ids.iter().zip(&nodes) {
        let report = NodeReport {
            statuses: vec![(task, 1, Observed::Running)],
            ..NodeReport::default()
        };
        tell(world, node, &report).await?;
    }
    world.step(job, 1, Action::Up, 3).await?;
    Ok(ids[0])
}

async fn tell(world: &World, node: NodeId, report: &NodeReport) -> anyhow::Result<()> {
    let mut tx = pool::begin(&world.scheduler).await?;
    report::record(&mut tx, node, report, at(4)).await?;
    tx.commit().await?;
    Ok(())
}

/// Reports samples with these speeds; the first one measures the start.
pub async fn sampled(
    world: &World,
    (node, task): (NodeId, TaskId),
    workers: u32,
    speeds: &[f64],
) -> anyhow::Result<()> {
    let samples = (1_u32..).zip(speeds).map(|(step, &speed)| {
        let mut sample = sample(u64::from(step), f64::from(step), 1.0, speed);
        sample.workers = workers;
        sample
    });
    reported(world, (node, task), samples).await
}

async fn reported(
    world: &World,
    (node, task): (NodeId, TaskId),
    samples: impl Iterator<Item = Sample>,
) -> anyhow::Result<()> {
    let events = TaskEvents {
        task_id: task,
        revision: 1,
        first_seq: 0,
        events: samples
            .map(|sample| (at(4), TaskReport::Progress { sample }))
            .collect(),
    };
    let report = NodeReport {
        events: vec![events],
        ..NodeReport::default()
    };
    tell(world, node, &report).await
}

pub async fn load(world: &World, seconds: u64) -> anyhow::Result<Loaded> {
    let mut tx = pool::begin_snapshot(&world.scheduler).await?;
    Ok(Loader::new(1_000).load(&mut tx, at(seconds)).await?)
}

fn placed(gpu_kind: &str, (workers, nodes): (u32, u32), speed: (f64, f64)) -> PlacedSpeed {
    PlacedSpeed {
        gpu_kind: gpu_kind.to_owned(),
        workers,
        ps_shards: 1,
        nodes,
        steps_per_s: speed.0,
        samples: speed.1,
    }
}

fn rounded(speeds: &[PlacedSpeed]) -> Vec<PlacedSpeed> {
    let speeds = speeds.iter().map(|speed| PlacedSpeed {
        steps_per_s: (speed.steps_per_s * 1e6).round() / 1e6,
        samples: (speed.samples * 1e6).round() / 1e6,
        ..speed.clone()
    });
    speeds.collect()
}

fn only(families: &[FamilySpeeds]) -> &FamilySpeeds {
    let [only] = families else {
        panic!("one family is known: {families:?}")
    };
    only
}

#[tokio::test]
async fn jobs_of_a_family_share_speeds_by_kind_and_nodes() -> anyhow::Result<()> {
    let world = World::new().await?;
    let fast = add_node(&world, "node-b", "fast").await?;
    let other = add_node(&world, "node-c", "fast").await?;
    let (slow_job, fast_job) = (world.submit("one").await?, world.submit("two").await?);
    let slow_task = run(&world, slow_job, &[(world.node, 0)]).await?;
    let fast_task = run(&world, fast_job, &[(fast, 0), (other, 0)]).await?;
    sampled(&world, (world.node, slow_task), 1, &[9.0, 2.0, 4.0]).await?;
    sampled(&world, (fast, fast_task), 2, &[9.0, 8.0]).await?;
    // A third job on the first kind: the family has the geometric mean, weighted by samples.
    let third = world.submit("three").await?;
    let third_task = run(&world, third, &[(world.node, 1)]).await?;
    sampled(&world, (world.node, third_task), 1, &[9.0, 24.0]).await?;

    let loaded = load(&world, 5).await?;
    let own = |job: JobId| {
        let mut jobs = loaded.jobs.iter();
        jobs.find(|loaded| loaded.job.id == job).expect("it runs")
    };
    assert_eq!(
        rounded(&own(slow_job).placed_speeds),
        [placed("cpu", (1, 1), (3.0, 2.0))]
    );
    assert_eq!(
        rounded(&own(fast_job).placed_speeds),
        [placed("fast", (2, 2), (8.0, 1.0))]
    );
    let family = only(&loaded.families);
    assert_eq!(family.tenant, world.red);
    assert_eq!(Some(&family.family), own(third).family.as_ref());
    assert_eq!(
        rounded(&family.speeds),
        [
            placed("cpu", (1, 1), (6.0, 3.0)),
            placed("fast", (2, 2), (8.0, 1.0)),
        ]
    );
    Ok(())
}

async fn set_sharing(world: &World, tenant: TenantId, shares: bool) -> anyhow::Result<()> {
    let mut tx = pool::begin(&world.api).await?;
    tenant_scope::admin(&mut tx).await?;
    let change = tenant::TenantUpdate {
        shares_families: Some(shares),
        ..tenant::TenantUpdate::default()
    };
    let changed = tenant::change(&mut tx, tenant, change).await?;
    assert_eq!(changed.map(|tenant| tenant.shares_families), Some(shares));
    tx.commit().await?;
    Ok(())
}

#[tokio::test]
async fn tenants_share_families_only_if_both_do() -> anyhow::Result<()> {
    let world = World::new().await?;
    let job = world.submit("one").await?;
    let task = run(&world, job, &[(world.node, 0)]).await?;
    sampled(&world, (world.node, task), 1, &[9.0, 2.0, 4.0]).await?;
    let blue = (world.blue, world.blue_user);
    world.submit_as(blue, "same").await?;
    let tenants = async || -> anyhow::Result<Vec<TenantId>> {
        let families = load(&world, 5).await?.families;
        Ok(families.iter().map(|family| family.tenant).collect())
    };
    assert_eq!(tenants().await?, [world.red]);
    set_sharing(&world, world.blue, true).await?;
    assert_eq!(tenants().await?, [world.red], "red does not share");
    set_sharing(&world, world.red, true).await?;
    let families = load(&world, 5).await?.families;
    let [red, blue] = &families[..] else {
        panic!("each tenant knows the family: {families:?}")
    };
    assert_eq!((red.tenant, blue.tenant), (world.red, world.blue));
    assert_eq!((&red.family, &red.speeds), (&blue.family, &blue.speeds));
    assert_eq!(red.restarts, blue.restarts);
    set_sharing(&world, world.red, false).await?;
    assert_eq!(tenants().await?, [world.red]);
    Ok(())
}

#[tokio::test]
async fn measurements_lose_half_their_weight_in_a_week() -> anyhow::Result<()> {
    let world = World::new().await?;
    let job = world.submit("one").await?;
    let task = run(&world, job, &[(world.node, 0)]).await?;
    sampled(&world, (world.node, task), 1, &[9.0, 2.0, 2.0, 2.0, 2.0]).await?;
    let day = 86_400;
    let loaded = load(&world, 4 + 7 * day).await?;
    assert_eq!(
        rounded(&only(&loaded.families).speeds),
        [placed("cpu", (1, 1), (2.0, 2.0))]
    );
    let loaded = load(&world, 4 + 60 * day).await?;
    assert!(loaded.families.is_empty());
    // The job's own row stays, so that its speed by size, which does not age, does not replace it.
    let own = &loaded.jobs[0].placed_speeds;
    assert!(own.len() == 1 && own[0].samples < 0.1, "{own:?}");
    Ok(())
}

#[tokio::test]
async fn sample_of_another_size_than_placed_is_not_placed() -> anyhow::Result<()> {
    let world = World::new().await?;
    let job = world.submit("one").await?;
    let task = run(&world, job, &[(world.node, 0)]).await?;
    sampled(&world, (world.node, task), 2, &[9.0, 2.0]).await?;
    let loaded = load(&world, 5).await?;
    assert_eq!(loaded.jobs[0].speeds.len(), 1, "it counts by size alone");
    assert_eq!(loaded.jobs[0].placed_speeds, []);
    Ok(())
}

#[tokio::test]
async fn family_of_older_job_row_is_computed() -> anyhow::Result<()> {
    let world = World::new().await?;
    let job = world.submit("one").await?;
    let kept = load(&world, 1).await?.jobs[0].family.clone();
    world.as_owner("update job set family = null").await?;
    assert_eq!(load(&world, 1).await?.jobs[0].family, kept);
    let task = run(&world, job, &[(world.node, 0)]).await?;
    sampled(&world, (world.node, task), 1, &[9.0, 2.0]).await?;
    let loaded = load(&world, 5).await?;
    assert_eq!(Some(&only(&loaded.families).family), kept.as_ref());
    Ok(())
}

#[tokio::test]
async fn tenant_neither_sees_nor_forgets_families_of_others() -> anyhow::Result<()> {
    let world = World::new().await?;
    let job = world.submit("one").await?;
    let task = run(&world, job, &[(world.node, 0)]).await?;
    sampled(&world, (world.node, task), 1, &[9.0, 2.0]).await?;
    let key = only(&load(&world, 5).await?.families).family.clone();

    let mut tx = pool::begin_for(&world.api, world.blue).await?;
    assert_eq!(family::list(&mut tx, None, 10, at(5)).await?, []);
    assert_eq!(family::forget(&mut tx, &key).await?, 0);
    tx.commit().await?;

    let mut tx = pool::begin_for(&world.api, world.red).await?;
    let listed = family::list(&mut tx, None, 10, at(5)).await?;
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].title, "mlp on fashion-mnist, batch 64");
    assert_eq!((listed[0].jobs, listed[0].speeds[0].samples), (1, 1));
    assert_eq!(family::forget(&mut tx, &key).await?, 1);
    tx.commit().await?;
    let loaded = load(&world, 6).await?;
    assert_eq!(
        (loaded.families.len(), loaded.jobs[0].placed_speeds.len()),
        (0, 0)
    );
    assert_eq!(
        loaded.jobs[0].speeds.len(),
        1,
        "the job keeps its own sizes"
    );
    Ok(())
}

/// Two jobs of a family start, and one of them stops for 7 s.
#[tokio::test]
async fn jobs_of_a_family_share_durations_of_restarts() -> anyhow::Result<()> {
    let world = World::new().await?;
    let jobs = [world.submit("one").await?, world.submit("two").await?];
    for (gpu, job) in (0..).zip(jobs) {
        let task = run(&world, job, &[(world.node, gpu)]).await?;
        let first = TaskReport::Progress {
            sample: sample(1, 1.0, 1.0, 9.0),
        };
        let second = TaskReport::Progress {
            sample: sample(2, 2.0, 1.0, 2.0),
        };
        let ready = TaskReport::Ready { from_step: 0 };
        world.tell(task, 1, 0, &[ready, first, second]).await?;
    }
    let families = load(&world, 5).await?.families;
    let before = only(&families).restarts;
    assert_eq!((before.stops, before.starts), (0, 2));
    assert!((before.start_s - 2.0 * started_s(&world, jobs[0]).await?).abs() < 1e-9);

    let ids: Vec<TaskId> = world
        .loaded(jobs[0], 6)
        .await?
        .tasks
        .iter()
        .map(|task| task.id)
        .collect();
    world
        .step(
            jobs[0],
            1,
            stop(AfterStop::Requeue {
                cause: RequeueCause::Resize,
            }),
            10,
        )
        .await?;
    let ends: Vec<(TaskId, Observed)> = ids.iter().map(|id| (*id, gone(0))).collect();
    world.observe(1, &ends, 17).await?;
    world.step(jobs[0], 1, Action::Release, 17).await?;
    let families = load(&world, 20).await?.families;
    let after = only(&families).restarts;
    assert_eq!((after.stops, after.stop_s, after.starts), (1, 7.0, 2));
    Ok(())
}

async fn started_s(world: &World, job: JobId) -> anyhow::Result<f64> {
    Ok(world.loaded(job, 5).await?.restarts.start_s)
}

/// Reports samples of a batch, with the gain of its updates.
async fn sampled_batches(
    world: &World,
    task: TaskId,
    batches: &[(u64, f64, f64)],
) -> anyhow::Result<()> {
    let samples = batches.iter().map(|&(step, batch, noise)| {
        // 20 updates per second, each worth two steps.
        let mut sample = sample(step, 1.0, 1.0, 40.0);
        sample.gain = Some(2.0);
        sample.examples_per_s = Some(20.0 * batch);
        sample.exchange_ms = Some(5.0);
        sample.noise_scale = Some(noise);
        sample.ps_shards = 0;
        sample
    });
    reported(world, (world.node, task), samples).await
}

#[tokio::test]
async fn updates_are_kept_by_batch_and_noise_by_course() -> anyhow::Result<()> {
    let world = World::new().await?;
    let job = world.submit("one").await?;
    world
        .as_owner("update job set spec = jsonb_set(jsonb_set(jsonb_set(spec, '{engine,batch_rule}', '\"goodput\"'), '{engine,max_batch}', '1024'), '{stop}', '{\"steps\": 1000}')")
        .await?;
    let task = run(&world, job, &[(world.node, 0)]).await?;
    let batches = [
        (1, 64.0, 9.0),
        (100, 64.0, 100.0),
        (120, 128.0, 200.0),
        (900, 128.0, 800.0),
    ];
    sampled_batches(&world, task, &batches).await?;
    let loaded = load(&world, 5).await?;
    let own = &loaded.jobs[0];
    // The first sample after a start measures the start.
    let steps = |speeds: &[PlacedSpeed]| -> Vec<(f64, f64)> {
        let speeds = speeds.iter();
        speeds.map(|one| (one.steps_per_s, one.samples)).collect()
    };
    assert_eq!(steps(&own.placed_speeds), [(40.0, 3.0)], "they are steps");
    let times = |times: &[UpdateTime]| -> Vec<(f64, f64, f64, f64)> {
        let times = times.iter();
        times
            .map(|one| (one.batch, one.update_s, one.exchange_s, one.samples))
            .collect()
    };
    let expected = [(64.0, 0.05, 0.005, 1.0), (128.0, 0.05, 0.005, 2.0)];
    assert_eq!(times(&own.update_times), expected);
    let family = only(&loaded.families);
    assert_eq!(times(&family.times), expected);
    // Two samples in the third twentieth: their mean.
    assert_eq!(family.noises, [(2, 150.0), (18, 800.0)]);

    let mut tx = pool::begin_for(&world.api, world.red).await?;
    assert_eq!(family::forget(&mut tx, &family.family).await?, 1);
    tx.commit().await?;
    let loaded = load(&world, 6).await?;
    assert!(loaded.families.is_empty() && loaded.jobs[0].update_times.is_empty());
    Ok(())
}
