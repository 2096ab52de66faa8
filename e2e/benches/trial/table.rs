//! Results: one row for each run, and their ratios to the first.

use crate::history::StartTimes;
use muster_lab::measure::{Summary, mean, percentile};
use muster_lab::run::SimulationRun;
use serde_json::json;
use std::path::Path;

/// Name and value of one measure.
type Measure = (&'static str, fn(&Summary) -> f64);

const MEASURES: [Measure; 6] = [
    ("mean JCT h", |run| run.avg_jct_s / 3_600.0),
    ("p50 JCT h", |run| run.p50_jct_s / 3_600.0),
    ("p99 JCT h", |run| run.p99_jct_s / 3_600.0),
    ("restarts", |run| run.restarts as f64),
    ("GPU-hours", |run| run.gpu_hours),
    ("makespan h", |run| run.makespan_s / 3_600.0),
];

pub fn print(runs: &[Summary], starts: &StartTimes, rate: u32) {
    let Some(live) = runs.first() else { return };
    println!("\n{} jobs at rate {rate}", live.jobs);
    print!("{:<24}", "");
    MEASURES.iter().for_each(|(name, _)| print!("{name:>18}"));
    println!();
    for run in runs {
        print!("{:<24}", run.policy);
        for (_, value) in MEASURES {
            let cell = match value(live) / value(run) {
                ratio if ratio.is_finite() => format!("{:.2} ({ratio:.2})", value(run)),
                _ => format!("{:.2} (-)", value(run)),
            };
            print!("{cell:>18}");
        }
        println!();
    }
    println!("in parentheses: the trial relative to that row\n");
    println!(
        "in seconds of the workload:\n- placement to first step: {}\n- end of a job to release of its slots: {}\n- order to stop to release of the slots: {}",
        spread(&starts.start_s),
        spread(&starts.release_s),
        spread(&starts.stop_s)
    );
}

/// Writes runs and measures as JSON.
pub fn write(path: &Path, runs: &[SimulationRun], summaries: &[Summary]) -> anyhow::Result<()> {
    let text = serde_json::to_string(&json!({ "runs": runs, "summaries": summaries }))?;
    std::fs::write(path, text)?;
    println!("written to {}", path.display());
    Ok(())
}

fn spread(values: &[f64]) -> String {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    format!(
        "mean {:.1}, p50 {:.1}, p99 {:.1}",
        mean(&sorted),
        percentile(&sorted, 0.5),
        percentile(&sorted, 0.99)
    )
}
