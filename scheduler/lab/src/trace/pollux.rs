//! Workloads of Pollux (OSDI 2021) and Sia (SOSP 2023). Jobs train a profiled application at
//! requests that the authors of the artefacts chose for inexperienced users.

use super::table::{Schema, TraceTable};
use super::{TraceError, TraceJob, TraceWork};

/// Columns of a workload. `time` is the second of submission. `num_replicas` is the number of
/// requested GPUs, `batch_size` the requested total batch size.
pub const SCHEMA: Schema = Schema {
    name: "a Pollux or Sia workload",
    required: &["name", "time", "application", "num_replicas", "batch_size"],
    optional: &[],
};

pub(super) fn jobs(table: &TraceTable) -> Result<Vec<TraceJob>, TraceError> {
    table.unique("name")?;
    table
        .rows()
        .map(|row| {
            let gpus = row.whole("num_replicas", 1..=1_000_000)?;
            Ok(TraceJob {
                name: row.text("name")?.to_owned(),
                tenant: super::NO_TENANT.to_owned(),
                submitted_s: row.decimal("time")?,
                gpus,
                gpu_share: f64::from(gpus),
                kind: row.text("application")?.to_owned(),
                work: TraceWork::Training {
                    batch: row.whole("batch_size", 1..=u32::MAX)?,
                },
                status: None,
                gpu_spec: Vec::new(),
            })
        })
        .collect()
}
