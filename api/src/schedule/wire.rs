//! Conversion of rows to response types.

use super::timing::Timing;
use muster_model::view::{PlannedTime, ScheduleView};
use muster_store::schedule::ScheduleRow;

/// Number of planned times that a view has.
const SHOWN_TIMES: usize = 5;

pub fn schedule(row: ScheduleRow) -> ScheduleView {
    ScheduleView {
        next: planned(&row),
        name: row.name,
        document: row.document,
        owner: row.owner,
        paused: row.paused,
        last: row.last,
        last_job: row.last_job,
        created_at: row.created_at,
        updated_at: row.updated_at,
    }
}

fn planned(row: &ScheduleRow) -> Vec<PlannedTime> {
    let document = &row.document;
    let Ok(timing) = Timing::parse(&document.cron, &document.time_zone) else {
        return Vec::new();
    };
    if row.paused.is_some() {
        return Vec::new();
    }
    let times = std::iter::successors(Some(row.next_at), |at| timing.next_after(*at));
    times
        .take(SHOWN_TIMES)
        .map(|at| PlannedTime {
            at,
            local: timing.local(at),
        })
        .collect()
}
