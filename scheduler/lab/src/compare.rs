//! Comparison of policies: means over the workloads that all of them ran.

use crate::measure::{Summary, mean};
use crate::run::SimulationRun;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Run in a file, with the name of its rules.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedRun {
    pub rules: String,
    pub run: SimulationRun,
}

/// Result of a comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyComparison {
    /// Workloads of the means: those that every policy ran.
    pub workloads: Vec<String>,
    /// Workloads left out, because not every policy ran them.
    pub left_out: Vec<String>,
    /// In the order of their first appearance.
    pub policies: Vec<PolicySummary>,
}

/// Means of one policy over the workloads. Times are seconds unless the name says otherwise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicySummary {
    pub policy: String,
    /// Jobs of all workloads that did not end.
    pub unfinished: usize,
    pub avg_jct_s: f64,
    /// `avg_jct_s` over that of the best policy of the comparison: 1 is the best.
    pub to_best: f64,
    /// Mean of the workloads' bounds, and `avg_jct_s` over it.
    pub bound_s: f64,
    pub distance_to_bound: f64,
    pub p50_jct_s: f64,
    pub p90_jct_s: f64,
    pub p99_jct_s: f64,
    pub makespan_s: f64,
    pub gpu_hours: f64,
    pub utilisation: f64,
    pub restarts: f64,
    /// Means over the workloads: of the mean and the largest finish-time ratio, and of the share of
    /// jobs with a ratio above 1.
    pub fairness_mean: f64,
    pub fairness_max: f64,
    pub unfair: f64,
    pub decision_mean_ms: f64,
    pub decision_p99_ms: f64,
    /// Maximum over all workloads.
    pub decision_max_ms: f64,
}

/// Reason why runs cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    #[error("there is nothing to compare; expected at least one run")]
    Nothing,
    #[error("the runs follow different rules, {first} and {other}; compare those of one kind")]
    Rules { first: String, other: String },
    #[error("{policy} has run {workload} twice; keep one of the results")]
    Twice { policy: String, workload: String },
    #[error("no workload was run under all policies ({policies}); expected at least one")]
    NoCommon { policies: String },
}

impl PolicyComparison {
    /// Compares the policies of the summaries.
    ///
    /// # Errors
    /// [`CompareError`] if the summaries are not comparable.
    pub fn of(summaries: &[Summary]) -> Result<Self, CompareError> {
        let policies = in_order(summaries.iter().map(|s| s.policy.as_str()));
        let all = in_order(summaries.iter().map(|s| s.workload.as_str()));
        let first = summaries.first().ok_or(CompareError::Nothing)?;
        if let Some(other) = summaries.iter().find(|s| s.rules != first.rules) {
            return Err(CompareError::Rules {
                first: first.rules.clone(),
                other: other.rules.clone(),
            });
        }
        let mut ran = BTreeSet::new();
        for summary in summaries {
            let (policy, workload) = (summary.policy.as_str(), summary.workload.as_str());
            if !ran.insert((policy, workload)) {
                return Err(CompareError::Twice {
                    policy: policy.to_owned(),
                    workload: workload.to_owned(),
                });
            }
        }
        let (common, left_out): (Vec<&str>, Vec<&str>) = all
            .into_iter()
            .partition(|workload| policies.iter().all(|p| ran.contains(&(p, workload))));
        if common.is_empty() {
            let policies = policies.join(", ");
            return Err(CompareError::NoCommon { policies });
        }
        let mut standings: Vec<PolicySummary> = policies
            .iter()
            .map(|policy| {
                let of_policy = summaries.iter().filter(|s| s.policy == *policy);
                let common = of_policy.filter(|s| common.contains(&s.workload.as_str()));
                PolicySummary::of(policy, &common.collect::<Vec<_>>())
            })
            .collect();
        let best = standings
            .iter()
            .map(|standing| standing.avg_jct_s)
            .fold(f64::INFINITY, f64::min);
        for standing in &mut standings {
            standing.to_best = standing.avg_jct_s / best;
        }
        Ok(Self {
            workloads: owned(&common),
            left_out: owned(&left_out),
            policies: standings,
        })
    }
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().copied().map(str::to_owned).collect()
}

fn mean_of(summaries: &[&Summary], value: fn(&Summary) -> f64) -> f64 {
    mean(&summaries.iter().map(|s| value(s)).collect::<Vec<_>>())
}

impl PolicySummary {
    fn of(policy: &str, summaries: &[&Summary]) -> Self {
        let avg_jct_s = mean_of(summaries, |s| s.avg_jct_s);
        let bound_s = mean_of(summaries, |s| s.bound_s);
        Self {
            policy: policy.to_owned(),
            unfinished: summaries.iter().map(|s| s.unfinished).sum(),
            avg_jct_s,
            to_best: 1.0,
            bound_s,
            distance_to_bound: if bound_s > 0.0 {
                avg_jct_s / bound_s
            } else {
                0.0
            },
            p50_jct_s: mean_of(summaries, |s| s.p50_jct_s),
            p90_jct_s: mean_of(summaries, |s| s.p90_jct_s),
            p99_jct_s: mean_of(summaries, |s| s.p99_jct_s),
            makespan_s: mean_of(summaries, |s| s.makespan_s),
            gpu_hours: mean_of(summaries, |s| s.gpu_hours),
            utilisation: mean_of(summaries, |s| s.utilisation),
            restarts: mean_of(summaries, |s| s.restarts as f64),
            fairness_mean: mean_of(summaries, |s| s.fairness.mean),
            fairness_max: mean_of(summaries, |s| s.fairness.max),
            unfair: mean_of(summaries, |s| s.fairness.unfair),
            decision_mean_ms: mean_of(summaries, |s| s.decision_ms.mean),
            decision_p99_ms: mean_of(summaries, |s| s.decision_ms.p99),
            decision_max_ms: summaries
                .iter()
                .map(|s| s.decision_ms.max)
                .fold(0.0, f64::max),
        }
    }
}

/// Length of a path's folders, with the last slash.
fn folders(path: &str) -> usize {
    path.rfind('/').map_or(0, |end| end + 1)
}

/// Shortest distinct names of workloads: paths without the common folders and without `.csv`.
#[must_use]
pub fn labels(workloads: &[&str]) -> Vec<String> {
    let Some((first, others)) = workloads.split_first() else {
        return Vec::new();
    };
    let common = others.iter().fold(folders(first), |common, path| {
        let same = first
            .bytes()
            .zip(path.bytes())
            .take_while(|(a, b)| a == b)
            .count();
        folders(&first[..first.floor_char_boundary(same.min(common))])
    });
    workloads
        .iter()
        .map(|path| path[common..].trim_end_matches(".csv").to_owned())
        .collect()
}

/// Title of a workload: last folder and file name.
#[must_use]
pub fn title_of(workload: &str) -> &str {
    let end = workload
        .rmatch_indices('/')
        .nth(1)
        .map_or(0, |(at, _)| at + 1);
    workload[end..].trim_end_matches(".csv")
}

/// Distinct names in the order of their first appearance.
fn in_order<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = Vec::new();
    for name in names {
        if !seen.contains(&name) {
            seen.push(name);
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::{CompareError, PolicyComparison, labels, title_of};
    use crate::measure::Summary;
    use crate::testing::{ran, run};

    fn summary(policy: &str, workload: &str, jct_s: f64) -> Summary {
        let mut of = run(1, vec![ran(0.0, jct_s)]);
        policy.clone_into(&mut of.policy);
        workload.clone_into(&mut of.workload);
        Summary::of(&of, "pollux")
    }

    #[test]
    fn comparison_means_use_workloads_of_all_policies() {
        let comparison = PolicyComparison::of(&[
            summary("fifo", "1", 10.0),
            summary("fifo", "2", 30.0),
            summary("fifo", "3", 1000.0),
            summary("muster", "2", 10.0),
            summary("muster", "1", 6.0),
        ])
        .expect("two in common");
        assert_eq!(comparison.workloads, ["1", "2"]);
        assert_eq!(comparison.left_out, ["3"]);
        let [fifo, muster] = &comparison.policies[..] else {
            panic!("two policies: {comparison:?}");
        };
        assert_eq!((fifo.avg_jct_s, fifo.to_best), (20.0, 2.5));
        assert_eq!((muster.avg_jct_s, muster.to_best), (8.0, 1.0));
        assert_eq!(muster.distance_to_bound, 8.0 / muster.bound_s);
    }

    #[test]
    fn labels_are_shortest_distinct_paths() {
        assert_eq!(labels(&["a/b/w-1.csv"]), ["w-1"]);
        assert_eq!(labels(&["a/b/w-1.csv", "a/b/w-2.csv"]), ["w-1", "w-2"]);
        assert_eq!(
            labels(&["a/1.0/w-1.csv", "a/1.5/w-1.csv"]),
            ["1.0/w-1", "1.5/w-1"]
        );
        assert_eq!(labels(&["w", "/x/w"]), ["w", "/x/w"]);
        assert!(labels(&[]).is_empty());
        assert_eq!(title_of("/a/b/w-1.csv"), "b/w-1");
        assert_eq!(title_of("w-1.csv"), "w-1");
    }

    #[test]
    fn incomparable_summaries_are_refused() {
        assert_eq!(PolicyComparison::of(&[]), Err(CompareError::Nothing));
        let twice = [summary("fifo", "1", 1.0), summary("fifo", "1", 2.0)];
        let error = PolicyComparison::of(&twice).expect_err("the same twice");
        assert_eq!(
            error.to_string(),
            "fifo has run 1 twice; keep one of the results"
        );
        let apart = [summary("fifo", "1", 1.0), summary("muster", "2", 1.0)];
        assert!(matches!(
            PolicyComparison::of(&apart),
            Err(CompareError::NoCommon { .. })
        ));
        let mut rules = [summary("fifo", "1", 1.0), summary("muster", "1", 1.0)];
        rules[1].rules = "sia".to_owned();
        assert!(matches!(
            PolicyComparison::of(&rules),
            Err(CompareError::Rules { .. })
        ));
    }
}
