//! Lower limit of the cost: the same rows into a table with the same columns and key, without
//! foreign keys, policies and derived rows.

use muster_model::progress::Sample;
use sqlx::postgres::PgConnection;
use sqlx::{Connection as _, Executor as _};
use time::OffsetDateTime;
use uuid::Uuid;

/// Task, time of reading and sample. The task stands for the job.
pub type TaskSample = (Uuid, OffsetDateTime, Sample);

const COLUMNS: &str = "job_id, tenant_id, revision, step, at, epoch, loss, accuracy, examples_per_s, steps_per_s, compute_ms, exchange_ms, \
                       data_ms, workers, ps_shards";
const COLUMN_COUNT: i16 = 15;
/// Origin of Postgres' time stamps.
const EPOCH: OffsetDateTime = time::macros::datetime!(2000-01-01 0:00 UTC);

pub struct BarePostgres {
    pub conn: PgConnection,
}

impl BarePostgres {
    pub async fn start(owner_url: &str) -> anyhow::Result<Self> {
        let mut conn = PgConnection::connect(owner_url).await?;
        for table in ["bare_sample", "unnested_sample"] {
            let statement = format!(
                "create table {table} (like progress_sample including indexes including defaults)"
            );
            conn.execute(sqlx::AssertSqlSafe(statement)).await?;
        }
        Ok(Self { conn })
    }

    /// Inserts in one binary COPY, which is one transaction.
    pub async fn copy(&mut self, told: &[TaskSample]) -> anyhow::Result<()> {
        let mut copy = self
            .conn
            .copy_in_raw(&format!(
                "copy bare_sample ({COLUMNS}) from stdin (format binary)"
            ))
            .await?;
        copy.send(encode(told)).await?;
        let copied = copy.finish().await?;
        anyhow::ensure!(
            copied == told.len() as u64,
            "{copied} rows of {}",
            told.len()
        );
        Ok(())
    }

    /// Inserts by UNNEST, with `rows` rows per statement, which is one transaction.
    pub async fn unnest(&mut self, told: &[TaskSample], rows: usize) -> anyhow::Result<()> {
        let statement = format!(
            "insert into unnested_sample ({COLUMNS}) select * from unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::bigint[], \
             $5::timestamptz[], $6::float8[], $7::float8[], $8::float8[], $9::float8[], $10::float8[], $11::float8[], $12::float8[], \
             $13::float8[], $14::integer[], $15::integer[])"
        );
        for told in told.chunks(rows) {
            let tasks: Vec<Uuid> = told.iter().map(|(task, ..)| *task).collect();
            let mut query = sqlx::query(sqlx::AssertSqlSafe(statement.as_str()))
                .bind(&tasks)
                .bind(&tasks)
                .bind(vec![1i64; told.len()])
                .bind(
                    told.iter()
                        .map(|(.., sample)| sample.step as i64)
                        .collect::<Vec<_>>(),
                )
                .bind(told.iter().map(|(_, at, _)| *at).collect::<Vec<_>>());
            for column in 0..8 {
                query = query.bind(
                    told.iter()
                        .map(|(.., sample)| floats(sample)[column])
                        .collect::<Vec<_>>(),
                );
            }
            query
                .bind(
                    told.iter()
                        .map(|(.., sample)| sample.workers as i32)
                        .collect::<Vec<_>>(),
                )
                .bind(
                    told.iter()
                        .map(|(.., sample)| sample.ps_shards as i32)
                        .collect::<Vec<_>>(),
                )
                .execute(&mut self.conn)
                .await?;
        }
        Ok(())
    }
}

fn floats(sample: &Sample) -> [f64; 8] {
    [
        sample.epoch,
        sample.loss,
        sample.accuracy.unwrap_or_default(),
        sample.examples_per_s.unwrap_or_default(),
        sample.steps_per_s,
        sample.compute_ms.unwrap_or_default(),
        sample.exchange_ms.unwrap_or_default(),
        sample.data_ms.unwrap_or_default(),
    ]
}

/// Appends a field of COPY: its length, then its bytes.
fn field(bytes: &mut Vec<u8>, value: &[u8]) {
    let length = i32::try_from(value.len()).expect("a short field");
    bytes.extend(length.to_be_bytes());
    bytes.extend(value);
}

/// Postgres' binary format of COPY: a header; per row the number of fields, and each field after
/// its length; a trailer.
fn encode(told: &[TaskSample]) -> Vec<u8> {
    let mut bytes = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0".to_vec();
    for (task, at, sample) in told {
        bytes.extend(COLUMN_COUNT.to_be_bytes());
        field(&mut bytes, task.as_bytes());
        field(&mut bytes, task.as_bytes());
        field(&mut bytes, &1i64.to_be_bytes());
        field(&mut bytes, &sample.step.to_be_bytes());
        let at_us = i64::try_from((*at - EPOCH).whole_microseconds()).expect("a date of this age");
        field(&mut bytes, &at_us.to_be_bytes());
        for value in floats(sample) {
            field(&mut bytes, &value.to_be_bytes());
        }
        field(&mut bytes, &sample.workers.to_be_bytes());
        field(&mut bytes, &sample.ps_shards.to_be_bytes());
    }
    bytes.extend((-1i16).to_be_bytes());
    bytes
}
