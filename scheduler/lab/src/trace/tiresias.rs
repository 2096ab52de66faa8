//! The 60 jobs of Tiresias' testbed (NSDI 2019).

use super::table::{Schema, TraceTable};
use super::{TraceError, TraceJob, TraceWork};

/// Columns of the list. `submit_time` and `duration` are seconds. `interval` repeats the seconds
/// since the previous job.
pub const SCHEMA: Schema = Schema {
    name: "Tiresias' job list",
    required: &[
        "job_id",
        "num_gpu",
        "submit_time",
        "iterations",
        "model_name",
        "duration",
        "interval",
    ],
    optional: &[],
};

pub(super) fn jobs(table: &TraceTable) -> Result<Vec<TraceJob>, TraceError> {
    table.unique("job_id")?;
    table
        .rows()
        .map(|row| {
            let gpus = row.whole("num_gpu", 1..=1_000_000)?;
            // Not used, but checked: an invalid value means that the file has another format.
            row.whole("iterations", 0..=u32::MAX)?;
            row.decimal("interval")?;
            Ok(TraceJob {
                name: row.text("job_id")?.to_owned(),
                tenant: super::NO_TENANT.to_owned(),
                submitted_s: row.decimal("submit_time")?,
                gpus,
                gpu_share: f64::from(gpus),
                kind: row.text("model_name")?.to_owned(),
                work: TraceWork::Seconds {
                    seconds: row.decimal("duration")?,
                },
                status: None,
                gpu_spec: Vec::new(),
            })
        })
        .collect()
}
