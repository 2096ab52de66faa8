//! Measures of a run.

use crate::bound::RunBounds;
use crate::run::{JobRun, SimulationRun};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Measures of one run. Times are seconds unless the name says otherwise.
///
/// A job without an end counts with its time until the end of the run, which favours the policy.
/// `unfinished` is the number of such jobs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    pub policy: String,
    pub workload: String,
    /// Name of the rules that the run followed.
    pub rules: String,
    pub jobs: usize,
    pub unfinished: usize,
    /// Job completion times from submission to end.
    pub avg_jct_s: f64,
    pub p50_jct_s: f64,
    pub p90_jct_s: f64,
    pub p99_jct_s: f64,
    /// From the start of the workload to the end of its last job.
    pub makespan_s: f64,
    /// GPU time held by jobs, starts included.
    pub gpu_hours: f64,
    /// Changes of allocations after the first.
    pub restarts: u64,
    /// GPU time held over all GPU time between the first submission and the last end.
    pub utilisation: f64,
    pub fairness: Fairness,
    /// Time of the decisions.
    pub decision_ms: Spread,
    /// Lower bound on the mean completion time of any policy on this workload and cluster.
    pub bound_s: f64,
    /// `avg_jct_s / bound_s`: 1 is optimal.
    pub distance_to_bound: f64,
    pub bounds: RunBounds,
    /// Ordered by name.
    pub tenants: Vec<TenantSummary>,
}

/// Finish-time ratios of all jobs (Themis, NSDI 2020, section 3): completion time over the time on
/// a fair share of the cluster.
///
/// The fair share is `1 / N` of the cluster. `N` is the mean number of active jobs, waiting jobs
/// included, during the job's life. On less than the requested GPUs the job slows down in
/// proportion, as if it had its GPUs for a part of the time. A larger share does not speed it up.
/// The denominator is thus the same under every policy.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fairness {
    pub max: f64,
    pub mean: f64,
    /// Share of jobs with a ratio above 1, which would be faster on their fair share.
    pub unfair: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spread {
    pub mean: f64,
    pub p50: f64,
    pub p99: f64,
    pub max: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantSummary {
    pub tenant: String,
    pub jobs: usize,
    pub avg_jct_s: f64,
    pub gpu_hours: f64,
    /// Mean finish-time ratio.
    pub finish_time_ratio: f64,
}

impl Summary {
    #[must_use]
    pub fn of(run: &SimulationRun, rules: &str) -> Self {
        let mut jcts = completion_times_s(run);
        let ratios = finish_time_ratios(run);
        let tenants = tenants(run, &jcts, &ratios);
        jcts.sort_by(f64::total_cmp);
        let gpu_s: f64 = run.jobs.iter().map(|job| job.gpu_s).sum();
        let first_s = run.jobs.iter().map(|job| job.submitted_s);
        let span_s = run.end_s - first_s.fold(run.end_s, f64::min);
        let gpus: f64 = run.nodes.iter().map(|node| f64::from(node.gpus)).sum();
        let bounds = RunBounds::of(run);
        let avg_jct_s = mean(&jcts);
        let unfair = ratios.iter().filter(|ratio| **ratio > 1.0).count();
        Self {
            policy: run.policy.clone(),
            workload: run.workload.clone(),
            rules: rules.to_owned(),
            jobs: run.jobs.len(),
            unfinished: run
                .jobs
                .iter()
                .filter(|job| job.finished_s.is_none())
                .count(),
            avg_jct_s,
            p50_jct_s: percentile(&jcts, 0.5),
            p90_jct_s: percentile(&jcts, 0.9),
            p99_jct_s: percentile(&jcts, 0.99),
            makespan_s: run.end_s,
            gpu_hours: gpu_s / 3600.0,
            restarts: run.jobs.iter().map(|job| u64::from(job.restarts)).sum(),
            utilisation: ratio(gpu_s, gpus * span_s),
            fairness: Fairness {
                max: ratios.iter().copied().fold(0.0, f64::max),
                mean: mean(&ratios),
                unfair: ratio(unfair as f64, ratios.len() as f64),
            },
            decision_ms: Spread::of(run.decision_s.iter().map(|s| s * 1e3).collect()),
            bound_s: bounds.best_s(),
            distance_to_bound: ratio(avg_jct_s, bounds.best_s()),
            bounds,
            tenants,
        }
    }
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Self {
            mean: mean(&values),
            p50: percentile(&values, 0.5),
            p99: percentile(&values, 0.99),
            max: values.last().copied().unwrap_or(0.0),
        }
    }
}

/// Completion times in the order of the workload.
#[must_use]
pub fn completion_times_s(run: &SimulationRun) -> Vec<f64> {
    run.jobs.iter().map(|job| jct_s(run, job)).collect()
}

/// Percentile with linear interpolation, as numpy's default; 0 for an empty slice.
#[must_use]
pub fn percentile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return 0.0;
    };
    let rank = share.clamp(0.0, 1.0) * last as f64;
    // At most the last index, which is a usize.
    let below = rank.floor() as usize;
    let above = (below + 1).min(last);
    sorted[below] + (sorted[above] - sorted[below]) * rank.fract()
}

/// 0 for an empty slice.
#[must_use]
pub fn mean(values: &[f64]) -> f64 {
    ratio(values.iter().sum(), values.len() as f64)
}

fn jct_s(run: &SimulationRun, job: &JobRun) -> f64 {
    job.finished_s.unwrap_or(run.end_s) - job.submitted_s
}

fn ratio(of: f64, by: f64) -> f64 {
    if by > 0.0 { of / by } else { 0.0 }
}

/// Ratios of [`Fairness`] in the order of the workload.
#[must_use]
pub fn finish_time_ratios(run: &SimulationRun) -> Vec<f64> {
    let gpus: f64 = run.nodes.iter().map(|node| f64::from(node.gpus)).sum();
    let active = Active::of(run);
    let ratios = run.jobs.iter().map(|job| {
        let jct_s = jct_s(run, job);
        let end_s = job.submitted_s + jct_s;
        let contenders = active.mean(job.submitted_s, end_s);
        let slower = (f64::from(job.request_gpus) * contenders / gpus).max(1.0);
        ratio(jct_s, job.request_s * slower)
    });
    ratios.collect()
}

/// Number of active jobs over time: a step function and its integral.
struct Active {
    /// Time, number of jobs from then on, and job-seconds until then.
    steps: Vec<(f64, f64, f64)>,
}

impl Active {
    fn of(run: &SimulationRun) -> Self {
        let mut changes: Vec<(f64, f64)> = Vec::with_capacity(2 * run.jobs.len());
        for job in &run.jobs {
            changes.push((job.submitted_s, 1.0));
            changes.push((job.submitted_s + jct_s(run, job), -1.0));
        }
        changes.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (mut jobs, mut area, mut since_s) = (0.0, 0.0, 0.0);
        let steps = changes.into_iter().map(|(at_s, change)| {
            area += jobs * (at_s - since_s);
            jobs += change;
            since_s = at_s;
            (at_s, jobs, area)
        });
        Self {
            steps: steps.collect(),
        }
    }

    /// Job-seconds until `at_s`.
    fn area(&self, at_s: f64) -> f64 {
        let after = self.steps.partition_point(|&(step_s, _, _)| step_s <= at_s);
        let Some(&(step_s, jobs, area)) = after.checked_sub(1).and_then(|n| self.steps.get(n))
        else {
            return 0.0;
        };
        area + jobs * (at_s - step_s)
    }

    /// Mean number of active jobs; at least 1, because the job itself is active.
    fn mean(&self, from_s: f64, to_s: f64) -> f64 {
        ratio(self.area(to_s) - self.area(from_s), to_s - from_s).max(1.0)
    }
}

/// Mean over the jobs with these indices.
fn mean_of(jobs: &[usize], values: &[f64]) -> f64 {
    let sum: f64 = jobs.iter().map(|&job| values[job]).sum();
    ratio(sum, jobs.len() as f64)
}

fn tenants(run: &SimulationRun, jcts: &[f64], ratios: &[f64]) -> Vec<TenantSummary> {
    let mut of: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, job) in run.jobs.iter().enumerate() {
        of.entry(&job.tenant).or_default().push(index);
    }
    of.into_iter()
        .map(|(tenant, jobs)| TenantSummary {
            tenant: tenant.to_owned(),
            jobs: jobs.len(),
            avg_jct_s: mean_of(&jobs, jcts),
            gpu_hours: jobs.iter().map(|&job| run.jobs[job].gpu_s).sum::<f64>() / 3600.0,
            finish_time_ratio: mean_of(&jobs, ratios),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{Summary, finish_time_ratios, percentile};
    use crate::testing::{ran, run};

    /// numpy.percentile([1, 2, 4, 8], [50, 90, 99]) = 3.0, 6.8, 7.88.
    #[test]
    fn percentiles_equal_numpy() {
        let values = [1.0, 2.0, 4.0, 8.0];
        for (share, expected) in [(0.0, 1.0), (0.5, 3.0), (0.9, 6.8), (0.99, 7.88), (1.0, 8.0)] {
            let found = percentile(&values, share);
            assert!((found - expected).abs() < 1e-12, "{share}: {found}");
        }
        assert_eq!(percentile(&[5.0], 0.9), 5.0);
    }

    #[test]
    fn summary_of_run_gives_expected_measures() {
        let mut two = run(2, vec![ran(0.0, 10.0), ran(10.0, 30.0), ran(20.0, 50.0)]);
        two.jobs[2].finished_s = None;
        two.jobs[1].restarts = 3;
        two.jobs[1].tenant = "other".to_owned();
        two.end_s = 50.0;
        two.decision_s = vec![0.001, 0.003];
        let summary = Summary::of(&two, "pollux");
        assert_eq!((summary.jobs, summary.unfinished), (3, 1));
        assert_eq!(summary.avg_jct_s, 20.0);
        assert_eq!(summary.p50_jct_s, 20.0);
        assert_eq!(summary.makespan_s, 50.0);
        assert_eq!(summary.restarts, 3);
        assert_eq!(summary.gpu_hours, 60.0 / 3600.0);
        assert_eq!(summary.utilisation, 0.6);
        assert_eq!(summary.decision_ms.mean, 2.0);
        assert_eq!(summary.decision_ms.max, 3.0);
        assert_eq!(summary.distance_to_bound, 20.0 / summary.bound_s);
        let names: Vec<_> = summary.tenants.iter().map(|t| t.tenant.as_str()).collect();
        assert_eq!(names, ["default", "other"]);
        assert_eq!(summary.tenants[0].avg_jct_s, 20.0);
    }

    /// Four GPUs. A is alone 0..10, then A and B run until 20. The mean contention of A is 1.5. Its
    /// share is 8/3 GPUs of the requested 4.
    #[test]
    fn fair_share_uses_mean_contention_over_life_of_job() {
        let mut shared = run(4, vec![ran(0.0, 20.0), ran(10.0, 20.0)]);
        shared.jobs[0].request_gpus = 4;
        shared.jobs[0].request_s = 10.0;
        shared.jobs[1].request_gpus = 1;
        shared.jobs[1].request_s = 5.0;
        let ratios = finish_time_ratios(&shared);
        assert!((ratios[0] - 20.0 / 15.0).abs() < 1e-12, "{ratios:?}");
        // Half the cluster is more than the request of B.
        assert!((ratios[1] - 2.0).abs() < 1e-12, "{ratios:?}");
        assert_eq!(Summary::of(&shared, "pollux").fairness.unfair, 1.0);
    }

    #[test]
    fn summary_as_json_has_documented_names() {
        let summary = Summary::of(&run(1, vec![ran(0.0, 1.0)]), "pollux");
        let value = serde_json::to_value(&summary).expect("plain data");
        for name in [
            "policy",
            "workload",
            "avg_jct_s",
            "p50_jct_s",
            "p90_jct_s",
            "p99_jct_s",
            "makespan_s",
            "gpu_hours",
            "restarts",
            "bound_s",
        ] {
            assert!(!value[name].is_null(), "{name}");
        }
        for name in ["mean", "p50", "p99", "max"] {
            assert!(value["decision_ms"][name].is_f64(), "{name}");
        }
    }
}
