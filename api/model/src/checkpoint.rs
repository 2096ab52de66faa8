//! Checkpoints, as the store records them, and the rules by which they are retained.

use crate::id::{CheckpointId, JobId};
use crate::spec::{CheckpointPolicy, KeepBest, Measure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use uuid::Uuid;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    pub id: CheckpointId,
    pub job_id: JobId,
    pub written: Written,
    /// Whether it still exists: the job's policy has not pruned it.
    pub retained: bool,
    /// Only of users' programs.
    pub program: Option<ProgramContent>,
}

/// What is known of a program's checkpoint beside [`Written`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProgramContent {
    /// Name of its content in a bucket. `None` if the store is a folder.
    pub object: Option<Uuid>,
    pub file_count: u64,
    /// Newest values that rank 0 had logged, by name.
    pub metrics: BTreeMap<String, f64>,
}

/// Result of a request to a user's program for a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum RequestResult {
    /// The program reported a checkpoint from which it continues at this step.
    Reported { step: u64 },
    /// The program ended without a report.
    Ended,
    /// The time-out of the job's document has passed.
    TimedOut,
}

/// Report of the coordinator about a complete checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Written {
    pub step: u64,
    pub epoch: f64,
    /// Revision of the job that wrote the checkpoint.
    pub revision: u64,
    /// Folder, relative to the cluster's checkpoint root. Of a user's program: file or folder,
    /// relative to the job's checkpoint folder.
    pub path: String,
    pub bytes: u64,
    /// Hex SHA-256 of the manifest, which contains the checksums of the files. Of a user's program
    /// in a bucket: that of its archive; empty in a folder.
    pub manifest_sha256: String,
    /// Names of its files, including the manifest and the list of checksums. Empty for a user's
    /// program.
    #[serde(default = "one_part")]
    pub files: Vec<String>,
    /// Test loss at this step, if it was evaluated there.
    #[serde(default)]
    pub loss: Option<f64>,
    /// Share of test examples that were classified correctly at this step, if it was evaluated
    /// there.
    #[serde(default)]
    pub accuracy: Option<f64>,
}

/// Why a checkpoint is retained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Kept {
    /// One of the newest `keep`.
    Newest,
    /// One of the best of `keep_best`.
    Best,
    /// First checkpoint at or after a multiple of `keep_every_steps`. It is at that step unless the
    /// disk was too slow.
    Milestone,
    /// Another job starts from it, or may start from it because it is the end of a trial's rung.
    Origin,
}

/// Input of the retention rules.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    pub step: u64,
    pub loss: Option<f64>,
    pub accuracy: Option<f64>,
}

impl From<&Written> for Candidate {
    fn from(written: &Written) -> Self {
        Self {
            step: written.step,
            loss: written.loss,
            accuracy: written.accuracy,
        }
    }
}

/// Files of a checkpoint whose list was not reported, as in the first releases.
fn one_part() -> Vec<String> {
    [
        "manifest.json",
        "model.safetensors",
        "optimizer.safetensors",
        "SHA256SUMS",
    ]
    .map(str::to_owned)
    .to_vec()
}

impl CheckpointPolicy {
    /// Returns the steps that are retained, each with all its reasons. The newest checkpoint is
    /// always retained, because the job continues from it. Of two equally good ones the newer one
    /// is better.
    #[must_use]
    pub fn kept(
        &self,
        candidates: impl IntoIterator<Item = Candidate>,
    ) -> BTreeMap<u64, Vec<Kept>> {
        let mut by_step: BTreeMap<u64, Candidate> = BTreeMap::new();
        for candidate in candidates {
            by_step.insert(candidate.step, candidate);
        }
        let mut out: BTreeMap<u64, Vec<Kept>> = BTreeMap::new();
        for &step in by_step.keys().rev().take(self.keep.max(1) as usize) {
            out.entry(step).or_default().push(Kept::Newest);
        }
        for step in self.best(by_step.values()) {
            out.entry(step).or_default().push(Kept::Best);
        }
        if let Some(every) = self.keep_every_steps {
            let mut passed = 0;
            for &step in by_step.keys() {
                let reached = step / every.max(1);
                if reached > passed {
                    out.entry(step).or_default().push(Kept::Milestone);
                }
                passed = reached;
            }
        }
        out
    }

    /// Returns the same for recorded checkpoints. Those of programs are compared by the metric that
    /// `keep_best` names; a value that is not a number is not compared.
    #[must_use]
    pub fn kept_of<'a>(
        &self,
        checkpoints: impl IntoIterator<Item = &'a Checkpoint>,
    ) -> BTreeMap<u64, Vec<Kept>> {
        let checkpoints = checkpoints.into_iter();
        let Some((best, name, goal)) = self.keep_best.as_ref().and_then(KeepBest::own_metric)
        else {
            return self.kept(checkpoints.map(|one| Candidate::from(&one.written)));
        };
        let by_loss = Self {
            keep_best: Some(KeepBest {
                by: Measure::Loss,
                ..best.clone()
            }),
            ..self.clone()
        };
        by_loss.kept(checkpoints.map(|one| {
            let metrics = one.program.as_ref().map(|program| &program.metrics);
            let value = metrics.and_then(|metrics| metrics.get(name));
            Candidate {
                step: one.written.step,
                loss: value.map(|value| goal.as_loss(*value)),
                accuracy: None,
            }
        }))
    }

    /// Whether a checkpoint is due at `step` by `every_steps` or `keep_every_steps`. `before` is
    /// the preceding step boundary.
    #[must_use]
    pub fn due_by_steps(&self, before: u64, step: u64) -> bool {
        has_reached(self.every_steps, before, step)
            || has_reached(self.keep_every_steps, before, step)
    }

    /// Whether a checkpoint with this measure would be one of the best. It is then due, because it
    /// could not be retained otherwise.
    #[must_use]
    pub fn would_be_best(
        &self,
        new: Candidate,
        present: impl IntoIterator<Item = Candidate>,
    ) -> bool {
        let all: Vec<Candidate> = present.into_iter().chain([new]).collect();
        self.best(all.iter()).contains(&new.step)
    }

    fn best<'a>(&self, candidates: impl Iterator<Item = &'a Candidate>) -> Vec<u64> {
        let Some(rule) = &self.keep_best else {
            return Vec::new();
        };
        let mut measured: Vec<(f64, u64)> = candidates
            .filter_map(|candidate| {
                // Lower is better.
                let cost = match rule.by {
                    Measure::Accuracy => -candidate.accuracy?,
                    Measure::Loss => candidate.loss?,
                };
                Some((cost, candidate.step))
            })
            .collect();
        measured.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
        measured
            .into_iter()
            .take(rule.count as usize)
            .map(|(_, step)| step)
            .collect()
    }
}

/// Whether a multiple of `every` lies after `before`, up to `step`.
fn has_reached(every: Option<u64>, before: u64, step: u64) -> bool {
    every.is_some_and(|every| step / every.max(1) > before / every.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Goal;

    fn at(step: u64, accuracy: Option<f64>) -> Candidate {
        Candidate {
            step,
            accuracy,
            loss: accuracy.map(|accuracy| 1.0 - accuracy),
        }
    }

    fn policy(keep: u32, best: Option<(u32, Measure)>, every: Option<u64>) -> CheckpointPolicy {
        CheckpointPolicy {
            keep,
            keep_best: best.map(|(count, by)| KeepBest {
                count,
                by,
                metric: None,
                goal: None,
            }),
            keep_every_steps: every,
            ..CheckpointPolicy::default()
        }
    }

    #[test]
    fn kept_checkpoints_list_all_their_reasons() {
        let candidates = [
            at(10, Some(0.9)),
            at(20, None),
            at(30, Some(0.7)),
            at(40, Some(0.95)),
            at(50, Some(0.2)),
        ];
        for by in [Measure::Accuracy, Measure::Loss] {
            let kept = policy(1, Some((2, by)), Some(20)).kept(candidates);
            let expected = [
                (10, vec![Kept::Best]),
                (20, vec![Kept::Milestone]),
                (40, vec![Kept::Best, Kept::Milestone]),
                (50, vec![Kept::Newest]),
            ];
            assert_eq!(kept, BTreeMap::from(expected), "{by:?}");
        }
    }

    #[test]
    fn newest_checkpoint_is_kept_under_every_policy() {
        let kept = policy(0, None, None).kept([at(7, None), at(3, None)]);
        assert_eq!(kept, BTreeMap::from([(7, vec![Kept::Newest])]));
        assert!(policy(3, None, None).kept([]).is_empty());
    }

    #[test]
    fn best_checkpoint_is_measured_and_the_newer_of_equals() {
        let rule = policy(1, Some((1, Measure::Accuracy)), None);
        let present = [at(10, Some(0.5)), at(20, None)];
        assert!(rule.would_be_best(at(30, Some(0.5)), present));
        assert!(!rule.would_be_best(at(30, Some(0.4)), present));
        assert!(!rule.would_be_best(at(30, None), present));
    }

    fn of_program(step: u64, f1: Option<f64>) -> Checkpoint {
        Checkpoint {
            id: Uuid::from_u128(step.into()).into(),
            job_id: Uuid::from_u128(1).into(),
            written: Written {
                step,
                epoch: 0.0,
                revision: 1,
                path: format!("step-{step}.pt"),
                bytes: 1,
                manifest_sha256: String::new(),
                files: Vec::new(),
                loss: None,
                accuracy: None,
            },
            retained: true,
            program: Some(ProgramContent {
                object: None,
                file_count: 1,
                metrics: f1.map(|f1| ("val/f1".to_owned(), f1)).into_iter().collect(),
            }),
        }
    }

    #[test]
    fn best_checkpoint_of_a_program_follows_its_own_metric() {
        let all = [
            (10, Some(0.5)),
            (20, Some(0.9)),
            (30, None),
            (40, Some(0.7)),
        ];
        let all = all.map(|(step, f1)| of_program(step, f1));
        for (goal, best) in [(Goal::Maximize, 20), (Goal::Minimize, 10)] {
            let rule = CheckpointPolicy {
                keep: 1,
                keep_best: Some(KeepBest {
                    count: 1,
                    by: Measure::Accuracy,
                    metric: Some("val/f1".to_owned()),
                    goal: Some(goal),
                }),
                ..CheckpointPolicy::default()
            };
            let expected = [(best, vec![Kept::Best]), (40, vec![Kept::Newest])];
            assert_eq!(rule.kept_of(&all), BTreeMap::from(expected), "{goal:?}");
        }
    }

    #[test]
    fn milestone_checkpoint_is_due_without_other_rules() {
        let rule = policy(1, None, Some(100));
        assert!(rule.due_by_steps(199, 200));
        assert!(rule.due_by_steps(198, 201), "passed over");
        assert!(!rule.due_by_steps(149, 150));
        assert!(!rule.due_by_steps(200, 201));
        let late = [90, 103, 150, 310, 320].map(|step| at(step, None));
        let kept: Vec<u64> = rule.kept(late).into_keys().collect();
        assert_eq!(
            kept,
            [103, 310, 320],
            "the first since each, and the newest"
        );
    }
}
