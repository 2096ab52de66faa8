//! Measurements of a trial's job: its evaluations and samples by step, and values of objectives
//! that only its program logs.

use crate::error::StoreError;
use crate::int_convert::{signed, unsigned};
use crate::objective::{self, StoredObjective};
use crate::progress::{logged as if_logged, split};
use muster_model::id::JobId;
use muster_model::progress::{Evaluation, Sample};
use sqlx::PgConnection;

/// Value of an objective that a program has logged, and the job's curve at its step.
#[derive(Debug, Clone, PartialEq)]
pub struct LoggedObjective {
    pub stored: StoredObjective,
    /// Newest evaluation up to the step.
    pub evaluation: Option<Evaluation>,
    /// Newest sample up to the step.
    pub sample: Option<Sample>,
}

/// Newest evaluation and newest sample up to a step.
type CurvePoint = (Option<Evaluation>, Option<Sample>);

/// Returns the evaluations after step `after`, each with the newest sample up to it.
pub(super) async fn evaluations(
    conn: &mut PgConnection,
    job: JobId,
    after: i64,
) -> Result<Vec<(Evaluation, Option<Sample>)>, StoreError> {
    let steps = sqlx::query_scalar!(
        "select step from evaluation where job_id = $1 and step > $2 order by step",
        job.0,
        after
    )
    .fetch_all(&mut *conn)
    .await?;
    let points = curve(conn, job, &steps).await?.into_iter();
    Ok(points
        .filter_map(|(evaluation, sample)| Some((evaluation?, sample)))
        .collect())
}

/// Returns the values of objectives after step `after`, and the newest one of each name up to it.
pub(super) async fn logged(
    conn: &mut PgConnection,
    job: JobId,
    after: i64,
) -> Result<Vec<LoggedObjective>, StoreError> {
    let values = objective::since(conn, job, after).await?;
    let steps: Vec<i64> = values.iter().map(|value| signed(value.step)).collect();
    let points = curve(conn, job, &steps).await?;
    let pairs = values.into_iter().zip(points);
    Ok(pairs
        .map(|(stored, (evaluation, sample))| LoggedObjective {
            stored,
            evaluation,
            sample,
        })
        .collect())
}

/// Returns the job's curve at each of the steps, which ascend.
async fn curve(
    conn: &mut PgConnection,
    job: JobId,
    steps: &[i64],
) -> Result<Vec<CurvePoint>, StoreError> {
    if steps.is_empty() {
        return Ok(Vec::new());
    }
    let rows = sqlx::query!(
        r#"select e.step as "step?", e.epoch as "epoch?", e.loss as "loss?", e.accuracy as "accuracy?", e.split as "split?",
                  e.unlogged as "unlogged?", s.step as "sample_step?", s.epoch as "sample_epoch?", s.loss as "sample_loss?",
                  s.accuracy as "sample_accuracy?", s.examples_per_s as "examples_per_s?", s.steps_per_s as "steps_per_s?",
                  s.unlogged as "sample_unlogged?"
           from unnest($2::bigint[]) with ordinality as wanted (step, place)
           left join lateral (
               select * from evaluation p where p.job_id = $1 and p.step <= wanted.step order by p.step desc limit 1
           ) e on true
           left join lateral (
               select * from progress_sample p where p.job_id = $1 and p.step <= wanted.step order by p.step desc limit 1
           ) s on true
           order by wanted.place"#,
        job.0,
        steps
    )
    .fetch_all(conn)
    .await?;
    let points = rows.into_iter().map(|row| {
        let unlogged = row.sample_unlogged.unwrap_or_default();
        let sample = row.sample_step.map(|step| Sample {
            step: unsigned(step),
            epoch: row.sample_epoch.unwrap_or_default(),
            loss: row.sample_loss.unwrap_or_default(),
            accuracy: row
                .sample_accuracy
                .and_then(|value| if_logged(&unlogged, "accuracy", value)),
            examples_per_s: row
                .examples_per_s
                .and_then(|value| if_logged(&unlogged, "examples_per_s", value)),
            steps_per_s: row.steps_per_s.unwrap_or_default(),
            compute_ms: None,
            exchange_ms: None,
            data_ms: None,
            workers: 0,
            ps_shards: 0,
            noise_scale: None,
            gain: None,
        });
        let unlogged = row.unlogged.unwrap_or_default();
        let evaluation = row.step.map(|step| Evaluation {
            step: unsigned(step),
            epoch: row.epoch.unwrap_or_default(),
            split: split(&row.split.unwrap_or_default()),
            loss: row
                .loss
                .and_then(|value| if_logged(&unlogged, "loss", value)),
            accuracy: row
                .accuracy
                .and_then(|value| if_logged(&unlogged, "accuracy", value)),
        });
        (evaluation, sample)
    });
    Ok(points.collect())
}
