//! Settings of a trial, and the workload that they select.

use anyhow::Context as _;
use muster_lab::reference_simulators::{Cluster, Profiles};
use muster_lab::trace::{self, Workload, file};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

/// Arguments `NAME=VALUE`.
pub struct TrialSettings {
    /// Seconds of the workload per real second.
    pub rate: NonZeroU32,
    /// Shape of the cluster, by default that of Pollux' experiments.
    pub cluster: Cluster,
    /// Folder of the profiles.
    pub profiles: PathBuf,
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
            cluster: "16x4".parse()?,
            profiles: traces.clone(),
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
                "cluster" => settings.cluster = value.parse().context(wrong)?,
                "profiles" => settings.profiles = value.into(),
                "jobs" => settings.jobs = value.parse().context(wrong)?,
                "hours" => settings.hours = value.parse().context(wrong)?,
                "workload" => settings.workload = value.into(),
                "line_s" => settings.line_s = value.parse().context(wrong)?,
                "out" => settings.out = value.into(),
                _ => anyhow::bail!(
                    "argument {argument:?}; expected rate=, cluster=, profiles=, jobs=, hours=, workload=, line_s= or out="
                ),
            }
        }
        Ok(settings)
    }

    /// Reads profiles and workload.
    pub fn inputs(&self) -> anyhow::Result<TrialInputs> {
        let profiles = Profiles::read(&self.profiles)?;
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
        // Every group has the name of its kind, which the executors and the programs use.
        let mut cluster = self.cluster.clone();
        for group in &mut cluster.groups {
            let profiled = profiles.kinds.first();
            group.kind = group.kind.take().or_else(|| profiled.cloned());
        }
        Ok(TrialInputs {
            profiles,
            workload,
            cluster,
        })
    }
}

/// Folder of Pollux' workloads and profiles in this repository.
fn traces() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../scheduler/lab/traces/pollux")
}
