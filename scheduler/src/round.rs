//! Rounds: load one consistent snapshot, plan, check, commit, keep the record. Woken by the store or by time.

use crate::clock;
use crate::config::Config;
use crate::retry;
use crate::session::chain;
use crate::translate;
use crate::wakes::Wakes;
use muster_core::plan::NodeDecision;
use muster_core::policy::Policy;
use muster_core::snapshot::Snapshot;
use muster_core::{Memory, Plan, RoundReport};
use muster_store::StoreError;
use muster_store::plan::CommitOutcome;
use muster_store::pool::Pool;
use muster_store::round::RoundRecord;
use std::time::Duration;
use tokio::sync::watch;

/// A round that did not come about. Nothing was changed; the next one starts from the store again.
#[derive(Debug, thiserror::Error)]
pub enum RoundError {
    #[error("the store failed during the round")]
    Store(#[from] StoreError),
    #[error("the snapshot could not be compressed for the record")]
    Compress(#[source] std::io::Error),
}

/// What one round did.
#[derive(Debug)]
pub struct Round {
    pub plan: Plan,
    pub report: RoundReport,
    pub outcome: CommitOutcome,
}

/// Runs rounds until this process stops leading.
pub async fn run(
    pool: &Pool,
    policy: &Policy,
    config: &Config,
    mut wakes: Wakes,
    mut leader: watch::Receiver<bool>,
) {
    let pause = Duration::from_millis(config.round_min_interval_ms);
    let longest = Duration::from_millis(config.round_max_interval_ms);
    let mut memory = Memory::default();
    loop {
        wakes.rounds.mark_unchanged();
        match once(pool, policy, &mut memory).await {
            Ok(round) => log(&round),
            Err(error) => {
                tracing::warn!(error = %chain(&error), "the round failed; the next one starts anew");
                tokio::time::sleep(longest).await;
            }
        }
        tokio::time::sleep(pause).await;
        tokio::select! {
            _ = leader.wait_for(|leads| !leads) => return,
            _ = tokio::time::timeout(longest, wakes.rounds.changed()) => {}
        }
    }
}

/// One round. What it remembers of the last one only saves it time.
///
/// # Errors
/// [`RoundError`] when the store cannot be read or written.
///
/// What the independent check finds to break a rule never reaches a node; the rest of the plan does.
#[tracing::instrument(name = "scheduler.round", skip_all)]
pub async fn once(pool: &Pool, policy: &Policy, memory: &mut Memory) -> Result<Round, RoundError> {
    let began = clock::instant();
    let now = clock::now();
    let mut tx = muster_store::pool::begin_snapshot(pool).await?;
    let loaded = muster_store::plan::load(&mut tx, now).await?;
    let number = muster_store::round::next_number(&mut tx).await?;
    tx.commit().await.map_err(StoreError::from)?;
    let snapshot = translate::snapshot(number, loaded);
    let (plan, report) = muster_core::plan_again(&snapshot, policy, memory);
    let (plan, broken) = muster_core::sound(&snapshot, plan);
    for broken in &broken {
        tracing::error!(round.number = number, %broken, "a defect of the planner; what breaks a rule is not carried out");
    }
    // A round of which nothing is left is kept all the same: it is the one to be looked into.
    if plan.is_empty() && broken.is_empty() {
        return Ok(Round {
            plan,
            report,
            outcome: CommitOutcome::default(),
        });
    }
    let steps = translate::steps(&plan);
    let record = record(&snapshot, policy, &plan, &report)?;
    let outcome = retry::on_conflict(|| commit(pool, &steps, &plan.excluded, &record, now)).await?;
    tracing::debug!(
        round.number = number,
        elapsed_ms = clock::elapsed_ms(began),
        "round committed"
    );
    Ok(Round {
        plan,
        report,
        outcome,
    })
}

async fn commit(
    pool: &Pool,
    steps: &[muster_store::plan::Step],
    excluded: &[NodeDecision],
    record: &RoundRecord,
    now: time::OffsetDateTime,
) -> Result<CommitOutcome, StoreError> {
    let mut tx = muster_store::pool::begin(pool).await?;
    // Later than whatever the snapshot saw being released, which `now`, taken before it, may not be.
    let outcome = muster_store::plan::commit(&mut tx, steps, clock::now()).await?;
    muster_store::origin::tell(&mut tx).await?;
    for node in excluded {
        if muster_store::fault::exclude(&mut tx, node.node, &node.why, now).await? {
            tracing::warn!(node.id = %node.node, why = node.why, "a node takes no new tasks");
        }
    }
    muster_store::round::insert(&mut tx, record, now).await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(outcome)
}

/// Snapshot, policy, plan and report as they are kept, so that the round can be replayed.
fn record(
    snapshot: &Snapshot,
    policy: &Policy,
    plan: &Plan,
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

fn log(round: &Round) {
    for decision in &round.plan.decisions {
        tracing::info!(job.id = %decision.job, action = ?decision.action, "decided");
    }
    for conflict in &round.outcome.conflicts {
        tracing::info!(
            ?conflict,
            "a decision came too late; the next round decides again"
        );
    }
}
