//! Workloads under policies, simulated on this machine: what `muster simulate` and `muster compare` both do.

use super::UsageError;
use crate::clock;
use crate::output::table;
use anyhow::Context as _;
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use muster_sim::compare::{Comparison, Recorded, labels};
use muster_sim::lineup::contestant;
use muster_sim::measure::Summary;
use muster_sim::peers::{Cluster, NodeGroup, Profiles, Rules, Terms, run};
use muster_sim::trace::{self, Workload};
use rayon::prelude::*;
use std::path::{Path, PathBuf};

/// What is to be run: every workload under every policy.
#[derive(Debug, Args)]
pub struct Inputs {
    /// Folder with the measured profiles of the applications.
    #[arg(long, value_name = "DIR")]
    profiles: PathBuf,
    /// Workload files: CSV with the columns name,time,application,num_replicas,batch_size.
    #[arg(long, value_name = "FILE", num_args = 1.., required = true)]
    workload: Vec<PathBuf>,
    /// Nodes x GPUs of each, such as 16x4; of several kinds aws:6x4,dgx-ext:2x8,rtx:3x8.
    #[arg(long, value_name = "CLUSTER", value_parser = cluster)]
    cluster: Cluster,
    /// Whose rules the simulation follows.
    #[arg(long, value_enum, default_value_t = RuleSet::Pollux)]
    rules: RuleSet,
    /// Policies, separated by commas, such as optimus,tiresias.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', required = true, value_parser = policy)]
    policy: Vec<String>,
    /// Share of speed that jobs over several nodes lose when they meet on one, 0 to 1.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share)]
    interference: f64,
    /// Give a run up after so many simulated seconds; jobs that have not ended by then count with their time until then.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    until: Option<f64>,
    /// Runs at a time [default: as many as there are cores].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RuleSet {
    /// Of the Pollux artefact (OSDI 2021): one kind of GPUs, 30 s a restart.
    Pollux,
    /// Of the Sia artefact (SOSP 2023): kinds of GPUs, restarts by application.
    Sia,
}

impl Inputs {
    /// Runs every workload under every policy, in the order in which they were given, the policies of a workload together.
    ///
    /// # Errors
    /// [`UsageError`] when something given is not right.
    pub fn run(&self) -> anyhow::Result<Vec<Recorded>> {
        let profiles = Profiles::read(&self.profiles)
            .map_err(|error| UsageError(format!("--profiles: {:#}", anyhow::Error::from(error))))?;
        let workloads: Vec<Workload> = self
            .workload
            .iter()
            .map(|path| workload(path))
            .collect::<Result<_, _>>()?;
        let jobs: usize = workloads.iter().map(|workload| workload.jobs.len()).sum();
        let bar = bar(jobs * self.policy.len());
        let pairs: Vec<(&Workload, &str)> = workloads
            .iter()
            .flat_map(|workload| {
                self.policy
                    .iter()
                    .map(move |name| (workload, name.as_str()))
            })
            .collect();
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(self.threads.map_or(0, usize::from))
            .build()
            .context("start the threads of the simulation")?;
        let runs = pool.install(|| {
            let one = |&(workload, policy)| self.one(&profiles, workload, policy, &bar);
            pairs.par_iter().map(one).collect()
        });
        bar.finish_and_clear();
        runs
    }

    fn one(
        &self,
        profiles: &Profiles,
        workload: &Workload,
        policy: &str,
        bar: &ProgressBar,
    ) -> anyhow::Result<Recorded> {
        let contestant = contestant(policy)?;
        let mut finished = 0;
        let run = run(
            profiles,
            workload,
            &self.cluster,
            &Terms {
                rules: self.rules.rules(),
                interference: self.interference,
                until_s: self.until.unwrap_or(Terms::UNTIL_S),
            },
            &contestant,
            // The time of this thread alone: other runs beside it do not count.
            &mut clock::thread_s,
            &mut |progress| {
                bar.inc((progress.finished - finished) as u64);
                finished = progress.finished;
            },
        )
        .map_err(|error| UsageError(format!("{}: {error}", workload.name)))?;
        Ok(Recorded {
            rules: self.rules.name().to_owned(),
            run,
        })
    }
}

impl RuleSet {
    fn rules(self) -> Rules {
        match self {
            Self::Pollux => Rules::Pollux,
            Self::Sia => Rules::Sia,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Pollux => "pollux",
            Self::Sia => "sia",
        }
    }
}

/// Reads a workload; it is called as its file was, so that results tell equal names in different folders apart.
fn workload(path: &Path) -> anyhow::Result<Workload> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path)
        .map_err(|error| UsageError(format!("--workload {name} cannot be read: {error}")))?;
    Ok(trace::read(&name, &name, &text)
        .map_err(|error| UsageError(format!("--workload: {error}")))?)
}

/// Moves as jobs finish; drawn only on a terminal.
fn bar(jobs: usize) -> ProgressBar {
    let bar = ProgressBar::new(jobs as u64);
    if let Ok(style) =
        ProgressStyle::with_template("{bar:40} {pos}/{len} jobs simulated, {elapsed}, {eta} left")
    {
        bar.set_style(style);
    }
    bar
}

/// Writes a result's file.
///
/// # Errors
/// When it cannot be written, with its name.
pub fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

/// One line a run.
#[must_use]
pub fn runs_table(summaries: &[Summary]) -> String {
    let names: Vec<&str> = summaries.iter().map(|s| s.workload.as_str()).collect();
    let header = [
        "workload", "policy", "mean jct", "p50", "p90", "p99", "makespan", "gpu-h", "in use",
        "restarts", "ftf mean", "ftf max", "dec. ms", "p99 ms", "bound", "/bound",
    ];
    let rows = labels(&names).into_iter().zip(summaries).map(|(label, s)| {
        [
            label,
            with_unfinished(&s.policy, s.unfinished),
            format!("{:.0}", s.avg_jct_s),
            format!("{:.0}", s.p50_jct_s),
            format!("{:.0}", s.p90_jct_s),
            format!("{:.0}", s.p99_jct_s),
            format!("{:.0}", s.makespan_s),
            format!("{:.0}", s.gpu_hours),
            format!("{:.0}%", s.utilisation * 100.0),
            s.restarts.to_string(),
            format!("{:.2}", s.fairness.mean),
            format!("{:.2}", s.fairness.max),
            format!("{:.3}", s.decision_ms.mean),
            format!("{:.3}", s.decision_ms.p99),
            format!("{:.0}", s.bound_s),
            format!("{:.2}", s.distance_to_bound),
        ]
    });
    table(header, rows)
}

/// One line a policy, means over the workloads.
#[must_use]
pub fn means_table(comparison: &Comparison) -> String {
    let header = [
        "policy", "mean jct", "/best", "/bound", "p50", "p90", "p99", "makespan", "gpu-h",
        "in use", "restarts", "ftf mean", "ftf max", "dec. ms", "p99 ms", "bound",
    ];
    let rows = comparison.policies.iter().map(|s| {
        [
            with_unfinished(&s.policy, s.unfinished),
            format!("{:.0}", s.avg_jct_s),
            format!("{:.3}", s.to_best),
            format!("{:.2}", s.distance_to_bound),
            format!("{:.0}", s.p50_jct_s),
            format!("{:.0}", s.p90_jct_s),
            format!("{:.0}", s.p99_jct_s),
            format!("{:.0}", s.makespan_s),
            format!("{:.0}", s.gpu_hours),
            format!("{:.0}%", s.utilisation * 100.0),
            format!("{:.0}", s.restarts),
            format!("{:.2}", s.fairness_mean),
            format!("{:.2}", s.fairness_max),
            format!("{:.3}", s.decision_mean_ms),
            format!("{:.3}", s.decision_p99_ms),
            format!("{:.0}", s.bound_s),
        ]
    });
    let mut text = table(header, rows);
    let count = comparison.workloads.len();
    text.push_str(&match count {
        1 => "\n\nseconds; of one workload".to_owned(),
        _ => format!("\n\nseconds; means over {count} workloads"),
    });
    if !comparison.left_out.is_empty() {
        let names = comparison.left_out.join(", ");
        text.push_str(&format!("; not run by every policy, and left out: {names}"));
    }
    text
}

/// A policy's name; marked where it left jobs undone, because that flatters it.
fn with_unfinished(policy: &str, unfinished: usize) -> String {
    match unfinished {
        0 => policy.to_owned(),
        count => format!("{policy} ({count} unfinished)"),
    }
}

fn policy(name: &str) -> Result<String, String> {
    contestant(name)
        .map(|contestant| contestant.name)
        .map_err(|error| error.to_string())
}

fn share(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| "expected a number from 0 to 1".to_owned())
}

fn seconds(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|seconds: &f64| seconds.is_finite() && *seconds > 0.0)
        .ok_or_else(|| "expected a number of seconds above 0".to_owned())
}

fn cluster(text: &str) -> Result<Cluster, String> {
    let groups: Option<Vec<NodeGroup>> = text.split(',').map(group).collect();
    let groups = groups.ok_or_else(|| {
        "expected nodes x GPUs of each, such as 16x4, or of several kinds aws:6x4,dgx-ext:2x8,rtx:3x8"
            .to_owned()
    })?;
    if groups.len() > 1 && groups.iter().any(|group| group.kind.is_none()) {
        return Err(
            "a cluster of several groups names each group's kind, such as aws:6x4".to_owned(),
        );
    }
    let gpus: u64 = groups
        .iter()
        .map(|group| u64::from(group.nodes) * u64::from(group.gpus))
        .sum();
    if gpus > MOST_GPUS {
        return Err(format!("it has {gpus} GPUs; expected at most {MOST_GPUS}"));
    }
    Ok(Cluster { groups })
}

/// More than any cluster has; counts of GPUs stay far inside a u32.
const MOST_GPUS: u64 = 10_000_000;

fn group(text: &str) -> Option<NodeGroup> {
    let (kind, shape) = match text.rsplit_once(':') {
        Some((kind, shape)) if !kind.is_empty() => (Some(kind.to_owned()), shape),
        Some(_) => return None,
        None => (None, text),
    };
    let (nodes, gpus) = shape.split_once('x')?;
    let count = |text: &str| text.parse::<u32>().ok().filter(|count| *count > 0);
    Some(NodeGroup {
        kind,
        nodes: count(nodes)?,
        gpus: count(gpus)?,
    })
}

#[cfg(test)]
mod tests {
    use super::{cluster, policy, share};

    #[test]
    fn clusters_are_given_by_shape() {
        let plain = cluster("16x4").expect("one kind");
        assert_eq!((plain.gpus(), plain.groups.len()), (64, 1));
        let mixed = cluster("aws:6x4,dgx-ext:2x8,rtx:3x8").expect("three kinds");
        assert_eq!(mixed.gpus(), 64);
        assert_eq!(mixed.groups[1].kind.as_deref(), Some("dgx-ext"));
        for wrong in [
            "",
            "16",
            "16x",
            "0x4",
            "4x0",
            "x4",
            ":4x4",
            "4x4,",
            "4x4,8x2",
            "a:4x4,8x2",
        ] {
            assert!(cluster(wrong).is_err(), "{wrong}");
        }
        assert!(cluster("4000000000x4000000000").is_err());
    }

    #[test]
    fn arguments_are_checked_at_once() {
        assert!(policy("tiresias").is_ok() && policy("tiresia").is_err());
        assert_eq!(share("0.25"), Ok(0.25));
        for wrong in ["-0.1", "1.1", "NaN", "much"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
    }
}
