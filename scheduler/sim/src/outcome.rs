//! Result of a simulation.

use muster_model::job::JobState;
use serde::{Deserialize, Serialize};
use std::fmt;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimulationOutcome {
    pub jobs: Vec<JobOutcome>,
    /// All changes in order of time.
    pub timeline: Vec<TimelineEntry>,
    /// End of the last job.
    pub makespan_ms: i64,
    pub rounds: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobOutcome {
    pub name: String,
    pub state: JobState,
    /// Job completion time from submission; `None` if the job did not end.
    pub jct_ms: Option<i64>,
    /// Starts after the first.
    pub restarts: u64,
    /// Every size of the job: start time, workers, PS shards.
    pub sizes: Vec<(i64, u32, u32)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimelineEntry {
    pub at_ms: i64,
    /// Job or node that changed.
    pub subject: String,
    pub what: String,
}

impl SimulationOutcome {
    /// Mean completion time of the jobs that ended; `None` if none ended.
    #[must_use]
    pub fn mean_jct_ms(&self) -> Option<f64> {
        let ended: Vec<i64> = self.jobs.iter().filter_map(|job| job.jct_ms).collect();
        // Times and counts stay far below 2^52.
        (!ended.is_empty()).then(|| ended.iter().sum::<i64>() as f64 / ended.len() as f64)
    }
}

/// Format of the golden files: one line per change, then one line per job.
impl fmt::Display for SimulationOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for entry in &self.timeline {
            let at_s = entry.at_ms as f64 / 1000.0;
            writeln!(f, "{at_s:>9.1} s  {:<10} {}", entry.subject, entry.what)?;
        }
        writeln!(f, "---")?;
        for job in &self.jobs {
            let phase = job.state.phase().as_str();
            match job.jct_ms {
                Some(jct_ms) => {
                    let jct_s = jct_ms as f64 / 1000.0;
                    writeln!(
                        f,
                        "{:<10} {phase} after {jct_s:.1} s, {} restarts",
                        job.name, job.restarts
                    )?;
                }
                None => writeln!(f, "{:<10} {phase}, {} restarts", job.name, job.restarts)?,
            }
        }
        Ok(())
    }
}
