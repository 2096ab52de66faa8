//! Replay of a stored round: the same bytes under its own policy, or the decisions of another
//! policy.

use muster_core::plan::{Action, RoundPlan};
use muster_core::policy::Policy;
use muster_core::report::{RoundReport, Totals};
use muster_core::snapshot::ClusterSnapshot;
use muster_model::id::{JobId, NodeId};
use muster_model::task::Role;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};

/// Stored round; all fields are JSON.
#[derive(Debug, Clone, Copy)]
pub struct StoredRound<'a> {
    pub number: u64,
    /// `None` in rounds of releases that did not store it.
    pub policy: Option<&'a str>,
    pub snapshot: &'a str,
    pub plan: &'a str,
    pub report: &'a str,
}

/// Result of a replay.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Replay {
    pub round: u64,
    /// The replayed plan has the same bytes as the stored plan.
    pub same_plan: bool,
    pub same_report: bool,
    /// GPUs after the round, as stored and as replayed.
    pub recorded: Totals,
    pub replayed: Totals,
    /// Jobs with different decisions.
    pub differences: Vec<Difference>,
}

/// Different decisions on one job. A text is empty if there is no decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    pub job: JobId,
    pub name: String,
    pub recorded: String,
    pub replayed: String,
}

/// Reason why a round cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error("read the {what} of round {round}, which another release may have written")]
    Read {
        round: u64,
        what: &'static str,
        #[source]
        source: serde_json::Error,
    },
    #[error("round {round} does not say under which policy it was decided; name one")]
    NoPolicy { round: u64 },
}

/// Plans the round again, under its own policy or under another.
///
/// # Errors
/// [`ReplayError`] if the record cannot be read, or if it contains no policy and `other` is `None`.
pub fn replay(recorded: StoredRound<'_>, other: Option<&Policy>) -> Result<Replay, ReplayError> {
    let round = recorded.number;
    let snapshot: ClusterSnapshot = read(round, "snapshot", recorded.snapshot)?;
    let was: RoundPlan = read(round, "plan", recorded.plan)?;
    let said: RoundReport = read(round, "report", recorded.report)?;
    let own: Policy;
    let policy = match (other, recorded.policy) {
        (Some(other), _) => other,
        (None, Some(text)) => {
            own = read(round, "policy", text)?;
            &own
        }
        (None, None) => return Err(ReplayError::NoPolicy { round }),
    };
    let (plan, report) = muster_core::plan(&snapshot, policy);
    // The stored plan lacks the jobs of broken rules.
    let (plan, _) = muster_core::sound_with(&snapshot, plan, policy);
    Ok(Replay {
        round,
        same_plan: same(&plan, recorded.plan),
        same_report: same(&report, recorded.report),
        recorded: said.totals,
        replayed: report.totals,
        differences: differences(&snapshot, &was, &plan),
    })
}

impl Replay {
    /// Whether plan and report are the same.
    #[must_use]
    pub fn is_same(&self) -> bool {
        self.same_plan && self.same_report
    }
}

fn read<T: DeserializeOwned>(round: u64, what: &'static str, text: &str) -> Result<T, ReplayError> {
    serde_json::from_str(text).map_err(|source| ReplayError::Read {
        round,
        what,
        source,
    })
}

fn same<T: Serialize>(value: &T, text: &str) -> bool {
    serde_json::to_string(value).is_ok_and(|replayed| replayed == text)
}

fn differences(snapshot: &ClusterSnapshot, was: &RoundPlan, is: &RoundPlan) -> Vec<Difference> {
    let (was, is) = (words(snapshot, was), words(snapshot, is));
    let jobs = snapshot.jobs.iter().filter_map(|job| {
        let recorded = was.get(&job.id).cloned().unwrap_or_default();
        let replayed = is.get(&job.id).cloned().unwrap_or_default();
        (recorded != replayed).then(|| Difference {
            job: job.id,
            name: job.name.clone(),
            recorded,
            replayed,
        })
    });
    jobs.collect()
}

/// Decisions on each job as text.
fn words(snapshot: &ClusterSnapshot, plan: &RoundPlan) -> BTreeMap<JobId, String> {
    let mut words: BTreeMap<JobId, String> = BTreeMap::new();
    for decision in &plan.decisions {
        let text = words.entry(decision.job).or_default();
        if !text.is_empty() {
            text.push_str(", then ");
        }
        text.push_str(&action(snapshot, &decision.action));
    }
    words
}

fn action(snapshot: &ClusterSnapshot, action: &Action) -> String {
    match action {
        Action::Start { tasks, .. } => {
            let workers = tasks
                .iter()
                .filter(|task| matches!(task.role, Role::Worker { .. }))
                .count();
            let nodes: BTreeSet<&str> = tasks
                .iter()
                .map(|task| node_name(snapshot, task.node))
                .collect();
            let nodes: Vec<&str> = nodes.into_iter().collect();
            let shards = tasks.len() - workers;
            format!(
                "start {workers} workers, {shards} PS shards on {}",
                nodes.join(", ")
            )
        }
        Action::Resize {
            leave, join, why, ..
        } => format!("{} tasks leave, {} join: {why}", leave.len(), join.len()),
        Action::Up => "all tasks are up".to_owned(),
        Action::Suspend { why } => format!("suspended: {why}"),
        Action::Continue { why, .. } => format!("resumed: {why}"),
        Action::Stop { why, .. } => format!("stop: {why}"),
        Action::Release => "all tasks are gone".to_owned(),
        Action::GiveUp { tasks, why } => format!("gives up {} tasks: {why}", tasks.len()),
        Action::Judge { verdict } => verdict.to_string(),
        Action::Displace { cost } => format!(
            "stopped for job {} at a cost of {:.1} GPU-seconds",
            cost.gainer,
            cost.gpu_ms() as f64 / 1_000.0
        ),
        Action::Suspect { suspects } => format!("{} ranks are suspect", suspects.len()),
        Action::Idle { idle: Some(found) } => found.to_string(),
        Action::Idle { idle: None } => "active again".to_owned(),
        Action::Hold => "hold".to_owned(),
        Action::Resume => "resume".to_owned(),
        Action::Cancel => "cancel".to_owned(),
        Action::Wait { waiting } => format!("wait: {}", waiting.why),
    }
}

fn node_name(snapshot: &ClusterSnapshot, id: NodeId) -> &str {
    let found = snapshot.nodes.iter().find(|node| node.id == id);
    found.map_or("a node that is gone", |node| &node.name)
}
