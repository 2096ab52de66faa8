//! Training series and evaluations of a job, and what the scheduler learns from them: speeds by
//! size and losses by epoch.

use crate::error::StoreError;
use crate::family::{self, ChosenBatches};
use crate::int_convert::{signed, signed32, unsigned, unsigned32};
use muster_model::id::{JobId, TenantId};
use muster_model::packing::{Company, Measured};
use muster_model::progress::{Evaluation, Filled, Sample, Split};
use sqlx::PgConnection;
use sqlx::types::Json;
use std::collections::BTreeMap;
use time::OffsetDateTime;

/// Stores samples of the job's present revision: the series, the newest sample, the speeds and the
/// losses of epochs. Returns `false` and does nothing if the job has another revision by now.
///
/// - The first sample after a start is not used for the speeds, because it measures the start.
/// - A series above its limit does not grow.
/// - `company` is the other job on the job's GPU. Samples beside another job, or reported right
///   after, are not used for the speeds. `now` is the time of the store.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn record(
    conn: &mut PgConnection,
    job: JobId,
    revision: u64,
    (samples, is_series_kept): (&[(OffsetDateTime, Sample)], bool),
    company: Option<Company>,
    now: OffsetDateTime,
) -> Result<bool, StoreError> {
    let row = sqlx::query!(
        r#"select tenant_id, revision_samples, measured as "measured: Json<Measured>" from job where id = $1 and revision = $2 for no key update"#,
        job.0,
        signed(revision)
    )
    .fetch_optional(&mut *conn)
    .await?;
    let Some(row) = row else { return Ok(false) };
    let Some((newest_at, newest)) = samples.last() else {
        return Ok(true);
    };
    let tenant = row.tenant_id.into();
    if is_series_kept {
        series(conn, tenant, job, revision, samples).await?;
    }
    let skip = usize::from(row.revision_samples == 0);
    let counted = samples.iter().skip(skip).map(|(_, sample)| sample);
    let mut known = row.measured.map(|known| known.0.in_revision(revision));
    let parted = known.as_ref().is_some_and(|known| known.company.is_some());
    if company.is_none() && !parted {
        let chosen = if counted.clone().any(|sample| sample.gain.is_some()) {
            ChosenBatches::of(conn, job).await?
        } else {
            None
        };
        let rates = counted.clone().map(|sample| {
            let rate = family::speed_of(sample, chosen.is_some());
            ((sample.workers, sample.ps_shards), rate)
        });
        speeds(conn, tenant, job, rates).await?;
        let at = (tenant, job, revision);
        family::observe(conn, at, counted.clone(), chosen.as_ref(), now).await?;
    }
    // The speed beside other jobs is needed only where GPU use is measured.
    if let Some(known) = &mut known {
        for sample in counted.filter(|sample| (sample.workers, sample.ps_shards) == (1, 0)) {
            known.take_rate(sample.updates_per_s(), company, unix_ms(now));
        }
    }
    losses(conn, tenant, job, samples.iter().map(|(_, sample)| sample)).await?;
    let done = sqlx::query!(
        "update job set latest = $3, sample_at = $4, revision_samples = revision_samples + $5, measured = coalesce($6, measured)
         where id = $1 and revision = $2",
        job.0,
        signed(revision),
        Json(Filled(newest.clone())) as _,
        *newest_at,
        signed(samples.len() as u64),
        known.map(Json) as _
    )
    .execute(conn)
    .await?;
    assert_eq!(done.rows_affected(), 1, "the row is locked");
    Ok(true)
}

/// Returns milliseconds since 1970.
pub(crate) fn unix_ms(at: OffsetDateTime) -> i64 {
    i64::try_from(at.unix_timestamp_nanos() / 1_000_000).expect("dates of this era fit")
}

/// Returns the columns of `progress_sample` that hold 0 instead of null.
fn unlogged_in_sample(sample: &Sample) -> Vec<&'static str> {
    missing([
        ("accuracy", sample.accuracy),
        ("examples_per_s", sample.examples_per_s),
        ("compute_ms", sample.compute_ms),
        ("exchange_ms", sample.exchange_ms),
        ("data_ms", sample.data_ms),
    ])
}

fn missing<const N: usize>(columns: [(&'static str, Option<f64>); N]) -> Vec<&'static str> {
    let missing = columns.into_iter().filter(|(_, value)| value.is_none());
    missing.map(|(name, _)| name).collect()
}

/// Returns the split of an evaluation's row.
pub(crate) fn split(name: &str) -> Split {
    if name == Split::Validation.as_str() {
        Split::Validation
    } else {
        Split::Test
    }
}

/// Returns the value of a column, unless the row lists the column as unlogged.
pub(crate) fn logged(unlogged: &[String], column: &str, value: f64) -> Option<f64> {
    (!unlogged.iter().any(|name| name == column)).then_some(value)
}

async fn series(
    conn: &mut PgConnection,
    tenant: TenantId,
    job: JobId,
    revision: u64,
    samples: &[(OffsetDateTime, Sample)],
) -> Result<(), StoreError> {
    // One statement cannot update a row twice. Of two samples of one step the later one is kept.
    let by_step: BTreeMap<u64, &(OffsetDateTime, Sample)> = samples
        .iter()
        .map(|sample| (sample.1.step, sample))
        .collect();
    let steps: Vec<i64> = by_step.keys().copied().map(signed).collect();
    let at: Vec<OffsetDateTime> = by_step.values().map(|(at, _)| *at).collect();
    let workers: Vec<i32> = column(&by_step, |sample| signed32(sample.workers));
    let ps_shards: Vec<i32> = column(&by_step, |sample| signed32(sample.ps_shards));
    let unlogged: Vec<String> = column(&by_step, |sample| unlogged_in_sample(sample).join(","));
    sqlx::query!(
        "insert into progress_sample (job_id, tenant_id, revision, step, at, epoch, loss, accuracy, examples_per_s, steps_per_s,
                                      compute_ms, exchange_ms, data_ms, workers, ps_shards, noise_scale, gain, unlogged)
         select $1, $2, $3, step, at, epoch, loss, accuracy, examples_per_s, steps_per_s, compute_ms, exchange_ms, data_ms,
                workers, ps_shards, noise_scale, gain, string_to_array(unlogged, ',')
         from unnest($4::bigint[], $5::timestamptz[], $6::float8[], $7::float8[], $8::float8[], $9::float8[],
                     $10::float8[], $11::float8[], $12::float8[], $13::float8[], $14::integer[], $15::integer[],
                     $16::float8[], $17::float8[], $18::text[])
              as new (step, at, epoch, loss, accuracy, examples_per_s, steps_per_s, compute_ms, exchange_ms, data_ms,
                      workers, ps_shards, noise_scale, gain, unlogged)
         on conflict (job_id, step) do update
            set revision = excluded.revision, at = excluded.at, epoch = excluded.epoch, loss = excluded.loss,
                accuracy = excluded.accuracy, examples_per_s = excluded.examples_per_s, steps_per_s = excluded.steps_per_s,
                compute_ms = excluded.compute_ms, exchange_ms = excluded.exchange_ms, data_ms = excluded.data_ms,
                workers = excluded.workers, ps_shards = excluded.ps_shards, noise_scale = excluded.noise_scale,
                gain = excluded.gain, unlogged = excluded.unlogged",
        job.0,
        tenant.0,
        signed(revision),
        &steps,
        &at,
        &column(&by_step, |sample| sample.epoch),
        &column(&by_step, |sample| sample.loss),
        &column(&by_step, |sample| sample.accuracy.unwrap_or_default()),
        &column(&by_step, |sample| sample.examples_per_s.unwrap_or_default()),
        &column(&by_step, |sample| sample.steps_per_s),
        &column(&by_step, |sample| sample.compute_ms.unwrap_or_default()),
        &column(&by_step, |sample| sample.exchange_ms.unwrap_or_default()),
        &column(&by_step, |sample| sample.data_ms.unwrap_or_default()),
        &workers,
        &ps_shards,
        &column(&by_step, |sample| sample.noise_scale) as &[Option<f64>],
        &column(&by_step, |sample| sample.gain) as &[Option<f64>],
        &unlogged
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Returns one value of each sample, in the order of the steps.
fn column<T>(
    samples: &BTreeMap<u64, &(OffsetDateTime, Sample)>,
    value: fn(&Sample) -> T,
) -> Vec<T> {
    let samples = samples.values();
    samples.map(|(_, sample)| value(sample)).collect()
}

/// Adds speeds of sizes, as (workers, shards), to their means ([`family::speed_of`]).
async fn speeds(
    conn: &mut PgConnection,
    tenant: TenantId,
    job: JobId,
    rates: impl Iterator<Item = ((u32, u32), f64)>,
) -> Result<(), StoreError> {
    let mut sizes: BTreeMap<(u32, u32), (f64, u64)> = BTreeMap::new();
    for (size, rate) in rates.filter(|(_, rate)| *rate > 0.0) {
        let (sum, count) = sizes.entry(size).or_default();
        *sum += rate;
        *count += 1;
    }
    for ((workers, ps_shards), (sum, count)) in sizes {
        sqlx::query!(
            "insert into speed as old (job_id, workers, ps_shards, tenant_id, steps_per_s, samples)
             values ($1, $2, $3, $4, $5::float8 / $6::bigint, $6)
             on conflict (job_id, workers, ps_shards) do update
                set steps_per_s = (old.steps_per_s * old.samples + $5) / (old.samples + $6), samples = old.samples + $6",
            job.0,
            signed32(workers),
            signed32(ps_shards),
            tenant.0,
            sum,
            signed(count)
        )
        .execute(&mut *conn)
        .await?;
    }
    Ok(())
}

async fn losses<'a>(
    conn: &mut PgConnection,
    tenant: TenantId,
    job: JobId,
    samples: impl Iterator<Item = &'a Sample>,
) -> Result<(), StoreError> {
    let mut epochs: BTreeMap<i64, (f64, i64)> = BTreeMap::new();
    for sample in samples {
        let (sum, count) = epochs.entry(epoch_of(sample)).or_default();
        *sum += sample.loss;
        *count += 1;
    }
    for (epoch, (sum, count)) in epochs {
        sqlx::query!(
            "insert into epoch_loss as old (job_id, epoch, tenant_id, loss_sum, samples) values ($1, $2, $3, $4, $5)
             on conflict (job_id, epoch) do update
                set loss_sum = old.loss_sum + excluded.loss_sum, samples = old.samples + excluded.samples",
            job.0,
            epoch,
            tenant.0,
            sum,
            count
        )
        .execute(&mut *conn)
        .await?;
    }
    Ok(())
}

/// Returns the epoch of a sample's examples, from 0. A sample at the exact end of an epoch belongs
/// to that epoch.
#[expect(clippy::cast_possible_truncation, reason = "epochs are far below 2^53")]
fn epoch_of(sample: &Sample) -> i64 {
    (sample.epoch.ceil() as i64 - 1).max(0)
}

/// Removes reports of earlier revisions after `step`, from which this revision continues. Series,
/// evaluations and epoch losses are cut there, so the curve has one line. The first evaluation of a
/// command may be stored before its start; it belongs to this revision and stays.
pub(crate) async fn rewind(
    conn: &mut PgConnection,
    job: JobId,
    revision: u64,
    step: u64,
) -> Result<(), StoreError> {
    let cut = sqlx::query!(
        "delete from progress_sample where job_id = $1 and step > $2 and revision < $3",
        job.0,
        signed(step),
        signed(revision)
    )
    .execute(&mut *conn)
    .await?;
    sqlx::query!(
        "delete from evaluation where job_id = $1 and step > $2 and revision < $3",
        job.0,
        signed(step),
        signed(revision)
    )
    .execute(&mut *conn)
    .await?;
    if cut.rows_affected() == 0 {
        return Ok(());
    }
    sqlx::query!(
        "with gone as (delete from epoch_loss where job_id = $1)
         insert into epoch_loss (job_id, epoch, tenant_id, loss_sum, samples)
         select job_id, greatest(ceil(epoch)::bigint - 1, 0), tenant_id, sum(loss), count(*)
         from progress_sample where job_id = $1 group by 1, 2, 3
         on conflict (job_id, epoch) do update set loss_sum = excluded.loss_sum, samples = excluded.samples",
        job.0
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Returns the step from which a start continues. The engine reports it. For a command it is
/// derived from the first step that it logs, and commands need not log every step. The difference
/// to the first stored step shows whether the command begins from the start.
///
/// # Errors
/// [`StoreError::Statement`].
pub(crate) async fn begins(
    conn: &mut PgConnection,
    job: JobId,
    from_step: u64,
) -> Result<u64, StoreError> {
    if from_step == 0 {
        return Ok(0);
    }
    let row = sqlx::query!(
        r#"select jsonb_typeof(spec -> 'command') is not distinct from 'object' as "is_command!",
                  least((select min(step) from progress_sample where job_id = $1),
                        (select min(step) from evaluation where job_id = $1 and revision < job.revision)) as "first?"
           from job where id = $1"#,
        job.0
    )
    .fetch_one(conn)
    .await?;
    if !row.is_command {
        return Ok(from_step);
    }
    // The first reported step is the one after `from_step`.
    let told = from_step + 1;
    Ok(row
        .first
        .map_or(0, |first| told.saturating_sub(unsigned(first))))
}

/// Records that the coordinator trains after a start: the duration of the start and the number of
/// steps to repeat. Must be called before the series is rewound.
///
/// # Errors
/// [`StoreError::Statement`].
pub(crate) async fn started(
    conn: &mut PgConnection,
    job: JobId,
    from_step: u64,
    now: OffsetDateTime,
) -> Result<(), StoreError> {
    sqlx::query!(
        "update job
         set starts = starts + 1, start_s = start_s + greatest(extract(epoch from $3::timestamptz - placed_at), 0)::double precision,
             resumed = resumed + case when $2::bigint > 0 and revision > 1 then 1 else 0 end,
             lost_steps = lost_steps + case when $2::bigint > 0 and revision > 1 then greatest(
                 coalesce((select max(step) from progress_sample where job_id = $1), 0) - $2::bigint, 0) else 0 end::double precision
         where id = $1 and placed_at is not null",
        job.0,
        signed(from_step),
        now
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Records a checkpoint of a user's program. An older report changes nothing.
///
/// # Errors
/// [`StoreError::Statement`].
pub(crate) async fn reported_checkpoint(
    conn: &mut PgConnection,
    job: JobId,
    step: u64,
    at: OffsetDateTime,
) -> Result<(), StoreError> {
    sqlx::query!(
        "update job set reported_step = $2, reported_at = $3
         where id = $1 and (reported_at is null or reported_at <= $3)",
        job.0,
        signed(step),
        at
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Returns at most `max_points` points of the series after a step, evenly spaced. The first and the
/// last one are always included.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn samples(
    conn: &mut PgConnection,
    job: JobId,
    after_step: Option<u64>,
    max_points: u32,
) -> Result<Vec<(OffsetDateTime, Sample)>, StoreError> {
    let rows = sqlx::query!(
        "select step, at, epoch, loss, accuracy, examples_per_s, steps_per_s, compute_ms, exchange_ms, data_ms, workers, ps_shards,
                noise_scale, gain, unlogged
         from (
             select *, row_number() over (order by step) - 1 as place, count(*) over () as total
             from progress_sample where job_id = $1 and step > $2
         ) numbered
         where total <= $3 or place = total - 1
            or (place * ($3 - 1)) / total is distinct from ((place - 1) * ($3 - 1)) / total
            or place = 0
         order by step",
        job.0,
        after_step.map_or(-1, signed),
        i64::from(max_points.max(2))
    )
    .fetch_all(conn)
    .await?;
    let samples = rows.into_iter().map(|row| {
        let sample = Sample {
            step: unsigned(row.step),
            epoch: row.epoch,
            loss: row.loss,
            accuracy: logged(&row.unlogged, "accuracy", row.accuracy),
            examples_per_s: logged(&row.unlogged, "examples_per_s", row.examples_per_s),
            steps_per_s: row.steps_per_s,
            compute_ms: logged(&row.unlogged, "compute_ms", row.compute_ms),
            exchange_ms: logged(&row.unlogged, "exchange_ms", row.exchange_ms),
            data_ms: logged(&row.unlogged, "data_ms", row.data_ms),
            workers: unsigned32(row.workers),
            ps_shards: unsigned32(row.ps_shards),
            noise_scale: row.noise_scale,
            gain: row.gain,
        };
        (row.at, sample)
    });
    Ok(samples.collect())
}

/// Returns the newest sample of each job in scope that has tasks and a sample.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn newest(
    conn: &mut PgConnection,
) -> Result<Vec<(JobId, OffsetDateTime, Sample)>, StoreError> {
    // The list of phases implies the predicate of the index `job_open`, so ended jobs are not read.
    let rows = sqlx::query!(
        r#"select id, sample_at as "at!", latest as "latest!: Json<Filled<Sample>>"
           from job
           where phase in ('running', 'stopping') and latest is not null and sample_at is not null
           order by id"#
    )
    .fetch_all(conn)
    .await?;
    let newest = rows
        .into_iter()
        .map(|row| (row.id.into(), row.at, row.latest.0.0));
    Ok(newest.collect())
}

/// Returns the measured speeds of a job in scope: (workers, shards) and updates per second, ordered
/// by size.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn speeds_of(
    conn: &mut PgConnection,
    job: JobId,
) -> Result<Vec<((u32, u32), f64)>, StoreError> {
    let rows = sqlx::query!(
        "select workers, ps_shards, steps_per_s from speed where job_id = $1 order by workers, ps_shards",
        job.0
    )
    .fetch_all(conn)
    .await?;
    let speeds = rows.into_iter().map(|row| {
        let size = (unsigned32(row.workers), unsigned32(row.ps_shards));
        (size, row.steps_per_s)
    });
    Ok(speeds.collect())
}

/// Returns the evaluations of a job, ordered by step.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn evaluations(
    conn: &mut PgConnection,
    job: JobId,
) -> Result<Vec<(OffsetDateTime, Evaluation)>, StoreError> {
    let rows = sqlx::query!(
        "select step, at, epoch, loss, accuracy, split, unlogged from evaluation where job_id = $1 order by step",
        job.0
    )
    .fetch_all(conn)
    .await?;
    let evaluations = rows.into_iter().map(|row| {
        let evaluation = Evaluation {
            step: unsigned(row.step),
            epoch: row.epoch,
            split: split(&row.split),
            loss: logged(&row.unlogged, "loss", row.loss),
            accuracy: logged(&row.unlogged, "accuracy", row.accuracy),
        };
        (row.at, evaluation)
    });
    Ok(evaluations.collect())
}

/// Stores an evaluation of the job's present revision. The caller has locked the job's row.
pub(crate) async fn evaluated(
    conn: &mut PgConnection,
    tenant: TenantId,
    job: JobId,
    revision: u64,
    at: OffsetDateTime,
    evaluation: &Evaluation,
) -> Result<(), StoreError> {
    let unlogged = missing([("loss", evaluation.loss), ("accuracy", evaluation.accuracy)]);
    let unlogged: Vec<String> = unlogged.into_iter().map(str::to_owned).collect();
    sqlx::query!(
        "with kept as (
             insert into evaluation (job_id, step, tenant_id, revision, at, epoch, loss, accuracy, split, unlogged)
             values ($1, $2, $3, $4, $5, $6, $7, $8, $10, $11)
             on conflict (job_id, step) do update
                set revision = excluded.revision, at = excluded.at, epoch = excluded.epoch, loss = excluded.loss,
                    accuracy = excluded.accuracy, split = excluded.split, unlogged = excluded.unlogged
         )
         update job set latest_evaluation = $9 where id = $1 and revision = $4",
        job.0,
        signed(evaluation.step),
        tenant.0,
        signed(revision),
        at,
        evaluation.epoch,
        evaluation.loss.unwrap_or_default(),
        evaluation.accuracy.unwrap_or_default(),
        Json(Filled(evaluation.clone())) as _,
        evaluation.split.as_str(),
        &unlogged
    )
    .execute(conn)
    .await?;
    Ok(())
}
