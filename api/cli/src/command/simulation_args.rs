//! Simulated runs of workloads under policies, shared by `muster simulate` and `muster compare`.

use super::UsageError;
use crate::clock;
use crate::output::table;
use anyhow::Context as _;
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use muster_lab::compare::{PolicyComparison, RecordedRun, labels};
use muster_lab::contestants::contestant;
use muster_lab::core::policies::name::PolicyName;
use muster_lab::core::policy::Slicing;
use muster_lab::live;
use muster_lab::measure::Summary;
use muster_lab::reference_simulators::{Cluster, Profiles, ReferenceSettings, SimulatorRules, run};
use muster_lab::run::SimulationRun;
use muster_lab::trace::{self, Workload};
use rayon::prelude::*;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Default of the scheduler.
const SUSPENDED_PER_GPU: u32 = 3;

/// The runs: every workload under every policy.
#[derive(Debug, Args)]
#[group(id = "simulation")]
pub struct SimulationArgs {
    /// Folder with the measured profiles of the applications, plain or compressed; traces of
    /// clusters under the live rules need none.
    #[arg(long, value_name = "DIR")]
    profiles: Option<PathBuf>,
    /// Workload files: CSV of one of the documented schemas, plain or compressed (.zst, .gz); the
    /// rules pollux and sia take workloads of Pollux and Sia.
    #[arg(long, value_name = "FILE", num_args = 1.., required = true)]
    workload: Vec<PathBuf>,
    /// Nodes x GPUs per node, such as 16x4; with several GPU kinds aws:6x4,dgx-ext:2x8,rtx:3x8.
    #[arg(long, value_name = "CLUSTER")]
    cluster: Cluster,
    /// Rules of the simulation.
    #[arg(long, value_enum, default_value_t = RuleSet::Pollux)]
    rules: RuleSet,
    /// Policies, separated by commas, such as optimus,tiresias.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', required = true, value_parser = policy)]
    policy: Vec<String>,
    /// Simulate only the first N jobs of each workload.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    jobs: Option<u32>,
    /// Under the live rules: let jobs grow to twice the GPUs that they request; jobs with profiles
    /// may have any useful number.
    #[arg(long)]
    elastic: bool,
    /// Under the live rules: let the coordinators of jobs with profiles choose the batch, as
    /// `batch_rule: goodput` does.
    #[arg(long, requires = "profiles")]
    goodput: bool,
    /// Under the live rules: use time slicing with slices of this length [default: off].
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    turns: Option<u32>,
    /// With --turns: pack two jobs on one GPU, like `packing` in a live cluster; the GPU use of
    /// each job is drawn from its name.
    #[arg(long, requires = "turns")]
    packing: bool,
    /// Share of speed, 0 to 1, that jobs over several nodes lose if they share a node.
    #[arg(long, value_name = "SHARE", value_parser = share)]
    interference: Option<f64>,
    /// End each run after this simulated time; jobs that have not ended count with their time until
    /// then.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    until: Option<f64>,
    /// Number of parallel runs [default: number of cores].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RuleSet {
    /// Rules of the Pollux artefact (OSDI 2021): one GPU kind, 30 s per restart.
    Pollux,
    /// Rules of the Sia artefact (SOSP 2023): GPU kinds, restart times by application.
    Sia,
    /// Rules of Muster: the live planner, event by event, with the measured times of starts and
    /// stops.
    Live,
}

impl SimulationArgs {
    /// Runs every workload under every policy, in the given order, grouped by workload.
    ///
    /// # Errors
    /// [`UsageError`] if an input is wrong.
    pub fn run(&self) -> anyhow::Result<Vec<RecordedRun>> {
        self.validate()?;
        let profiles = self.profiles.as_deref().map(Profiles::read);
        let profiles = profiles
            .transpose()
            .map_err(|error| UsageError(format!("--profiles: {:#}", anyhow::Error::from(error))))?;
        let workloads: Vec<Workload> = self
            .workload
            .iter()
            .map(|path| workload(path).map(|workload| self.sample(workload)))
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
            let one = |&(workload, policy)| {
                let run = match (self.rules.peers(), &profiles) {
                    (Some(rules), Some(profiles)) => {
                        self.as_peers(rules, profiles, workload, policy, &bar)
                    }
                    (_, profiles) => self.live(profiles.as_ref(), workload, policy, &bar),
                };
                run.map(|run| RecordedRun {
                    rules: self.rules.name().to_owned(),
                    run,
                })
            };
            pairs.par_iter().map(one).collect()
        });
        bar.finish_and_clear();
        runs
    }

    /// Checks that the arguments fit the rules.
    fn validate(&self) -> Result<(), UsageError> {
        let wrong = |text: String| Err(UsageError(text));
        let rules = self.rules.name();
        if self.rules.peers().is_some() {
            if self.goodput {
                return wrong(
                    "--goodput goes with --rules live: other rules choose batches by the policy's name"
                        .to_owned(),
                );
            }
            return match (&self.profiles, self.elastic, self.turns) {
                (None, ..) => wrong(format!("--rules {rules} needs --profiles")),
                (_, true, _) => wrong("--elastic goes with --rules live".to_owned()),
                (.., Some(_)) => wrong("--turns goes with --rules live".to_owned()),
                _ => Ok(()),
            };
        }
        if self.interference.is_some() {
            return wrong("--interference goes with the peers' rules".to_owned());
        }
        let variant = self.policy.iter().find(|name| live_policy(name).is_err());
        match variant {
            Some(name) => wrong(format!(
                "--policy {name}: under --rules live policies have no variants"
            )),
            None => Ok(()),
        }
    }

    fn sample(&self, mut workload: Workload) -> Workload {
        let most = self.jobs.map_or(usize::MAX, |jobs| jobs as usize);
        if self.rules.peers().is_some() {
            workload.jobs.truncate(most);
            return workload;
        }
        let name = workload.name.clone();
        let (workload, left_out) = live::sample(workload, most);
        if left_out > 0 {
            note!(
                "muster: {name}: {left_out} jobs without a GPU or without a known length are left out"
            );
        }
        workload
    }

    fn as_peers(
        &self,
        rules: SimulatorRules,
        profiles: &Profiles,
        workload: &Workload,
        policy: &str,
        bar: &ProgressBar,
    ) -> anyhow::Result<SimulationRun> {
        let contestant = contestant(policy)?;
        let mut finished = 0;
        let run = run(
            profiles,
            workload,
            &self.cluster,
            &ReferenceSettings {
                rules,
                interference: self.interference.unwrap_or(0.0),
                until_s: self.until.unwrap_or(ReferenceSettings::UNTIL_S),
            },
            &contestant,
            // CPU time of this thread, so that parallel runs do not count.
            &mut clock::thread_s,
            &mut |progress| {
                bar.inc((progress.finished - finished) as u64);
                finished = progress.finished;
            },
        );
        Ok(run.map_err(|error| UsageError(format!("{}: {error}", workload.name)))?)
    }

    fn live(
        &self,
        profiles: Option<&Profiles>,
        workload: &Workload,
        policy: &str,
        bar: &ProgressBar,
    ) -> anyhow::Result<SimulationRun> {
        let settings = live::LiveRunSettings {
            policy: live_policy(policy)?,
            is_elastic: self.elastic,
            chooses_batch: self.goodput,
            slicing: self.turns.map(|seconds| Slicing {
                quantum_ms: u64::from(seconds) * 1_000,
                suspended_per_gpu: SUSPENDED_PER_GPU,
            }),
            packs: self.packing,
            stop_s: live::LiveRunSettings::STOP_S,
            until_s: self.until.unwrap_or(live::LiveRunSettings::UNTIL_S),
        };
        let mut finished = 0;
        let run = live::run(
            profiles,
            workload,
            &self.cluster,
            &settings,
            &mut clock::thread_s,
            &mut |ended| {
                bar.inc((ended - finished) as u64);
                finished = ended;
            },
        );
        match run {
            // An error of the planner is not the user's error.
            Err(error @ live::LiveError::Simulate(_)) => {
                Err(anyhow::Error::from(error).context(workload.name.clone()))
            }
            run => Ok(run.map_err(|error| UsageError(format!("{}: {error}", workload.name)))?),
        }
    }
}

/// Returns the policy of this name, without variants.
fn live_policy(name: &str) -> anyhow::Result<PolicyName> {
    Ok(name.parse::<PolicyName>()?)
}

impl RuleSet {
    /// Returns the rules of the artefact; `None` for Muster's own rules.
    fn peers(self) -> Option<SimulatorRules> {
        match self {
            Self::Pollux => Some(SimulatorRules::Pollux),
            Self::Sia => Some(SimulatorRules::Sia),
            Self::Live => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Pollux => "pollux",
            Self::Sia => "sia",
            Self::Live => "live",
        }
    }
}

/// Reads a workload. Its name is the path of its file, so that equal names in different folders
/// remain distinct in results.
fn workload(path: &Path) -> anyhow::Result<Workload> {
    let file = path.display().to_string();
    let text = trace::file::read_text(path)
        .map_err(|error| UsageError(format!("--workload: {:#}", anyhow::Error::from(error))))?;
    Ok(trace::read(&file, &trace::file::name_of(path), &text)
        .map_err(|error| UsageError(format!("--workload: {error}")))?)
}

/// Returns a progress bar that is visible only on a terminal. It counts finished jobs and ticks,
/// because the first job of a large workload may take minutes.
fn bar(jobs: usize) -> ProgressBar {
    let bar = ProgressBar::new(jobs as u64);
    if let Ok(style) =
        ProgressStyle::with_template("{bar:40} {pos}/{len} jobs simulated, {elapsed}, {eta} left")
    {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

/// Writes a file of results.
///
/// # Errors
/// If the file cannot be written; the error names the file.
pub fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

/// Returns a table with one line per run.
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

/// Returns a table with one line per policy, with means over the workloads.
#[must_use]
pub fn means_table(comparison: &PolicyComparison) -> String {
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

/// Returns a policy's name. It is marked if jobs are unfinished, because they improve the other
/// figures.
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

#[cfg(test)]
mod tests {
    use super::{policy, share};

    #[test]
    fn policy_and_share_are_checked_by_the_parser() {
        assert!(policy("tiresias").is_ok() && policy("tiresia").is_err());
        assert_eq!(share("0.25"), Ok(0.25));
        for wrong in ["-0.1", "1.1", "NaN", "much"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
    }
}
