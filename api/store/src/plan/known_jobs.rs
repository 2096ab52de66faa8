//! Jobs of earlier rounds. A round reads only the jobs that have changed since they were last read.

use super::LoadedJob;
use crate::error::StoreError;
use muster_model::id::{JobId, TaskId};
use muster_model::service::{AttainedService, DEMOTED_GPU_S, HeldGpus};
use sqlx::PgConnection;
use std::collections::{BTreeMap, BTreeSet};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

/// Age from which a job is read again although its version is the same. Weights of measurements
/// fall with their age, and an administrator may delete what is known of a family.
const LONGEST_KEPT: Duration = Duration::seconds(60);
/// Maximum number of jobs that one round reads again for their age.
const MOST_AGED: usize = 200;

/// Version of what a round reads of a job: the transactions that wrote its row, its trial and its
/// tasks. Reports of tasks write the row of the task in the transaction that stores what they say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct JobVersion {
    job: i64,
    trial: Option<i64>,
    /// In the order of the task ids.
    tasks: Vec<i64>,
}

/// A job as it was read: without the guests among its tasks, and with values that grow with time as
/// they were when its row was written.
#[derive(Debug)]
pub(super) struct KnownJob {
    pub loaded: LoadedJob,
    /// GPUs that its tasks hold.
    pub held: Vec<HeldGpus>,
}

impl KnownJob {
    /// Returns the job at the time of a round. `guests` are all tasks that are guests on a GPU.
    fn at(&self, now: OffsetDateTime, guests: &BTreeSet<TaskId>) -> LoadedJob {
        let mut loaded = self.loaded.clone();
        if !guests.is_empty() {
            let tasks = loaded.tasks.iter().chain(&loaded.leaving);
            let own = tasks.map(|task| task.id).filter(|id| guests.contains(id));
            loaded.guests = own.collect();
        }
        if let Some(since) = loaded.running_since {
            loaded.trained_s += (now - since).as_seconds_f64().max(0.0);
        }
        if !self.held.is_empty() {
            let service = AttainedService {
                released_gpu_s: loaded.attained_gpu_s,
                held: self.held.clone(),
            };
            loaded.attained_gpu_s = service.gpu_s(now);
            let demoted_at = loaded.demoted_at;
            loaded.demoted_at = demoted_at.or_else(|| service.reached(DEMOTED_GPU_S, now));
        }
        loaded
    }
}

#[derive(Debug)]
struct KeptJob {
    version: JobVersion,
    read_at: OffsetDateTime,
    job: KnownJob,
}

/// Jobs that rounds have read, by id.
#[derive(Debug, Default)]
pub(super) struct KnownJobs(BTreeMap<JobId, KeptJob>);

impl KnownJobs {
    /// Drops jobs that are not among `ids`, have changed or are to be read again. Returns the
    /// versions of the jobs to read.
    pub async fn outdated(
        &mut self,
        conn: &mut PgConnection,
        ids: &[Uuid],
        now: OffsetDateTime,
    ) -> Result<BTreeMap<JobId, JobVersion>, StoreError> {
        let mut versions = versions(conn, ids).await?;
        let mut aged = 0;
        self.0.retain(|id, kept| {
            if versions.get(id) != Some(&kept.version) {
                return false;
            }
            let is_aged = aged < MOST_AGED && now - kept.read_at >= LONGEST_KEPT;
            aged += usize::from(is_aged);
            !is_aged
        });
        versions.retain(|id, _| !self.0.contains_key(id));
        Ok(versions)
    }

    /// Adds jobs that were read.
    pub fn add(
        &mut self,
        read: BTreeMap<JobId, KnownJob>,
        mut versions: BTreeMap<JobId, JobVersion>,
        now: OffsetDateTime,
    ) {
        for (id, job) in read {
            if let Some(version) = versions.remove(&id) {
                let read_at = now;
                let kept = KeptJob {
                    version,
                    read_at,
                    job,
                };
                self.0.insert(id, kept);
            }
        }
    }

    /// Returns all jobs at the time of a round, by id. `guests` are all tasks that are guests on a
    /// GPU.
    pub fn at(&self, now: OffsetDateTime, guests: &BTreeSet<TaskId>) -> Vec<LoadedJob> {
        let kept = self.0.values();
        kept.map(|kept| kept.job.at(now, guests)).collect()
    }
}

async fn versions(
    conn: &mut PgConnection,
    ids: &[Uuid],
) -> Result<BTreeMap<JobId, JobVersion>, StoreError> {
    let rows = sqlx::query!(
        r#"select j.id, j.xmin::text::bigint as "job!",
                  (select max(s.xmin::text::bigint) from study_trial s where s.job_id = j.id) as trial,
                  (select array_agg(t.xmin::text::bigint order by t.id) from task t
                   where t.job_id = j.id and (t.revision = j.revision or t.released_at is null)) as tasks
           from unnest($1::uuid[]) as given (id)
           join job j on j.id = given.id"#,
        ids
    )
    .fetch_all(conn)
    .await?;
    let versions = rows.into_iter().map(|row| {
        let version = JobVersion {
            job: row.job,
            trial: row.trial,
            tasks: row.tasks.unwrap_or_default(),
        };
        (row.id.into(), version)
    });
    Ok(versions.collect())
}
