//! Limits on the stored volume of a job's reports. Nodes may send any amount, so it is counted here
//! with the job's row locked.

use crate::error::StoreError;
use crate::event::NewEvent;
use crate::int_convert::{signed, unsigned};
use crate::limit;
use muster_model::event::Event;
use muster_model::id::{JobId, TenantId};
use muster_model::tenant::TenantLimits;
use sqlx::PgConnection;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Excess over the limit of checkpoints at which the oldest rows are deleted.
const CHECKPOINTS_SLACK: u64 = 64;

/// Volumes of the jobs of a report, loaded on demand.
#[derive(Debug, Default)]
pub(super) struct Volumes(BTreeMap<JobId, JobVolume>);

/// Stored volume of a job, and its limits.
#[derive(Debug, Clone)]
pub(super) struct JobVolume {
    tenant: TenantId,
    limits: TenantLimits,
    events: u64,
    event_bytes: u64,
    points: u64,
    checkpoints: u64,
    log_bytes: u64,
    dropped: u64,
    dropped_metrics: u64,
}

impl Volumes {
    /// Returns the volume of a job, whose row is locked.
    pub async fn of(
        &mut self,
        conn: &mut PgConnection,
        tenant: TenantId,
        job: JobId,
    ) -> Result<&mut JobVolume, StoreError> {
        match self.0.entry(job) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(place) => Ok(place.insert(JobVolume::load(conn, tenant, job).await?)),
        }
    }

    pub async fn write(self, conn: &mut PgConnection) -> Result<(), StoreError> {
        for (job, volume) in self.0 {
            sqlx::query!(
                "insert into job_volume (job_id, tenant_id, events, event_bytes, points, checkpoints, log_bytes, dropped, dropped_metrics)
                 values ($1, $2, $3, $4, $5, $6, $7, $8, $9)
                 on conflict (job_id) do update
                    set events = excluded.events, event_bytes = excluded.event_bytes, points = excluded.points,
                        checkpoints = excluded.checkpoints, log_bytes = excluded.log_bytes, dropped = excluded.dropped,
                        dropped_metrics = excluded.dropped_metrics",
                job.0,
                volume.tenant.0,
                signed(volume.events),
                signed(volume.event_bytes),
                signed(volume.points),
                signed(volume.checkpoints),
                signed(volume.log_bytes),
                signed(volume.dropped),
                signed(volume.dropped_metrics)
            )
            .execute(&mut *conn)
            .await?;
        }
        Ok(())
    }
}

impl JobVolume {
    async fn load(
        conn: &mut PgConnection,
        tenant: TenantId,
        job: JobId,
    ) -> Result<Self, StoreError> {
        let limits = limit::of(conn, tenant).await?;
        let row = sqlx::query!(
            "select events, event_bytes, points, checkpoints, log_bytes, dropped, dropped_metrics from job_volume where job_id = $1",
            job.0
        )
        .fetch_optional(conn)
        .await?;
        let mut volume = Self {
            tenant,
            limits,
            events: 0,
            event_bytes: 0,
            points: 0,
            checkpoints: 0,
            log_bytes: 0,
            dropped: 0,
            dropped_metrics: 0,
        };
        if let Some(row) = row {
            volume.events = unsigned(row.events);
            volume.event_bytes = unsigned(row.event_bytes);
            volume.points = unsigned(row.points);
            volume.checkpoints = unsigned(row.checkpoints);
            volume.log_bytes = unsigned(row.log_bytes);
            volume.dropped = unsigned(row.dropped);
            volume.dropped_metrics = unsigned(row.dropped_metrics);
        }
        Ok(volume)
    }

    /// Whether another event is stored.
    pub fn has_room(&self) -> bool {
        self.events < self.limits.job_events && self.event_bytes < self.limits.job_event_bytes
    }

    /// Returns the event if it is to be stored. Instead of the first dropped event it returns one
    /// that reports the limit.
    pub fn keep(&mut self, event: NewEvent) -> Option<NewEvent> {
        if self.has_room() {
            let bytes = serde_json::to_vec(&event.event).expect("an event is JSON");
            self.events += 1;
            self.event_bytes += bytes.len() as u64;
            return Some(event);
        }
        let (events, bytes) = (self.limits.job_events, self.limits.job_event_bytes);
        self.drop_line().then(|| NewEvent {
            event: Event::Note {
                message: format!(
                    "the tasks of this job have told more than the {events} events or {bytes} bytes of events that are kept of a job (limits job_events, job_event_bytes); further ones are dropped"
                ),
            },
            ..event
        })
    }

    /// Counts points of the series, and returns whether they are stored.
    pub fn keep_points(&mut self, count: u64) -> bool {
        let kept = self.points < self.limits.job_points;
        if kept {
            self.points += count;
        } else {
            self.dropped += count;
        }
        kept
    }

    /// Counts a checkpoint. Returns the number to keep if the oldest rows are to be deleted.
    pub fn count_checkpoint(&mut self) -> Option<u64> {
        self.checkpoints += 1;
        let above = self.checkpoints.checked_sub(self.limits.job_checkpoints)?;
        (above % CHECKPOINTS_SLACK == 1).then_some(self.limits.job_checkpoints)
    }

    /// Counts stored output. Returns the number of bytes to keep if the oldest output is to be
    /// dropped.
    pub fn count_log(&mut self, bytes: u64) -> Option<u64> {
        self.log_bytes += bytes;
        let most = self.limits.job_log_bytes;
        // Drops an eighth at a time, because the search for the oldest output reads all of it.
        (self.log_bytes > most).then_some(most - most / 8)
    }

    /// Sets the number of stored bytes of output.
    pub fn set_log(&mut self, bytes: u64) {
        self.log_bytes = bytes;
    }

    /// Counts dropped values of metrics, and returns whether they are the first.
    pub fn drop_metrics(&mut self, values: u64) -> bool {
        let is_first = self.dropped_metrics == 0;
        self.dropped_metrics += values;
        is_first
    }

    /// Counts a dropped line, and returns whether it is the first.
    fn drop_line(&mut self) -> bool {
        self.dropped += 1;
        self.dropped == 1
    }
}
