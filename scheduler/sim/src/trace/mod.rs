//! Job traces: files of published workloads and of clusters' histories, read strictly by their documented schemas into one
//! [`Workload`]. A wrong row is refused with its place and what would be right: a trace that was read by guesswork measures nothing.
//!
//! Three schemas are told apart by their headers: Pollux' and Sia's workloads ([`pollux`]), the common job trace of Philly, Alibaba,
//! Gavel and of our own exports ([`common`]), and Tiresias' testbed list ([`tiresias`]). Reading the file itself is the caller's.

pub mod common;
pub mod pollux;
mod table;
pub mod tiresias;

pub use table::{Problem, TraceError};

use serde::{Deserialize, Serialize};
use table::Table;

/// Of jobs whose source knows no tenants.
pub const NO_TENANT: &str = "default";

/// Jobs as they were submitted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// What results call it, such as the file's name.
    pub name: String,
    /// In the file's order, which need not be that of submission.
    pub jobs: Vec<TraceJob>,
}

/// One submission. Times are seconds since the trace's beginning.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceJob {
    /// Unique in its workload.
    pub name: String,
    /// The virtual cluster or class it belongs to; `default` where the schema knows none.
    pub tenant: String,
    pub submitted_s: f64,
    /// Whole GPUs that its owner asked for, the part of a shared one rounded up; 0 for a job without GPUs (Alibaba).
    pub gpus: u32,
    /// GPUs as asked for; less than `gpus` where a part of one was (Alibaba).
    pub gpu_share: f64,
    /// Application, model or job type; empty where the schema knows none.
    pub kind: String,
    pub work: Work,
    /// How it ended, in the source's word.
    pub status: Option<String>,
    /// GPU models that it may run on; any when empty (Alibaba).
    pub gpu_spec: Vec<String>,
}

/// How much there is to do, as far as the source says.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "as", rename_all = "snake_case", deny_unknown_fields)]
pub enum Work {
    /// The whole training of the profiled application, at the user's total batch size (Pollux, Sia).
    Training { batch: u32 },
    /// So long on the GPUs asked for (Philly, Alibaba, Tiresias).
    Seconds { seconds: f64 },
    /// So many steps of its kind (Gavel).
    Steps { steps: u64 },
    /// Never known: it did not start, or has not ended.
    Unknown,
}

impl TraceJob {
    /// The user's total batch size, where the schema has it.
    #[must_use]
    pub fn batch(&self) -> Option<u32> {
        match self.work {
            Work::Training { batch } => Some(batch),
            Work::Seconds { .. } | Work::Steps { .. } | Work::Unknown => None,
        }
    }
}

/// Reads a trace of whichever known schema its header is of. `file` is what errors call it, `name` what the workload is called.
///
/// # Errors
/// [`TraceError`]: the first thing that is wrong, and what would be right.
pub fn read(file: &str, name: &str, text: &str) -> Result<Workload, TraceError> {
    let table = Table::parse(file, text)?;
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
