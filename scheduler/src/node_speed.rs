//! Compares the speeds of jobs on the nodes of a GPU kind, and stores the deviations of the nodes.
//! Rounds read the deviations with the nodes, so they cost a round nothing.

use crate::clock;
use crate::compute;
use crate::passes;
use muster_core::learn::{NodeObservation, node_factors};
use muster_core::policy::Policy;
use muster_model::id::NodeId;
use muster_model::node::NodeSpeed;
use muster_store::StoreError;
use muster_store::family::{self, SpeedOnNode};
use muster_store::pool::{self, StorePool};
use std::collections::BTreeMap;
use std::time::Duration;
use time::OffsetDateTime;

const PAUSE: Duration = Duration::from_secs(60);
/// Maximum duration of a pass.
const LIMIT: Duration = Duration::from_secs(60);

/// Compares the nodes every minute until the term ends.
pub async fn run(pool: &StorePool, policy: &Policy) {
    loop {
        tokio::time::sleep(PAUSE).await;
        let pass = once(pool, policy, clock::now());
        if let Some(changed) = passes::one("node speeds", LIMIT, pass).await {
            tracing::debug!(changed, "compared the speeds of the nodes");
        }
    }
}

/// Compares the nodes once. Returns the number of nodes whose deviation changed.
///
/// # Errors
/// [`StoreError`].
pub async fn once(
    pool: &StorePool,
    policy: &Policy,
    now: OffsetDateTime,
) -> Result<u64, StoreError> {
    let mut tx = pool::begin(pool).await?;
    let speeds = family::speeds_on_nodes(&mut tx, now).await?;
    tx.commit().await.map_err(StoreError::from)?;
    let full_samples = policy.full_weight_samples.max(1) as f64;
    let found = compute::apart(move || deviations(speeds, full_samples)).await;
    let mut tx = pool::begin(pool).await?;
    let changed = family::set_deviations(&mut tx, &found).await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(changed)
}

/// Nodes that deviate from their GPU kind.
fn deviations(speeds: Vec<SpeedOnNode>, full_samples: f64) -> BTreeMap<NodeId, NodeSpeed> {
    let observations: Vec<NodeObservation> = speeds.into_iter().map(observation).collect();
    let factors = node_factors(&observations, full_samples);
    let rounded = factors.into_iter().filter_map(|(node, factor)| {
        let speed = factor.rounded()?;
        Some((node, speed))
    });
    rounded.collect()
}

fn observation(speed: SpeedOnNode) -> NodeObservation {
    NodeObservation {
        node: speed.node,
        job: speed.job,
        gpu_kind: speed.gpu_kind,
        tenant: speed.tenant,
        family: speed.family,
        workers: speed.workers,
        ps_shards: speed.ps_shards,
        steps_per_s: speed.steps_per_s,
        samples: speed.samples,
    }
}
