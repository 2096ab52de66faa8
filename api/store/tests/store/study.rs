//! Studies: steps are written completely or not at all, and are on the disk before they are
//! acknowledged.

use crate::world::{World, at, id};
use muster_model::id::StudyId;
use muster_model::study::{StudyOrder, StudyPhase, StudySpec, Told, ToldState, TrialPhase};
use muster_store::pool;
use muster_store::study::outside::{self, ReportableStudy};
use muster_store::study::save::{StudyStepChanges, save};
use muster_store::study::trial_rows::TrialWrite;
use muster_store::study::{self, NewStudy, StudyOrderOutcome, search, trial};
use serde_json::json;
use sqlx::{Connection as _, PgConnection};

pub async fn created(world: &World) -> anyhow::Result<StudyId> {
    let document: StudySpec = serde_json::from_value(json!({
        "version": "muster/v1", "kind": "study", "name": "outside",
        "search": {
            "objectives": [{"metric": "loss", "goal": "minimize"}],
            "parameters": [{"name": "rate", "type": "float", "low": 0.0, "high": 1.0}],
            "searcher": {"kind": "random"}, "trials": 10,
        },
    }))?;
    let new = NewStudy {
        id: id(),
        tenant_id: world.red,
        created_by: world.red_user,
        document,
    };
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    study::insert(&mut tx, &new, at(0)).await?;
    tx.commit().await?;
    Ok(new.id)
}

fn running(number: u32) -> TrialWrite {
    TrialWrite {
        number,
        job_id: None,
        state: TrialPhase::Running,
        parameters: [("rate".to_owned(), json!(0.1))].into(),
        seed: (1 << 53) - 1,
        budget: 1,
        rung: 0,
        from: None,
        reports: vec![],
        rungs: vec![],
        outcome: None,
        best: false,
        fed_step: None,
        end_fed: None,
        failure: None,
        open: false,
    }
}

/// Returns a step after `before` events that adds one event and one trial of that number.
fn step(before: u64) -> StudyStepChanges {
    StudyStepChanges {
        phase: "running",
        cancelled: false,
        limit: 10,
        proposed: 0,
        seq: before + 1,
        before,
        taken: vec![],
        events: vec![r#"{"kind": "started"}"#.to_owned()],
        state: None,
        created: vec![running(before as u32)],
        changed: vec![],
        has_jobs: false,
        durable: false,
    }
}

fn told(trial: u32) -> StudyOrder {
    let told = Told {
        trial,
        step: 1,
        values: vec![0.5],
        state: ToldState::Finished,
        exhausted: false,
    };
    StudyOrder::Tell { told }
}

async fn open(tx: &mut pool::Transaction, id: StudyId) -> anyhow::Result<ReportableStudy> {
    Ok(outside::look(tx, id, &[0, 7]).await?.expect("a study"))
}

/// Runs `then`, and returns whether the write-ahead log written before it is on the disk.
async fn lasts<T>(
    world: &World,
    then: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<bool> {
    let owner = sqlx::PgPool::connect(&world.db.owner_url).await?;
    let written: String = sqlx::query_scalar("select pg_current_wal_insert_lsn()::text")
        .fetch_one(&owner)
        .await?;
    then.await?;
    let lasts = sqlx::query_scalar("select pg_current_wal_flush_lsn() >= $1::text::pg_lsn")
        .bind(written)
        .fetch_one(&owner)
        .await?;
    Ok(lasts)
}

#[tokio::test]
async fn ask_and_tell_are_on_the_disk_before_the_answer() -> anyhow::Result<()> {
    let world = World::new().await?;
    let id = created(&world).await?;
    let mut scheduler = world.scheduler.acquire().await?;
    assert!(save(&mut scheduler, id, &step(0), at(1)).await?);
    let asked = async {
        let mut tx = pool::begin_for(&world.api, world.red).await?;
        let asked = outside::ask(&mut tx, id, 5, at(2)).await?.expect("a study");
        tx.commit().await?;
        assert_eq!((asked.phase, asked.has_job), (StudyPhase::Running, false));
        assert_eq!(asked.trials.len(), 1);
        assert_eq!(asked.trials[0].seed, (1 << 53) - 1);
        Ok(())
    };
    assert!(lasts(&world, asked).await?, "the step before it too");
    let mut tx = outside::begin(&world.api, world.red, id).await?;
    let seen = open(&mut tx, id).await?;
    assert_eq!((seen.trials.len(), seen.trials[0].ended), (1, None));
    let done = outside::tell(tx, id, &seen, &[told(0)], at(3)).await?;
    assert_eq!(done, StudyOrderOutcome::Done);
    let look = search::look(&mut scheduler, id).await?;
    assert_eq!(look.orders.len(), 1, "the scheduler sees it at once");
    let waited = async { Ok(outside::lasting(&world.api).await?) };
    assert!(lasts(&world, waited).await?);
    Ok(())
}

#[tokio::test]
async fn step_writes_nothing_if_the_study_has_advanced() -> anyhow::Result<()> {
    let world = World::new().await?;
    let id = created(&world).await?;
    let mut scheduler = world.scheduler.acquire().await?;
    assert!(save(&mut scheduler, id, &step(0), at(1)).await?);
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    study::order(&mut tx, id, &[StudyOrder::Pause], at(2)).await?;
    tx.commit().await?;
    let orders = search::look(&mut scheduler, id).await?.orders;
    let late = StudyStepChanges {
        taken: vec![orders[0].0],
        created: vec![running(5)],
        changed: vec![running(0)],
        phase: "paused",
        ..step(0)
    };
    assert!(!save(&mut scheduler, id, &late, at(3)).await?);
    let look = search::look(&mut scheduler, id).await?;
    let loaded = look.study.expect("a study");
    assert_eq!((loaded.seq, loaded.phase.as_str()), (1, "running"));
    assert_eq!(look.orders, orders);
    let trials = trial::list(&mut scheduler, id, None, false, None, 9).await?;
    assert_eq!(trials.len(), 1);
    assert_eq!(search::state(&mut scheduler, id).await?.1.len(), 1);
    Ok(())
}

#[tokio::test]
async fn tell_waits_for_an_order_and_sees_it() -> anyhow::Result<()> {
    let world = World::new().await?;
    let id = created(&world).await?;
    let mut scheduler = world.scheduler.acquire().await?;
    assert!(save(&mut scheduler, id, &step(0), at(1)).await?);
    let mut cancels = pool::begin_for(&world.api, world.red).await?;
    study::order(&mut cancels, id, &[StudyOrder::Cancel], at(2)).await?;
    let (api, red) = (world.api.clone(), world.red);
    let tells = tokio::spawn(async move {
        let mut tx = outside::begin(&api, red, id).await?;
        let seen = open(&mut tx, id).await?;
        anyhow::Ok(outside::tell(tx, id, &seen, &[told(0)], at(3)).await?)
    });
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    assert!(!tells.is_finished(), "it waits");
    cancels.commit().await?;
    let phase = StudyPhase::Cancelled;
    assert_eq!(tells.await??, StudyOrderOutcome::Refused { phase });
    // Two transactions that tell results do not wait for each other.
    let _beside = outside::begin(&world.api, world.red, id).await?;
    let _other = outside::begin(&world.api, world.red, id).await?;
    Ok(())
}

/// The scheduler has ended the study, and the jobs of its trials end later.
#[tokio::test]
async fn study_is_deleted_only_after_its_jobs_have_ended() -> anyhow::Result<()> {
    let world = World::new().await?;
    let study = created(&world).await?;
    let job = world.submit("trial").await?;
    let mut owner = PgConnection::connect(&world.db.owner_url).await?;
    sqlx::query("update job set study_id = $1, trial = 0 where id = $2")
        .bind(study.0)
        .bind(job.0)
        .execute(&mut owner)
        .await?;
    let mut tx = pool::begin(&world.scheduler).await?;
    assert!(study::end::end(&mut tx, study, "it cannot be carried out", at(1)).await?);
    tx.commit().await?;
    let deleted = async |time| -> anyhow::Result<StudyOrderOutcome> {
        let mut tx = pool::begin_for(&world.api, world.red).await?;
        let done = study::delete(&mut tx, study, time).await?;
        tx.commit().await?;
        Ok(done)
    };
    assert_eq!(
        deleted(at(2)).await?,
        StudyOrderOutcome::Busy { waiting: 1 }
    );
    sqlx::query(
        r#"update job set phase = 'cancelled', state = '{"phase": "cancelled"}', finished_at = $2 where id = $1"#,
    )
    .bind(job.0)
    .bind(at(3))
    .execute(&mut owner)
    .await?;
    assert_eq!(deleted(at(4)).await?, StudyOrderOutcome::Done);
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    assert_eq!(muster_store::job::get(&mut tx, job).await?, None);
    Ok(())
}
