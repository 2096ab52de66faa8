//! Job traces: files of published workloads and of clusters' histories, read strictly by their
//! documented schemas into one [`Workload`]. A wrong row is refused; the error names its place and
//! the expected value.
//!
//! The header selects one of three schemas: workloads of Pollux and Sia ([`pollux`]), the common
//! job trace of Philly, Alibaba, Gavel and Muster's exports ([`common`]), or Tiresias' testbed list
//! ([`tiresias`]). [`file`] reads plain and compressed files.

pub mod common;
pub mod file;
pub mod pollux;
mod table;
pub mod tiresias;

pub use table::{TraceError, TraceProblem};

use serde::{Deserialize, Serialize};
use table::TraceTable;

/// Tenant of jobs whose source has no tenants.
pub const NO_TENANT: &str = "default";

/// Jobs as they were submitted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Name in results, for example the file's name.
    pub name: String,
    /// In the order of the file, which can differ from the order of submission.
    pub jobs: Vec<TraceJob>,
}

/// One submission. Times are seconds since the start of the trace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceJob {
    /// Unique in its workload.
    pub name: String,
    /// Virtual cluster or class; `default` if the schema has none.
    pub tenant: String,
    pub submitted_s: f64,
    /// Whole GPUs requested, a part of a GPU rounded up; 0 for a job without GPUs (Alibaba).
    pub gpus: u32,
    /// GPUs as requested; below `gpus` for a part of a GPU (Alibaba).
    pub gpu_share: f64,
    /// Application, model or job type; empty if the schema has none.
    pub kind: String,
    pub work: TraceWork,
    /// Final status in the source's term.
    pub status: Option<String>,
    /// Allowed GPU models or patterns of them; empty for any (Alibaba, exports of Muster).
    pub gpu_spec: Vec<String>,
}

/// Amount of work, as far as the source states it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "as", rename_all = "snake_case", deny_unknown_fields)]
pub enum TraceWork {
    /// Complete training of the profiled application at the user's total batch size (Pollux, Sia).
    Training { batch: u32 },
    /// Duration on the requested GPUs (Philly, Alibaba, Tiresias).
    Seconds { seconds: f64 },
    /// Number of steps of its kind (Gavel).
    Steps { steps: u64 },
    /// Unknown: the job did not start or has not ended.
    Unknown,
}

impl TraceJob {
    /// The user's total batch size; `None` if the schema has none.
    #[must_use]
    pub fn batch(&self) -> Option<u32> {
        match self.work {
            TraceWork::Training { batch } => Some(batch),
            TraceWork::Seconds { .. } | TraceWork::Steps { .. } | TraceWork::Unknown => None,
        }
    }
}

/// Reads a trace of any known schema. `file` is its name in errors, `name` the name of the
/// workload.
///
/// # Errors
/// [`TraceError`] with the first error and the expected value.
pub fn read(file: &str, name: &str, text: &str) -> Result<Workload, TraceError> {
    let table = TraceTable::parse(file, text)?;
    let schemas = [&pollux::SCHEMA, &common::SCHEMA, &tiresias::SCHEMA];
    let jobs = match table.schema(&schemas)? {
        0 => pollux::jobs(&table)?,
        1 => common::jobs(&table)?,
        _ => tiresias::jobs(&table)?,
    };
    Ok(Workload {
        name: name.to_owned(),
        jobs,
    })
}

#[cfg(test)]
mod tests;
