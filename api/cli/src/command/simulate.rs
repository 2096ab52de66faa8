//! `muster simulate`: simulates workloads under policies on this machine; needs no server.

use super::simulation_args::{SimulationArgs, means_table, runs_table, write};
use crate::output::OutputFormat;
use clap::{Args, ValueEnum};
use muster_lab::compare::{PolicyComparison, RecordedRun, labels};
use muster_lab::measure::Summary;
use muster_lab::picture::{Paint, gantt};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub struct SimulateArgs {
    #[command(flatten)]
    inputs: SimulationArgs,
    /// Print JSON, like `--output json`: one object per run.
    #[arg(long)]
    json: bool,
    /// Write a chart of the jobs on each GPU over time, as SVG; with several runs one file each,
    /// with workload and policy in its name.
    #[arg(long, value_name = "FILE")]
    gantt: Option<PathBuf>,
    /// Meaning of the colours in that chart.
    #[arg(long, value_enum, default_value_t = Colour::Application)]
    colour: Colour,
    /// Write the complete runs as JSON for `muster compare`.
    #[arg(long, value_name = "FILE")]
    runs: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Colour {
    Application,
    Tenant,
}

impl SimulateArgs {
    /// # Errors
    /// If an input is wrong, or a file cannot be written.
    pub fn run(self, output: OutputFormat) -> anyhow::Result<()> {
        let recorded = self.inputs.run()?;
        if let Some(path) = &self.runs {
            write(path, &serde_json::to_string(&recorded)?)?;
        }
        if let Some(path) = &self.gantt {
            draw(path, self.colour, &recorded)?;
        }
        let summaries: Vec<Summary> = recorded
            .iter()
            .map(|recorded| Summary::of(&recorded.run, &recorded.rules))
            .collect();
        let output = if self.json {
            OutputFormat::Json
        } else {
            output
        };
        output.print(&summaries, |summaries| tables(summaries))
    }
}

/// Returns a table of all runs, and the means per policy if there are several workloads.
fn tables(summaries: &[Summary]) -> String {
    let mut text = runs_table(summaries);
    let workloads: BTreeSet<&str> = summaries.iter().map(|s| s.workload.as_str()).collect();
    if workloads.len() > 1
        && let Ok(comparison) = PolicyComparison::of(summaries)
    {
        text.push_str("\n\n");
        text.push_str(&means_table(&comparison));
    } else {
        text.push_str("\n\nseconds");
    }
    text.push_str(
        "; ftf: finish-time ratio, completion over that on a fair share; dec.: a decision's time",
    );
    text
}

fn draw(path: &Path, colour: Colour, recorded: &[RecordedRun]) -> anyhow::Result<()> {
    let paint = match colour {
        Colour::Application => Paint::Application,
        Colour::Tenant => Paint::Tenant,
    };
    let workloads: Vec<&str> = recorded.iter().map(|r| r.run.workload.as_str()).collect();
    for (label, recorded) in labels(&workloads).iter().zip(recorded) {
        let path = if workloads.len() == 1 {
            path.to_owned()
        } else {
            named(path, label, &recorded.run.policy)
        };
        write(&path, &gantt(&recorded.run, paint))?;
        note!("muster: wrote {}", path.display());
    }
    Ok(())
}

/// Turns `out.svg` into `out-1.0-workload-1-tiresias.svg`.
fn named(path: &Path, workload: &str, policy: &str) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let workload = workload.replace(['/', '\\'], "-");
    let mut name = format!("{stem}-{workload}-{policy}");
    if let Some(extension) = path.extension() {
        name.push('.');
        name.push_str(&extension.to_string_lossy());
    }
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::named;
    use std::path::Path;

    #[test]
    fn charts_of_several_runs_have_their_own_names() {
        let path = named(Path::new("d/out.svg"), "1.0/workload-1", "tiresias");
        assert_eq!(path, Path::new("d/out-1.0-workload-1-tiresias.svg"));
        assert_eq!(named(Path::new("o"), "w", "p"), Path::new("o-w-p"));
    }
}
