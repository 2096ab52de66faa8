//! Scheduling rounds: load one consistent snapshot, plan, check, commit, store the record.
//! Notifications of the store or a timer start them.
//!
//! `muster-core` decides; this module loads, commits, logs and counts.

pub mod result;

use crate::clock;
use crate::compute;
use crate::config::{QUEUE_WINDOW_JOBS, SchedulerConfig};
use crate::metrics::Metrics;
use crate::notifications::Notifications;
use crate::retry;
use crate::translate;
use muster_core::plan::Action;
use muster_core::policy::Policy;
use muster_core::snapshot::ClusterSnapshot;
use muster_core::{EstimateCache, RoundPlan, RoundReport, Violation};
use muster_model::error_chain::chain;
use muster_model::id::JobId;
use muster_model::job::JobPhase;
use muster_model::wait::Wait;
use muster_store::StoreError;
use muster_store::plan::{CommitOutcome, Loaded, Loader, PlanIds};
use muster_store::pool::{StorePool, in_time};
use muster_store::round::RoundRecord;
pub use result::RoundResult;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Maximum wait for a notification if the last round left work ([`RoundResult::has_more`]).
const MORE_AFTER: Duration = Duration::from_millis(100);

/// A round failed. It changed nothing; the next one starts from the store again.
#[derive(Debug, thiserror::Error)]
pub enum RoundError {
    #[error("the store failed during the round")]
    Store(#[from] StoreError),
    #[error("the snapshot could not be compressed for the record")]
    Compress(#[source] std::io::Error),
}

/// Caches between rounds. They save work and log lines and do not change decisions.
#[derive(Debug)]
pub struct RoundMemory {
    loader: Loader,
    known: PlanningState,
}

impl RoundMemory {
    /// State for rounds that consider at most `queue_window_jobs` queued jobs.
    #[must_use]
    pub fn new(queue_window_jobs: u32) -> Self {
        Self {
            loader: Loader::new(queue_window_jobs),
            known: PlanningState::default(),
        }
    }
}

impl Default for RoundMemory {
    fn default() -> Self {
        Self::new(QUEUE_WINDOW_JOBS)
    }
}

/// Part of [`RoundMemory`] that the planning step uses on its own thread.
#[derive(Debug, Default)]
struct PlanningState {
    memory: EstimateCache,
    defects: Defects,
}

/// Rules that plans of earlier rounds broke, as texts. A defect of the planner on a job repeats in
/// every round while the job exists, so only new ones are logged and stored.
#[derive(Debug, Default)]
struct Defects {
    /// Defects that were last logged.
    told: BTreeSet<String>,
    /// Defects for which a round was last stored.
    kept: BTreeSet<String>,
}

impl Defects {
    /// Whether these defects differ from the ones that were last logged. Records them as logged.
    fn are_news(&mut self, broken: &[Violation]) -> bool {
        let broken = in_words(broken);
        let are_news = !broken.is_empty() && broken != self.told;
        if are_news {
            self.told = broken;
        }
        are_news
    }

    /// Returns the defects of `broken` that the plan caused, if there are any and they differ from
    /// those for which a round was last stored. `given` are the violations of an empty plan: the
    /// snapshot has them already, so the plan did not cause them.
    fn to_keep(&self, broken: &[Violation], given: &[Violation]) -> Option<BTreeSet<String>> {
        let mut by_plan = in_words(broken);
        for given in in_words(given) {
            by_plan.remove(&given);
        }
        (!by_plan.is_empty() && by_plan != self.kept).then_some(by_plan)
    }
}

fn in_words(broken: &[Violation]) -> BTreeSet<String> {
    broken.iter().map(ToString::to_string).collect()
}

/// Runs rounds. A round has no time limit: its transactions have one, and a repeated plan would
/// take as long again.
pub async fn run(
    pool: &StorePool,
    policy: &Policy,
    config: &SchedulerConfig,
    mut notifications: Notifications,
    metrics: &Metrics,
) {
    let shortest = Duration::from_millis(config.round_min_interval_ms);
    let longest = Duration::from_millis(config.round_max_interval_ms);
    let mut round_memory = RoundMemory::new(config.queue_window_jobs);
    let _due = metrics.rounds_begin();
    loop {
        notifications.rounds.mark_unchanged();
        let began = clock::instant();
        let mut until = longest;
        match once(pool, policy, &mut round_memory).await {
            Ok(round) => {
                metrics.round(&round, began.elapsed());
                log(&round);
                if round.has_more {
                    until = longest.min(MORE_AFTER);
                }
            }
            Err(error) => {
                metrics.round_failed(began.elapsed());
                tracing::warn!(error = %chain(&error), "the round failed; the next one starts anew");
                tokio::time::sleep(longest).await;
            }
        }
        tokio::time::sleep(pause(began.elapsed(), shortest, longest)).await;
        // A notification can be missed, so the wait has a limit.
        let _ = tokio::time::timeout(until, notifications.rounds.changed()).await;
    }
}

/// Pause after a round: as long as the round took, but from `shortest` to `longest`. Rounds shorter
/// than `longest` then take at most half of the time.
fn pause(took: Duration, shortest: Duration, longest: Duration) -> Duration {
    took.min(longest).max(shortest)
}

/// Runs one round.
///
/// [`muster_core::sound`] removes jobs that break a rule from the plan. The rest is committed.
///
/// # Errors
/// [`RoundError`] if the store cannot be read or written.
#[tracing::instrument(name = "scheduler.round", skip_all)]
pub async fn once(
    pool: &StorePool,
    policy: &Policy,
    round_memory: &mut RoundMemory,
) -> Result<RoundResult, RoundError> {
    once_by(muster_core::plan_again, pool, policy, round_memory).await
}

/// Runs one round with the function `planner` in place of [`muster_core::plan_again`].
///
/// # Errors
/// As [`once`].
///
/// # Panics
/// If the planner panics.
pub async fn once_by(
    planner: impl FnOnce(&ClusterSnapshot, &Policy, &mut EstimateCache) -> (RoundPlan, RoundReport)
    + Send
    + 'static,
    pool: &StorePool,
    policy: &Policy,
    round_memory: &mut RoundMemory,
) -> Result<RoundResult, RoundError> {
    let began = clock::instant();
    let now = clock::now();
    let (loaded, number) = in_time(load(pool, &mut round_memory.loader, now)).await?;
    let has_more = loaded.has_more;
    let (known, policy) = (std::mem::take(&mut round_memory.known), policy.clone());
    // On a blocking thread: a long queue takes seconds, and the runtime's threads serve heartbeats.
    let decided = compute::apart(move || {
        let snapshot = translate::snapshot(number, loaded);
        decide(planner, &snapshot, &policy, known)
    });
    let Decided {
        mut round,
        to_keep,
        known,
    } = decided.await?;
    round_memory.known = known;
    round.has_more = has_more;
    let Some(ToKeep {
        ids,
        record,
        defects,
    }) = to_keep
    else {
        return Ok(round);
    };
    let plan = &round.plan;
    round.outcome = retry::on_conflict(|| commit(pool, plan, &ids, &record, now)).await?;
    if let Some(defects) = defects {
        round_memory.known.defects.kept = defects;
    }
    tracing::debug!(
        round.number = number,
        elapsed_ms = clock::elapsed_ms(began),
        "round committed"
    );
    Ok(round)
}

async fn load(
    pool: &StorePool,
    loader: &mut Loader,
    now: time::OffsetDateTime,
) -> Result<(Loaded, u64), StoreError> {
    let mut tx = muster_store::pool::begin_snapshot(pool).await?;
    let loaded = loader.load(&mut tx, now).await?;
    let number = muster_store::round::next_number(&mut tx).await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok((loaded, number))
}

/// Result of a round before its commit.
struct Decided {
    /// Its `outcome` is not set yet.
    round: RoundResult,
    /// `None` if there is nothing to commit.
    to_keep: Option<ToKeep>,
    known: PlanningState,
}

/// What a round writes to the store.
struct ToKeep {
    ids: PlanIds,
    record: RoundRecord,
    /// Defects for which the round is stored.
    defects: Option<BTreeSet<String>>,
}

/// Plans and checks. Takes seconds of one core for a long queue.
fn decide(
    planner: impl FnOnce(&ClusterSnapshot, &Policy, &mut EstimateCache) -> (RoundPlan, RoundReport),
    snapshot: &ClusterSnapshot,
    policy: &Policy,
    mut known: PlanningState,
) -> Result<Decided, RoundError> {
    let (plan, report) = planner(snapshot, policy, &mut known.memory);
    let (plan, broken) = muster_core::sound_with(snapshot, plan, policy);
    if known.defects.are_news(&broken) {
        for broken in &broken {
            tracing::error!(round.number = snapshot.round, %broken, "a defect of the planner; what breaks a rule is not carried out");
        }
    }
    let given = if broken.is_empty() {
        Vec::new()
    } else {
        muster_core::check(snapshot, &RoundPlan::default())
    };
    let defects = known.defects.to_keep(&broken, &given);
    // An empty round with a new defect is stored once, for analysis.
    let is_kept = !plan.is_empty() || defects.is_some();
    let to_keep = if is_kept {
        Some(ToKeep {
            ids: PlanIds::of(&plan, || clock::id().into(), clock::secret),
            record: record(snapshot, policy, &plan, &report)?,
            defects,
        })
    } else {
        None
    };
    let round = RoundResult {
        refusals: broken.len() as u64,
        queue: queue(snapshot, &plan),
        outcome: CommitOutcome::default(),
        has_more: false,
        plan,
        report,
    };
    Ok(Decided {
        round,
        to_keep,
        known,
    })
}

/// Queued jobs after the plan, by wait reason.
fn queue(snapshot: &ClusterSnapshot, plan: &RoundPlan) -> BTreeMap<&'static str, u64> {
    let queued = snapshot.jobs.iter();
    let queued = queued.filter(|job| job.state.phase() == JobPhase::Queued);
    let reasons = queued.map(|job| {
        let waiting = job.waiting.as_ref();
        let reason = waiting.map_or("NotConsidered", |waiting| waiting.why.name());
        (job.id, reason)
    });
    let mut reasons: BTreeMap<JobId, &'static str> = reasons.collect();
    for decision in &plan.decisions {
        match &decision.action {
            Action::Wait { waiting } => {
                reasons.insert(decision.job, waiting.why.name());
            }
            Action::Start { .. } | Action::Hold | Action::Cancel => {
                reasons.remove(&decision.job);
            }
            _ => {}
        }
    }
    let mut queue = BTreeMap::new();
    for reason in reasons.into_values() {
        *queue.entry(reason).or_default() += 1;
    }
    let left_out: u64 = snapshot
        .left_out
        .iter()
        .map(|one| u64::from(one.jobs))
        .sum();
    if left_out > 0 {
        let behind = Wait::BehindEarlierJobs { considered: 0 };
        *queue.entry(behind.name()).or_default() += left_out;
    }
    queue
}

async fn commit(
    pool: &StorePool,
    plan: &RoundPlan,
    ids: &PlanIds,
    record: &RoundRecord,
    now: time::OffsetDateTime,
) -> Result<CommitOutcome, StoreError> {
    let mut tx = muster_store::pool::begin(pool).await?;
    // A new clock reading: `now` was read before the snapshot was loaded and may be earlier than a
    // release of a task in it. The commit must be later.
    let outcome = muster_store::plan::commit(&mut tx, plan, ids, clock::now()).await?;
    muster_store::origin::tell(&mut tx).await?;
    for node in &plan.excluded {
        if muster_store::fault::exclude(&mut tx, node.node, &node.why, now).await? {
            tracing::warn!(node.id = %node.node, why = node.why, "a node takes no new tasks");
        }
    }
    muster_store::round::insert(&mut tx, record, now).await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(outcome)
}

/// Snapshot, policy, plan and report in stored form for replays.
fn record(
    snapshot: &ClusterSnapshot,
    policy: &Policy,
    plan: &RoundPlan,
    report: &RoundReport,
) -> Result<RoundRecord, RoundError> {
    const LEVEL: i32 = 3;
    let snapshot_json = serde_json::to_vec(snapshot).expect("a snapshot is JSON");
    Ok(RoundRecord {
        number: snapshot.round,
        snapshot_zstd: zstd::encode_all(snapshot_json.as_slice(), LEVEL)
            .map_err(RoundError::Compress)?,
        policy: Some(serde_json::to_string(policy).expect("a policy is JSON")),
        plan: serde_json::to_string(plan).expect("a plan is JSON"),
        report: serde_json::to_string(report).expect("a report is JSON"),
    })
}

/// Logs one line for each decision that changes a job, and one line for all wait reasons.
fn log(round: &RoundResult) {
    let mut waits = 0;
    for decision in &round.plan.decisions {
        match &decision.action {
            Action::Wait { .. } => waits += 1,
            action => tracing::info!(job.id = %decision.job, ?action, "decided"),
        }
    }
    let behind: usize = round.plan.behind.iter().map(|one| one.jobs.len()).sum();
    if waits + behind > 0 {
        tracing::debug!(considered = waits, behind, "reasons to wait changed");
    }
    for conflict in &round.outcome.conflicts {
        tracing::info!(
            ?conflict,
            "a decision came too late; the next round decides again"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::{BTreeSet, Defects, Duration, pause};
    use muster_core::Violation;
    use muster_model::id::{JobId, NodeId};
    use uuid::Uuid;

    fn released_early(job: u128) -> Violation {
        Violation::ReleasedEarly {
            job: JobId(Uuid::from_u128(job)),
        }
    }

    #[test]
    fn lasting_defect_is_logged_and_stored_once() {
        let mut defects = Defects::default();
        let (one, other) = (released_early(1), released_early(2));
        assert!(!defects.are_news(&[]) && defects.to_keep(&[], &[]).is_none());
        assert!(defects.are_news(std::slice::from_ref(&one)));
        defects.kept = defects
            .to_keep(std::slice::from_ref(&one), &[])
            .expect("it is new");
        for _ in 0..3 {
            assert!(!defects.are_news(std::slice::from_ref(&one)));
            assert_eq!(defects.to_keep(std::slice::from_ref(&one), &[]), None);
        }
        let both = [one, other];
        assert!(defects.are_news(&both));
        assert_eq!(defects.to_keep(&both, &[]).map(|kept| kept.len()), Some(2));
    }

    #[test]
    fn pause_equals_duration_of_round_within_bounds() {
        let ms = Duration::from_millis;
        assert_eq!(pause(ms(1), ms(5), ms(1_000)), ms(5));
        assert_eq!(pause(ms(40), ms(5), ms(1_000)), ms(40));
        assert_eq!(pause(ms(9_000), ms(5), ms(1_000)), ms(1_000));
    }

    #[test]
    fn defect_without_plan_stores_no_round() {
        let given = Violation::CpuExceeded {
            node: NodeId(Uuid::from_u128(3)),
        };
        let mut defects = Defects::default();
        assert!(defects.are_news(std::slice::from_ref(&given)));
        let given = [given];
        assert_eq!(defects.to_keep(&given, &given), None);
        let by_plan = released_early(1);
        let kept = defects.to_keep(&[given[0].clone(), by_plan.clone()], &given);
        assert_eq!(kept, Some(BTreeSet::from([by_plan.to_string()])));
    }
}
