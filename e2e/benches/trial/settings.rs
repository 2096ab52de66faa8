//! Settings of a trial, and the workload that they select.

use anyhow::Context as _;
use muster_lab::reference_simulators::{Cluster, NodeGroup, Profiles};
use muster_lab::trace::{self, Workload, file};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

/// Slots of a node, as in the published experiments.
pub const SLOTS: u32 = 4;

/// Arguments `NAME=VALUE`.
pub struct TrialSettings {
    /// Seconds of the workload per real second.
    pub rate: NonZeroU32,
    pub nodes: u32,
    /// Maximum number of jobs, in the order of submission.
    pub jobs: usize,
    /// Only jobs that are submitted in the first hours.
    pub hours: f64,
    pub workload: PathBuf,
    /// Minimum seconds of the workload between two progress lines of a job.
    pub line_s: f64,
    /// JSON file of the results.
    pub out: PathBuf,
}

/// The selected workload, the profiles and the cluster.
pub struct TrialInputs {
    pub profiles: Profiles,
    pub workload: Workload,
    pub cluster: Cluster,
}

impl TrialSettings {
    /// Reads arguments. Those of `cargo bench` are ignored.
    pub fn read(arguments: impl Iterator<Item = String>) -> anyhow::Result<Self> {
        let traces = traces();
        let mut settings = Self {
            rate: NonZeroU32::new(60).expect("above 0"),
            nodes: 16,
            jobs: usize::MAX,
            hours: f64::INFINITY,
            workload: traces.join("workloads-1.0/workload-1.csv"),
            line_s: 60.0,
            out: PathBuf::from("target/trial-live.json"),
        };
        for argument in arguments.filter(|argument| !argument.starts_with("--")) {
            let (name, value) = argument.split_once('=').unwrap_or((&argument, ""));
            let wrong = format!("argument {argument:?}");
            match name {
                "rate" => settings.rate = value.parse().context(wrong)?,
                "nodes" => settings.nodes = value.parse().context(wrong)?,
                "jobs" => settings.jobs = value.parse().context(wrong)?,
                "hours" => settings.hours = value.parse().context(wrong)?,
                "workload" => settings.workload = value.into(),
                "line_s" => settings.line_s = value.parse().context(wrong)?,
                "out" => settings.out = value.into(),
                _ => anyhow::bail!(
                    "argument {argument:?}; expected rate=, nodes=, jobs=, hours=, workload=, line_s= or out="
                ),
            }
        }
        Ok(settings)
    }

    /// Reads profiles and workload.
    pub fn inputs(&self) -> anyhow::Result<TrialInputs> {
        let profiles = Profiles::read(&traces())?;
        let path = file::find(&self.workload);
        let path = path.with_context(|| format!("{} is missing", self.workload.display()))?;
        let name = path.display().to_string();
        let mut workload = trace::read(&name, &name, &file::read_text(&path)?)?;
        let until_s = self.hours * 3_600.0;
        workload.jobs.retain(|job| job.submitted_s < until_s);
        workload
            .jobs
            .sort_by(|one, other| one.submitted_s.total_cmp(&other.submitted_s));
        workload.jobs.truncate(self.jobs);
        let group = NodeGroup {
            kind: None,
            nodes: self.nodes,
            gpus: SLOTS,
        };
        Ok(TrialInputs {
            profiles,
            workload,
            cluster: Cluster {
                groups: vec![group],
            },
        })
    }
}

/// Folder of Pollux' workloads and profiles in this repository.
fn traces() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../scheduler/lab/traces/pollux")
}
