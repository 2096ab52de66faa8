//! How much of what a job's tasks tell is kept. A node may send whatever it likes, so this is counted here, with the job's row locked.

use crate::error::StoreError;
use crate::event::NewEvent;
use crate::limit;
use crate::number::{signed, unsigned};
use muster_model::event::Event;
use muster_model::id::{JobId, TenantId};
use muster_model::tenant::TenantLimits;
use sqlx::PgConnection;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Checkpoints by which a job may be above its limit before its oldest are forgotten.
const CHECKPOINTS_SLACK: u64 = 64;

/// Of the jobs of a report, as far as they were asked for.
#[derive(Debug, Default)]
pub(super) struct Volumes(BTreeMap<JobId, Volume>);

/// What the tasks of a job have told, and its limits.
#[derive(Debug, Clone)]
pub(super) struct Volume {
    tenant: TenantId,
    limits: TenantLimits,
    events: u64,
    event_bytes: u64,
    points: u64,
    checkpoints: u64,
    log_bytes: u64,
    dropped: u64,
}

impl Volumes {
    /// The volume of a job, whose row is locked.
    pub async fn of(
        &mut self,
        conn: &mut PgConnection,
        tenant: TenantId,
        job: JobId,
    ) -> Result<&mut Volume, StoreError> {
        match self.0.entry(job) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(place) => Ok(place.insert(Volume::load(conn, tenant, job).await?)),
        }
    }

    pub async fn write(self, conn: &mut PgConnection) -> Result<(), StoreError> {
        for (job, volume) in self.0 {
            sqlx::query!(
                "insert into job_volume (job_id, tenant_id, events, event_bytes, points, checkpoints, log_bytes, dropped)
                 values ($1, $2, $3, $4, $5, $6, $7, $8)
                 on conflict (job_id) do update
                    set events = excluded.events, event_bytes = excluded.event_bytes, points = excluded.points,
                        checkpoints = excluded.checkpoints, log_bytes = excluded.log_bytes, dropped = excluded.dropped",
                job.0,
                volume.tenant.0,
                signed(volume.events),
                signed(volume.event_bytes),
                signed(volume.points),
                signed(volume.checkpoints),
                signed(volume.log_bytes),
                signed(volume.dropped)
            )
            .execute(&mut *conn)
            .await?;
        }
        Ok(())
    }
}

impl Volume {
    async fn load(
        conn: &mut PgConnection,
        tenant: TenantId,
        job: JobId,
    ) -> Result<Self, StoreError> {
        let limits = limit::of(conn, tenant).await?;
        let row = sqlx::query!(
            "select events, event_bytes, points, checkpoints, log_bytes, dropped from job_volume where job_id = $1",
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
        };
        if let Some(row) = row {
            volume.events = unsigned(row.events);
            volume.event_bytes = unsigned(row.event_bytes);
            volume.points = unsigned(row.points);
            volume.checkpoints = unsigned(row.checkpoints);
            volume.log_bytes = unsigned(row.log_bytes);
            volume.dropped = unsigned(row.dropped);
        }
        Ok(volume)
    }

    /// Whether another event is kept.
    pub fn has_room(&self) -> bool {
        self.events < self.limits.job_events && self.event_bytes < self.limits.job_event_bytes
    }

    /// The event, if it is kept; in place of the first that is not, one that says so.
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

    /// Whether these points of the series are kept.
    pub fn keep_points(&mut self, count: u64) -> bool {
        let kept = self.points < self.limits.job_points;
        if kept {
            self.points += count;
        } else {
            self.dropped += count;
        }
        kept
    }

    /// Counts a checkpoint; how many are listed from now on, when the oldest are to be forgotten.
    pub fn count_checkpoint(&mut self) -> Option<u64> {
        self.checkpoints += 1;
        let above = self.checkpoints.checked_sub(self.limits.job_checkpoints)?;
        (above % CHECKPOINTS_SLACK == 1).then_some(self.limits.job_checkpoints)
    }

    /// Counts stored output; how many bytes may stay, when the oldest is to be dropped.
    pub fn count_log(&mut self, bytes: u64) -> Option<u64> {
        self.log_bytes += bytes;
        let most = self.limits.job_log_bytes;
        // An eighth at a time: finding the oldest takes a look at all of it.
        (self.log_bytes > most).then_some(most - most / 8)
    }

    /// Bytes of output that are stored now.
    pub fn set_log(&mut self, bytes: u64) {
        self.log_bytes = bytes;
    }

    /// Counts a line of which something is not kept; whether it is the first.
    fn drop_line(&mut self) -> bool {
        self.dropped += 1;
        self.dropped == 1
    }
}
