//! `muster compare`: compares policies by stored results or by new runs; needs no server.

use super::UsageError;
use super::simulation_args::{SimulationArgs, means_table, write};
use crate::output::OutputFormat;
use anyhow::Context as _;
use clap::Args;
use muster_lab::compare::{PolicyComparison, RecordedRun};
use muster_lab::measure::Summary;
use muster_lab::picture::{cdf, curves, report};
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
#[command(
    override_usage = "muster compare [OPTIONS] <FILE>...\n       muster compare [OPTIONS] --profiles <DIR> --workload <FILE>... \
--cluster <CLUSTER> --policy <NAMES>"
)]
pub struct CompareArgs {
    /// Results that `muster simulate --runs` or `--json` has written.
    #[arg(value_name = "FILE", conflicts_with = "simulation")]
    results: Vec<PathBuf>,
    #[command(flatten)]
    inputs: Option<SimulationArgs>,
    /// Print JSON, like `--output json`.
    #[arg(long)]
    json: bool,
    /// Write a self-contained HTML page with tables and curves.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the distributions of the completion times as SVG.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Content of a file of results.
enum Results {
    Runs(Vec<RecordedRun>),
    /// Measures only: sufficient for the table, but not for pictures.
    Summaries(Vec<Summary>),
}

impl CompareArgs {
    /// # Errors
    /// If an input is wrong, or a file cannot be written.
    pub fn run(self, output: OutputFormat) -> anyhow::Result<()> {
        let mut runs = Vec::new();
        let mut summaries = Vec::new();
        match &self.inputs {
            Some(inputs) => runs = inputs.run()?,
            None => {
                for path in &self.results {
                    match read(path)? {
                        Results::Runs(read) => runs.extend(read),
                        Results::Summaries(_) if self.html.is_some() || self.svg.is_some() => {
                            return Err(UsageError(format!(
                                "{} has only measures; pictures need what `muster simulate --runs` writes",
                                path.display()
                            ))
                            .into());
                        }
                        Results::Summaries(read) => summaries.extend(read),
                    }
                }
            }
        }
        let of_runs = runs.iter().map(|kept| Summary::of(&kept.run, &kept.rules));
        summaries.extend(of_runs);
        let comparison =
            PolicyComparison::of(&summaries).map_err(|error| UsageError(error.to_string()))?;
        if let Some(path) = &self.html {
            write(path, &report(&runs)?)?;
        }
        if let Some(path) = &self.svg {
            let title = "Job completion times";
            write(path, &cdf(title, &curves(&runs, &comparison)))?;
        }
        let output = if self.json {
            OutputFormat::Json
        } else {
            output
        };
        output.print(&comparison, means_table)
    }
}

fn read(path: &Path) -> anyhow::Result<Results> {
    let name = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| UsageError(format!("{name} cannot be read: {error}")))?;
    // A summary contains measures, a complete run contains `run`.
    let entries: Vec<serde_json::Value> = serde_json::from_str(&text)
        .map_err(|error| UsageError(format!("{name} is no list of results: {error}")))?;
    let has_runs = entries
        .first()
        .is_some_and(|entry| entry["run"].is_object());
    let read = if has_runs {
        serde_json::from_str(&text).map(Results::Runs)
    } else {
        serde_json::from_str(&text).map(Results::Summaries)
    };
    read.map_err(|error| {
        UsageError(format!(
            "{name} is not what `muster simulate` writes with --runs or --json: {error}"
        ))
    })
    .context("read the results")
}
