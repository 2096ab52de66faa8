//! Long queues: the loaded window, and the number of rows that load and commit read.

use crate::world::{World, at, plan_of, start};
use muster_model::id::{JobId, TenantId, UserId};
use muster_model::job::{AfterStop, JobState, RequeueCause};
use muster_model::plan::{Action, JobDecision, RemainderWait, RoundPlan, StaleWait};
use muster_model::wait::{Wait, Waiting};
use muster_store::plan::{CommitOutcome, Loaded, Loader, PlanIds};
use muster_store::pool::{self, Transaction};
use muster_store::{edit, plan};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use uuid::Uuid;

/// First number of the jobs of `Rows`, above the ids that the tests use otherwise.
const FIRST: u32 = 1_000_000;

fn numbered(number: u32) -> JobId {
    JobId(Uuid::from_u128(number.into()))
}

fn numbers(numbers: impl Iterator<Item = u32>) -> BTreeSet<JobId> {
    numbers.map(numbered).collect()
}

fn in_ranges(ranges: [std::ops::Range<u32>; 2]) -> BTreeSet<JobId> {
    numbers(ranges.into_iter().flatten())
}

fn command(text: usize) -> Value {
    json!({
        "version": "muster/v1", "name": "queued", "retries": 3,
        "command": { "argv": ["true", "a".repeat(text)], "env": { "E": "e".repeat(text) }, "files": { "f": "f".repeat(text) } },
    })
}

fn waiting(why: Wait) -> Waiting {
    Waiting {
        why,
        smallest_change: None,
        position: 0,
    }
}

/// Rows of jobs, written by the owner of the tables, each submitted one second after the previous
/// one.
struct Rows {
    of: (TenantId, UserId),
    numbers: std::ops::Range<u32>,
    state: JobState,
    why: Option<Wait>,
    spec: Value,
}

impl Rows {
    fn queued(of: (TenantId, UserId), numbers: std::ops::Range<u32>) -> Self {
        Self {
            of,
            numbers,
            state: JobState::Queued,
            why: Some(Wait::NotConsidered),
            spec: command(1),
        }
    }

    async fn insert(self, world: &World) -> anyhow::Result<()> {
        let owner = pool::owner(&world.db.owner_url, 1)?;
        sqlx::query(
            "insert into job (id, tenant_id, submitted_by, name, labels, priority, spec, intent, phase, state, waiting, submitted_at, finished_at)
             select lpad(to_hex(n), 32, '0')::uuid, $1, $2, 'queued', '{}', 0, $3, 'run', $4, $5, $6,
                    $7 + n * interval '1 second', case when $8 then $7 end
             from generate_series($9::bigint, $10::bigint - 1) n",
        )
        .bind(self.of.0.0)
        .bind(self.of.1.0)
        .bind(self.spec)
        .bind(self.state.phase().as_str())
        .bind(serde_json::to_value(&self.state)?)
        .bind(self.why.map(|why| serde_json::to_value(waiting(why)).expect("JSON")))
        .bind(at(0))
        .bind(self.state.phase().is_terminal())
        .bind(i64::from(self.numbers.start))
        .bind(i64::from(self.numbers.end))
        .execute(&owner)
        .await?;
        Ok(())
    }
}

impl World {
    fn of_red(&self) -> (TenantId, UserId) {
        (self.red, self.red_user)
    }

    fn of_blue(&self) -> (TenantId, UserId) {
        (self.blue, self.blue_user)
    }

    pub async fn as_owner(&self, statement: &'static str) -> anyhow::Result<()> {
        let owner = pool::owner(&self.db.owner_url, 1)?;
        sqlx::query(statement).execute(&owner).await?;
        Ok(())
    }

    async fn load(&self, loader: &mut Loader, seconds: u64) -> anyhow::Result<Loaded> {
        let mut tx = pool::begin_snapshot(&self.scheduler).await?;
        Ok(loader.load(&mut tx, at(seconds)).await?)
    }

    /// Informs jobs that they are left out, as a round does.
    async fn tell_behind(&self, loaded: &Loaded, seconds: u64) -> anyhow::Result<CommitOutcome> {
        let plan = RoundPlan {
            behind: loaded.left_out.iter().map(behind).collect(),
            ..RoundPlan::default()
        };
        self.commit_plan(&plan, &PlanIds::default(), seconds).await
    }
}

fn behind(left_out: &plan::JobsOutsideWindow) -> RemainderWait {
    let considered = left_out.considered;
    RemainderWait {
        waiting: waiting(Wait::BehindEarlierJobs { considered }),
        jobs: left_out.untold.clone(),
    }
}

fn ids(loaded: &Loaded) -> BTreeSet<JobId> {
    loaded.jobs.iter().map(|job| job.job.id).collect()
}

/// Returns the number of table rows that the transaction has read so far, by scans and through
/// indexes.
async fn rows_read(tx: &mut Transaction) -> anyhow::Result<i64> {
    let read = sqlx::query_scalar(
        "select sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::bigint from pg_stat_xact_user_tables",
    );
    Ok(read.fetch_one(&mut **tx).await?)
}

#[tokio::test]
async fn long_queue_leaves_other_tenants_their_share() -> anyhow::Result<()> {
    let world = World::new().await?;
    let red = FIRST..FIRST + 50_000;
    let blue = FIRST + 60_000..FIRST + 60_003;
    Rows::queued(world.of_red(), red.clone())
        .insert(&world)
        .await?;
    Rows::queued(world.of_blue(), blue.clone())
        .insert(&world)
        .await?;
    let mut loader = Loader::new(100);
    let mut tx = pool::begin_snapshot(&world.scheduler).await?;
    let loaded = loader.load(&mut tx, at(100)).await?;
    let read = rows_read(&mut tx).await?;
    drop(tx);
    let first = numbers(red.clone().take(97)).into_iter();
    assert_eq!(ids(&loaded), first.chain(numbers(blue)).collect());
    let [left_out] = &loaded.left_out[..] else {
        panic!("one tenant's queue is cut: {:?}", loaded.left_out);
    };
    let left = (left_out.tenant, left_out.considered, left_out.jobs);
    assert_eq!(left, (world.red, 97, 50_000 - 97));
    assert_eq!(left_out.untold.len(), 500);
    assert!(loaded.has_more);
    // One count of the queue; the rest grows with the window.
    assert!(read < 50_000 + 5_000, "{read} rows");
    // A queue of this length is counted every 15 s.
    for (seconds, counts) in [(110, false), (116, true)] {
        let mut tx = pool::begin_snapshot(&world.scheduler).await?;
        loader.load(&mut tx, at(seconds)).await?;
        let read = rows_read(&mut tx).await?;
        assert_eq!(read > 50_000, counts, "{read} rows at {seconds} s");
        assert!(counts || read < 5_000, "{read} rows");
    }
    Ok(())
}

#[tokio::test]
async fn left_out_jobs_get_their_wait_reason_once() -> anyhow::Result<()> {
    let world = World::new().await?;
    Rows::queued(world.of_red(), FIRST..FIRST + 700)
        .insert(&world)
        .await?;
    let mut loader = Loader::new(100);
    let mut told = Vec::new();
    for round in 0..3 {
        let loaded = world.load(&mut loader, 100 + round).await?;
        assert_eq!(ids(&loaded), numbers(FIRST..FIRST + 100));
        assert_eq!(loaded.left_out[0].jobs, 600);
        told.push(world.tell_behind(&loaded, 100 + round).await?.applied.len());
    }
    assert_eq!(told, [500, 100, 0]);
    let last = world.job(numbered(FIRST + 699)).await?.job.waiting;
    let why = Wait::BehindEarlierJobs { considered: 100 };
    assert_eq!(last, Some(waiting(why)));
    let first = world.job(numbered(FIRST)).await?.job.waiting;
    assert_eq!(first, Some(waiting(Wait::NotConsidered)));
    // A job of higher priority takes the last place of the window. The displaced job gets its new
    // reason.
    world
        .as_owner("update job set priority = 1 where id = lpad(to_hex(1000699), 32, '0')::uuid")
        .await?;
    let loaded = world.load(&mut loader, 110).await?;
    assert!(ids(&loaded).contains(&numbered(FIRST + 699)));
    let displaced = StaleWait {
        job: numbered(FIRST + 99),
        revision: 0,
    };
    assert_eq!(loaded.left_out[0].untold, [displaced]);
    Ok(())
}

#[tokio::test]
async fn jobs_with_gpus_or_orders_are_loaded_beside_the_window() -> anyhow::Result<()> {
    let world = World::new().await?;
    Rows::queued(world.of_red(), FIRST..FIRST + 200)
        .insert(&world)
        .await?;
    let (runs, comes_back, later) = (FIRST + 150, FIRST + 151, FIRST + 152);
    let (cancelled, paused) = (FIRST + 153, FIRST + 154);
    world.start(numbered(runs), 0, &[0], 10).await?;
    let (chief, shard) = world.start(numbered(comes_back), 0, &[1], 10).await?;
    let cause = RequeueCause::TaskFailed;
    let back = crate::world::stop(AfterStop::Requeue { cause });
    world.step(numbered(comes_back), 1, back, 11).await?;
    let seen = [chief, shard].map(|task| (task, crate::world::gone(1)));
    world.observe(1, &seen, 12).await?;
    world
        .step(numbered(comes_back), 1, Action::Release, 13)
        .await?;
    world.as_owner("update job set not_before = submitted_at + interval '1 year' where id = lpad(to_hex(1000152), 32, '0')::uuid").await?;
    world
        .as_owner(
            "update job set intent = 'cancel' where id = lpad(to_hex(1000153), 32, '0')::uuid",
        )
        .await?;
    world.step(numbered(paused), 0, Action::Hold, 14).await?;
    let loaded = world.load(&mut Loader::new(16), 100).await?;
    // A job that has started before comes first in its priority.
    let window = numbers([comes_back].into_iter().chain(FIRST..FIRST + 15));
    let beside = numbers([runs, later, cancelled, paused].into_iter());
    assert_eq!(ids(&loaded), window.union(&beside).copied().collect());
    Ok(())
}

#[tokio::test]
async fn jobs_that_never_fit_take_no_place_in_the_window() -> anyhow::Result<()> {
    let world = World::new().await?;
    let never = Rows {
        why: Some(Wait::ExceedsCluster {
            forbidden: Vec::new(),
            needed_gpus: 64,
            cluster_gpus: 4,
        }),
        ..Rows::queued(world.of_red(), FIRST..FIRST + 10)
    };
    never.insert(&world).await?;
    Rows::queued(world.of_red(), FIRST + 10..FIRST + 40)
        .insert(&world)
        .await?;
    let mut loader = Loader::new(16);
    let mut considered = Vec::new();
    for round in 0..4 {
        let loaded = ids(&world.load(&mut loader, 100 + round).await?);
        let window = numbers(FIRST + 10..FIRST + 26);
        assert!(loaded.is_superset(&window), "{loaded:?}");
        considered.push(loaded.difference(&window).copied().collect::<BTreeSet<_>>());
    }
    // The cluster may grow, so these jobs are considered in rotation, a few per round.
    let none = FIRST..FIRST;
    assert_eq!(
        considered,
        [
            in_ranges([FIRST..FIRST + 4, none.clone()]),
            in_ranges([FIRST + 4..FIRST + 8, none.clone()]),
            in_ranges([FIRST + 8..FIRST + 10, FIRST..FIRST + 2]),
            in_ranges([FIRST + 2..FIRST + 6, none]),
        ]
    );
    Ok(())
}

/// Statistics describe ten ended jobs; thousands of rows were added since.
async fn burst(world: &World, queued: u32) -> anyhow::Result<()> {
    for table in [
        "job",
        "task",
        "allocation",
        "checkpoint",
        "speed",
        "placed_speed",
        "epoch_loss",
    ] {
        let owner = pool::owner(&world.db.owner_url, 1)?;
        let statement = format!("alter table {table} set (autovacuum_enabled = off)");
        sqlx::query(sqlx::AssertSqlSafe(statement))
            .execute(&owner)
            .await?;
    }
    let ended = Rows {
        state: JobState::Succeeded,
        why: None,
        ..Rows::queued(world.of_red(), FIRST + 100_000..FIRST + 100_010)
    };
    ended.insert(world).await?;
    world.as_owner("analyze").await?;
    // Prepares the connection's plans for the small tables.
    for _ in 0..8 {
        world.load(&mut Loader::new(10_000), 50).await?;
    }
    Rows::queued(world.of_red(), FIRST..FIRST + queued)
        .insert(world)
        .await
}

#[tokio::test]
async fn load_reads_each_job_a_few_times_on_stale_statistics() -> anyhow::Result<()> {
    const QUEUED: u32 = 7_000;
    let world = World::new().await?;
    burst(&world, QUEUED).await?;
    let mut tx = pool::begin_snapshot(&world.scheduler).await?;
    let loaded = Loader::new(10_000).load(&mut tx, at(100)).await?;
    assert_eq!(loaded.jobs.len(), QUEUED as usize);
    let read = rows_read(&mut tx).await?;
    assert!(
        read < 10 * i64::from(QUEUED),
        "{read} rows of {QUEUED} jobs"
    );
    Ok(())
}

#[tokio::test]
async fn commit_reads_each_job_a_few_times_on_stale_statistics() -> anyhow::Result<()> {
    const QUEUED: u32 = 7_000;
    let world = World::new().await?;
    burst(&world, QUEUED).await?;
    let waits = (FIRST..FIRST + QUEUED).map(|number| JobDecision {
        job: numbered(number),
        expected_revision: 0,
        action: Action::Wait {
            waiting: waiting(Wait::BehindEarlierJobs { considered: 1 }),
        },
    });
    let waits: Vec<JobDecision> = waits.collect();
    let mut tx = pool::begin(&world.scheduler).await?;
    let plan = plan_of(&waits);
    let outcome = plan::commit(&mut tx, &plan, &PlanIds::default(), at(100)).await?;
    assert_eq!(outcome.applied.len(), QUEUED as usize);
    let read = rows_read(&mut tx).await?;
    assert!(
        read < 10 * i64::from(QUEUED),
        "{read} rows of {QUEUED} jobs"
    );
    Ok(())
}

fn retries(loaded: &Loaded) -> Vec<u32> {
    let jobs = loaded.jobs.iter();
    jobs.map(|job| job.job.spec.retries).collect()
}

#[tokio::test]
async fn documents_are_read_once_and_without_their_files() -> anyhow::Result<()> {
    let world = World::new().await?;
    let large = Rows {
        spec: command(60_000),
        ..Rows::queued(world.of_red(), FIRST..FIRST + 3)
    };
    large.insert(&world).await?;
    let mut loader = Loader::new(100);
    let loaded = world.load(&mut loader, 100).await?;
    for job in &loaded.jobs {
        let document = serde_json::to_string(&job.job.spec)?;
        assert!(document.len() < 2_000, "{} bytes are kept", document.len());
        assert_eq!(job.job.spec.retries, 3);
    }
    // Only a change of the number of edits makes the document be read again.
    world
        .as_owner("update job set spec = jsonb_set(spec, '{retries}', '5')")
        .await?;
    assert_eq!(retries(&world.load(&mut loader, 101).await?), [3, 3, 3]);
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    let editing = edit::begin(&mut tx, numbered(FIRST + 1)).await?;
    let editing = editing.expect("the job is there");
    edit::write(&mut tx, &editing, &editing.spec, None, at(102)).await?;
    tx.commit().await?;
    assert_eq!(retries(&world.load(&mut loader, 103).await?), [3, 5, 3]);
    world
        .commit(
            &[JobDecision {
                job: numbered(FIRST),
                expected_revision: 0,
                action: start(world.tasks(&[0])),
            }],
            104,
        )
        .await?;
    assert_eq!(world.load(&mut loader, 105).await?.jobs.len(), 3);
    Ok(())
}
